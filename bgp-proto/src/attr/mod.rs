//! Path attributes: each is a row of the table, and a file if its value has a type of its own (RFC
//! 4271 §5).

mod aggregator;
mod aigp;
mod as4;
mod as_path;
mod code;
mod codes;
mod decode;
mod encode;
mod field;
mod ipv6_extended_communities;
mod items;
mod mp;
mod next_hop;
mod only_to_customer;
mod origin;
mod pack;
mod packed;
mod pmsi_tunnel;
mod prefix_sid;
mod rare;
mod raw;
mod report;
#[cfg(test)]
mod samples;
mod set;
mod table;
#[cfg(test)]
mod tests;
mod tunnel_encapsulation;
mod unknown;

pub use aggregator::Aggregator;
pub use aigp::Aigp;
pub use as_path::{AsPath, AsPathSegment, SegmentKind};
pub use code::{AttrCode, FLAG_EXTENDED_LENGTH, FLAG_OPTIONAL, FLAG_PARTIAL, FLAG_TRANSITIVE};
pub use codes::AttrCodes;
pub use ipv6_extended_communities::Ipv6ExtendedCommunity;
pub use next_hop::NextHop;
pub use origin::Origin;
pub use packed::{PackedAttributes, Packer};
pub use pmsi_tunnel::{PmsiTunnel, PmsiTunnelType};
pub use prefix_sid::{PrefixSid, PrefixSidTlvType};
pub use rare::Rare;
pub use raw::{RawAttr, RawAttrs};
pub use report::Report;
pub use table::{Attributes, RareAttributes};
pub use tunnel_encapsulation::{Tunnel, TunnelEncapsulation, TunnelSubTlvType, TunnelType};
pub use unknown::RawAttribute;

pub(crate) use decode::{Session, Source, decode};
pub(crate) use mp::{MpReach, MpUnreach};
pub(crate) use next_hop::{encode_mp, mp_octets, mp_octets_allowed};
pub(crate) use table::row;
