//! Communities: marks on routes (RFC 1997, RFC 4360, RFC 8092).

mod extended;
mod large;
mod standard;

pub use extended::ExtendedCommunity;
pub use large::LargeCommunity;
pub use standard::Community;
