//! The result of ADD, in every version of the specification.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::failure::{Code, Failure, mistyped};
use crate::version::Version;

/// A result. Unknown fields are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    /// Interfaces, on the host and in the container.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub(crate) interfaces: Vec<Interface>,
    /// Addresses.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub(crate) ips: Vec<Ip>,
    /// Routes of the container.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub(crate) routes: Vec<Route>,
    /// DNS configuration.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) dns: Value,
}

/// An interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Interface {
    /// Its name.
    pub(crate) name: String,
    /// Its Ethernet address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) mac: String,
    /// Its network namespace; empty for the host's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) sandbox: String,
}

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ip {
    /// The address, and the length of its network's prefix.
    pub(crate) address: IpNet,
    /// The gateway, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gateway: Option<IpAddr>,
    /// The interface that has the address: an index into the interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interface: Option<usize>,
}

/// A route of the container. Fields of newer versions are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Route {
    /// The destination.
    pub(crate) dst: IpNet,
    /// The gateway; the container's default gateway if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gw: Option<IpAddr>,
    /// Further fields, passed on unchanged.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// Deserializes an empty list that other plugins write as `null`.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Fields of a route that only 1.1.0 has.
const ROUTE_1_1_0: [&str; 4] = ["mtu", "advmss", "priority", "table"];

impl Answer {
    /// Parses a result of any version from 0.2.0 on.
    ///
    /// # Errors
    ///
    /// The value is not a result.
    pub(crate) fn read(value: &Value) -> Result<Self, Failure> {
        let decode = |error: serde_json::Error| {
            Failure::new(
                Code::Decode,
                format!("a plugin's result {}", mistyped(&error)),
            )
        };
        if value.get("ip4").is_none() && value.get("ip6").is_none() {
            return serde_json::from_value(value.clone()).map_err(decode);
        }
        let mut answer = Self {
            dns: value["dns"].clone(),
            ..Self::default()
        };
        for family in ["ip4", "ip6"] {
            let old = &value[family];
            if old.is_null() {
                continue;
            }
            let ip = json!({"address": old["ip"], "gateway": old.get("gateway")});
            answer.ips.push(serde_json::from_value(ip).map_err(decode)?);
            if let Some(routes) = old.get("routes").filter(|routes| !routes.is_null()) {
                let routes: Vec<Route> = serde_json::from_value(routes.clone()).map_err(decode)?;
                answer.routes.extend(routes);
            }
        }
        Ok(answer)
    }

    /// Returns the result in the format of this version.
    ///
    /// # Errors
    ///
    /// The result cannot be expressed in that version.
    pub(crate) fn write(&self, version: Version) -> Result<Value, Failure> {
        let failed = |error: serde_json::Error| Failure::new(Code::Decode, error.to_string());
        if version == Version::V0_2_0 {
            return self.write_0_2_0();
        }
        let mut value = serde_json::to_value(self).map_err(failed)?;
        value["cniVersion"] = version.text().into();
        if version < Version::V1_0_0 {
            // The address family is repeated as a number.
            let ips = value.get_mut("ips").and_then(Value::as_array_mut);
            for (ip, written) in self.ips.iter().zip(ips.into_iter().flatten()) {
                let family = if ip.address.addr().is_ipv4() {
                    "4"
                } else {
                    "6"
                };
                written["version"] = family.into();
            }
        }
        if version < Version::V1_1_0 {
            let routes = value.get_mut("routes").and_then(Value::as_array_mut);
            for route in routes.into_iter().flatten() {
                if let Some(route) = route.as_object_mut() {
                    ROUTE_1_1_0
                        .iter()
                        .for_each(|field| drop(route.remove(*field)));
                }
            }
        }
        // Missing interfaces or DNS settings are written as an empty list or object, not as null.
        for (field, empty) in [("ips", json!([])), ("dns", json!({}))] {
            if value[field].is_null() {
                value[field] = empty;
            }
        }
        Ok(value)
    }

    /// Returns one address of each family, without interfaces.
    fn write_0_2_0(&self) -> Result<Value, Failure> {
        let mut value = json!({"cniVersion": Version::V0_2_0.text(), "dns": {}});
        if !self.dns.is_null() {
            value["dns"] = self.dns.clone();
        }
        for (family, ipv6) in [("ip4", false), ("ip6", true)] {
            let mut its = self
                .ips
                .iter()
                .filter(|ip| ip.address.addr().is_ipv6() == ipv6);
            let Some(ip) = its.next() else { continue };
            let routes: Vec<Value> = self
                .routes
                .iter()
                .filter(|route| route.dst.addr().is_ipv6() == ipv6)
                .map(|route| match route.gw {
                    Some(gw) => json!({"dst": route.dst, "gw": gw}),
                    None => json!({"dst": route.dst}),
                })
                .collect();
            value[family] = json!({"ip": ip.address, "routes": routes});
            if let Some(gateway) = ip.gateway {
                value[family]["gateway"] = json!(gateway);
            }
        }
        if value.get("ip4").is_none() && value.get("ip6").is_none() {
            let message = "version 0.2.0 has no result without addresses";
            return Err(Failure::new(Code::Version, message));
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        Answer {
            interfaces: vec![
                Interface {
                    name: "cali1".into(),
                    mac: "ee:ee:ee:ee:ee:ee".into(),
                    sandbox: String::new(),
                },
                Interface {
                    name: "eth0".into(),
                    mac: "02:00:00:00:00:01".into(),
                    sandbox: "/run/netns/a".into(),
                },
            ],
            ips: ["10.65.3.70/32", "fd65::1/128"]
                .map(|ip| Ip {
                    address: ip.parse().unwrap(),
                    gateway: None,
                    interface: Some(1),
                })
                .to_vec(),
            routes: vec![Route {
                dst: "10.0.0.0/8".parse().unwrap(),
                gw: None,
                more: Map::from_iter([("mtu".to_owned(), json!(1400))]),
            }],
            dns: json!({"nameservers": ["10.0.0.53"]}),
        }
    }

    #[test]
    fn every_version_has_its_form() {
        let written = |version| answer().write(version).unwrap();
        let newest = written(Version::V1_1_0);
        assert_eq!(
            newest["ips"][0],
            json!({"address": "10.65.3.70/32", "interface": 1})
        );
        assert_eq!(newest["routes"][0]["mtu"], 1400);
        assert_eq!(
            newest["interfaces"][0],
            json!({"name": "cali1", "mac": "ee:ee:ee:ee:ee:ee"})
        );
        assert_eq!(
            written(Version::V1_0_0)["routes"][0],
            json!({"dst": "10.0.0.0/8"})
        );
        for version in [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0] {
            let old = written(version);
            assert_eq!(old["cniVersion"], version.text());
            assert_eq!(
                (&old["ips"][0]["version"], &old["ips"][1]["version"]),
                (&json!("4"), &json!("6"))
            );
        }
        let oldest = written(Version::V0_2_0);
        assert_eq!(
            oldest["ip4"],
            json!({"ip": "10.65.3.70/32", "routes": [{"dst": "10.0.0.0/8"}]})
        );
        assert_eq!(oldest["ip6"]["ip"], "fd65::1/128");
        assert_eq!(oldest.get("interfaces"), None);
    }

    #[test]
    fn nothing_is_written_as_null_and_null_is_read_as_nothing() {
        for version in Version::ALL {
            let little = Answer {
                routes: Vec::new(),
                dns: Value::Null,
                ..answer()
            };
            let written = little.write(version).unwrap();
            let fields = written.as_object().unwrap();
            assert!(fields.values().all(|value| !value.is_null()), "{written}");
        }
        let read = Answer::read(&json!({"interfaces": null, "ips": null, "routes": null}));
        assert_eq!(read.unwrap(), Answer::default());
    }

    #[test]
    fn written_answer_is_read() {
        for version in Version::ALL {
            let read = Answer::read(&answer().write(version).unwrap()).unwrap();
            assert_eq!(read.ips.len(), 2, "{version:?}");
            assert_eq!(read.ips[0].address, answer().ips[0].address);
            assert_eq!(read.routes.len(), 1);
            assert_eq!(read.dns, answer().dns);
        }
        assert_eq!(
            Answer::read(&json!({"ips": [{"address": "x"}]}))
                .unwrap_err()
                .code,
            6
        );
    }
}
