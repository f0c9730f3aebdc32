//! The BGP-4 wire codec: messages, capabilities, path attributes and address families.
//!
//! Everything here is a plain function over octets: no I/O, no clock, no logging, no global
//! state, and no `std`. What the crate guarantees its users:
//!
//! * Octets of any kind never panic it.
//! * Knowledge is in tables: [`FAMILIES`] for address families, one row per path attribute in
//!   `attr/table.rs`. A family without a row is not negotiated.
//! * An UPDATE is taken apart in two steps. [`UpdateView::parse`] splits it without allocating;
//!   [`AttrBlock::parse`] decodes its path attributes, and a receiver that keeps a cache keyed
//!   by [`AttrBlock::write_key`] takes this second step once for every distinct set.
//! * What is wrong with a received UPDATE is a list of [`Fault`]s, each with the [`Remedy`]
//!   that RFC 7606 asks for, never an early return that loses the rest.
//! * What is sent is one canonical encoding ([`Attributes::encode`], [`UpdateWriter`]).
#![no_std]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod asn;
pub mod attr;
pub mod community;
mod enums;
mod family;
mod fault;
mod frame;
mod id;
mod key;
pub mod limits;
mod nlri;
pub mod notification;
pub mod open;
mod params;
mod prefix;
mod reader;
mod refresh;
#[cfg(feature = "strategy")]
pub mod strategy;
pub mod text;
#[cfg(feature = "tokio-codec")]
pub mod tokio_codec;
pub mod update;

pub use asn::{Asn, AsnError};
pub use attr::{
    Aggregator, AsPath, AsPathSegment, AttrCode, Attributes, NextHop, Origin, PackedAttributes,
    Packer, PartialBits, RawAttribute, SegmentKind,
};
pub use community::{Community, ExtendedCommunity, LargeCommunity};
pub use family::{
    FAMILIES, Family, FamilyError, FamilyRow, FamilySet, Framing, KeyRule, NextHopForm,
};
pub use fault::{Fault, FaultKind, Remedy};
pub use frame::{
    Frame, HEADER_OCTETS, MARKER, MESSAGE_OCTETS_MAX, MESSAGE_OCTETS_MAX_EXTENDED, MessageKind,
    next_frame,
};
pub use id::{ClusterId, RouterId};
pub use nlri::{Net, Nlri, NlriIter};
pub use notification::Notification;
pub use open::{
    AddPathMode, Capability, GracefulRestart, LongLivedEntry, Open, OrfEntry, Role as BgpRole,
};
pub use params::{PeerKind, SessionParams};
pub use prefix::{Ipv4Prefix, Ipv6Prefix, Prefix, PrefixError};
pub use refresh::{RefreshSubtype, RouteRefresh};
pub use update::{AttrBlock, EncodeParams, Full, RouteBatch, UpdateView, UpdateWriter};
