//! What a program adds.

use std::error::Error;

use bgp_io::bgp_fsm::Instant;
use bgp_io::rib::Progress;
use bgp_io::{Event, Io, Speaker};
use daemon_common::report::{Limit, Routes, Status};
use daemon_common::{Command, Reply};

use calico_bgp::Duties;

use crate::Settings;

/// Who forwards by the routes that a program announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// Others: whatever happens to the program, it goes on.
    Others,
    /// The kernel beneath the program: it goes on as long as the machine runs.
    Kernel,
}

/// What stands on the other side of the speaker in one program.
///
/// The loop calls [`carry`](Self::carry) before it waits for anything, so whatever another method
/// brought about may wait for it.
pub trait Program: Sized {
    /// Its name, which is that of its executable.
    const NAME: &'static str;
    /// One line on what it does.
    const ABOUT: &'static str;
    /// The configuration file unless the command line names another.
    const CONFIG_DEFAULT: &'static str;
    /// Who forwards by its routes, for graceful restart (RFC 4724 §3, the F bits).
    const FORWARDING: Forwarding;
    /// What neighbours are told when it leaves (RFC 9003).
    const FAREWELL: &'static str;

    /// Its own section of the configuration.
    type Settings: Settings;
    /// What may happen to it besides BGP.
    type Event;
    /// Why it cannot start or go on.
    type Error: Error + 'static;

    /// Opens what it needs. Called within a Tokio runtime, before the speaker has started.
    ///
    /// # Errors
    ///
    /// The machine does not give it.
    fn open(settings: &Self::Settings, speaker: &mut Speaker) -> Result<Self, Self::Error>;

    /// Waits for the next event of its own; for ever if there are none. Must be cancel-safe.
    fn next(&mut self) -> impl Future<Output = Self::Event>;

    /// Takes note of an event of its own.
    ///
    /// # Errors
    ///
    /// It cannot go on.
    fn handle(&mut self, now: Instant, event: Self::Event) -> Result<(), Self::Error>;

    /// Takes note of what a turn of the driver brought.
    fn hear(&mut self, event: &Event);

    /// Carries over what there is to carry between the speaker and the other side. `More`: call
    /// again soon.
    fn carry(&mut self, io: &mut Io) -> Progress;

    /// When to call [`carry`](Self::carry) although nothing happened.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Takes over new settings, and names the changed keys that only a start reads.
    fn reload(&mut self, settings: &Self::Settings) -> Vec<&'static str>;

    /// Takes over what the store says of the node beside its sessions; not called without a store.
    fn take_duties(&mut self, duties: &Duties);

    /// Answers a request that not every BGP daemon answers; `None` if it does not either.
    fn answer(&self, command: &Command) -> Option<Reply>;

    /// Adds to routes what only the other side knows: the interfaces they leave through.
    fn locate(&self, _page: &mut Routes) {}

    /// The limits of its own that an operator can meet.
    fn limits(&self) -> Vec<Limit>;

    /// Adds its own to the status: facts, notes, what it waits for.
    fn report(&self, status: &mut Status);

    /// Whether forwarding goes on after [`leave`](Self::leave): if not, neighbours are told that it
    /// leaves for good.
    fn leaves_routes(&self) -> bool;

    /// Leaves the other side in good order, after all sessions are closed.
    fn leave(&mut self, now: impl Fn() -> Instant) -> impl Future<Output = ()>;
}
