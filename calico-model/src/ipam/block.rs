//! Blocks: ranges of addresses, each of which is free or allocated.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{AffinityOwner, read};
use crate::lenient::{Unknown, or_default};
use crate::parse_error::ParseError;
use crate::value::json_octets;

/// The index of an address in its block.
pub type Ordinal = u16;

/// A block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationBlock {
    /// The range.
    pub cidr: IpNet,
    /// Its affinity; see [`Self::owner`].
    #[serde(default)]
    pub affinity: Option<String>,
    /// Time at which it got this affinity; unknown for old blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_claim_time: Option<String>,
    /// By ordinal: the index in [`Self::attributes`] of an allocated address, or nothing.
    #[serde(default, deserialize_with = "or_default")]
    pub allocations: Vec<Option<usize>>,
    /// The free ordinals, in order of assignment.
    #[serde(default, deserialize_with = "or_default")]
    pub unallocated: Vec<Ordinal>,
    /// The attributes of allocations.
    #[serde(default, deserialize_with = "or_default")]
    pub attributes: Vec<AllocationAttribute>,
    /// Incremented with every write.
    #[serde(rename = "sequenceNumber", default, deserialize_with = "or_default")]
    pub sequence_number: u64,
    /// The block's sequence number at the allocation of each address, so that a late release does
    /// not release a later allocation.
    #[serde(
        rename = "sequenceNumberForAllocation",
        default,
        deserialize_with = "or_default"
    )]
    pub sequence_number_for_allocation: BTreeMap<Ordinal, u64>,
    /// Whether it counts as deleted.
    #[serde(default, deserialize_with = "or_default")]
    pub deleted: bool,
    /// The older form of [`Self::affinity`]: a host's name.
    #[serde(
        rename = "hostAffinity",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub host_affinity: Option<String>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The attributes of an allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AllocationAttribute {
    /// The handle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle_id: Option<String>,
    /// Node, namespace, pod and similar attributes of the user of the addresses.
    #[serde(
        rename = "secondary",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub active_owner: BTreeMap<String, String>,
    /// The same attributes of the previous or the next user.
    #[serde(
        rename = "alternateOwnerAttrs",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub alternate_owner: BTreeMap<String, String>,
    /// Time of the release of the addresses, while they cool down.
    #[serde(
        rename = "releasedAt",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub released_at: Option<String>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl AllocationBlock {
    /// Parses a stored value.
    pub fn parse(octets: &[u8]) -> Result<Self, ParseError> {
        read("block", octets)
    }

    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        json_octets(self)
    }

    /// Returns the owner, if it has an affinity.
    pub fn owner(&self) -> Option<AffinityOwner> {
        match (&self.affinity, &self.host_affinity) {
            (Some(affinity), _) => affinity.parse().ok(),
            (None, Some(host)) => Some(AffinityOwner::Host(host.clone())),
            (None, None) => None,
        }
    }

    /// Returns the address with this ordinal.
    pub fn address(&self, ordinal: Ordinal) -> Option<IpAddr> {
        let address = match self.cidr.network() {
            IpAddr::V4(first) => {
                let bits = u32::from(first).checked_add(u32::from(ordinal))?;
                IpAddr::V4(Ipv4Addr::from(bits))
            }
            IpAddr::V6(first) => {
                let bits = u128::from(first).checked_add(u128::from(ordinal))?;
                IpAddr::V6(Ipv6Addr::from(bits))
            }
        };
        self.cidr.contains(&address).then_some(address)
    }

    /// Returns the ordinal of an address of the block.
    pub fn ordinal(&self, address: IpAddr) -> Option<Ordinal> {
        if !self.cidr.contains(&address) {
            return None;
        }
        match (self.cidr.network(), address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                Ordinal::try_from(u32::from(address) - u32::from(first)).ok()
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                Ordinal::try_from(u128::from(address) - u128::from(first)).ok()
            }
            _ => None,
        }
    }

    /// Returns the allocated addresses with their attributes.
    pub fn taken(&self) -> impl Iterator<Item = (IpAddr, Option<&AllocationAttribute>)> {
        (0..=Ordinal::MAX)
            .zip(&self.allocations)
            .filter_map(|(ordinal, place)| {
                Some((self.address(ordinal)?, self.attributes.get((*place)?)))
            })
    }
}
