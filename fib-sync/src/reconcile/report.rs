//! What an operator sees of a reconciler.

use core::fmt;

use super::delta::{Cause, Entry, Found};
use super::reconciler::Reconciler;
use crate::owner::Owner;
use crate::port::OpError;
use crate::route::{Route, RouteKey};
use instant::Instant;

/// How far one route is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FibStatus {
    /// Wanted, and not (or not like this) in the kernel yet; in a shadow run: a difference.
    Wanted,
    /// A write is under way.
    Sent,
    /// The kernel holds it as wanted.
    Acked,
    /// The kernel refused it.
    Failed {
        /// What the kernel said.
        error: OpError,
        /// How many times in a row.
        attempts: u32,
        /// When it is tried again.
        retry_at: Instant,
    },
    /// Somebody else's route holds the same key.
    Conflict {
        /// Whose, if known.
        owner: Option<Owner>,
        /// How many times in a row it was in the way.
        attempts: u32,
        /// When ours is tried again, if theirs does not go earlier.
        retry_at: Instant,
    },
    /// In the kernel under our protocol, and nobody wants it: deleted when the grace period ends
    /// (never in a shadow run).
    Stray,
}

impl fmt::Display for FibStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wanted => f.write_str("wanted"),
            Self::Sent => f.write_str("sent"),
            Self::Acked => f.write_str("acked"),
            Self::Failed {
                error, attempts, ..
            } => write!(f, "failed: {error} ({attempts}x)"),
            Self::Conflict {
                owner: Some(owner), ..
            } => {
                write!(f, "conflict with a route of protocol {owner}")
            }
            Self::Conflict { owner: None, .. } => f.write_str("conflict with a foreign route"),
            Self::Stray => f.write_str("stray"),
        }
    }
}

/// One route as wanted and as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FibView<'a> {
    /// Its identity.
    pub key: RouteKey,
    /// The route wanted.
    pub want: Option<&'a Route>,
    /// The route of ours believed to be in the kernel.
    pub found: Option<&'a Route>,
    /// How far it is.
    pub status: FibStatus,
}

/// A reconciler in numbers. All but the first eight only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FibSummary {
    /// Routes wanted.
    pub wanted: usize,
    /// Routes the kernel holds as wanted.
    pub acked: usize,
    /// Routes wanted and not there yet, without a failure.
    pub pending: usize,
    /// Routes the kernel refused at the last attempt.
    pub failed: usize,
    /// Routes whose key a foreign route holds.
    pub conflicts: usize,
    /// Routes of ours nobody wants.
    pub strays: usize,
    /// Foreign routes that carry our protocol: their table or metric is none that we write.
    pub foreign: usize,
    /// Whether belief is void until a dump is through.
    pub void: bool,
    /// Routes sent to be created or replaced.
    pub puts: u64,
    /// Routes sent to be deleted.
    pub deletes: u64,
    /// Writes the kernel refused.
    pub refused: u64,
    /// Differences that somebody else made to our routes.
    pub drift: u64,
    /// Times that notifications were lost.
    pub overruns: u64,
    /// Passes over the kernel's tables.
    pub dumps: u64,
}

impl Reconciler {
    /// Every route that is wanted, or ours in the kernel, in key order.
    pub fn routes(&self) -> impl Iterator<Item = FibView<'_>> {
        self.entries
            .iter()
            .filter_map(|(key, entry)| entry.view(*key))
    }

    /// Foreign routes that carry our protocol, in key order: those that are kept, and
    /// [`FibSummary::foreign`] counts all.
    pub fn foreigners(&self) -> impl Iterator<Item = (&RouteKey, &Route)> {
        self.foreigners.iter()
    }

    /// One route of [`routes`](Self::routes).
    pub fn lookup(&self, key: &RouteKey) -> Option<FibView<'_>> {
        let key = key.canonical();
        self.entries.get(&key).and_then(|entry| entry.view(key))
    }

    /// The numbers.
    pub fn summary(&self) -> FibSummary {
        let mut sum = FibSummary {
            foreign: self.foreigners.count(),
            void: self.dumps.void,
            puts: self.counters.puts,
            deletes: self.counters.deletes,
            refused: self.counters.refused + self.counters.conflicts,
            drift: self.counters.drift,
            overruns: self.counters.overruns,
            dumps: self.counters.dumps,
            ..FibSummary::default()
        };
        for view in self.routes() {
            sum.wanted += usize::from(view.want.is_some());
            let place = match view.status {
                FibStatus::Acked => &mut sum.acked,
                FibStatus::Failed { .. } => &mut sum.failed,
                FibStatus::Conflict { .. } => &mut sum.conflicts,
                FibStatus::Stray => &mut sum.strays,
                FibStatus::Wanted | FibStatus::Sent if view.want.is_some() => &mut sum.pending,
                FibStatus::Wanted | FibStatus::Sent => continue,
            };
            *place += 1;
        }
        sum
    }
}

impl Entry {
    fn view(&self, key: RouteKey) -> Option<FibView<'_>> {
        let found = self.present();
        if self.want.is_none() && found.is_none() && self.flight.is_none() && self.fault.is_none() {
            return None;
        }
        Some(FibView {
            key,
            want: self.want.as_ref(),
            found,
            status: self.status(),
        })
    }

    fn status(&self) -> FibStatus {
        if self.flight.is_some() {
            return FibStatus::Sent;
        }
        match self.fault.as_deref() {
            Some(fault) => match &fault.cause {
                Cause::Refused(error) => FibStatus::Failed {
                    error: error.clone(),
                    attempts: fault.attempts,
                    retry_at: fault.retry_at,
                },
                Cause::Conflict => FibStatus::Conflict {
                    owner: self.foreign,
                    attempts: fault.attempts,
                    retry_at: fault.retry_at,
                },
            },
            None if self.found == Found::AsWanted => FibStatus::Acked,
            None if self.want.is_none() => FibStatus::Stray,
            None => FibStatus::Wanted,
        }
    }
}
