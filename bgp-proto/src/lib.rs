//! The BGP-4 wire codec: messages, capabilities, path attributes and address families.
//!
//! Everything here is a plain function over octets: no I/O, no clock, no logging, no global
//! state, and no `std`. The crate guarantees:
//!
//! * No octets cause a panic.
//! * Knowledge is in tables: [`FAMILIES`] for address families, one row per path attribute in
//!   `attr/table.rs`. A family without a row is not negotiated.
//! * [`decode_message`] decodes a message of any type from a slice; [`next_frame`] cuts messages out of
//!   a receive buffer without copying, for [`Message::parse`].
//! * An UPDATE is decoded in two steps. [`UpdateView::parse`] splits it without allocating;
//!   [`AttrBlock::parse`] decodes its path attributes, and a receiver that keeps a cache keyed
//!   by [`AttrBlock::write_key`] needs this second step once for every distinct set.
//! * The errors of a received UPDATE are a list of [`Fault`]s, each with the [`Remedy`]
//!   that RFC 7606 requires, never an early return that loses the rest.
//! * Messages have one canonical encoding ([`Attributes::encode`], [`UpdateWriter`]).
//!
//! ```
//! use bgp_proto::{
//!     AsPath, Asn, Attributes, EncodeParams, Family, FamilySet, Net, NextHop, Nlri, SessionParams,
//!     UpdateView, UpdateWriter, next_frame,
//! };
//! use bytes::BytesMut;
//!
//! // The result of the two OPENs of a session; bgp-fsm makes it.
//! let families = FamilySet::UNICAST;
//! let session = SessionParams { as4: true, families, ..SessionParams::default() };
//!
//! let attributes = Attributes { as_path: AsPath::sequence(&[Asn(65001)]), ..Attributes::default() };
//! let mut block = Vec::new();
//! attributes.encode(session.as4, &mut block);
//! let (family, next_hop) = (Family::IPV4_UNICAST, NextHop::V4("192.0.2.1".parse()?));
//! let net = Net::V4("198.51.100.0/24".parse()?);
//! let mut octets = BytesMut::new();
//! let params = EncodeParams::new(&session, family);
//! let mut message = UpdateWriter::reach(&mut octets, family, &block, &next_hop, &params);
//! message.push(&Nlri::new(net))?;
//! message.finish();
//!
//! // A stream is cut into messages, an UPDATE into batches of one family each.
//! let frame = next_frame(&mut octets, session.receive_octets_max()).expect("a header").expect("in full");
//! let (update, faults) = UpdateView::parse(&frame.body, &session).expect("lengths that fit");
//! assert!(faults.is_empty());
//! for batch in update.batches() {
//!     assert_eq!(batch.reach.map(|nlri| nlri.map(|nlri| nlri.net)).next(), Some(Ok(net)));
//!     let (received, faults) = batch.attrs.expect("announces").parse();
//!     assert!(faults.is_empty());
//!     assert_eq!(received.as_path.to_string(), "65001");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
mod header;
mod id;
mod key;
pub mod limits;
mod message;
mod nlri;
pub mod notification;
pub mod open;
mod params;
mod prefix;
mod reader;
mod refresh;
mod route_target;
#[cfg(feature = "serde")]
mod serialize;
#[cfg(feature = "strategy")]
pub mod strategy;
pub mod text;
#[cfg(feature = "tokio-codec")]
pub mod tokio_codec;
pub mod update;

pub use asn::{Asn, AsnError};
pub use attr::{
    Aggregator, AsPath, AsPathSegment, AttrCode, AttrCodes, Attributes, NextHop, Origin,
    PackedAttributes, Packer, Rare, RareAttributes, RawAttribute, SegmentKind,
};
pub use community::{Community, ExtendedCommunity, LargeCommunity};
pub use family::{
    FAMILIES, Family, FamilyError, FamilyRow, FamilySet, Framing, KeyRule, NextHopForm,
};
pub use fault::{Fault, FaultKind, Remedy};
pub use frame::{Frame, message_header, next_frame};
pub use header::{
    HEADER_OCTETS, MARKER, MESSAGE_OCTETS_MAX, MESSAGE_OCTETS_MAX_EXTENDED, MessageKind,
};
pub use id::{ClusterId, RouterId};
pub use message::{Message, decode_message};
pub use nlri::{Net, Nlri, NlriIter};
pub use notification::Notification;
pub use open::{AddPathMode, BgpRole, Capability, GracefulRestart, LongLivedEntry, Open, OrfEntry};
pub use params::{PeerKind, SessionParams};
pub use prefix::{Ipv4Prefix, Ipv6Prefix, Prefix, PrefixError};
pub use refresh::{RefreshSubtype, RouteRefresh};
pub use route_target::{RouteTargetMembership, RouteTargetPrefix};
pub use update::{AttrBlock, EncodeParams, Full, RouteBatch, UpdateView, UpdateWriter};

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
