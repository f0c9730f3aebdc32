//! Interfaces to process: now, or at a later time.

use std::collections::{BTreeMap, BTreeSet};

use fib_sync::Instant;

/// Interfaces to process in the next turn, and later ones with their times, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    now: BTreeSet<String>,
    at: BTreeMap<String, Instant>,
    order: BTreeSet<(Instant, String)>,
}

impl Agenda {
    /// Schedules an interface for the next turn.
    pub(super) fn add(&mut self, name: impl Into<String>) {
        self.now.insert(name.into());
    }

    /// Schedules interfaces for the next turn.
    pub(super) fn extend<N: Into<String>>(&mut self, names: impl IntoIterator<Item = N>) {
        self.now.extend(names.into_iter().map(Into::into));
    }

    /// Sets the time of an interface, or removes it.
    pub(super) fn set(&mut self, name: &str, at: Option<Instant>) {
        if self.at.get(name).copied() == at {
            return;
        }
        if let Some(old) = self.at.remove(name) {
            self.order.remove(&(old, name.to_owned()));
        }
        if let Some(at) = at {
            self.at.insert(name.to_owned(), at);
            self.order.insert((at, name.to_owned()));
        }
    }

    /// Takes the interfaces of this turn, and those that are due.
    pub(super) fn take(&mut self, now: Instant) -> BTreeSet<String> {
        while self.next().is_some_and(|at| at <= now)
            && let Some((_, name)) = self.order.pop_first()
        {
            self.at.remove(&name);
            self.now.insert(name);
        }
        std::mem::take(&mut self.now)
    }

    /// Returns the next time.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }
}
