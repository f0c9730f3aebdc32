//! Annotations of namespaces and pods with wishes for the address of an endpoint.

use std::net::IpAddr;

use calico_model::{Mac, Network};
use serde_json::Value;

use crate::limits::ANNOTATION_VALUES_MAX;
use crate::network::{is_mapped, network};
use crate::object::{Labels, annotations, begin};
use crate::report::{Converted, Fault, Outcome, Reports, quoted};

/// The prefix of the annotations.
const PREFIX: &str = "cni.projectcalico.org/";

/// The annotations of a pod, and whether a namespace may have them for its pods.
const KNOWN: [(&str, bool); 8] = [
    ("allowedSourcePrefixes", false),
    ("floatingIPs", false),
    ("hwAddr", false),
    ("ipAddrs", false),
    ("ipAddrsNoIpam", false),
    ("ipFamilies", true),
    ("ipv4pools", true),
    ("ipv6pools", true),
];

/// Annotations with the prefix that Calico's plugin writes.
const WRITTEN: [&str; 3] = ["containerID", "podIP", "podIPs"];

/// The beginnings of annotations with limits of traffic, which have no effect.
const LIMITS: [&str; 3] = [
    "qos.projectcalico.org/",
    "kubernetes.io/ingress-bandwidth",
    "kubernetes.io/egress-bandwidth",
];

/// The wishes for the address of a pod's endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressRequest {
    /// IPv4 pools by range or name (`ipv4pools`), in place of the network's.
    pub ipv4_pools: Option<Vec<String>>,
    /// IPv6 pools by range or name (`ipv6pools`), in place of the network's.
    pub ipv6_pools: Option<Vec<String>>,
    /// Whether it gets an IPv4 and an IPv6 address (`ipFamilies`), in place of the network's.
    pub families: Option<(bool, bool)>,
    /// Its addresses out of a pool (`ipAddrs`): at most one of each family.
    pub addresses: Vec<IpAddr>,
    /// Its addresses outside of all pools (`ipAddrsNoIpam`): at most one of each family.
    pub addresses_without_ipam: Vec<IpAddr>,
    /// Its floating addresses (`floatingIPs`).
    pub floating: Vec<IpAddr>,
    /// Further sources of its packets (`allowedSourcePrefixes`).
    pub source_prefixes: Vec<Network>,
    /// Its Ethernet address (`hwAddr`).
    pub mac: Option<Mac>,
}

/// Reads the annotations of a Namespace and of a Pod in it. Pools and families of the pod have
/// precedence. An invalid annotation makes the whole request unreadable: the pod cannot start.
pub fn address_request(namespace: &Value, pod: &Value) -> Converted<AddressRequest> {
    let (mut reports, is_valid) = begin("Pod", pod, true);
    if !is_valid {
        return reports.unreadable();
    }
    match annotations(namespace).and_then(|outer| read(&outer, &annotations(pod)?, &mut reports)) {
        Ok(request) => reports.done(Outcome::Resource(request)),
        Err(fault) => {
            reports.fault(fault, "the pod cannot start");
            reports.unreadable()
        }
    }
}

fn read(outer: &Labels, own: &Labels, reports: &mut Reports) -> Result<AddressRequest, Fault> {
    for name in own.keys().chain(outer.keys()) {
        if LIMITS.iter().any(|limit| name.starts_with(limit)) {
            reports.add(field(name), "is unsupported; the traffic has no such limit");
        }
    }
    for (labels, is_namespace) in [(own, false), (outer, true)] {
        for name in labels.keys().filter_map(|name| name.strip_prefix(PREFIX)) {
            known(name, is_namespace)?;
        }
    }
    let inherited = |name: &str| match texts(own, name)? {
        Some(texts) => Ok(Some(texts)),
        None => texts_with_name(outer, name),
    };
    let addresses = |name: &str| single_family(name, addresses(own, name)?);
    let request = AddressRequest {
        ipv4_pools: inherited("ipv4pools")?,
        ipv6_pools: inherited("ipv6pools")?,
        families: inherited("ipFamilies")?.map(families).transpose()?,
        addresses: addresses("ipAddrs")?,
        addresses_without_ipam: addresses("ipAddrsNoIpam")?,
        floating: self::addresses(own, "floatingIPs")?,
        source_prefixes: prefixes(own)?,
        mac: mac(own)?,
    };
    if !request.addresses.is_empty() && !request.addresses_without_ipam.is_empty() {
        let reason = "ipAddrs and ipAddrsNoIpam exclude each other";
        return Err((calico("ipAddrsNoIpam"), reason.to_owned()));
    }
    Ok(request)
}

/// Rejects an annotation without a meaning.
fn known(name: &str, is_namespace: bool) -> Result<(), Fault> {
    let found = KNOWN.iter().find(|(known, _)| *known == name);
    let reason = match found {
        Some((_, is_inherited)) if is_namespace && !is_inherited => {
            "in the namespace: it is an annotation of pods"
        }
        Some(_) => return Ok(()),
        None if WRITTEN.contains(&name) => return Ok(()),
        None => "is unknown",
    };
    Err((calico(name), reason.to_owned()))
}

fn field(name: &str) -> String {
    format!("metadata.annotations[{name}]")
}

fn calico(name: &str) -> String {
    field(&format!("{PREFIX}{name}"))
}

fn texts_with_name(of: &Labels, name: &str) -> Result<Option<Vec<String>>, Fault> {
    let in_namespace = |(field, reason)| (field, format!("in the namespace: {reason}"));
    texts(of, name).map_err(in_namespace)
}

/// Reads a list of texts in JSON. An empty annotation counts as missing.
fn texts(of: &Labels, name: &str) -> Result<Option<Vec<String>>, Fault> {
    let given = of.get(&format!("{PREFIX}{name}"));
    let Some(text) = given.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let fault = |reason: &str| {
        let found = quoted(&text.as_str().into());
        (calico(name), format!("{found} is not {reason}"))
    };
    let list: Vec<String> =
        serde_json::from_str(text).map_err(|_| fault("a list such as [\"10.65.3.3\"]"))?;
    match list.len() > ANNOTATION_VALUES_MAX {
        true => Err(fault(&format!(
            "a list of at most {ANNOTATION_VALUES_MAX} values"
        ))),
        false => Ok(Some(list)),
    }
}

fn families(texts: Vec<String>) -> Result<(bool, bool), Fault> {
    let has = |family: &str| texts.iter().any(|text| text == family);
    let (v4, v6) = (has("IPv4"), has("IPv6"));
    match texts.len() == usize::from(v4) + usize::from(v6) && (v4 || v6) {
        true => Ok((v4, v6)),
        false => {
            let found = quoted(&texts.into());
            let reason = format!("{found} is not a list of \"IPv4\" and \"IPv6\"");
            Err((calico("ipFamilies"), reason))
        }
    }
}

fn addresses(of: &Labels, name: &str) -> Result<Vec<IpAddr>, Fault> {
    let given = texts(of, name)?.unwrap_or_default().into_iter();
    let addresses = given.map(|text| {
        let address = text.parse().ok().filter(|address| !is_mapped(*address));
        let fault = || {
            let found = quoted(&text.as_str().into());
            (calico(name), format!("{found} is not an address"))
        };
        address.ok_or_else(fault)
    });
    addresses.collect()
}

/// Returns the addresses if there is at most one of each family.
fn single_family(name: &str, addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, Fault> {
    let of_v4 = addresses.iter().filter(|address| address.is_ipv4()).count();
    match of_v4 > 1 || addresses.len() - of_v4 > 1 {
        true => {
            let reason = "has more than one address of a family";
            Err((calico(name), reason.to_owned()))
        }
        false => Ok(addresses),
    }
}

fn prefixes(of: &Labels) -> Result<Vec<Network>, Fault> {
    let name = "allowedSourcePrefixes";
    let given = texts(of, name)?.unwrap_or_default().into_iter();
    let prefixes = given.map(|text| {
        let network = network(&text.into()).map_err(|reason| (calico(name), reason))?;
        Ok(Network(network))
    });
    prefixes.collect()
}

fn mac(of: &Labels) -> Result<Option<Mac>, Fault> {
    let given = of.get(&format!("{PREFIX}hwAddr"));
    let Some(text) = given.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let fault = |_| {
        let found = quoted(&text.as_str().into());
        (
            calico("hwAddr"),
            format!("{found} is not an Ethernet address"),
        )
    };
    text.parse().map(Some).map_err(fault)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(outer: &[(&str, &str)], own: &[(&str, &str)]) -> Converted<AddressRequest> {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            let pairs = pairs.map(|(name, text)| (format!("{PREFIX}{name}"), json!(text)));
            Value::Object(pairs.collect())
        };
        let namespace = json!({"metadata": {"name": "prod", "annotations": of(outer)}});
        let metadata = json!({"name": "web", "namespace": "prod", "annotations": of(own)});
        address_request(&namespace, &json!({ "metadata": metadata }))
    }

    #[test]
    fn annotations_of_the_pod_have_precedence() {
        let outer = [
            ("ipv4pools", r#"["a"]"#),
            ("ipv6pools", r#"["b"]"#),
            ("ipFamilies", r#"["IPv4"]"#),
        ];
        let own = [
            ("ipv4pools", r#"["10.66.0.0/16", "c"]"#),
            ("ipFamilies", r#"["IPv6", "IPv4"]"#),
            ("ipv6pools", ""),
            ("ipAddrs", r#"["10.65.3.3", "fd65::3"]"#),
            ("floatingIPs", r#"["203.0.113.9"]"#),
            ("allowedSourcePrefixes", r#"["192.0.2.5/28"]"#),
            ("hwAddr", "02:00:00:00:07:07"),
            ("podIP", "10.65.3.3/32"),
        ];
        let found = request(&outer, &own);
        assert_eq!(found.reports, []);
        let wanted = AddressRequest {
            ipv4_pools: Some(vec!["10.66.0.0/16".into(), "c".into()]),
            ipv6_pools: Some(vec!["b".into()]),
            families: Some((true, true)),
            addresses: vec!["10.65.3.3".parse().unwrap(), "fd65::3".parse().unwrap()],
            floating: vec!["203.0.113.9".parse().unwrap()],
            source_prefixes: vec!["192.0.2.0/28".parse().unwrap()],
            mac: Some("02:00:00:00:07:07".parse().unwrap()),
            ..AddressRequest::default()
        };
        assert_eq!(found.resource().unwrap(), wanted);
        assert_eq!(
            request(&[], &[]).resource(),
            Some(AddressRequest::default())
        );
    }

    #[test]
    fn invalid_annotation_makes_the_request_unreadable() {
        let many = json!(vec!["a"; ANNOTATION_VALUES_MAX + 1]).to_string();
        for (name, text) in [
            ("ipv4pools", "a"),
            ("ipv4pools", "[7]"),
            ("ipv6pools", &*many),
            ("ipFamilies", "[]"),
            ("ipFamilies", r#"["IPv4", "IPv4"]"#),
            ("ipFamilies", r#"["ipv4"]"#),
            ("ipAddrs", r#"["10.0.0.1", "10.0.0.2"]"#),
            ("ipAddrs", r#"["10.0.0.1/32"]"#),
            ("ipAddrsNoIpam", r#"["::1", "::2"]"#),
            ("floatingIPs", r#"["x"]"#),
            ("allowedSourcePrefixes", r#"["192.0.2.5"]"#),
            ("hwAddr", "02"),
            ("ipAddr", r#"["10.0.0.1"]"#),
            ("ipFamily", ""),
        ] {
            let found = request(&[], &[(name, text)]);
            assert_eq!(found.outcome, Outcome::Unreadable, "{name} {text}");
            assert_eq!(found.reports[0].field, calico(name), "{text}");
        }
        let both = [("ipAddrs", r#"["::1"]"#), ("ipAddrsNoIpam", r#"["::2"]"#)];
        assert_eq!(request(&[], &both).outcome, Outcome::Unreadable);
        let found = request(&[("ipFamilies", "x")], &[]);
        assert!(found.reports[0].reason.starts_with("in the namespace: "));
        for name in ["floatingIPs", "hwAddr", "ipAddrs", "ipAddrsNoIpam"] {
            let found = request(&[(name, "")], &[]);
            assert_eq!(found.outcome, Outcome::Unreadable, "{name}");
            let reason = &found.reports[0].reason;
            assert!(reason.contains("it is an annotation of pods"), "{reason}");
        }
    }

    #[test]
    fn limits_of_traffic_are_reported() {
        let annotations = json!({"qos.projectcalico.org/ingressBandwidth": "1M",
            "kubernetes.io/egress-bandwidth": "1M", "other": "x"});
        let metadata = json!({"name": "web", "namespace": "prod", "annotations": annotations});
        let found = address_request(&json!({}), &json!({ "metadata": metadata }));
        assert_eq!(found.reports.len(), 2);
        assert!(found.resource().is_some());
    }
}
