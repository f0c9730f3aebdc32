//! The routes of services that each node announces, as the controller of Kubernetes computes them.
//!
//! A node reads one key of its own, and those who validate its routes read the same key. The keys are
//! not below [`FABRIC_PREFIX`](crate::FABRIC_PREFIX): all daemons read that, so each node would receive
//! the routes of all others.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fabric::{FabricValueError, parse};
use crate::validate::NAME;
use crate::value::community::CommunityValue;
use crate::value::json_octets;

/// Prefix of the routes of services of all nodes.
pub const ANNOUNCEMENTS_PREFIX: &str = "/cambric/announcements/v1/";

/// The last part of a key: one node can have further keys in a later version.
const SERVICES: &str = "/services";

/// The key of the [`ServiceRoutes`] of a node: `<prefix><node>/services`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceRoutesKey {
    /// The name of the Node resource.
    pub node: String,
}

impl ServiceRoutesKey {
    /// Returns the key of a node.
    pub fn of(node: &str) -> Self {
        let node = node.to_owned();
        Self { node }
    }

    /// Returns the prefix of all keys of a node.
    pub fn prefix(node: &str) -> String {
        format!("{ANNOUNCEMENTS_PREFIX}{node}/")
    }
}

impl fmt::Display for ServiceRoutesKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ANNOUNCEMENTS_PREFIX}{}{SERVICES}", self.node)
    }
}

/// A text that is not the key of a node's service routes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a key of the form {ANNOUNCEMENTS_PREFIX}<node>{SERVICES}")]
pub struct ServiceRoutesKeyError;

impl FromStr for ServiceRoutesKey {
    type Err = ServiceRoutesKeyError;

    fn from_str(text: &str) -> Result<Self, ServiceRoutesKeyError> {
        let rest = text.strip_prefix(ANNOUNCEMENTS_PREFIX);
        let node = rest.and_then(|rest| rest.strip_suffix(SERVICES));
        let node = node.filter(|node| NAME.holds(node));
        node.map(Self::of).ok_or(ServiceRoutesKeyError)
    }
}

/// The routes of services that a node announces. A field that is unknown makes the value invalid: it
/// may restrict a route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceRoutes {
    /// The routes, each address once, in ascending order.
    pub routes: Vec<ServiceRoute>,
}

/// The route to one address of services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceRoute {
    /// The address.
    pub address: IpAddr,
    /// The services with this address, each as `<namespace>/<name>`.
    pub services: Vec<String>,
    /// Communities of the route.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub communities: BTreeSet<CommunityValue>,
    /// MULTI_EXIT_DISC of the route (RFC 4271 §5.1.4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// The names of the BGPPeers whose peers receive the route; without names, all peers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub peers: BTreeSet<String>,
}

impl ServiceRoutes {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_one_form() {
        let text = "/cambric/announcements/v1/r1-c07/services";
        let key = ServiceRoutesKey::of("r1-c07");
        assert_eq!(text.parse(), Ok(key.clone()));
        assert_eq!(key.to_string(), text);
        for wrong in [
            "/cambric/announcements/v1/services",
            "/cambric/announcements/v1//services",
            "/cambric/announcements/v1/a/b/services",
            "/cambric/announcements/v1/A/services",
            "/cambric/announcements/v1/a/other",
            "/cambric/v1/a/services",
        ] {
            assert!(wrong.parse::<ServiceRoutesKey>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn value_has_the_documented_json() {
        let json = r#"{"routes":[{"address":"10.96.0.10","services":["prod/web"],"communities":["64512:300"],"med":5,"peers":["rack1"]},{"address":"fd96::1","services":["prod/web"]}]}"#;
        let routes = ServiceRoutes::parse(json.as_bytes()).unwrap();
        assert_eq!(routes.encode(), json.as_bytes());
        let unknown =
            r#"{"routes":[{"address":"10.96.0.10","services":["prod/web"],"localPref":5}]}"#;
        let error = ServiceRoutes::parse(unknown.as_bytes()).unwrap_err();
        assert_eq!(error.field, "routes[0].localPref");
        assert!(ServiceRoutes::parse(b"{}").is_err());
    }
}
