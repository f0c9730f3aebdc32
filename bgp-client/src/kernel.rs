//! The kernel's routes as a driver of the daemon.

#[cfg(test)]
mod tests;

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bgp_daemon::{Config, Criterion, Driver, DriverError, Open, Parent, Round};
use bgp_io::bgp_fsm::Instant;
use bgp_io::rib::Progress;
use bgp_io::{Clock, Event, Speaker};
use calico_bgp::Duties;
use daemon_common::events;
use daemon_common::report::{Limit, Routes, Status};
use daemon_common::{Command, Reply};
use fib_sync::claim::{Claim, Taken};
use fib_sync::netlink::{NetlinkConfig, NetlinkFib, OpenError};
use fib_sync::{Fib, OpError};
use kernel_events::Log;

use crate::limits::{FLUSH, KERNEL_ROUTE_OCTETS, PROGRAM, TURN_EVENTS_MAX};
use crate::{KernelConfig, Node, OnExit, report};

/// The kernel's routes, and the state between them and the speaker.
#[derive(Debug)]
pub struct Kernel {
    log: Log,
    fib: NetlinkFib,
    node: Node,
    /// The result of [`Driver::wait`].
    event: Option<fib_sync::Event>,
    /// The claim on the protocol of its routes, if the daemon writes any.
    _claim: Option<Claim>,
}

/// A reason why the client cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The connection to the kernel cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another program writes routes of the same protocol.
    #[error("{0}; set kernel.protocol, or stop the other program")]
    Taken(#[from] Taken),
    /// The process that writes kernel routes does not.
    #[error("the process that writes kernel routes: {0}")]
    Parent(#[source] io::Error),
    /// The connection to the kernel broke.
    #[error("the connection to the kernel's routes broke: {0}")]
    Lost(#[from] OpError),
}

impl Open<KernelConfig> for Kernel {
    fn open(
        kernel: &KernelConfig,
        speaker: &mut Speaker,
        parent: Option<&Parent>,
    ) -> Result<Self, DriverError> {
        Ok(Self::new(kernel, speaker, parent)?)
    }
}

impl Driver<KernelConfig> for Kernel {
    async fn wait(&mut self) {
        if self.event.is_none() {
            self.event = Some(self.fib.event().await);
        }
    }

    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        if let Some(event) = self.event.take() {
            self.handle(round.now, event)?;
        }
        let io = &mut *round.io;
        while let Some(input) = self.node.poll_input() {
            io.handle(input);
        }
        if self.node.has_announced_own() && io.speaker().awaited().contains(&None) {
            io.speaker_mut().own_routes_complete();
        }
        if self.node.read(round.now, io) != Progress::Done {
            round.more();
        }
        self.submit(round.now);
        let octets = self.node.reconciler().keys_len() * KERNEL_ROUTE_OCTETS;
        round
            .io
            .read_with(|speaker| speaker.set_octets_beside(octets));
        self.log.look(since_start(round.now));
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let node = self.node.poll_timeout().map(|at| Instant(at.0));
        let log = self.log.poll_timeout().map(|at| Instant::ZERO + at);
        node.into_iter().chain(log).min()
    }

    fn observe(&mut self, now: Instant, speaker: &Speaker, event: &Event) {
        match event {
            Event::Speaker(event) => self.node.session(now, speaker, event),
            Event::Track(track) => self.node.track(*track),
            _ => {}
        }
    }

    fn assign(&mut self, duties: &Duties) {
        self.node.take_duties(duties);
    }

    /// Changed keys are found by comparison with the configuration in effect, which an earlier
    /// reload may have left unchanged.
    fn reload(&mut self, config: &Config<KernelConfig>) -> Vec<&'static str> {
        let (old, new) = (self.node.config(), &config.settings);
        let changed = [
            ("kernel.install", old.install != new.install),
            ("kernel.table", old.table != new.table),
            ("kernel.metric", old.metric != new.metric),
            (
                "kernel.former_metrics",
                old.former_metrics != new.former_metrics,
            ),
            ("kernel.protocol", old.owner != new.owner),
            ("kernel.grace", old.grace != new.grace),
            ("kernel.reconcile", old.reconcile != new.reconcile),
            (
                "kernel.nexthop_objects",
                old.nexthop_objects != new.nexthop_objects,
            ),
            (
                "kernel.multipath_weights",
                old.multipath_weights != new.multipath_weights,
            ),
            ("kernel.felix", old.felix != new.felix),
        ];
        let changed = changed.into_iter().filter(|(_, changed)| *changed);
        let mut keys: Vec<_> = changed.map(|(key, _)| key).collect();
        if !self.node.reload(new) {
            keys.push("kernel.import (another table)");
        }
        keys
    }

    fn answer(&self, command: &Command) -> Option<Reply> {
        match command {
            Command::Fib {} => Some(Reply::Fib(report::fib(&self.node))),
            _ => None,
        }
    }

    fn locate(&self, page: &mut Routes) {
        report::locate(&self.node, page);
    }

    fn limits(&self) -> Vec<Limit> {
        report::limits(&self.node)
    }

    fn criteria(&self, speaker: &Speaker) -> Vec<Criterion> {
        self.node.criteria(speaker)
    }

    fn report(&self, status: &mut Status) {
        status.waiting_for.extend(report::waiting(&self.node));
        status.facts.extend(report::facts(&self.node));
        status.kernel = Some(report::figures(&self.node).into());
        status.notes.extend(report::notes(&self.node));
        if !self.fib.has_large_buffers() {
            let note = "netlink receive buffers are small: see CAP_NET_ADMIN";
            status.notes.push(note.to_owned());
        }
    }

    fn keeps_forwarding(&self) -> bool {
        let config = self.node.config();
        config.on_exit != OnExit::Flush || !config.install
    }

    /// Leaves or removes the kernel's routes, as configured. Routes that stay carry traffic until
    /// the next start, which adopts them.
    async fn stop(&mut self, clock: &Clock) {
        self.log.finish(since_start(clock.now()));
        if self.keeps_forwarding() {
            return;
        }
        let config = self.node.config();
        let protocol = config.owner.0.into();
        events::emit(events::Event::KernelFlushing { protocol });
        self.node.flush();
        if tokio::time::timeout(FLUSH, self.flushed(clock))
            .await
            .is_err()
        {
            events::emit(events::Event::KernelFlushTimeout {});
        }
    }
}

impl Kernel {
    fn new(
        kernel: &KernelConfig,
        speaker: &mut Speaker,
        parent: Option<&Parent>,
    ) -> Result<Self, KernelError> {
        let netlink = NetlinkConfig::new(kernel.tables());
        let claim = kernel.install.then(|| Claim::take(kernel.owner, PROGRAM));
        let claim = claim.transpose()?;
        let fib = match parent {
            None => NetlinkFib::open(netlink)?,
            Some(parent) => delegated(netlink, parent)?,
        };
        kernel_events::opened(claim.as_ref(), kernel.owner, &fib);
        if kernel.install {
            kernel_events::offer();
        }
        Ok(Self {
            _claim: claim,
            fib,
            node: Node::new(Instant(0), kernel.clone(), speaker),
            log: Log::new(),
            event: None,
        })
    }

    /// Handles the event, and those already queued after it.
    fn handle(&mut self, now: Instant, first: fib_sync::Event) -> Result<(), KernelError> {
        let mut next = Some(first);
        for _ in 0..TURN_EVENTS_MAX {
            let Some(event) = next else { return Ok(()) };
            if let fib_sync::Event::Closed(error) = event {
                return Err(error.into());
            }
            self.take(now, &event);
            next = self.event_at_hand();
        }
        if let Some(event) = next {
            self.take(now, &event);
        }
        Ok(())
    }

    fn take(&mut self, now: Instant, event: &fib_sync::Event) {
        self.log.kernel(since_start(now), event);
        kernel_events::answered(self.node.reconciler(), event);
        self.node.kernel(now, event);
    }

    fn submit(&mut self, now: Instant) {
        while let Some(command) = self.node.poll_command(now) {
            self.fib.submit(command);
            self.emit_notices();
        }
        self.emit_notices();
    }

    fn emit_notices(&mut self) {
        while let Some(notice) = self.node.poll_notice() {
            kernel_events::notice(&notice);
        }
    }

    async fn flushed(&mut self, clock: &Clock) {
        while !self.node.is_flushed() {
            self.submit(clock.now());
            let event = self.fib.event().await;
            if self.handle(clock.now(), event).is_err() {
                return;
            }
        }
    }

    fn event_at_hand(&mut self) -> Option<fib_sync::Event> {
        let mut cx = Context::from_waker(Waker::noop());
        match pin!(self.fib.event()).poll(&mut cx) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }
}

/// Opens the kernel's routes in a process that may not write them.
fn delegated(netlink: NetlinkConfig, parent: &Parent) -> Result<NetlinkFib, KernelError> {
    let (descriptors, note) = parent.open().map_err(KernelError::Parent)?;
    let descriptors = descriptors.try_into();
    let missing = |_| KernelError::Parent(io::ErrorKind::InvalidData.into());
    let is_large = note == [1];
    Ok(NetlinkFib::delegated(
        netlink,
        descriptors.map_err(missing)?,
        is_large,
    )?)
}

const fn since_start(now: Instant) -> Duration {
    Duration::from_nanos(now.0)
}
