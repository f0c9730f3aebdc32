//! The keys of Cambric's own daemons in addition to Calico's: registered route reflectors, their
//! cluster ids, requests to drain nodes and reflectors, and reports of drained nodes.
//!
//! All are below [`FABRIC_PREFIX`], which Calico's components never read. Values are JSON objects;
//! unknown fields are kept, as in resources.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::lenient::{Unknown, or_default};
use crate::limits::REFLECTOR_WEIGHT_DEFAULT;
use crate::validate::{Faults, Invalid, NAME, Problem};
use crate::value::asn::AsNumber;
use crate::value::json_octets;

#[cfg(test)]
mod tests;

/// Prefix of all keys of Cambric's own.
pub const FABRIC_PREFIX: &str = "/cambric/v1/";

/// A key below [`FABRIC_PREFIX`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FabricKey {
    /// A running reflector ([`Registration`]); under a lease.
    Reflector(String),
    /// The reflector of a cluster id ([`ClusterClaim`]); permanent, so that a restarted reflector
    /// keeps its id.
    Cluster(Ipv4Addr),
    /// A node or reflector to be drained ([`DrainRequest`]), until the key is deleted.
    Drain(String),
    /// The progress of a drained node ([`DrainReport`]), as its BGP daemon reports it.
    DrainReport(String),
}

impl FabricKey {
    /// The prefix of all registrations.
    pub const REFLECTORS: &'static str = "/cambric/v1/reflector/";
    /// The prefix of all claims of cluster ids.
    pub const CLUSTERS: &'static str = "/cambric/v1/cluster/";
    /// The prefix of all requests to drain.
    pub const DRAINS: &'static str = "/cambric/v1/drain/";
    /// The prefix of all reports of drained nodes.
    pub const DRAIN_REPORTS: &'static str = "/cambric/v1/drain-report/";
}

impl fmt::Display for FabricKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reflector(name) => write!(f, "{}{name}", Self::REFLECTORS),
            Self::Cluster(id) => write!(f, "{}{id}", Self::CLUSTERS),
            Self::Drain(name) => write!(f, "{}{name}", Self::DRAINS),
            Self::DrainReport(name) => write!(f, "{}{name}", Self::DRAIN_REPORTS),
        }
    }
}

/// Why a text is not a key of Cambric's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FabricKeyError {
    /// It is not below the prefix.
    #[error("not a key of the fabric")]
    Foreign,
    /// The name of a node is invalid.
    #[error("the name is that of a host: lower-case letters, digits, '-' and '.'")]
    Name,
    /// The cluster id is invalid.
    #[error("a cluster id has the form of an IPv4 address, and is not 0.0.0.0")]
    ClusterId,
}

impl FromStr for FabricKey {
    type Err = FabricKeyError;

    fn from_str(text: &str) -> Result<Self, FabricKeyError> {
        let name = |name: &str| match name.is_empty() || !NAME.holds(name) {
            true => Err(FabricKeyError::Name),
            false => Ok(name.to_owned()),
        };
        if let Some(rest) = text.strip_prefix(Self::REFLECTORS) {
            return name(rest).map(Self::Reflector);
        }
        if let Some(rest) = text.strip_prefix(Self::DRAINS) {
            return name(rest).map(Self::Drain);
        }
        if let Some(rest) = text.strip_prefix(Self::DRAIN_REPORTS) {
            return name(rest).map(Self::DrainReport);
        }
        if let Some(rest) = text.strip_prefix(Self::CLUSTERS) {
            let id: Result<Ipv4Addr, _> = rest.parse();
            let id = id.ok().filter(|id| !id.is_unspecified());
            return id.map(Self::Cluster).ok_or(FabricKeyError::ClusterId);
        }
        Err(FabricKeyError::Foreign)
    }
}

/// The data of a running reflector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    /// Its AS number.
    pub as_number: AsNumber,
    /// The IPv4 address at which it accepts sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4_address: Option<Ipv4Addr>,
    /// The IPv6 address at which it accepts sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_address: Option<Ipv6Addr>,
    /// The port at which it accepts sessions; the default is that of BGP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Its cluster id (RFC 4456 §7).
    #[serde(rename = "clusterID")]
    pub cluster_id: Ipv4Addr,
    /// The failure domain: a rack, a room, a power supply. All reflectors without a zone are in the
    /// same one.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub zone: String,
    /// Its share of the clients, relative to other reflectors; 0 means no clients.
    #[serde(default = "weight_default")]
    pub weight: u32,
    /// Its state of service.
    #[serde(default, deserialize_with = "or_default")]
    pub state: ReflectorState,
    /// Number of clients with established sessions. For operators only; no selection depends on it.
    #[serde(default, deserialize_with = "or_default")]
    pub clients: u32,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The state of service of a reflector.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ReflectorState {
    /// It accepts clients.
    #[default]
    Active,
    /// It is about to close its sessions: clients choose others (RFC 8326).
    Draining,
    /// It has closed them, and may be stopped.
    Drained,
}

impl fmt::Display for ReflectorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Drained => "drained",
        })
    }
}

/// The owner of a cluster id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterClaim {
    /// The reflector's name.
    pub reflector: String,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A request to drain a node or a reflector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainRequest {
    /// Time of the request, RFC 3339.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub since: String,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The progress of a drained node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainReport {
    /// [`DrainRequest::since`] of the request.
    #[serde(default, deserialize_with = "or_default")]
    pub since: String,
    /// The stage of the drain.
    #[serde(default, deserialize_with = "or_default")]
    pub stage: DrainStage,
    /// Number of established neighbors that have not been sent all in time.
    #[serde(default, deserialize_with = "or_default")]
    pub behind: u32,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The stage of the drain of a node.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum DrainStage {
    /// Routes of services are advertised as the least preferred ones (RFC 8326).
    #[default]
    Services,
    /// All routes are.
    All,
    /// All routes are, and this has been sent to all neighbors.
    Drained,
}

impl fmt::Display for DrainStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Services => "services",
            Self::All => "all",
            Self::Drained => "drained",
        })
    }
}

const fn weight_default() -> u32 {
    REFLECTOR_WEIGHT_DEFAULT
}

/// A stored value that cannot be parsed, with the invalid field.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {source}")]
pub struct FabricValueError {
    /// Path of the field; `.` for the whole.
    pub field: String,
    /// The error.
    pub source: serde_json::Error,
}

pub(crate) fn parse<T: for<'de> Deserialize<'de>>(octets: &[u8]) -> Result<T, FabricValueError> {
    let mut json = serde_json::Deserializer::from_slice(octets);
    serde_path_to_error::deserialize(&mut json).map_err(|error| FabricValueError {
        field: error.path().to_string(),
        source: error.into_inner(),
    })
}

impl Registration {
    /// Parses a stored value.
    ///
    /// # Errors
    ///
    /// The value is invalid; the field is named.
    pub fn parse(octets: &[u8]) -> Result<Self, FabricValueError> {
        parse(octets)
    }

    /// Returns the value to store.
    ///
    /// # Errors
    ///
    /// All faults of the value.
    pub fn encode(&self) -> Result<Vec<u8>, Vec<Invalid>> {
        let faults = self.faults();
        match faults.is_empty() {
            true => Ok(json_octets(self)),
            false => Err(faults),
        }
    }

    /// Returns all its faults.
    pub fn faults(&self) -> Vec<Invalid> {
        let mut faults = Faults::default();
        if self.ipv4_address.is_none() && self.ipv6_address.is_none() {
            faults.push("ipv4Address", Problem::Missing);
        }
        if self.as_number == AsNumber(0) {
            // RFC 7607: AS 0 must not be used.
            faults.push("asNumber", Problem::Unwanted("AS 0 is reserved"));
        }
        if self.cluster_id.is_unspecified() {
            faults.push("clusterID", Problem::Unwanted("0.0.0.0 is not a cluster"));
        }
        faults.0
    }

    /// Returns its address of a family.
    pub fn address(&self, ipv6: bool) -> Option<IpAddr> {
        match ipv6 {
            true => self.ipv6_address.map(IpAddr::V6),
            false => self.ipv4_address.map(IpAddr::V4),
        }
    }

    /// Returns its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        [self.address(false), self.address(true)]
            .into_iter()
            .flatten()
    }
}

impl ClusterClaim {
    /// Returns a claim for a reflector.
    pub fn of(reflector: &str) -> Self {
        Self {
            reflector: reflector.to_owned(),
            unknown: Unknown::new(),
        }
    }

    /// Parses a stored value.
    ///
    /// # Errors
    ///
    /// The value is invalid; the field is named.
    pub fn parse(octets: &[u8]) -> Result<Self, FabricValueError> {
        parse(octets)
    }

    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        json_octets(self)
    }
}

impl DrainRequest {
    /// Returns a request made at this time (see [`rfc3339_utc`](crate::rfc3339_utc)).
    pub fn since(time: String) -> Self {
        Self {
            since: time,
            unknown: Unknown::new(),
        }
    }

    /// Parses a stored value.
    ///
    /// # Errors
    ///
    /// The value is invalid; the field is named.
    pub fn parse(octets: &[u8]) -> Result<Self, FabricValueError> {
        parse(octets)
    }

    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        json_octets(self)
    }
}

impl DrainReport {
    /// Parses a stored value.
    ///
    /// # Errors
    ///
    /// The value is invalid; the field is named.
    pub fn parse(octets: &[u8]) -> Result<Self, FabricValueError> {
        parse(octets)
    }

    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        json_octets(self)
    }
}
