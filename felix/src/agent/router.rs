//! The forwarding settings of the host.

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use super::host::{Failed, HostCommand, Orders};
use super::retry::Retry;
use crate::limits::INTERFACE_REFRESH;

/// The forwarding settings of the host.
#[derive(Clone, Debug)]
pub(super) struct Router {
    configured: Retry,
    /// Time of their next check.
    refresh: Instant,
}

impl Router {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            configured: Retry::default(),
            refresh: now + INTERFACE_REFRESH,
        }
    }

    /// Schedules the settings for the next turn; a failed one keeps its retry time.
    pub(super) const fn doubt(&mut self) {
        if self.configured.timeout().is_none() {
            self.configured.doubt();
        }
    }

    /// Issues the settings, if they are due.
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

    /// Handles the answer to a command, if it is the awaited one.
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

    /// Returns when the next action is due without an event.
    pub(super) fn timeout(&self) -> Instant {
        let retry = self.configured.timeout();
        retry.unwrap_or(self.refresh).min(self.refresh)
    }
}
