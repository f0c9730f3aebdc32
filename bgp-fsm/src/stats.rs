//! Counters of a session.

use crate::{DownReason, Instant};

/// Messages by kind (RFC 4271 §4.1, RFC 2918).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// OPEN.
    pub open: u64,
    /// UPDATE.
    pub update: u64,
    /// NOTIFICATION.
    pub notification: u64,
    /// KEEPALIVE.
    pub keepalive: u64,
    /// ROUTE-REFRESH.
    pub route_refresh: u64,
    /// Of an unknown type.
    pub other: u64,
}

impl Counts {
    /// Counts one message of the type `kind` in the header.
    pub(crate) fn add(&mut self, kind: u8) {
        let counter = match kind {
            1 => &mut self.open,
            2 => &mut self.update,
            3 => &mut self.notification,
            4 => &mut self.keepalive,
            5 => &mut self.route_refresh,
            _ => &mut self.other,
        };
        *counter += 1;
    }

    /// Returns the number of all messages.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.open
            + self.update
            + self.notification
            + self.keepalive
            + self.route_refresh
            + self.other
    }
}

/// The statistics of a session since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages received.
    pub received: Counts,
    /// Completely written messages.
    pub sent: Counts,
    /// How often the session was established.
    pub established: u64,
    /// How often the established session ended.
    pub flaps: u64,
    /// Connections that were held because an older one was in use.
    pub held: u64,
    /// Why the established session last ended.
    pub last_down: Option<DownReason>,
    /// The last error that ended an attempt or a session, and when.
    pub last_error: Option<(Instant, DownReason)>,
    /// Consecutive errors, which lengthen the idle hold. The departure of an established session's
    /// peer does not count.
    pub failures: u32,
}
