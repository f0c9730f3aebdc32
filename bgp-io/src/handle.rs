//! A driver in a task of its own, and handles to it for any task.

use std::net::IpAddr;

use bgp_speaker::bgp_proto::{Attributes, Family, Net, Notification, Prefix};
use bgp_speaker::{Input, PeerConfig};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::limits::{COMMAND_ROUTES_MAX, COMMANDS_MAX, WAITERS_MAX};
use crate::{Event, Io, ReconfigureError, StopMode};

/// A driver that executes the commands of its [`Handle`]s. A program runs it in a task of its own:
///
/// ```no_run
/// use bgp_io::bgp_proto::Attributes;
/// use bgp_io::{Driver, Io};
///
/// # async fn program(io: Io) -> Result<(), bgp_io::Closed> {
/// let (handle, mut driver) = Driver::new(io);
/// tokio::spawn(async move {
///     while let Some(events) = driver.next().await {
///         println!("{events:?}");
///     }
/// });
/// let prefix = "198.51.100.0/24".parse().expect("a prefix");
/// handle.announce([prefix], &Attributes::default()).await?;
/// handle.all_sent().await
/// # }
/// ```
#[derive(Debug)]
pub struct Driver {
    io: Io,
    commands: mpsc::Receiver<Command>,
    /// Callers that wait until everything is sent.
    waiters: Vec<oneshot::Sender<()>>,
    /// Whether commands are no longer accepted.
    is_over: bool,
}

/// A handle to a [`Driver`], cheap to clone. Commands of one handle are executed in their order;
/// the handle waits while the driver's queue is full.
#[derive(Clone, Debug)]
pub struct Handle(mpsc::Sender<Command>);

/// The driver has ended, or has too many callers to answer: [`crate::limits::WAITERS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the BGP driver has ended, or cannot answer")]
pub struct Closed;

#[derive(Debug)]
enum Command {
    Announce(Vec<Prefix>, Attributes),
    Withdraw(Vec<Prefix>),
    AddPeer(
        Box<PeerConfig>,
        oneshot::Sender<Result<(), ReconfigureError>>,
    ),
    RemovePeer(IpAddr, oneshot::Sender<bool>),
    AllSent(oneshot::Sender<()>),
    Shutdown(StopMode, Notification, oneshot::Sender<()>),
}

impl Handle {
    /// Announces a set of prefixes with the same attributes; an earlier announcement of a prefix is
    /// replaced.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn announce(
        &self,
        prefixes: impl IntoIterator<Item = Prefix>,
        attributes: &Attributes,
    ) -> Result<(), Closed> {
        let command = |part| Command::Announce(part, attributes.clone());
        self.in_parts(prefixes, command).await
    }

    /// Withdraws a set of prefixes that were announced.
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn withdraw(&self, prefixes: impl IntoIterator<Item = Prefix>) -> Result<(), Closed> {
        self.in_parts(prefixes, Command::Withdraw).await
    }

    /// Adds a peer, or changes the configuration of the peer at this address. The work for a new peer
    /// does not depend on how many others there are.
    ///
    /// # Errors
    /// The driver has ended. The inner error is the speaker's; at present there is none.
    pub async fn add_peer(&self, peer: PeerConfig) -> Result<Result<(), ReconfigureError>, Closed> {
        self.ask(|answer| Command::AddPeer(Box::new(peer), answer))
            .await
    }

    /// Removes the configured peer at an address; returns whether there was one. Its session ends with
    /// Cease/Peer De-configured (RFC 4486).
    ///
    /// # Errors
    /// The driver has ended.
    pub async fn remove_peer(&self, remote: IpAddr) -> Result<bool, Closed> {
        self.ask(|answer| Command::RemovePeer(remote, answer)).await
    }

    /// Waits until the kernel has accepted all octets to send, as by [`Io::all_sent`]. This
    /// includes earlier announcements and withdrawals of this handle.
    ///
    /// # Errors
    /// The driver has ended, or too many callers wait.
    pub async fn all_sent(&self) -> Result<(), Closed> {
        self.ask(Command::AllSent).await
    }

    /// Ends all sessions with this NOTIFICATION, and the driver: see [`Io::shutdown`].
    ///
    /// # Errors
    /// The driver has ended already.
    pub async fn shutdown(&self, mode: StopMode, why: Notification) -> Result<(), Closed> {
        self.ask(|answer| Command::Shutdown(mode, why, answer))
            .await
    }

    async fn in_parts(
        &self,
        prefixes: impl IntoIterator<Item = Prefix>,
        command: impl Fn(Vec<Prefix>) -> Command,
    ) -> Result<(), Closed> {
        let mut prefixes = prefixes.into_iter();
        loop {
            let part: Vec<Prefix> = prefixes.by_ref().take(COMMAND_ROUTES_MAX).collect();
            if part.is_empty() {
                return Ok(());
            }
            self.0.send(command(part)).await.map_err(|_| Closed)?;
        }
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Closed> {
        let (answer, answered) = oneshot::channel();
        self.0.send(command(answer)).await.map_err(|_| Closed)?;
        answered.await.map_err(|_| Closed)
    }
}

impl Driver {
    /// Returns the driver with a first handle.
    #[must_use]
    pub fn new(io: Io) -> (Handle, Self) {
        let (handle, commands) = mpsc::channel(COMMANDS_MAX);
        let driver = Self {
            io,
            commands,
            waiters: Vec::new(),
            is_over: false,
        };
        (Handle(handle), driver)
    }

    /// Executes the pending work, as [`Io::next`], and the commands of the handles; returns `None`
    /// at the end, after a handle has shut the driver down or all handles are dropped. The sessions
    /// of a driver that ends without a shutdown are lost when it is dropped.
    ///
    /// May be dropped at any time without loss, as `select!` does, except that a shutdown is then
    /// cut short.
    pub async fn next(&mut self) -> Option<Vec<Event>> {
        if self.is_over {
            return None;
        }
        // Neither has priority: a driver with work in every turn still executes commands.
        tokio::select! {
            events = self.io.next() => {
                self.answer_waiters();
                Some(events)
            }
            command = self.commands.recv() => {
                match command {
                    Some(command) => self.carry_out(command).await,
                    None => self.end(),
                }
                (!self.is_over).then(Vec::new)
            }
        }
    }

    /// Returns the driver inside, to read the speaker's tables.
    #[must_use]
    pub fn io(&self) -> &Io {
        &self.io
    }

    /// Returns the driver inside.
    pub fn io_mut(&mut self) -> &mut Io {
        &mut self.io
    }

    async fn carry_out(&mut self, command: Command) {
        match command {
            Command::Announce(prefixes, attributes) => {
                for prefix in prefixes {
                    self.local(prefix, Some(attributes.clone()));
                }
            }
            Command::Withdraw(prefixes) => {
                for prefix in prefixes {
                    self.local(prefix, None);
                }
            }
            // The caller may have stopped waiting for the answer.
            Command::AddPeer(peer, answer) => {
                self.io.set_peer(*peer);
                let _ = answer.send(Ok(()));
            }
            Command::RemovePeer(remote, answer) => {
                let _ = answer.send(self.io.remove_peer(remote).is_some());
            }
            Command::AllSent(answer) => {
                self.waiters.retain(|waiter| !waiter.is_closed());
                // Without capacity the answer is dropped, which the handle reports.
                if self.waiters.len() < WAITERS_MAX {
                    self.waiters.push(answer);
                }
                self.answer_waiters();
            }
            Command::Shutdown(mode, why, answer) => {
                self.end();
                self.io.shutdown(mode, &why).await;
                let _ = answer.send(());
            }
        }
    }

    /// Stops accepting commands: handles that wait for an answer get an error.
    fn end(&mut self) {
        self.is_over = true;
        self.commands.close();
        while self.commands.try_recv().is_ok() {}
        self.waiters.clear();
    }

    fn local(&mut self, prefix: Prefix, attributes: Option<Attributes>) {
        let family = match prefix {
            Prefix::V4(_) => Family::IPV4_UNICAST,
            Prefix::V6(_) => Family::IPV6_UNICAST,
        };
        self.io.handle(Input::Local {
            family,
            net: Net::from(prefix),
            attributes,
            interface: None,
        });
    }

    fn answer_waiters(&mut self) {
        if !self.waiters.is_empty() && self.io.all_sent() {
            for waiter in self.waiters.drain(..) {
                let _ = waiter.send(());
            }
        }
    }
}
