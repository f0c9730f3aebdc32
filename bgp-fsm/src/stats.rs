//! What a session counts.

use crate::{DownReason, Instant};

/// Messages by kind (RFC 4271 §4.1, RFC 2918).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Of a kind that we do not know.
    pub other: u64,
}

impl Counts {
    /// Counts one message of the kind that the header names with `kind`.
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

    /// All messages.
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

/// What a session has seen since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Messages received.
    pub received: Counts,
    /// Messages written whole.
    pub sent: Counts,
    /// Times the session came up.
    pub established: u64,
    /// Times it went down after it was up.
    pub flaps: u64,
    /// Connections that were held because an older one was in use.
    pub held: u64,
    /// Why it last went down after it was up.
    pub last_down: Option<DownReason>,
    /// Why an attempt or a session last ended by an error, and when.
    pub last_error: Option<(Instant, DownReason)>,
    /// Errors in a row, which lengthen the idle hold. That an established session's peer went away
    /// is none.
    pub failures: u32,
}
