//! From the tables to their readers: the log of changes, the rules of what may be told to whom,
//! and update groups.

mod changes;
mod cursor;
mod group;
mod log;
mod path_log;
mod paths;
mod private;
pub(crate) mod rules;
mod runs;
mod sent;

pub use changes::{Change, Route, RoutePath};
pub use cursor::Cursor;
pub use group::{ExportSink, GroupId};
pub use paths::{SendPaths, SentPath};
pub use rules::{GroupRules, NextHopMode};
pub use runs::Run;

pub(crate) use group::{GroupState, Withdrawals};
pub(crate) use log::Log;
pub(crate) use path_log::PathLog;
pub(crate) use runs::Runs;
pub(crate) use sent::Chosen;
