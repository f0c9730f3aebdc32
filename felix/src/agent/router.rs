//! The forwarding settings of the host.

use std::time::Duration;

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use super::host::{Failed, Forwarding, HostCommand, Orders};
use super::retry::Retry;

/// The forwarding settings of the host.
#[derive(Clone, Debug)]
pub(super) struct Router {
    configured: Retry,
    /// Time of their last check.
    checked: Instant,
    /// The settings that were requested last.
    wanted: Option<Forwarding>,
}

impl Router {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            configured: Retry::default(),
            checked: now,
            wanted: None,
        }
    }

    /// Schedules the settings for the next turn; a failed one keeps its retry time.
    pub(super) const fn doubt(&mut self) {
        if self.configured.timeout().is_none() {
            self.configured.doubt();
        }
    }

    /// Issues the settings, if they are due: they are checked in each time of `refresh`.
    pub(super) fn configure(
        &mut self,
        now: Instant,
        wanted: Forwarding,
        refresh: Option<Duration>,
        orders: &mut Orders,
    ) {
        if refresh.is_some_and(|refresh| self.checked + refresh <= now) {
            self.checked = now;
            self.configured.again();
        }
        if self.wanted.replace(wanted) != Some(wanted) {
            self.configured = Retry::default();
        }
        if self.configured.is_due(now) {
            self.configured
                .order(orders.push(HostCommand::ConfigureHost(wanted)));
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
    pub(super) fn timeout(&self, refresh: Option<Duration>) -> Option<Instant> {
        let check = refresh.map(|refresh| self.checked + refresh);
        let retry = self.configured.timeout();
        retry.into_iter().chain(check).min()
    }
}
