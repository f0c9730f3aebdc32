//! The host as a router.

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use super::host::{Failed, HostCommand, Orders};
use super::retry::Retry;
use crate::limits::INTERFACE_REFRESH;

/// The settings by which the host forwards.
#[derive(Clone, Debug)]
pub(super) struct Router {
    configured: Retry,
    /// When they are looked at again.
    refresh: Instant,
}

impl Router {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            configured: Retry::default(),
            refresh: now + INTERFACE_REFRESH,
        }
    }

    /// Has the settings made again in the next turn; what failed waits for its time.
    pub(super) const fn doubt(&mut self) {
        if self.configured.timeout().is_none() {
            self.configured.doubt();
        }
    }

    /// Orders the settings, if they are due.
    pub(super) fn configure(&mut self, now: Instant, ipv6: bool, orders: &mut Orders) {
        if self.refresh <= now {
            self.refresh = now + INTERFACE_REFRESH;
            self.configured.again();
        }
        if self.configured.is_due(now) {
            self.configured
                .order(orders.push(HostCommand::ConfigureHost { ipv6 }));
        }
    }

    /// Takes the answer to a command, if it is the one that is waited for.
    pub(super) fn answer(&mut self, now: Instant, command: u64, outcome: Result<(), Failed>) {
        if self.configured.awaits(command)
            && let Some(reason) = self.configured.note(now, outcome)
        {
            let reason = Text::new(reason);
            emit(Event::KernelForwardingFailed { reason });
        }
    }

    /// Returns why the host does not forward.
    pub(super) fn problem(&self) -> Option<&str> {
        self.configured.reason()
    }

    /// Returns when something is due although nothing happens.
    pub(super) fn timeout(&self) -> Instant {
        let retry = self.configured.timeout();
        retry.unwrap_or(self.refresh).min(self.refresh)
    }
}
