#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo)
)]
//! BGP routing tables: one table, three views.
//!
//! The paths of a prefix *are* the Adj-RIBs-In, the index of the best one is the Loc-RIB, and what
//! an update group was last told is the Adj-RIB-Out (RFC 4271 §3.2). A [`Rib`] takes batches of
//! routes ([`Rib::ingest`]), chooses between them ([`Rib::decide`]) and keeps a log of prefixes
//! that changed, which any number of readers follow at their own pace: the kernel's FIB with
//! [`Rib::changes`], groups of peers with [`Rib::export`], single peers with
//! [`Rib::export_private`]. Everything that walks a table works in bites of a [`Budget`].
//!
//! Path attributes are interned before they are parsed, so that each distinct set is parsed and
//! kept once however many prefixes and messages carry it.
//!
//! The outcome never depends on the seed of a hasher nor on how work is cut into bites; the
//! design is in `docs/design/export-log.md`.

extern crate alloc;
#[cfg(test)]
extern crate std;

mod attributes;
mod bite;
mod decide;
mod depend;
mod eligible;
mod explain;
mod export;
mod family;
mod import;
mod index;
mod interfaces;
mod intern;
pub mod limits;
mod next_hop;
mod path;
mod peer;
mod policy;
mod raw;
mod rib;
mod shared;
mod stale;
mod sweep;
mod table;
mod tombstones;
mod wire;

pub use attributes::AttrId;
pub use bite::{Budget, Progress};
pub use decide::{Candidate, DecisionRules, Selection, Step, select};
pub use depend::Dependence;
pub use eligible::Ineligible;
pub use explain::{Judgement, PathView, RouteView};
pub use export::{
    Change, Cursor, ExportSink, GroupId, GroupRules, NextHopMode, Route, RoutePath, Run, SendPaths,
    SentPath,
};
pub use import::Ingested;
pub use next_hop::{NextHops, Reach, Track};
pub use path::Path;
pub use peer::{DownMode, PathLimit, PeerCounters, PeerId, PeerInfo, Role};
pub use policy::{
    Edit, InterfaceGlob, InterfaceName, InterfaceNameError, Match, Outcome, Policy, PrefixRange,
    PrefixSet, RouteContext, Rules, Source, Term, Then, Verdict,
};
pub use rib::{Rib, RibConfig, RibLimits, RibStats};
