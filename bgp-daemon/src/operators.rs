//! Requests of operators to a daemon: on its sockets, and by signals.

use std::future::pending;
use std::io;

use bgp_io::bgp_fsm::Instant;
use daemon_common::control::{BindError, Control, Request};
use daemon_common::daemon::{Signal, Signals};
use daemon_common::health::{HealthServer, Pulse};

use crate::limits::{LIVENESS, LIVENESS_TURN};
use crate::parent::Watch;
use crate::{Config, Driver, DriverError, Order, Parent, Round, Settings};

/// The control socket, BIRD's control sockets and the metrics socket.
#[derive(Debug)]
pub(crate) struct Sockets {
    control: Control,
    request: Option<Request>,
    pulse: Pulse,
    /// The socket for probes, if the file configures one.
    health: Option<HealthServer>,
    /// When the loop turns at the latest, so that probes find it alive.
    turn_at: Option<Instant>,
}

impl Sockets {
    /// Binds all sockets that a file configures. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// A socket cannot be bound.
    pub(crate) fn bind<S: Settings>(config: &Config<S>) -> Result<Self, BindError> {
        let mut control = Control::bind(config.control())?;
        for (path, view) in config.bird_controls() {
            control.bind_bird(path, view)?;
        }
        if let Some(metrics) = &config.file.metrics {
            control.bind_metrics(metrics.listen)?;
        }
        let pulse = Pulse::new();
        let health = config.file.health.map(|health| {
            let server = control.health(health.listen, pulse.clone(), Some(LIVENESS));
            server.map(|(server, _)| server)
        });
        Ok(Self {
            health: health.transpose()?,
            control,
            request: None,
            pulse,
            turn_at: None,
        })
    }

    /// Records a turn of a loop.
    pub(crate) fn beat(&self) {
        self.pulse.beat();
    }

    /// Waits for the next request. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Request {
        self.control.next().await
    }
}

impl<S: Settings> Driver<S> for Sockets {
    async fn wait(&mut self) {
        if self.request.is_none() {
            self.request = Some(self.control.next().await);
        }
    }

    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        self.beat();
        self.turn_at = self.health.is_some().then(|| round.now + LIVENESS_TURN);
        if let Some(request) = self.request.take() {
            round.order(Order::Answer(request));
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.turn_at
    }
}

/// Signals to the process, and the end of its parent.
#[derive(Debug)]
pub(crate) struct SignalDriver {
    signals: Signals,
    parent: Option<Watch>,
    received: Option<Signal>,
}

impl SignalDriver {
    /// Starts listening. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// The handler cannot be installed.
    pub(crate) fn new(parent: Option<&Parent>) -> io::Result<Self> {
        Ok(Self {
            signals: Signals::new()?,
            parent: parent.map(Parent::watch).transpose()?,
            received: None,
        })
    }

    /// Waits for the next signal. The end of the parent counts as SIGTERM. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Signal {
        let parent = self.parent.as_ref();
        let gone = async {
            match parent {
                Some(parent) => parent.gone().await,
                None => pending().await,
            }
        };
        tokio::select! {
            signal = self.signals.next() => signal,
            () = gone => Signal::Terminate,
        }
    }
}

impl<S: Settings> Driver<S> for SignalDriver {
    async fn wait(&mut self) {
        if self.received.is_none() {
            self.received = Some(self.next().await);
        }
    }

    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        match self.received.take() {
            Some(Signal::Reload) => round.order(Order::Reload),
            Some(Signal::Terminate) => round.order(Order::Stop { returns: true }),
            Some(Signal::Interrupt) => round.order(Order::Stop { returns: false }),
            None => {}
        }
        Ok(())
    }
}
