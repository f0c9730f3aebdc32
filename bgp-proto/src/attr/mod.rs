//! Path attributes: one file and one row of the table for each (RFC 4271 §5).

mod aggregator;
mod as4;
mod as_path;
mod atomic_aggregate;
mod cluster_list;
mod code;
mod communities;
mod decode;
mod encode;
mod extended_communities;
mod large_communities;
mod local_pref;
mod med;
mod mp;
mod next_hop;
mod origin;
mod originator_id;
mod packed;
mod raw;
mod set;
mod table;
#[cfg(test)]
mod tests;
mod unknown;

pub use aggregator::Aggregator;
pub use as_path::{AsPath, AsPathSegment, SegmentKind};
pub use code::{AttrCode, FLAG_EXTENDED_LENGTH, FLAG_OPTIONAL, FLAG_PARTIAL, FLAG_TRANSITIVE};
pub use next_hop::NextHop;
pub use origin::Origin;
pub use packed::{PackedAttributes, Packer};
pub use raw::{RawAttr, RawAttrs};
pub use set::{Attributes, PartialBits};
pub use unknown::RawAttribute;

pub(crate) use decode::{Context, Source, decode};
pub(crate) use mp::{MpReach, MpUnreach};
pub(crate) use next_hop::{encode_mp, mp_octets, mp_octets_allowed};
pub(crate) use table::row;
