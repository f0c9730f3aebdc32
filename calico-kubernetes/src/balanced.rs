//! Services with their addresses, and the endpoints behind them, as far as routes depend on them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calico_model::{CommunityValue, ServiceName};
use serde_json::Value;

use crate::balancer::{Balancer, balancer};
use crate::limits::{COMMUNITIES_MAX, PEERS_MAX, SERVICE_ADDRESSES_MAX};
use crate::network::is_mapped;
use crate::object::{Labels, annotations, begin, list, not};
use crate::report::{Converted, Fault, Outcome, Reports, quoted};
use crate::service::{Members, endpoint_slice};

/// The prefix of Cambric's annotations of a Service about its routes.
const PREFIX: &str = "cambric.io/bgp-";

/// The annotation with communities, separated by commas.
pub const COMMUNITIES_ANNOTATION: &str = "cambric.io/bgp-communities";

/// The annotation with MULTI_EXIT_DISC.
pub const MED_ANNOTATION: &str = "cambric.io/bgp-med";

/// The annotation with the names of BGPPeers, separated by commas.
pub const PEERS_ANNOTATION: &str = "cambric.io/bgp-peers";

/// The types of services with addresses.
const TYPES: [&str; 3] = ["ClusterIP", "NodePort", "LoadBalancer"];

/// The value of `clusterIP` of a service without cluster addresses.
const HEADLESS: &str = "None";

/// The selection of the endpoints that a node sends packets to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TrafficPolicy {
    /// All endpoints of the service.
    #[default]
    Cluster,
    /// The endpoints on the same node.
    Local,
}

/// The attributes of the routes of a service, by its annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteAttributes {
    /// Communities.
    pub communities: BTreeSet<CommunityValue>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// The names of the BGPPeers that receive the routes; without names, all.
    pub peers: BTreeSet<String>,
}

impl RouteAttributes {
    /// Returns whether no annotation sets any.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeService {
    /// Its name.
    pub name: ServiceName,
    /// Its cluster addresses.
    pub cluster_ips: BTreeSet<IpAddr>,
    /// Its external addresses (`externalIPs`).
    pub external_ips: BTreeSet<IpAddr>,
    /// The addresses of its load balancer, without those that a proxy has (`ipMode`).
    pub load_balancer_ips: BTreeSet<IpAddr>,
    /// The traffic policy of the cluster addresses.
    pub internal: TrafficPolicy,
    /// The traffic policy of the other addresses.
    pub external: TrafficPolicy,
    /// Its wishes for addresses, if it is of type `LoadBalancer`.
    pub balancer: Option<Balancer>,
    /// The attributes of its routes; `None` if an annotation about them is invalid: then it has no
    /// routes.
    pub attributes: Option<RouteAttributes>,
}

/// The readiness of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    /// It takes connections.
    Ready,
    /// It terminates, and still takes connections.
    Draining,
    /// It takes none.
    NotReady,
}

/// An endpoint of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeEndpoint {
    /// The name of its node in Kubernetes; empty if it has none.
    pub node: String,
    /// The namespace and name of its pod, if it is one.
    pub pod: Option<(String, String)>,
    /// Its readiness.
    pub readiness: Readiness,
}

/// An EndpointSlice.
#[derive(Debug, Clone, PartialEq)]
pub struct KubeSlice {
    /// The record for Felix.
    pub members: Members,
    /// The family of its addresses; `None` for a slice without addresses.
    pub is_ipv6: Option<bool>,
    /// Its endpoints.
    pub endpoints: Vec<KubeEndpoint>,
}

/// Converts a Service. One without addresses, such as one of type `ExternalName`, has empty lists.
pub fn balanced_service(value: &Value) -> Converted<KubeService> {
    let (mut reports, is_valid) = begin("Service", value, true);
    if !is_valid {
        return reports.unreadable();
    }
    let name = ServiceName {
        namespace: reports.object.namespace.clone(),
        name: reports.object.name.clone(),
    };
    let spec = &value["spec"];
    let mut service = KubeService {
        name,
        cluster_ips: BTreeSet::new(),
        external_ips: BTreeSet::new(),
        load_balancer_ips: BTreeSet::new(),
        internal: TrafficPolicy::Cluster,
        external: TrafficPolicy::Cluster,
        balancer: balancer(value),
        attributes: None,
    };
    let attributes = annotations(value)
        .and_then(|all| attributes(&all))
        .and_then(|attributes| {
            service.internal = policy(spec, "internalTrafficPolicy")?;
            service.external = policy(spec, "externalTrafficPolicy")?;
            Ok(attributes)
        });
    match attributes {
        Ok(attributes) => service.attributes = Some(attributes),
        Err(fault) => reports.fault(fault, "no node announces the service by a route of its own"),
    }
    let kind = spec["type"].as_str().unwrap_or(TYPES[0]);
    if TYPES.contains(&kind) {
        service.cluster_ips = addresses(&spec["clusterIPs"], "spec.clusterIPs", &mut reports);
        service.external_ips = addresses(&spec["externalIPs"], "spec.externalIPs", &mut reports);
    }
    if kind == "LoadBalancer" {
        service.load_balancer_ips = ingress(value, &mut reports);
    }
    reports.done(Outcome::Resource(service))
}

/// Converts an EndpointSlice with the readiness of its endpoints. A slice without a service has no
/// record.
pub fn balanced_slice(value: &Value) -> Converted<KubeSlice> {
    let Converted { outcome, reports } = endpoint_slice(value);
    let outcome = match outcome {
        Outcome::Resource(members) => Outcome::Resource(KubeSlice {
            members,
            is_ipv6: match value["addressType"].as_str() {
                Some("IPv4") => Some(false),
                Some("IPv6") => Some(true),
                _ => None,
            },
            endpoints: list(&value["endpoints"], "endpoints")
                .unwrap_or_default()
                .iter()
                .map(endpoint)
                .collect(),
        }),
        Outcome::Absent => Outcome::Absent,
        Outcome::Unreadable => Outcome::Unreadable,
    };
    Converted { outcome, reports }
}

/// Reads an endpoint. A condition that is missing counts as the API defines: `ready` is true, `serving`
/// is `ready`, and `terminating` is false. One of another form counts as not ready.
fn endpoint(value: &Value) -> KubeEndpoint {
    let conditions = &value["conditions"];
    let condition = |name: &str, default: bool| match &conditions[name] {
        Value::Null => Some(default),
        given => given.as_bool(),
    };
    let ready = condition("ready", true);
    let serving = condition("serving", ready.unwrap_or_default());
    let terminating = condition("terminating", false);
    let readiness = match (ready, serving, terminating) {
        (Some(true), _, _) => Readiness::Ready,
        // KEP-1669: kube-proxy uses these if no endpoint is ready.
        (Some(false), Some(true), Some(true)) => Readiness::Draining,
        _ => Readiness::NotReady,
    };
    let target = &value["targetRef"];
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let is_pod = target["kind"] == "Pod";
    KubeEndpoint {
        node: text(&value["nodeName"]),
        pod: is_pod.then(|| (text(&target["namespace"]), text(&target["name"]))),
        readiness,
    }
}

fn policy(spec: &Value, field: &str) -> Result<TrafficPolicy, Fault> {
    match &spec[field] {
        Value::Null => Ok(TrafficPolicy::Cluster),
        text if text == "" || text == "Cluster" => Ok(TrafficPolicy::Cluster),
        text if text == "Local" => Ok(TrafficPolicy::Local),
        other => Err((format!("spec.{field}"), not(other, "Cluster or Local"))),
    }
}

/// Reads a list of addresses. Others are reported and left out.
fn addresses(value: &Value, field: &str, reports: &mut Reports) -> BTreeSet<IpAddr> {
    let given = list(value, field).unwrap_or_else(|fault| {
        reports.fault(fault, "the service has no such addresses");
        &[]
    });
    let mut all = BTreeSet::new();
    for (at, text) in given.iter().enumerate() {
        if text != HEADLESS && text != "" {
            add(&mut all, text, &format!("{field}[{at}]"), reports);
        }
    }
    all
}

fn add(all: &mut BTreeSet<IpAddr>, text: &Value, field: &str, reports: &mut Reports) {
    let parsed = text.as_str().and_then(|text| text.parse::<IpAddr>().ok());
    match parsed.filter(|address| !is_mapped(*address)) {
        Some(_) if all.len() >= SERVICE_ADDRESSES_MAX => {
            let reason = format!("more than {SERVICE_ADDRESSES_MAX} addresses; it has no route");
            reports.add(field, reason);
        }
        Some(address) => drop(all.insert(address)),
        None => reports.add(
            field,
            format!("{}; it has no route", not(text, "an address")),
        ),
    }
}

/// Reads the addresses of the load balancer. A proxy receives the packets of one with the mode `Proxy`.
fn ingress(value: &Value, reports: &mut Reports) -> BTreeSet<IpAddr> {
    let field = "status.loadBalancer.ingress";
    let given = list(&value["status"]["loadBalancer"]["ingress"], field);
    let given = given.unwrap_or_else(|fault| {
        reports.fault(fault, "the load balancer has no addresses");
        &[]
    });
    let mut all = BTreeSet::new();
    for (at, entry) in given.iter().enumerate() {
        // An entry can have a name in place of an address.
        if entry["ipMode"] != "Proxy" && !entry["ip"].is_null() && entry["ip"] != "" {
            add(
                &mut all,
                &entry["ip"],
                &format!("{field}[{at}].ip"),
                reports,
            );
        }
    }
    all
}

/// Reads the annotations about routes. An unknown one is a fault: it may restrict the routes.
fn attributes(all: &Labels) -> Result<RouteAttributes, Fault> {
    let mut found = RouteAttributes::default();
    let own = all.iter().filter(|(name, _)| name.starts_with(PREFIX));
    for (name, text) in own {
        let fault = |reason: String| (format!("metadata.annotations[{name}]"), reason);
        let found_text = || quoted(&text.as_str().into());
        match name.as_str() {
            COMMUNITIES_ANNOTATION => {
                found.communities = words(text, COMMUNITIES_MAX, |word| word.parse().ok())
                    .map_err(|reason| fault(format!("{reason}, such as \"64512:300\"")))?;
            }
            MED_ANNOTATION => {
                let is_number = text.bytes().all(|octet| octet.is_ascii_digit());
                let med = text.parse().ok().filter(|_| is_number);
                let reason = || fault(format!("{} is not a number of 32 bits", found_text()));
                found.med = Some(med.ok_or_else(reason)?);
            }
            PEERS_ANNOTATION => {
                let name = |word: &str| {
                    let is_name = calico_model::is_resource_name(word);
                    is_name.then(|| word.to_owned())
                };
                found.peers = words(text, PEERS_MAX, name)
                    .map_err(|reason| fault(format!("{reason}, the names of BGPPeers")))?;
            }
            _ => return Err(fault("the annotation is unknown".to_owned())),
        }
    }
    Ok(found)
}

/// Reads words that are separated by commas; at least one.
fn words<T: Ord>(
    text: &str,
    most: usize,
    read: impl Fn(&str) -> Option<T>,
) -> Result<BTreeSet<T>, String> {
    let all: Option<BTreeSet<T>> = text.split(',').map(|word| read(word.trim())).collect();
    let found = || quoted(&text.into());
    match all {
        Some(all) if all.len() <= most => Ok(all),
        Some(_) => Err(format!("{} has more than {most} values", found())),
        None => Err(format!("{} is not a list of values", found())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(spec: Value, annotations: Value) -> Converted<KubeService> {
        balanced_service(
            &json!({"metadata": {"name": "web", "namespace": "prod", "annotations": annotations},
            "spec": spec, "status": {"loadBalancer": {"ingress": [
                {"ip": "192.0.2.7", "ipMode": "VIP"}, {"ip": "192.0.2.8", "ipMode": "Proxy"},
                {"hostname": "lb.example"}]}}}),
        )
    }

    fn texts(addresses: &BTreeSet<IpAddr>) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn service_has_its_addresses_and_policies() {
        let spec = json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.10", "fd96::1"],
            "externalIPs": ["203.0.113.7"], "externalTrafficPolicy": "Local"});
        let annotations = json!({"cambric.io/bgp-communities": "64512:300, 64512:4:9",
            "cambric.io/bgp-med": "5", "cambric.io/bgp-peers": "rack1", "other": "x"});
        let found = service(spec, annotations);
        assert_eq!(found.reports, []);
        let found = found.resource().unwrap();
        assert_eq!(texts(&found.cluster_ips), ["10.96.0.10", "fd96::1"]);
        assert_eq!(texts(&found.external_ips), ["203.0.113.7"]);
        assert_eq!(texts(&found.load_balancer_ips), ["192.0.2.7"]);
        assert_eq!(found.internal, TrafficPolicy::Cluster);
        assert_eq!(found.external, TrafficPolicy::Local);
        let attributes = found.attributes.unwrap();
        assert_eq!(attributes.communities.len(), 2);
        assert_eq!(attributes.med, Some(5));
        assert!(attributes.peers.contains("rack1"));
    }

    #[test]
    fn service_without_addresses_has_empty_lists() {
        let headless = service(json!({"clusterIPs": ["None"]}), json!({}));
        let name = service(
            json!({"type": "ExternalName", "externalIPs": ["203.0.113.7"]}),
            json!({}),
        );
        for found in [headless, name] {
            assert_eq!(found.reports, []);
            let found = found.resource().unwrap();
            assert!(found.cluster_ips.is_empty() && found.external_ips.is_empty());
            assert!(found.load_balancer_ips.is_empty());
        }
    }

    #[test]
    fn invalid_annotation_leaves_no_route() {
        for (annotation, text) in [
            ("communities", ""),
            ("communities", "64512"),
            ("communities", "64512:300,,64512:301"),
            ("med", "-1"),
            ("med", "+1"),
            ("med", ""),
            ("med", "4294967296"),
            ("peers", "Rack 1"),
            ("peers", ""),
            ("local-pref", "7"),
        ] {
            let name = format!("cambric.io/bgp-{annotation}");
            let found = service(json!({}), json!({ name.clone(): text }));
            assert_eq!(found.reports.len(), 1, "{name} {text}");
            let field = format!("metadata.annotations[{name}]");
            assert_eq!(found.reports[0].field, field);
            assert_eq!(found.resource().unwrap().attributes, None);
        }
        let found = service(json!({"internalTrafficPolicy": "Near"}), json!({}));
        assert_eq!(found.reports[0].field, "spec.internalTrafficPolicy");
        assert_eq!(found.resource().unwrap().attributes, None);
    }

    #[test]
    fn readiness_follows_the_conditions() {
        for (conditions, wanted) in [
            (json!(null), Readiness::Ready),
            (json!({"ready": null}), Readiness::Ready),
            (
                json!({"ready": true, "terminating": true}),
                Readiness::Ready,
            ),
            (
                json!({"ready": false, "serving": true, "terminating": true}),
                Readiness::Draining,
            ),
            (
                json!({"ready": false, "serving": true}),
                Readiness::NotReady,
            ),
            (
                json!({"ready": false, "terminating": true}),
                Readiness::NotReady,
            ),
            (json!({"ready": "yes"}), Readiness::NotReady),
        ] {
            let found = endpoint(&json!({ "conditions": conditions }));
            assert_eq!(found.readiness, wanted, "{conditions}");
        }
    }
}
