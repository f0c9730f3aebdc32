//! Follows foreign routes: selects the prefixes to advertise and resolves next hops. Pure; it uses
//! the same events as the [`crate::Reconciler`], whose dumps it relies on.

mod import;
mod mirror;
mod pattern;
mod resolve;
mod watcher;

pub use self::import::ImportRule;
pub use self::pattern::{NamePattern, PatternError};
pub use self::resolve::{Resolution, Unreachable};
pub use self::watcher::{WatchChange, Watcher, WatcherConfig};
