//! Parses stored values. A value is accepted as a whole or not at all, except for addresses of
//! other hosts' endpoints; an error names the field.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_model::{
    Dscp, EndpointName, EndpointPort, Key, Kind, Metadata, Network, QosControls, RawSpec, Resource,
    ResourceKey, Spec, WorkloadEndpointSpec,
};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

use super::bandwidth::Bandwidth;
use super::policy::{Member, Role};
use super::types::{
    AppliesTo, Endpoint, EndpointId, HostEndpoint, NamedPort, Problem, is_interface_name,
};
use crate::limits::{INTERFACE_PREFIXES_MAX, PACKET_BURST};
use crate::render::{Limits, Period, Qos, Rate};

/// Labels that endpoints have in addition to their stored ones.
const NAMESPACE: &str = "projectcalico.org/namespace";
const ORCHESTRATOR: &str = "projectcalico.org/orchestrator";
const SERVICE_ACCOUNT: &str = "projectcalico.org/serviceaccount";
/// Prefixes of labels that are inherited from a namespace or a service account only.
const TAKEN_ON: [&str; 2] = ["pcns.", "pcsa."];
/// Prefix of a namespace's name in the name of its profile, from which a NetworkSet inherits the
/// namespace's labels.
const NAMESPACE_PROFILE: &str = "kns.";

/// A stored workload endpoint from the view of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// One of this host, and its data for rules.
    Local(Box<Endpoint>, Member),
    /// One of another host, and the problem of its invalid addresses, which are left out.
    Remote(Member, Option<Problem>),
    /// One without addresses: as if it did not exist.
    Absent,
    /// One of another host that is unparsable, or has no valid address.
    Unreadable(Problem),
}

/// Parses a resource.
pub(super) fn resource<S: Spec>(key: &str, octets: &[u8]) -> Result<Resource<S>, Problem> {
    Resource::parse(octets).map_err(|error| {
        let field = Some(error.field).filter(|field| !matches!(field.as_str(), "." | "?"));
        Problem::new(key, field.unwrap_or_default(), error.source.to_string())
    })
}

/// Parses a workload endpoint from the view of `hostname`.
pub(super) fn endpoint(
    key: &str,
    resource_key: &ResourceKey,
    octets: &[u8],
    hostname: &str,
) -> Result<Read, Problem> {
    let name: Result<EndpointName, _> = resource_key.name().parse();
    let parsed = match resource::<WorkloadEndpointSpec>(key, octets) {
        Ok(parsed) => parsed,
        // Unparsable, but by its name it belongs to another host.
        Err(problem) if name.as_ref().is_ok_and(|name| name.node() != hostname) => {
            return Ok(salvage(key, resource_key, octets, hostname, problem));
        }
        Err(problem) => return Err(problem),
    };
    let (spec, metadata) = (parsed.spec, parsed.metadata);
    if !spec.is_complete() {
        return Ok(Read::Absent);
    }
    let namespace = resource_key.namespace().unwrap_or_default();
    let (ports, port_problem) = ports(key, &spec.ports);
    let member = |addresses, role| Member {
        ports: ports.clone(),
        labels: labels(&metadata, &spec, namespace),
        profiles: spec.profiles.iter().map(|name| profile_key(name)).collect(),
        addresses: networks(addresses),
        role,
    };
    if spec.node != hostname {
        let (addresses, problem) = addresses(key, &spec);
        return Ok(match problem {
            Some(problem) if addresses.is_empty() => Read::Unreadable(problem),
            problem => {
                let problem = problem
                    .map(left_out)
                    .or_else(|| port_problem.map(port_left_out));
                Read::Remote(member(addresses, Role::Selected), problem)
            }
        });
    }
    // A role of etcd for one node can write names of that node only, but any value.
    if !EndpointName::is_of_node(resource_key.name(), hostname) {
        let reason = format!("{hostname} is not the node of the endpoint's name");
        return Err(Problem::new(key, "spec.node", reason));
    }
    let name = name
        .or_else(|_| spec.name())
        .map_err(|error| Problem::new(key, "metadata.name", error.to_string()))?;
    if !is_interface_name(&spec.interface_name) {
        let reason = format!("'{}' is not the name of an interface", spec.interface_name);
        return Err(Problem::new(key, "spec.interfaceName", reason));
    }
    let addresses = match addresses(key, &spec) {
        (addresses, None) => addresses,
        (_, Some(problem)) => return Err(problem),
    };
    if let Some(problem) = port_problem {
        return Err(problem);
    }
    let member = member(addresses.clone(), Role::Workload);
    let floating = spec
        .ip_nats
        .iter()
        .map(|nat| (nat.external_ip, nat.internal_ip));
    let spoofed = spec.allow_spoofed_source_prefixes.iter();
    let spoofed = spoofed.map(|net| net.0.trunc()).collect();
    let (id, resource) = id(resource_key, &name);
    let limits = spec.qos_controls.unwrap_or_default();
    if let Some((field, reason)) = limits.invalid() {
        return Err(Problem::new(
            key,
            format!("spec.qosControls.{field}"),
            reason,
        ));
    }
    let (qos, mut idle_limits) = qos(&limits);
    let (bandwidth, idle) = Bandwidth::of(&limits);
    idle_limits.extend(idle);
    let endpoint = Endpoint {
        qos,
        bandwidth,
        idle_limits,
        id,
        resource,
        addresses,
        floating: floating.collect(),
        spoofed,
        interface: spec.interface_name,
        container_id: spec.container_id,
        mac: spec.mac,
        profiles: spec.profiles,
    };
    Ok(Read::Local(Box::new(endpoint), member))
}

/// Returns the limits of an endpoint's packets and connections, and the fields that have no effect
/// without another one, with the reason.
fn qos(given: &QosControls) -> (Qos, Vec<(&'static str, &'static str)>) {
    let number = |value: u64| u32::try_from(value).ok().filter(|value| *value > 0);
    let limits = |rate, burst, connections| Limits {
        packets: number(rate).map(|packets| Rate {
            packets,
            per: Period::Second,
            burst: number(burst).unwrap_or(PACKET_BURST),
        }),
        connections: number(connections),
    };
    let (ingress, egress) = (
        (given.ingress_packet_rate, given.ingress_packet_burst),
        (given.egress_packet_rate, given.egress_packet_burst),
    );
    let idle = [
        ("spec.qosControls.ingressPacketBurst", ingress),
        ("spec.qosControls.egressPacketBurst", egress),
    ];
    let idle = idle
        .into_iter()
        .filter(|(_, (rate, burst))| *rate == 0 && *burst > 0);
    let qos = Qos {
        ingress: limits(ingress.0, ingress.1, given.ingress_max_connections),
        egress: limits(egress.0, egress.1, given.egress_max_connections),
        dscp: given.dscp.as_ref().and_then(Dscp::value),
    };
    let reason = "a burst has no effect without a packet rate";
    (qos, idle.map(|(field, _)| (field, reason)).collect())
}

/// Parses the data for rules of a NetworkSet, GlobalNetworkSet or HostEndpoint with networks or
/// addresses in the field `list`. Unparsable entries are left out and reported.
pub(super) fn listed(
    key: &str,
    resource_key: &ResourceKey,
    octets: &[u8],
    list: &str,
) -> Result<(Member, Option<Problem>), Problem> {
    let Resource { metadata, spec, .. } = resource::<RawSpec>(key, octets)?;
    let entries: Vec<Value> = match spec.0.get(list) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(entries)) => entries.clone(),
        Some(_) => {
            let reason = "is not a list; the last valid value stays in effect";
            return Err(Problem::new(key, format!("spec.{list}"), reason));
        }
    };
    let mut addresses = Vec::with_capacity(entries.len());
    let mut problem = None;
    for (at, entry) in entries.iter().enumerate() {
        match Network::deserialize(entry) {
            Ok(network) => addresses.push(network.0.trunc()),
            Err(error) => {
                let field = format!("spec.{list}[{at}]");
                let reason = format!("{error}; the other entries count");
                problem.get_or_insert_with(|| Problem::new(key, field, reason));
            }
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    let (ports, port_problem) = match spec.0.get("ports") {
        Some(Value::Array(entries)) => listed_ports(key, entries),
        _ => (Vec::new(), None),
    };
    let problem = problem.or_else(|| port_problem.map(port_left_out));
    let mut labels = metadata.labels;
    labels.retain(|label, _| !is_taken_on(label));
    let mut profiles: Vec<String> = strings(spec.0.get("profiles"));
    if let Some(namespace) = resource_key.namespace() {
        labels.insert(NAMESPACE.into(), namespace.into());
        profiles = vec![format!("{NAMESPACE_PROFILE}{namespace}")];
    }
    let member = Member {
        labels,
        profiles: profiles.iter().map(|name| profile_key(name)).collect(),
        addresses,
        ports,
        role: Role::Selected,
    };
    Ok((member, problem))
}

/// Parses a host endpoint from the view of `hostname`: the endpoint if it is one of this host, its data
/// for rules, and the problem of an invalid entry, which is left out.
pub(super) fn host_endpoint(
    key: &str,
    resource_key: &ResourceKey,
    octets: &[u8],
    hostname: &str,
) -> Result<(Option<HostEndpoint>, Member, Option<Problem>), Problem> {
    let (mut member, problem) = listed(key, resource_key, octets, "expectedIPs")?;
    let spec = resource::<RawSpec>(key, octets)?.spec.0;
    let text = |field: &str| match spec.get(field) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => {
            let reason = format!("{other} is not a text; the last valid value stays in effect");
            Err(Problem::new(key, format!("spec.{field}"), reason))
        }
    };
    if text("node")? != hostname {
        return Ok((None, member, problem));
    }
    let applies_to = match text("interfaceName")? {
        "*" => AppliesTo::All,
        "" => AppliesTo::Holders(member.addresses.iter().map(IpNet::addr).collect()),
        name if is_interface_name(name) => AppliesTo::Named(name.to_owned()),
        name => {
            let reason = format!(
                "'{name}' is not the name of an interface; the last valid value stays in effect"
            );
            return Err(Problem::new(key, "spec.interfaceName", reason));
        }
    };
    member.role = Role::Host;
    let profiles = profiles_of_host(key, spec.get("profiles"))?;
    let endpoint = HostEndpoint {
        applies_to,
        profiles,
    };
    Ok((Some(endpoint), member, problem))
}

/// Returns the profiles of a host endpoint, which decide what it allows: an invalid one is not left out.
fn profiles_of_host(key: &str, field: Option<&Value>) -> Result<Vec<String>, Problem> {
    let fault = |at: &str, value: &Value, wanted: &str| {
        let reason = format!("{value} is not a {wanted}; the last valid value stays in effect");
        Problem::new(key, format!("spec.profiles{at}"), reason)
    };
    let entries = match field {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries.iter().enumerate(),
        Some(other) => return Err(fault("", other, "list")),
    };
    let names = entries.map(|(at, entry)| match entry {
        Value::String(name) => Ok(name.clone()),
        other => Err(fault(&format!("[{at}]"), other, "text")),
    });
    names.collect()
}

/// Returns the ports that rules can name, sorted and unique, and the problem of the first invalid
/// one. A port without a name is only a note for other programs.
fn ports(key: &str, ports: &[EndpointPort]) -> (Vec<NamedPort>, Option<Problem>) {
    let mut named = Vec::with_capacity(ports.len());
    let mut problem = None;
    for (at, port) in ports.iter().enumerate() {
        if port.name.is_empty() {
            continue;
        }
        let reason = match port.number() {
            Some(_) if port.port == 0 => "0 is not a port".to_owned(),
            Some(protocol) => {
                named.push(NamedPort {
                    name: port.name.clone(),
                    protocol,
                    port: port.port,
                });
                continue;
            }
            None => format!("{} is not TCP, UDP or SCTP", port.protocol),
        };
        let field = format!("spec.ports[{at}]");
        problem.get_or_insert_with(|| Problem::new(key, field, reason));
    }
    named.sort_unstable();
    named.dedup();
    (named, problem)
}

/// Does the same with ports of a HostEndpoint, which may be of any form.
fn listed_ports(key: &str, entries: &[Value]) -> (Vec<NamedPort>, Option<Problem>) {
    let mut unreadable = None;
    let mut read = Vec::with_capacity(entries.len());
    for (at, entry) in entries.iter().enumerate() {
        match EndpointPort::deserialize(entry) {
            Ok(port) => read.push(port),
            Err(error) => {
                let field = format!("spec.ports[{at}]");
                unreadable.get_or_insert_with(|| Problem::new(key, field, error.to_string()));
                // Keeps the places of the others.
                read.push(EndpointPort::default());
            }
        }
    }
    let (named, problem) = ports(key, &read);
    (named, unreadable.or(problem))
}

/// Returns the problem of a port, with the measure taken.
fn port_left_out(problem: Problem) -> Problem {
    let reason = format!("{}; the other ports count", problem.reason);
    Problem { reason, ..problem }
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|one| Some(one.as_str()?.to_owned()))
        .collect()
}

/// Returns whether a label can only be inherited from a namespace or a service account.
pub(super) fn is_taken_on(label: &str) -> bool {
    TAKEN_ON.iter().any(|prefix| label.starts_with(prefix))
}

/// Returns each address as a network of one.
fn networks(addresses: Vec<IpAddr>) -> Vec<IpNet> {
    addresses.into_iter().map(IpNet::from).collect()
}

/// Parses another host's endpoint without its invalid addresses, and without its limits, which only
/// its own host applies: rules that deny the valid addresses must continue to apply.
fn salvage(
    key: &str,
    resource_key: &ResourceKey,
    octets: &[u8],
    hostname: &str,
    problem: Problem,
) -> Read {
    let without = || {
        let mut value: Value = serde_json::from_slice(octets).ok()?;
        let spec = value.pointer_mut("/spec")?.as_object_mut()?;
        let has_limits = spec.remove("qosControls").is_some();
        let networks = spec.get_mut("ipNetworks")?.as_array_mut()?;
        let all = networks.len();
        networks.retain(|network| Network::deserialize(network).is_ok());
        let some = !networks.is_empty() && (has_limits || networks.len() < all);
        some.then(|| value.to_string())
    };
    // Without these addresses it is valid, or has another fault.
    match without().map(|text| endpoint(key, resource_key, text.as_bytes(), hostname)) {
        Some(Ok(Read::Remote(member, _))) => Read::Remote(member, Some(left_out(problem))),
        _ => Read::Unreadable(problem),
    }
}

/// Returns the problem of an address, with the measure taken.
fn left_out(problem: Problem) -> Problem {
    let rest = match problem.field.starts_with("spec.qosControls") {
        true => "its addresses count",
        false => "the other addresses count",
    };
    let reason = format!("{}; {rest}", problem.reason);
    Problem { reason, ..problem }
}

/// Returns the labels that selectors see.
fn labels(
    metadata: &Metadata,
    spec: &WorkloadEndpointSpec,
    namespace: &str,
) -> BTreeMap<String, String> {
    let given = metadata.labels.iter();
    let mut labels: BTreeMap<String, String> = given
        .filter(|(label, _)| !is_taken_on(label))
        .map(|(label, value)| (label.clone(), value.clone()))
        .collect();
    for (label, value) in [
        (NAMESPACE, namespace),
        (ORCHESTRATOR, &spec.orchestrator),
        (SERVICE_ACCOUNT, &spec.service_account_name),
    ] {
        if !value.is_empty() {
            labels.insert(label.into(), value.into());
        }
    }
    labels
}

/// Returns the key of a profile.
pub(super) fn profile_key(name: &str) -> String {
    format!("{}{name}", Kind::Profile.prefix())
}

/// Returns the id of a workload endpoint, and its resource.
fn id(key: &ResourceKey, name: &EndpointName) -> (EndpointId, String) {
    let namespace = key.namespace().unwrap_or_default();
    let id = EndpointId {
        orchestrator: name.orchestrator().to_owned(),
        workload: format!("{namespace}/{}", name.workload()),
        endpoint: name.endpoint().to_owned(),
    };
    (id, format!("{namespace}/{}", key.name()))
}

/// Returns the same for an unparsable value, if its name belongs to this host.
pub(super) fn local_id(key: &str, hostname: &str) -> Option<(EndpointId, String)> {
    let Ok(Key::Resource(key)) = key.parse() else {
        return None;
    };
    let name: EndpointName = key.name().parse().ok()?;
    let ours = key.kind() == Kind::WorkloadEndpoint && name.node() == hostname;
    ours.then(|| id(&key, &name))
}

/// Returns the addresses that a workload can have, and the problem of the first other one.
fn addresses(key: &str, spec: &WorkloadEndpointSpec) -> (Vec<IpAddr>, Option<Problem>) {
    let mut addresses = Vec::with_capacity(spec.ip_networks.len());
    let mut problem = None;
    for (at, network) in spec.ip_networks.iter().enumerate() {
        let address = network.address();
        let reason = if !network.is_host() {
            format!("{network} is not a single address (/32 or /128)")
        } else if !can_be_workload(address) {
            format!("{address} cannot be the address of a workload")
        } else {
            addresses.push(address);
            continue;
        };
        let field = format!("spec.ipNetworks[{at}]");
        problem.get_or_insert_with(|| Problem::new(key, field, reason));
    }
    addresses.sort_unstable();
    addresses.dedup();
    (addresses, problem)
}

/// Returns whether an address can be routed to one interface.
fn can_be_workload(address: IpAddr) -> bool {
    let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    let of_link = match address {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !special && !of_link
}

/// Parses a comma-separated list of interface prefixes.
pub(crate) fn interface_prefixes(text: &str) -> Result<Vec<String>, String> {
    let mut prefixes: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
    if let Some(bad) = prefixes.iter().find(|prefix| !is_interface_name(prefix)) {
        return Err(format!(
            "'{bad}' cannot be the beginning of an interface name"
        ));
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    match prefixes.len() {
        0..=INTERFACE_PREFIXES_MAX => Ok(prefixes),
        _ => Err(format!(
            "more than {INTERFACE_PREFIXES_MAX} interface prefixes"
        )),
    }
}
