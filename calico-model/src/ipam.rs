//! The data of address management: affinities of blocks to hosts, allocations in a block, and the
//! counts of handles.
//!
//! These are not resources: values are JSON without envelope. Address management itself reads
//! [`IpamConfig`], not the resource of nearly the same name.

pub(crate) mod block;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::lenient::{Unknown, empty_as_none, is_false, or_default};
use crate::parse_error::ParseError;
use crate::value::json_octets;
use crate::value::words::words;

/// Prefix of all keys of address management.
pub const IPAM_PREFIX: &str = "/calico/ipam/v2/";

/// A key of address management.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpamKey {
    /// A block ([`AllocationBlock`](crate::AllocationBlock)).
    Block(IpNet),
    /// The affinity of a block to an owner ([`BlockAffinity`]).
    Affinity {
        /// The owner.
        owner: AffinityOwner,
        /// The block.
        block: IpNet,
    },
    /// The counts of a handle ([`IpamHandle`]).
    Handle(String),
    /// A host that uses address management; without a value.
    Host(String),
    /// The settings ([`IpamConfig`]).
    Config,
}

/// The owner of an affinity. Its text is `host:<name>` or `virtual:<name>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AffinityOwner {
    /// A host.
    Host(String),
    /// An owner that is not a host, such as load balancers.
    Virtual(String),
}

/// The text is not a key of address management.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a key of address management")]
pub struct IpamKeyError;

impl AffinityOwner {
    const fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Host(name) => ("host", name.as_str()),
            Self::Virtual(name) => ("virtual", name.as_str()),
        }
    }

    fn from_parts(kind: &str, name: &str) -> Option<Self> {
        match kind {
            _ if name.is_empty() => None,
            "host" => Some(Self::Host(name.to_owned())),
            "virtual" => Some(Self::Virtual(name.to_owned())),
            _ => None,
        }
    }
}

impl FromStr for AffinityOwner {
    type Err = IpamKeyError;

    fn from_str(text: &str) -> Result<Self, IpamKeyError> {
        text.split_once(':')
            .and_then(|(kind, name)| Self::from_parts(kind, name))
            .ok_or(IpamKeyError)
    }
}

impl fmt::Display for AffinityOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = self.parts();
        write!(f, "{kind}:{name}")
    }
}

impl IpamKey {
    /// The prefix of all blocks.
    pub const BLOCKS: &'static str = "/calico/ipam/v2/assignment/";
    /// The prefix of all handles.
    pub const HANDLES: &'static str = "/calico/ipam/v2/handle/";
    /// The prefix of all hosts and their blocks.
    pub const HOSTS: &'static str = "/calico/ipam/v2/host/";

    /// Returns the prefix of an owner's affinities.
    pub fn affinities_prefix(owner: &AffinityOwner) -> String {
        let (kind, name) = owner.parts();
        format!("{IPAM_PREFIX}{kind}/{name}/")
    }
}

impl FromStr for IpamKey {
    type Err = IpamKeyError;

    fn from_str(text: &str) -> Result<Self, IpamKeyError> {
        let path = text.strip_prefix(IPAM_PREFIX).ok_or(IpamKeyError)?;
        let parts: Vec<&str> = path.split('/').collect();
        let key = match parts.as_slice() {
            ["assignment", family, "block", range] => block(family, range).map(Self::Block),
            [kind, name, family, "block", range] => AffinityOwner::from_parts(kind, name)
                .zip(block(family, range))
                .map(|(owner, block)| Self::Affinity { owner, block }),
            ["handle", id] if !id.is_empty() => Some(Self::Handle((*id).to_owned())),
            ["host", name] if !name.is_empty() => Some(Self::Host((*name).to_owned())),
            ["config"] => Some(Self::Config),
            _ => None,
        };
        key.ok_or(IpamKeyError)
    }
}

/// Parses a block such as `10.65.3.64-26`, if it is in canonical form.
fn block(family: &str, text: &str) -> Option<IpNet> {
    let block: IpNet = text.replacen('-', "/", 1).parse().ok()?;
    (Range(block).to_string() == format!("{family}/block/{text}")).then_some(block)
}

/// A block in the format of keys.
struct Range(IpNet);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = self.0.trunc();
        let version = if block.addr().is_ipv4() { 4 } else { 6 };
        let (address, length) = (block.addr(), block.prefix_len());
        write!(f, "ipv{version}/block/{address}-{length}")
    }
}

impl fmt::Display for IpamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(IPAM_PREFIX)?;
        match self {
            Self::Block(block) => write!(f, "assignment/{}", Range(*block)),
            Self::Affinity { owner, block } => {
                let (kind, name) = owner.parts();
                write!(f, "{kind}/{name}/{}", Range(*block))
            }
            Self::Handle(id) => write!(f, "handle/{id}"),
            Self::Host(name) => write!(f, "host/{name}"),
            Self::Config => f.write_str("config"),
        }
    }
}

/// The state of a block affinity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BlockAffinity {
    /// The state.
    #[serde(default, deserialize_with = "absent_as_confirmed")]
    pub state: AffinityState,
    /// Whether it counts as deleted.
    #[serde(default, deserialize_with = "or_default")]
    pub deleted: bool,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

words! {
    /// The state of a block affinity.
    #[derive(Default)]
    AffinityState, "one of \"confirmed\", \"pending\" and \"pendingDeletion\"";
    /// The block belongs to the owner.
    #[default]
    Confirmed "confirmed",
    /// The owner requests the block; another one may get it.
    Pending "pending",
    /// The owner is releasing the block.
    PendingDeletion "pendingDeletion",
}

fn absent_as_confirmed<'de, D: Deserializer<'de>>(json: D) -> Result<AffinityState, D::Error> {
    empty_as_none(json).map(Option::unwrap_or_default)
}

impl BlockAffinity {
    /// Returns an affinity in this state.
    pub fn new(state: AffinityState) -> Self {
        Self {
            state,
            ..Self::default()
        }
    }

    /// Parses a stored value; an empty one means a confirmed affinity.
    pub fn parse(octets: &[u8]) -> Result<Self, ParseError> {
        if octets.is_empty() {
            return Ok(Self::default());
        }
        read("block affinity", octets)
    }

    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        json_octets(self)
    }

    /// Returns whether the owner advertises the block. A pending block may get another owner; a
    /// block that is being released still belongs to the owner.
    pub fn is_announced(&self) -> bool {
        self.state != AffinityState::Pending && !self.deleted
    }
}

/// The number of addresses of a handle, by block.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IpamHandle {
    /// The numbers.
    #[serde(default, deserialize_with = "or_default")]
    pub block: BTreeMap<IpNet, u32>,
    /// Whether it counts as deleted.
    #[serde(default, deserialize_with = "or_default")]
    pub deleted: bool,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl IpamHandle {
    /// Parses a stored value.
    pub fn parse(octets: &[u8]) -> Result<Self, ParseError> {
        read("handle", octets)
    }

    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        json_octets(self)
    }
}

/// The settings that address management reads. Without a stored value, [`Self::default`]; in a
/// stored value, a missing field is off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpamConfig {
    /// Whether hosts assign addresses from their own blocks only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict_affinity: bool,
    /// Whether hosts claim blocks automatically.
    #[serde(default, skip_serializing_if = "is_false")]
    pub auto_allocate_blocks: bool,
    /// Maximum number of blocks of a host; 0 for the built-in number.
    #[serde(
        rename = "maxBlocksPerHost",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub max_blocks_per_host: u32,
    /// Time until a released address can be assigned again, in seconds.
    #[serde(
        rename = "ipCooldownSeconds",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub ip_cooldown_seconds: u32,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Default for IpamConfig {
    fn default() -> Self {
        Self {
            strict_affinity: false,
            auto_allocate_blocks: true,
            max_blocks_per_host: 0,
            ip_cooldown_seconds: 0,
            unknown: Unknown::new(),
        }
    }
}

impl IpamConfig {
    /// Parses a stored value.
    pub fn parse(octets: &[u8]) -> Result<Self, ParseError> {
        read("settings of address management", octets)
    }

    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        json_octets(self)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde calls"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Parses a whole value.
fn read<T: DeserializeOwned>(kind: &'static str, octets: &[u8]) -> Result<T, ParseError> {
    let mut json = serde_json::Deserializer::from_slice(octets);
    let failed = |field, source| ParseError {
        kind,
        field,
        source,
    };
    let value = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| failed(error.path().to_string(), error.into_inner()))?;
    json.end().map_err(|error| failed(".".to_owned(), error))?;
    Ok(value)
}
