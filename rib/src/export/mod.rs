//! From the tables to their readers: the log of changes, the rules of what may be advertised to
//! which peers, and update groups.

mod advertise;
mod changes;
mod cursor;
mod exporter;
mod group;
mod log;
mod path_log;
mod paths;
pub(crate) mod rules;
mod runs;
mod sent;
mod walk;

pub use changes::{Change, Route, RoutePath};
pub use cursor::Cursor;
pub use group::{ExportSink, GroupId};
pub use paths::{SendPaths, SentPath};
pub use rules::{GroupRules, NextHopMode};
pub use runs::Run;

pub(crate) use exporter::Exporter;
pub(crate) use walk::View;
