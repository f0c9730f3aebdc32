#![no_std]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo)
)]
//! BGP routing tables: one table, three views.
//!
//! The paths of a prefix *are* the Adj-RIBs-In, the index of the best one is the Loc-RIB, and the
//! last output of an update group is the Adj-RIB-Out (RFC 4271 §3.2). A [`Rib`] imports batches of
//! routes ([`Rib::ingest`]), selects between them ([`Rib::decide`]) and keeps a log of prefixes
//! that changed, which any number of readers follow at their own pace: the kernel's FIB with
//! [`Rib::changes`], groups of peers with [`Rib::export`], single peers with
//! [`Rib::export_private`]. Every pass over a table works in steps of a [`Budget`].
//!
//! Path attributes are interned before they are parsed, so that each distinct set is parsed and
//! kept once however many prefixes and messages carry it.
//!
//! ```
//! use bgp_proto::{Asn, Family, FamilySet, Net, PeerKind, RouterId, SessionParams, UpdateView};
//! use rib::{Budget, PeerId, PeerInfo, Policy, Progress, Rib, RibConfig, Role};
//!
//! let (asn, us) = (Asn(64512), RouterId("192.0.2.1".parse()?));
//! let mut rib = Rib::new(RibConfig::new(asn, us), 7);
//! let peer = PeerId(1);
//! let address = "192.0.2.2".parse()?;
//! rib.peer_up(peer, PeerInfo {
//!     role: Role::Internal,
//!     asn,
//!     id: RouterId(address),
//!     address: address.into(),
//!     local: Some(us.0.into()),
//!     import: Policy::AcceptAll,
//!     local_asn: asn,
//!     as_path: Default::default(),
//!     cluster_id: Default::default(),
//!     domain: Default::default(),
//!     link: None,
//!     origin: Default::default(),
//! });
//!
//! let body = [
//!     0, 0, 0, 21, // nothing withdrawn, 21 octets of attributes
//!     0x40, 1, 1, 0, 0x40, 2, 0, // ORIGIN, AS_PATH
//!     0x40, 3, 4, 192, 0, 2, 2, 0x40, 5, 4, 0, 0, 0, 100, // NEXT_HOP, LOCAL_PREF
//!     24, 198, 51, 100, // 198.51.100.0/24
//! ];
//! let (kind, families) = (PeerKind::Internal, FamilySet::UNICAST);
//! let session = SessionParams { kind, as4: true, families, ..SessionParams::default() };
//! let (update, _) = UpdateView::parse(&body, &session).expect("lengths that fit");
//! for batch in update.batches() {
//!     assert!(rib.ingest(peer, &batch).faults.is_empty());
//! }
//! while rib.decide(Budget(1000)) == Progress::More {}
//!
//! let net = Net::V4("198.51.100.0/24".parse()?);
//! let route = rib.lookup(Family::IPV4_UNICAST, net).expect("is known");
//! assert_eq!(route.best().map(|path| path.peer), Some(peer));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The outcome never depends on the seed of a hasher or on the division of work into steps; the
//! design is in `docs/design/export-log.md`.

extern crate alloc;
#[cfg(test)]
extern crate std;

mod adj_rib_in;
mod attributes;
mod budget;
mod config;
mod decide;
mod depend;
mod destination;
mod eligible;
mod explain;
mod export;
mod family;
mod index;
mod interfaces;
mod intern;
pub mod limits;
mod membership;
mod next_hop;
mod origin;
mod origin_rules;
mod path;
mod peer;
mod policy;
mod prefixes;
mod raw;
mod recorder;
mod rejected;
mod rib;
mod role;
mod routes;
mod shared;
mod slot;
mod stale;
mod table;
mod tombstones;
mod wire;

pub use attributes::AttrId;
pub use budget::{Budget, Progress};
pub use config::{RibConfig, RibLimits, RibStats};
pub use decide::{Candidate, DecisionRules, Selection, Step, select};
pub use depend::Dependence;
pub use eligible::{AsPathChecks, Ineligible};
pub use explain::{PathView, RouteView};
pub use export::{
    Change, Cursor, ExportSink, GroupId, GroupRules, NextHopMode, Room, Route, RoutePath, Run,
    SendPaths, SentPath,
};
pub use family::Ingested;
pub use membership::RouteTargets;
pub use next_hop::{NextHops, Reach, Track};
pub use origin::{OriginCheck, ReceivedPath};
pub use origin_rules::{OriginMode, OriginRules};
pub use path::Path;
pub use peer::{DownMode, PathLimit, PeerCounters, PeerId, PeerInfo};
pub use policy::{
    Edit, Evaluation, InterfaceGlob, InterfaceName, InterfaceNameError, Match, Outcome, Policy,
    PrefixRange, PrefixSet, RouteContext, Rules, Source, Term, Then, Verdict,
};
pub use rejected::{PolicyDirection, RejectedPath};
pub use rib::Rib;
pub use role::Role;
pub use routes::{Routes, Stage, Stages};

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
