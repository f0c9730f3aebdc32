//! Export from the tables to their readers: the log of changes, the advertisement rules per peer,
//! and update groups.

mod advertise;
mod changes;
mod cursor;
mod exporter;
mod group;
mod log;
mod meter;
mod path_log;
mod paths;
pub(crate) mod rules;
mod runs;
mod sent;
mod sink;
mod visit;

pub use changes::{Change, Route, RoutePath};
pub use cursor::Cursor;
pub use paths::SentPath;
pub use rules::{GroupId, GroupRules, NextHopMode, SendPaths};
pub use sink::{ExportSink, Room, Run};

pub(crate) use exporter::Exporter;
pub(crate) use visit::View;
