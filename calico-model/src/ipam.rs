//! What address management keeps: which block of addresses belongs to which host, which addresses
//! of a block are taken and by whom, what every handle holds.
//!
//! These are no resources: values are JSON without envelope, and [`IpamConfig`] beside the
//! resource of nearly the same name is what address management itself reads.

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

/// Prefix of everything that address management keeps.
pub const IPAM_PREFIX: &str = "/calico/ipam/v2/";

/// A key of address management.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpamKey {
    /// A block ([`AllocationBlock`](crate::AllocationBlock)).
    Block(IpNet),
    /// That a block belongs to somebody ([`BlockAffinity`]).
    Affinity {
        /// To whom.
        owner: AffinityOwner,
        /// The block.
        block: IpNet,
    },
    /// What a handle holds ([`IpamHandle`]).
    Handle(String),
    /// That a host takes part; without a value.
    Host(String),
    /// The settings ([`IpamConfig`]).
    Config,
}

/// Whom a block belongs to. Its text is `host:<name>` or `virtual:<name>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AffinityOwner {
    /// A host.
    Host(String),
    /// Something that is no host, such as load balancers.
    Virtual(String),
}

/// The text is no key of address management.
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

    /// The prefix of the blocks that belong to somebody.
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

/// The block of a part such as `10.65.3.64-26`, if it is written in the one form it has.
fn block(family: &str, text: &str) -> Option<IpNet> {
    let block: IpNet = text.replacen('-', "/", 1).parse().ok()?;
    (Range(block).to_string() == format!("{family}/block/{text}")).then_some(block)
}

/// A block as it stands in keys.
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

/// How far a block belongs to somebody.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BlockAffinity {
    /// How far.
    #[serde(default, deserialize_with = "absent_as_confirmed")]
    pub state: AffinityState,
    /// Whether it counts as gone.
    #[serde(default, deserialize_with = "or_default")]
    pub deleted: bool,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub unknown: Unknown,
}

words! {
    /// How far a block belongs to somebody.
    #[derive(Default)]
    AffinityState, "one of \"confirmed\", \"pending\" and \"pendingDeletion\"";
    /// It does.
    #[default]
    Confirmed "confirmed",
    /// It is asked for; somebody else may get it.
    Pending "pending",
    /// It is being given back.
    PendingDeletion "pendingDeletion",
}

fn absent_as_confirmed<'de, D: Deserializer<'de>>(json: D) -> Result<AffinityState, D::Error> {
    empty_as_none(json).map(Option::unwrap_or_default)
}

impl BlockAffinity {
    /// An affinity in this state.
    pub fn new(state: AffinityState) -> Self {
        Self {
            state,
            ..Self::default()
        }
    }

    /// Reads a stored value; an empty one is that of a confirmed affinity.
    pub fn parse(octets: &[u8]) -> Result<Self, ParseError> {
        if octets.is_empty() {
            return Ok(Self::default());
        }
        read("block affinity", octets)
    }

    /// The value to store.
    pub fn encode(&self) -> Vec<u8> {
        json_octets(self)
    }

    /// Whether the block is the owner's to announce. One that is only asked for may end up with
    /// somebody else; one that is being given back is still the owner's.
    pub fn is_announced(&self) -> bool {
        self.state != AffinityState::Pending && !self.deleted
    }
}

/// How many addresses a handle holds, by block.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IpamHandle {
    /// The numbers.
    #[serde(default, deserialize_with = "or_default")]
    pub block: BTreeMap<IpNet, u32>,
    /// Whether it counts as gone.
    #[serde(default, deserialize_with = "or_default")]
    pub deleted: bool,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl IpamHandle {
    /// Reads a stored value.
    pub fn parse(octets: &[u8]) -> Result<Self, ParseError> {
        read("handle", octets)
    }

    /// The value to store.
    pub fn encode(&self) -> Vec<u8> {
        json_octets(self)
    }
}

/// The settings that address management reads. Without a stored value, [`Self::default`]; in a
/// stored value, what is absent is off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpamConfig {
    /// Whether hosts take addresses from their own blocks only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict_affinity: bool,
    /// Whether hosts take blocks by themselves.
    #[serde(default, skip_serializing_if = "is_false")]
    pub auto_allocate_blocks: bool,
    /// How many blocks a host can have; 0 for the built-in number.
    #[serde(
        rename = "maxBlocksPerHost",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub max_blocks_per_host: u32,
    /// How long a released address is not handed out again, in seconds.
    #[serde(
        rename = "ipCooldownSeconds",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub ip_cooldown_seconds: u32,
    /// Fields that are not known here.
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
    /// Reads a stored value.
    pub fn parse(octets: &[u8]) -> Result<Self, ParseError> {
        read("settings of address management", octets)
    }

    /// The value to store.
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

/// Reads a whole value.
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
