//! Communities and identifiers as values of fixed length: lists of the former, and one or a list of
//! the latter, are attributes (RFC 1997, RFC 4360, RFC 8092, RFC 4456 §8).

use crate::attr::field::Item;
use crate::community::{Community, ExtendedCommunity, LargeCommunity};
use crate::id::{ClusterId, RouterId};

impl Item for Community {
    type Octets = [u8; 4];
    #[cfg(feature = "strategy")]
    const STRATEGY_MAX: usize = 79;

    fn from_octets(octets: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(octets))
    }

    fn octets(&self) -> [u8; 4] {
        self.0.to_be_bytes()
    }
}

impl Item for ExtendedCommunity {
    type Octets = [u8; 8];

    fn from_octets(octets: [u8; 8]) -> Self {
        Self(octets)
    }

    fn octets(&self) -> [u8; 8] {
        self.0
    }

    /// RFC 4360 §6
    fn is_transitive(&self) -> bool {
        Self::is_transitive(self)
    }
}

impl Item for LargeCommunity {
    type Octets = [u8; 12];

    fn from_octets(octets: [u8; 12]) -> Self {
        Self::from_octets(octets)
    }

    fn octets(&self) -> [u8; 12] {
        Self::octets(self)
    }
}

impl Item for RouterId {
    type Octets = [u8; 4];

    fn from_octets(octets: [u8; 4]) -> Self {
        Self::from(octets)
    }

    fn octets(&self) -> [u8; 4] {
        self.0.octets()
    }
}

/// CLUSTER_LIST is in the order in which the reflectors were crossed.
impl Item for ClusterId {
    type Octets = [u8; 4];
    const ORDERED: bool = true;

    fn from_octets(octets: [u8; 4]) -> Self {
        Self::from(octets)
    }

    fn octets(&self) -> [u8; 4] {
        self.0.octets()
    }
}
