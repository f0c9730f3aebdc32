//! From what is wanted and what is found to commands: pure, without clock, socket or task.

mod backoff;
mod belief;
mod counters;
mod delta;
mod dirty;
mod grace;
mod notice;
mod outcome;
mod reconciler;
mod report;

pub use self::notice::{DeleteCause, Notice};
pub use self::reconciler::{Reconciler, ReconcilerConfig};
pub use self::report::{FibStatus, FibSummary, FibView};
