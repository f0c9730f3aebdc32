//! The parts that a daemon is composed of.
//!
//! A daemon is one task: a speaker with its sockets ([`bgp_io::Io`]) and a list of drivers. A driver
//! connects the speaker to one thing beside BGP: the kernel's routes, the datastore, operators. The
//! loop ([`crate::Program`] names its drivers) goes round by round:
//!
//! 1. every driver gets one [`turn`](Driver::turn), in the order of the list;
//! 2. the loop carries out the [`Order`]s that drivers gave in their turns;
//! 3. the loop polls the sockets and every driver's [`wait`](Driver::wait), all of them in each
//!    round, until one is ready, a [`poll_timeout`](Driver::poll_timeout) is due, or at once if a
//!    driver has [`more`](Round::more) to do;
//! 4. every driver [`observe`](Driver::observe)s what the sockets brought.
//!
//! So each source is served once a round, whatever the others do, and a round is as long as the
//! turns in it: a turn is bounded work. Drivers are composed statically: a list of drivers is a tuple
//! and a driver itself, so a round makes no allocation and no dynamic call.

use std::error::Error;
use std::fmt::Debug;
use std::future::{pending, ready};
use std::net::IpAddr;

use bgp_config::Intent;
use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_speaker::SpeakerConfig;
use bgp_io::{Clock, Event, Io, Speaker, StopMode};
use calico_bgp::Duties;
use calico_model::DrainReport;
use daemon_common::control::Request;
use daemon_common::report::{Limit, Neighbors, Routes, Status};
use daemon_common::{Command, Reply};

use crate::{Config, Criterion, Parent, Settings};

mod list;
#[cfg(test)]
pub(crate) mod tests;

/// Why a driver cannot start or continue. It ends the daemon, and prints as one line.
pub type DriverError = Box<dyn Error>;

/// One part of a daemon beside its speaker. Every method but [`turn`](Self::turn) has an empty
/// default.
///
/// `S` is the program's own section of the configuration file.
pub trait Driver<S: Settings>: Debug {
    /// Waits until there is work for [`turn`](Self::turn), and keeps it until then; pends forever
    /// if the driver has no source of its own. Cancel-safe: the loop drops and repeats it every
    /// round.
    fn wait(&mut self) -> impl Future<Output = ()> {
        pending()
    }

    /// Processes what [`wait`](Self::wait) found, and carries data between the speaker and the
    /// other side, within one bounded step. Never blocks. Called once a round, also without an
    /// event.
    ///
    /// # Errors
    ///
    /// The driver cannot continue. The daemon ends.
    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError>;

    /// Returns when to start a round even without an event.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Receives an event of the speaker or its sockets.
    fn observe(&mut self, _now: Instant, _speaker: &Speaker, _event: &Event) {}

    /// Receives a new configuration of the speaker, before it opens sockets.
    fn adopted(&mut self, _now: Instant, _intent: &Intent) {}

    /// Takes over what the datastore configures on the node beside its sessions.
    fn assign(&mut self, _duties: &Duties) {}

    /// Receives the progress of the drain of this node, if the datastore has requested it.
    fn drained(&mut self, _report: Option<&DrainReport>) {}

    /// Applies a configuration file that was read again, and returns the changed keys that only a
    /// start reads.
    fn reload(&mut self, _config: &Config<S>) -> Vec<&'static str> {
        Vec::new()
    }

    /// Answers a request that the daemon does not answer itself; `None` if this driver does not
    /// either.
    fn answer(&self, _command: &Command) -> Option<Reply> {
        None
    }

    /// Adds to routes the fields that only this driver has, such as the outgoing interfaces.
    fn locate(&self, _page: &mut Routes) {}

    /// Adds to neighbors the fields that only this driver has, such as the error of a failed
    /// connection.
    fn annotate(&self, _now: Instant, _neighbors: &mut Neighbors) {}

    /// Names the source of the speaker's configuration; `None` for all drivers if that is the file.
    fn source(&self) -> Option<String> {
        None
    }

    /// Returns the applied revision of the datastore, if the configuration comes from one.
    fn revision(&self) -> Option<u64> {
        None
    }

    /// Names the source of one neighbor's configuration, or of all ranges' without an address.
    fn origin(&self, _address: Option<IpAddr>) -> Option<String> {
        None
    }

    /// Returns the driver's own limits that an operator can reach.
    fn limits(&self) -> Vec<Limit> {
        Vec::new()
    }

    /// Returns the notes about the configuration for the operator.
    fn notes(&self, _now: Instant) -> Vec<String> {
        Vec::new()
    }

    /// Adds its facts, its notes and the events that it waits for to the status.
    fn report(&self, _status: &mut Status) {}

    /// Returns its criteria of readiness.
    fn criteria(&self, _speaker: &Speaker) -> Vec<Criterion> {
        Vec::new()
    }

    /// Returns whether packets are still forwarded by the speaker's routes after
    /// [`stop`](Self::stop). If not, the neighbors are notified that the daemon stops for good.
    fn keeps_forwarding(&self) -> bool {
        true
    }

    /// Prepares for the end of the daemon, before its sessions close.
    fn stopping(&mut self, _speaker: &Speaker, _now: Instant, _parting: StopMode) {}

    /// Leaves the other side in a clean state, after all sessions are closed. It must end within
    /// [`crate::limits::STOP_MAX`], and is aborted otherwise.
    fn stop(&mut self, _clock: &Clock) -> impl Future<Output = ()> {
        ready(())
    }
}

/// A driver that a program adds to the daemon, see [`crate::Program::Drivers`].
pub trait Open<S: Settings>: Driver<S> + Sized {
    /// Opens what the driver needs. Called within a Tokio runtime, before the speaker has started.
    /// `parent` executes what needs a capability, if this process holds none.
    ///
    /// # Errors
    ///
    /// The machine does not provide it. The daemon does not start.
    fn open(
        settings: &S,
        speaker: &mut Speaker,
        parent: Option<&Parent>,
    ) -> Result<Self, DriverError>;
}

/// One round of the loop, as the drivers see it.
#[derive(Debug)]
pub struct Round<'d> {
    /// The speaker with its sockets.
    pub io: &'d mut Io,
    /// When the round began.
    pub now: Instant,
    more: bool,
    orders: Vec<Order>,
}

impl<'d> Round<'d> {
    /// Begins a round.
    pub fn new(io: &'d mut Io) -> Self {
        Self {
            now: io.clock().now(),
            io,
            more: false,
            orders: Vec::new(),
        }
    }

    /// Requests another turn after those of the sockets and the other drivers.
    pub const fn more(&mut self) {
        self.more = true;
    }

    /// Gives the loop an order, which it executes after all turns of the round. One order per turn.
    pub fn order(&mut self, order: Order) {
        self.more = true; // The order may cause work for a turn before the loop waits.
        self.orders.push(order);
    }

    /// Ends the round: its orders, and whether the next one begins without waiting.
    pub fn end(self) -> (Vec<Order>, bool) {
        (self.orders, self.more)
    }
}

/// A request of a driver to the loop, because it concerns the daemon as a whole.
#[derive(Debug)]
pub enum Order {
    /// Configure the speaker, and assign the node its duties if that succeeds.
    Adopt(Box<Intent>, Box<Duties>),
    /// Change the speaker's configuration within the adopted one.
    Reconfigure(Box<SpeakerConfig>),
    /// Answer an operator.
    Answer(Request),
    /// Read the configuration file again.
    Reload,
    /// Stop the daemon. It `returns` if the service manager starts it again in a moment.
    Stop {
        /// Whether neighbors may keep the daemon's routes until then (RFC 4724), unless something
        /// else forbids it.
        returns: bool,
    },
}
