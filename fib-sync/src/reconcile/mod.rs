//! Computes commands from wanted and found routes: pure, without clock, socket or task.

mod backoff;
mod belief;
mod counters;
mod delta;
mod dirty;
mod failed;
mod fault;
mod grace;
mod nexthops;
mod notice;
mod objects;
mod outcome;
mod reconciler;
mod report;

pub use self::nexthops::NexthopObjects;
pub use self::notice::{DeleteCause, Notice};
pub use self::reconciler::{Reconciler, ReconcilerConfig};
pub use self::report::{FibStatus, FibSummary, FibView, PendingWrite};
