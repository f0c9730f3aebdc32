//! Status of a reconciler for operators.

use core::fmt;

use super::delta::{Cause, Entry, Found};
use super::notice::DeleteCause;
use super::reconciler::Reconciler;
use crate::error::OpError;
use crate::owner::Owner;
use crate::route::{Route, RouteKey};
use instant::Instant;

/// The progress of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FibStatus {
    /// Wanted, and not in the kernel yet, or not in the wanted form. In a dry run: a difference.
    Wanted,
    /// A write is in flight.
    Sent,
    /// The kernel holds it as wanted.
    Acked,
    /// The kernel refused it.
    Failed {
        /// The kernel's error.
        error: OpError,
        /// Failures in a row.
        attempts: u32,
        /// Time of the next attempt.
        retry_at: Instant,
    },
    /// A foreign route holds the same key.
    Conflict {
        /// Its owner, if known.
        owner: Option<Owner>,
        /// Conflicts in a row.
        attempts: u32,
        /// Time of the next attempt, unless the foreign route is removed earlier.
        retry_at: Instant,
    },
    /// In the kernel under the own protocol, but not wanted: deleted when the grace period ends
    /// (never in a dry run).
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
#[non_exhaustive]
pub struct FibView<'a> {
    /// Its identity.
    pub key: RouteKey,
    /// The route wanted.
    pub want: Option<&'a Route>,
    /// The own route believed to be in the kernel.
    pub found: Option<&'a Route>,
    /// Its progress.
    pub status: FibStatus,
}

/// A write that the kernel has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingWrite<'a> {
    /// A route is created or replaced by this one.
    Put(&'a Route),
    /// A route is deleted.
    Delete {
        /// The route as it was last seen, if that is known.
        route: Option<&'a Route>,
        /// Why.
        cause: DeleteCause,
    },
}

/// A reconciler in numbers. All but the first ten are monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FibSummary {
    /// Routes wanted.
    pub wanted: usize,
    /// Routes the kernel holds as wanted.
    pub acked: usize,
    /// Routes wanted and not yet in the kernel, without a failure.
    pub pending: usize,
    /// Routes the kernel refused at the last attempt.
    pub failed: usize,
    /// Routes whose key a foreign route holds.
    pub conflicts: usize,
    /// Own routes that are not wanted.
    pub strays: usize,
    /// Foreign routes that carry the own protocol, at a metric or in a table that this program does
    /// not write.
    pub foreign: usize,
    /// Whether the believed state is invalid until a dump completes.
    pub void: bool,
    /// Own nexthop objects.
    pub nexthops: usize,
    /// Whether the kernel has nexthop objects, once it has been asked.
    pub nexthops_supported: Option<bool>,
    /// Routes sent to be created or replaced.
    pub puts: u64,
    /// Routes sent to be deleted.
    pub deletes: u64,
    /// Writes the kernel refused.
    pub refused: u64,
    /// Changes that other programs made to own routes.
    pub drift: u64,
    /// Times that notifications were lost.
    pub overruns: u64,
    /// Passes over the kernel's tables.
    pub dumps: u64,
}

impl Reconciler {
    /// Returns every route that is wanted, or an own route in the kernel, in key order.
    pub fn routes(&self) -> impl Iterator<Item = FibView<'_>> {
        self.entries
            .iter()
            .filter_map(|(key, entry)| entry.view(*key))
    }

    /// Returns the foreign routes that carry the own protocol, in key order. Only a bounded number
    /// is kept; [`FibSummary::foreign`] counts all.
    pub fn foreigners(&self) -> impl Iterator<Item = (&RouteKey, &Route)> {
        self.foreigners.iter()
    }

    /// Returns one route of [`routes`](Self::routes).
    pub fn lookup(&self, key: &RouteKey) -> Option<FibView<'_>> {
        let key = key.canonical();
        self.entries.get(&key).and_then(|entry| entry.view(key))
    }

    /// Returns the write to a key that the kernel has not answered.
    pub fn pending_write(&self, key: &RouteKey) -> Option<PendingWrite<'_>> {
        let entry = self.entries.get(&key.canonical())?;
        let flight = entry.flight.as_deref()?;
        Some(match flight.cause {
            Some(cause) => PendingWrite::Delete {
                route: entry.present(),
                cause,
            },
            None => PendingWrite::Put(flight.sent.as_ref().or(entry.want.as_ref())?),
        })
    }

    /// Returns the numbers.
    pub fn summary(&self) -> FibSummary {
        let mut sum = FibSummary {
            foreign: self.foreigners.count(),
            void: self.dumps.void,
            nexthops: self.nexthops.len(),
            nexthops_supported: self.nexthops.supported(),
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
