//! The agents' reports: keys and values.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::key::endpoint_name::EndpointName;
use crate::key::error::KeyError;

/// The region of a status key in a multi-region deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Region {
    /// Without regions.
    #[default]
    None,
    /// The named region.
    Named(String),
}

impl Region {
    /// Returns the region of this name; an empty name means no region. A name with a slash is
    /// rejected.
    pub fn new(name: &str) -> Result<Self, KeyError> {
        match name {
            "" => Ok(Self::None),
            name if name.contains('/') => Err(KeyError::Part),
            name => Ok(Self::Named(name.to_owned())),
        }
    }

    fn from_part(part: &str) -> Result<Self, KeyError> {
        match part.strip_prefix("region-") {
            Some(name) if !name.is_empty() => Self::new(name),
            _ if part == "no-region" => Ok(Self::None),
            _ => Err(KeyError::Status),
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("no-region"),
            Self::Named(name) => write!(f, "region-{name}"),
        }
    }
}

/// The key of an agent's report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusKey {
    /// The host's agent is alive ([`HostStatus`]); under a lease.
    Host {
        /// The region.
        region: Region,
        /// The host.
        host: String,
    },
    /// The same value without a lease, so that the last report survives the agent.
    LastReported {
        /// The region.
        region: Region,
        /// The host.
        host: String,
    },
    /// State of a workload's endpoint ([`EndpointStatus`]).
    Workload {
        /// The region.
        region: Region,
        /// The host.
        host: String,
        /// The orchestrator of the endpoint.
        orchestrator: String,
        /// Namespace and workload separated by a slash.
        workload: String,
        /// The endpoint within the workload.
        endpoint: String,
    },
    /// State of a host's endpoint ([`EndpointStatus`]).
    HostEndpoint {
        /// The host.
        host: String,
        /// The endpoint.
        endpoint: String,
    },
}

impl StatusKey {
    /// Returns the status key of a workload endpoint, from its namespace and name.
    pub fn of_workload(region: Region, namespace: &str, name: &EndpointName) -> Self {
        Self::Workload {
            region,
            host: name.node().to_owned(),
            orchestrator: name.orchestrator().to_owned(),
            workload: format!("{namespace}/{}", name.workload()),
            endpoint: name.endpoint().to_owned(),
        }
    }

    /// Returns the prefix of the status keys of a host's workload endpoints.
    pub fn workloads_prefix(region: &Region, host: &str) -> String {
        format!("/calico/felix/v2/{region}/host/{host}/workload/")
    }

    /// Returns the prefix of the status keys of a host's own endpoints.
    pub fn host_endpoints_prefix(host: &str) -> String {
        format!("/calico/felix/v1/host/{host}/endpoint/")
    }
}

impl fmt::Display for StatusKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { region, host } => {
                write!(f, "/calico/felix/v2/{region}/host/{host}/status")
            }
            Self::LastReported { region, host } => {
                write!(
                    f,
                    "/calico/felix/v2/{region}/host/{host}/last_reported_status"
                )
            }
            Self::Workload {
                region,
                host,
                orchestrator,
                workload,
                endpoint,
            } => write!(
                f,
                "/calico/felix/v2/{region}/host/{host}/workload/{}/{}/endpoint/{}",
                escape(orchestrator),
                escape(workload),
                escape(endpoint)
            ),
            Self::HostEndpoint { host, endpoint } => {
                write!(
                    f,
                    "/calico/felix/v1/host/{host}/endpoint/{}",
                    escape(endpoint)
                )
            }
        }
    }
}

impl FromStr for StatusKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let parts: Vec<&str> = text.split('/').collect();
        if parts.iter().skip(1).any(|part| part.is_empty()) {
            return Err(KeyError::Status);
        }
        match parts.as_slice() {
            ["", "calico", "felix", "v2", region, "host", host, "status"] => Ok(Self::Host {
                region: Region::from_part(region)?,
                host: (*host).to_owned(),
            }),
            [
                "",
                "calico",
                "felix",
                "v2",
                region,
                "host",
                host,
                "last_reported_status",
            ] => Ok(Self::LastReported {
                region: Region::from_part(region)?,
                host: (*host).to_owned(),
            }),
            [
                "",
                "calico",
                "felix",
                "v2",
                region,
                "host",
                host,
                "workload",
                by,
                workload,
                "endpoint",
                endpoint,
            ] => Ok(Self::Workload {
                region: Region::from_part(region)?,
                host: (*host).to_owned(),
                orchestrator: unescape(by)?,
                workload: unescape(workload)?,
                endpoint: unescape(endpoint)?,
            }),
            [
                "",
                "calico",
                "felix",
                "v1",
                "host",
                host,
                "endpoint",
                endpoint,
            ] => Ok(Self::HostEndpoint {
                host: (*host).to_owned(),
                endpoint: unescape(endpoint)?,
            }),
            _ => Err(KeyError::Status),
        }
    }
}

fn escape(part: &str) -> String {
    part.replace('%', "%25").replace('/', "%2f")
}

fn unescape(part: &str) -> Result<String, KeyError> {
    let mut pieces = part.split('%');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (character, rest) = if let Some(rest) = piece.strip_prefix("25") {
            ('%', rest)
        } else if let Some(rest) = piece.strip_prefix("2f") {
            ('/', rest)
        } else {
            return Err(KeyError::Status);
        };
        text.push(character);
        text.push_str(rest);
    }
    Ok(text)
}

/// The value that reports that a host's agent is alive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Time of writing, RFC 3339 (see [`rfc3339_utc`](crate::rfc3339_utc)).
    pub time: String,
    /// Seconds since the agent started.
    pub uptime: f64,
    /// True until the agent's first write has succeeded.
    pub first_update: bool,
}

/// The value under an endpoint's status key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointStatus {
    /// The state.
    pub status: EndpointState,
    /// Why it is an error. Calico has no such field; its readers ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<EndpointState> for EndpointStatus {
    fn from(status: EndpointState) -> Self {
        let reason = None;
        Self { status, reason }
    }
}

/// The state of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointState {
    /// Its interface is up and all its objects are in the kernel.
    Up,
    /// It is not up.
    Down,
    /// It cannot be set up: its interface is unknown, or belongs to another endpoint, …
    Error,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Key;

    #[test]
    fn keys_have_the_documented_text() {
        let name = EndpointName::new("h1", "openstack", "a%b", "p/1").unwrap_err();
        assert_eq!(name.to_string(), "a part of the name contains '/'");
        let name = EndpointName::new("h1", "k8s", "web-0", "eth0").unwrap();
        let key = StatusKey::of_workload(Region::None, "prod", &name);
        let text = "/calico/felix/v2/no-region/host/h1/workload/k8s/prod%2fweb-0/endpoint/eth0";
        assert_eq!(key.to_string(), text);
        assert_eq!(text.parse(), Ok(Key::Status(key)));

        let region = Region::new("east").unwrap();
        let key = StatusKey::Host {
            region,
            host: "h1".into(),
        };
        assert_eq!(
            key.to_string(),
            "/calico/felix/v2/region-east/host/h1/status"
        );
        let key = StatusKey::HostEndpoint {
            host: "h1".into(),
            endpoint: "a/b%".into(),
        };
        assert_eq!(
            key.to_string(),
            "/calico/felix/v1/host/h1/endpoint/a%2fb%25"
        );
        assert_eq!(Region::new("a/b"), Err(KeyError::Part));
    }

    #[test]
    fn other_keys_there_are_refused() {
        for rest in [
            "v2/no-region/host/round-trip-check",
            "v2/region-/host/h/status",
            "v2/nowhere/host/h/status",
            "v2/no-region/host//status",
            "v2/no-region/host/h/workload/a/b%2/endpoint/c",
            "v3/no-region/host/h/status",
        ] {
            let text = format!("/calico/felix/{rest}");
            assert_eq!(text.parse::<Key>(), Err(KeyError::Status), "{text}");
        }
    }

    #[test]
    fn values_have_the_documented_json() {
        let value = HostStatus {
            time: "2026-03-04T10:22:00Z".into(),
            uptime: 84.2,
            first_update: true,
        };
        let json = serde_json::to_string(&value).unwrap();
        assert_eq!(
            json,
            r#"{"time":"2026-03-04T10:22:00Z","uptime":84.2,"first_update":true}"#
        );
        let mut value = EndpointStatus::from(EndpointState::Up);
        let json = serde_json::to_string(&value).unwrap();
        assert_eq!(json, r#"{"status":"up"}"#);
        value.status = EndpointState::Error;
        value.reason = Some("taken".into());
        let json = serde_json::to_string(&value).unwrap();
        assert_eq!(json, r#"{"status":"error","reason":"taken"}"#);
        assert_eq!(
            serde_json::from_str::<EndpointStatus>(&json).unwrap(),
            value
        );
    }

    proptest! {
        #[test]
        fn workload_keys_round_trip(host in "[a-z]{1,4}", parts in prop::array::uniform3("[a-z/%]{1,6}")) {
            let [orchestrator, workload, endpoint] = parts;
            let key = StatusKey::Workload { region: Region::None, host, orchestrator, workload, endpoint };
            prop_assert_eq!(key.to_string().parse(), Ok(key));
        }
    }
}
