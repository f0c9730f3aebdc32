//! The reader's side: which routes of others to announce, and how next hops are reached. Pure, fed
//! by the same events as the [`crate::Reconciler`], whose dumps it relies on.

mod import;
mod mirror;
mod pattern;
mod resolve;
mod watcher;

pub use self::import::ImportRule;
pub use self::pattern::{NamePattern, PatternError};
pub use self::resolve::{Resolution, Unreachable};
pub use self::watcher::{WatchChange, Watcher, WatcherConfig};
