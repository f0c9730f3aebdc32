//! Status files that an agent writes for the plugins of its host, one per endpoint: as in Calico, a
//! file in the directory `endpoint-status` while the endpoint is up; and a file in the directory
//! `endpoint-error` beside it while the endpoint is rejected.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::key::endpoint_name::EndpointName;
use crate::value::mac::Mac;
use crate::value::network::Network;

/// The content of such a file, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointFile {
    /// The interface on the host's side.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub iface_name: String,
    /// The workload's Ethernet address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Its IPv4 addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv4_nets: Vec<Network>,
    /// Its IPv6 addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv6_nets: Vec<Network>,
    /// The BGP peer that selects it, if one does.
    #[serde(rename = "bgpPeerName", skip_serializing_if = "String::is_empty")]
    pub bgp_peer_name: String,
    /// Index of the interface: an interface that was created again with the same name has another
    /// one. Calico's agent writes neither this field nor the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_index: Option<u32>,
    /// The container of the endpoint.
    #[serde(rename = "containerID", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// Why the endpoint is rejected.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl EndpointFile {
    /// The default parent directory of such files, for agents and plugins.
    pub const PATH_PREFIX: &str = "/var/run/calico";

    /// The directory of the files of endpoints that are up: all their objects are in the kernel.
    pub const UP: &str = "endpoint-status";

    /// The directory of the files of rejected endpoints, each with its reason.
    pub const ERROR: &str = "endpoint-error";

    /// Returns the file's name: orchestrator, `namespace/workload` and endpoint, separated by
    /// blanks.
    pub fn name(orchestrator: &str, workload: &str, endpoint: &str) -> String {
        [orchestrator, workload, endpoint].map(escape).join(" ")
    }

    /// Returns the name of the file of an endpoint, from its namespace and name.
    pub fn name_of(namespace: &str, name: &EndpointName) -> String {
        let workload = format!("{namespace}/{}", name.workload());
        Self::name(name.orchestrator(), &workload, name.endpoint())
    }
}

/// Escapes a part of a URL's path: octets that are not allowed in one are written as `%20`.
fn escape(part: &str) -> String {
    let mut text = String::with_capacity(part.len());
    for octet in part.bytes() {
        if octet.is_ascii_alphanumeric() || b"-_.~$&+=:@".contains(&octet) {
            text.push(char::from(octet));
        } else {
            let _ = write!(text, "%{octet:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_parts_of_a_url() {
        let name = EndpointName::new("r1-c07", "k8s", "web-0", "eth0").unwrap();
        assert_eq!(
            EndpointFile::name_of("prod", &name),
            "k8s prod%2Fweb-0 eth0"
        );
        assert_eq!(
            EndpointFile::name("a b", "n/w%", "e;é"),
            "a%20b n%2Fw%25 e%3B%C3%A9"
        );
    }

    #[test]
    fn values_have_the_documented_json() {
        let file = EndpointFile {
            iface_name: "cali1".into(),
            mac: "aa:bb:cc:00:11:22".parse().ok(),
            ipv4_nets: vec!["10.65.3.70/32".parse().unwrap()],
            ..EndpointFile::default()
        };
        let text =
            r#"{"ifaceName":"cali1","mac":"aa:bb:cc:00:11:22","ipv4Nets":["10.65.3.70/32"]}"#;
        assert_eq!(serde_json::to_string(&file).unwrap(), text);
        let more = r#"{"ifaceName":"cali1","mac":"aa:bb:cc:00:11:22","ipv4Nets":["10.65.3.70/32"],"newer":1}"#;
        assert_eq!(serde_json::from_str::<EndpointFile>(more).unwrap(), file);
    }
}
