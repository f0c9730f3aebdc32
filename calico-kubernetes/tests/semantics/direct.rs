//! A direct evaluation of Kubernetes' policies, from the documentation of their API.
//!
//! It reads the JSON of Kubernetes. It uses neither the conversion nor a parser of selectors, so a
//! mistake cannot be on both sides. An unreadable part of a NetworkPolicy allows nothing; that of a
//! ClusterNetworkPolicy fails closed as its API requires.

use std::net::IpAddr;

use serde_json::Value;

/// The objects of a cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) namespaces: Vec<Value>,
    pub(crate) pods: Vec<Value>,
    pub(crate) policies: Vec<Value>,
    pub(crate) cluster_policies: Vec<Value>,
}

/// The first packet of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: &'static str,
    pub(crate) port: u16,
}

/// A direction, from the view of the pod that policies apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

/// The packet, from the view of a pod.
struct View<'c> {
    cluster: &'c Cluster,
    direction: Direction,
    /// The pod that policies apply to.
    subject: &'c Value,
    /// The address of the other end, and its pod.
    address: IpAddr,
    peer: Option<&'c Value>,
    /// The pod that receives the packet.
    receiver: Option<&'c Value>,
    probe: Probe,
}

/// Returns whether the policies for a pod allow a packet to it or from it.
pub(crate) fn allows(
    cluster: &Cluster,
    subject: &Value,
    direction: Direction,
    probe: Probe,
) -> bool {
    let address = match direction {
        Direction::Ingress => probe.source,
        Direction::Egress => probe.destination,
    };
    let peer = cluster.pod_at(address);
    let view = View {
        cluster,
        direction,
        subject,
        address,
        peer,
        receiver: match direction {
            Direction::Ingress => Some(subject),
            Direction::Egress => peer,
        },
        probe,
    };
    let admin = view.tier("Admin");
    let decided = admin.or_else(|| view.network_policies());
    decided.or_else(|| view.tier("Baseline")).unwrap_or(true)
}

impl Cluster {
    /// Returns the pod with an address. A pod in the network of its host has no own address, and
    /// one that has ended has lost it.
    fn pod_at(&self, address: IpAddr) -> Option<&Value> {
        let has = |pod: &&Value| addresses(pod).contains(&address);
        self.pods.iter().filter(|pod| is_networked(pod)).find(has)
    }

    fn namespace(&self, name: &Value) -> Option<&Value> {
        let mut all = self.namespaces.iter();
        all.find(|namespace| namespace["metadata"]["name"] == *name)
    }
}

/// Returns whether the policies apply to a pod.
pub(crate) fn is_networked(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    pod["spec"]["hostNetwork"] != true && phase != "Succeeded" && phase != "Failed"
}

/// Returns the addresses in the status of a pod.
pub(crate) fn addresses(pod: &Value) -> Vec<IpAddr> {
    let all = pod["status"]["podIPs"].as_array().into_iter().flatten();
    all.filter_map(|entry| entry["ip"].as_str()?.parse().ok())
        .collect()
}

/// Returns the elements of a list; `None` if it is unreadable.
fn elements(value: &Value) -> Option<Vec<&Value>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::Array(list) => Some(list.iter().collect()),
        _ => None,
    }
}

impl View<'_> {
    const fn rules(&self) -> (&'static str, &'static str, &'static str) {
        match self.direction {
            Direction::Ingress => ("Ingress", "ingress", "from"),
            Direction::Egress => ("Egress", "egress", "to"),
        }
    }

    /// Returns the decision of the NetworkPolicies. Without one for the pod in this direction, the
    /// pod is not isolated. Otherwise any rule of any of them may allow.
    fn network_policies(&self) -> Option<bool> {
        let (kind, _, _) = self.rules();
        let applies = |policy: &&Value| {
            let namespace = &policy["metadata"]["namespace"];
            *namespace == self.subject["metadata"]["namespace"]
                && has_type(&policy["spec"], kind)
                && selects(&policy["spec"]["podSelector"], self.subject) == Some(true)
        };
        let mut own = self.cluster.policies.iter().filter(applies).peekable();
        own.peek()?;
        Some(own.any(|policy| self.policy_allows(policy)))
    }

    fn policy_allows(&self, policy: &Value) -> bool {
        let (_, list, peers) = self.rules();
        let rules = elements(&policy["spec"][list]).unwrap_or_default();
        let mut rules = rules.into_iter();
        rules.any(|rule| {
            self.any_peer(&rule[peers], &policy["metadata"]["namespace"])
                && self.any_port(&rule["ports"])
        })
    }

    fn any_peer(&self, peers: &Value, namespace: &Value) -> bool {
        let Some(peers) = elements(peers) else {
            return false;
        };
        let is_any = peers.is_empty();
        let mut peers = peers.into_iter();
        is_any || peers.any(|peer| self.is_peer(peer, namespace).unwrap_or(false))
    }

    fn is_peer(&self, peer: &Value, namespace: &Value) -> Option<bool> {
        let (pods, namespaces) = (&peer["podSelector"], &peer["namespaceSelector"]);
        let block = &peer["ipBlock"];
        if !block.is_null() {
            let (first, last) = network(block["cidr"].as_str()?)?;
            let mut is_in = is_between(self.address, first, last);
            for except in elements(&block["except"])? {
                let (first, last) = network(except.as_str()?)?;
                is_in &= !is_between(self.address, first, last);
            }
            return Some(is_in);
        }
        if pods.is_null() && namespaces.is_null() {
            return None;
        }
        let other = self.peer?;
        let is_namespace = match namespaces {
            Value::Null => other["metadata"]["namespace"] == *namespace,
            selector => self.is_in_namespaces(selector, other)?,
        };
        Some(selects(pods, other)? && is_namespace)
    }

    fn is_in_namespaces(&self, selector: &Value, pod: &Value) -> Option<bool> {
        let namespace = self.cluster.namespace(&pod["metadata"]["namespace"])?;
        selects(selector, namespace)
    }

    fn any_port(&self, ports: &Value) -> bool {
        let Some(ports) = elements(ports) else {
            return false;
        };
        let is_any = ports.is_empty();
        let mut ports = ports.into_iter();
        is_any || ports.any(|port| self.is_port(port).unwrap_or(false))
    }

    fn is_port(&self, port: &Value) -> Option<bool> {
        let protocol = match &port["protocol"] {
            Value::Null => "TCP",
            name => name.as_str()?,
        };
        let is_protocol = protocol == self.probe.protocol;
        let own = u64::from(self.probe.port);
        let is_number = match (&port["port"], &port["endPort"]) {
            (Value::Null, Value::Null) => true,
            (Value::String(name), Value::Null) => self.has_port(name),
            (first, Value::Null) => first.as_u64()? == own,
            (first, last) => {
                let (first, last) = (first.as_u64()?, last.as_u64()?);
                first > 0 && (first..=last).contains(&own)
            }
        };
        Some(is_protocol && is_number)
    }

    /// Returns whether the receiver has a port of this name with the number and protocol.
    fn has_port(&self, name: &str) -> bool {
        let Some(pod) = self.receiver else {
            return false;
        };
        let lists = ["containers", "initContainers"].map(|list| &pod["spec"][list]);
        let containers = lists.into_iter().filter_map(Value::as_array).flatten();
        let mut ports = containers
            .filter_map(|container| container["ports"].as_array())
            .flatten();
        ports.any(|port| {
            port["name"] == name
                && port["containerPort"] == self.probe.port
                && port["protocol"].as_str().unwrap_or("TCP") == self.probe.protocol
        })
    }

    /// Returns the decision of the ClusterNetworkPolicies of a tier: that of the first rule that
    /// matches, in the order of priorities. `Pass` leaves it to the next tier.
    fn tier(&self, tier: &str) -> Option<bool> {
        let (_, list, _) = self.rules();
        let mut own: Vec<&Value> = self.cluster.cluster_policies.iter().collect();
        own.retain(|policy| {
            policy["spec"]["tier"] == tier && self.is_subject(&policy["spec"]["subject"])
        });
        own.sort_by_key(|policy| policy["spec"]["priority"].as_u64());
        let rules = own.into_iter();
        let mut rules =
            rules.flat_map(|policy| elements(&policy["spec"][list]).unwrap_or_default());
        rules.find_map(|rule| self.decision(rule)).flatten()
    }

    fn is_subject(&self, subject: &Value) -> bool {
        self.is_selected(subject, self.subject).unwrap_or(false)
    }

    /// Returns whether a pod is selected by `namespaces`, or by `pods`; `None` without either.
    fn is_selected(&self, selection: &Value, pod: &Value) -> Option<bool> {
        let (namespaces, pods) = (&selection["namespaces"], &selection["pods"]);
        match (namespaces.is_null(), pods.is_null()) {
            (false, true) => self.is_in_namespaces(namespaces, pod),
            (true, false) => {
                let is_namespace = self.is_in_namespaces(&pods["namespaceSelector"], pod)?;
                Some(selects(&pods["podSelector"], pod)? && is_namespace)
            }
            _ => None,
        }
    }

    /// Returns the decision of a rule; the inner `None` passes to the next tier.
    fn decision(&self, rule: &Value) -> Option<Option<bool>> {
        let action = rule["action"].as_str().unwrap_or_default();
        match (self.matches(rule), action) {
            (Some(false), _) | (None, "Accept") => None,
            (Some(true), "Accept") => Some(Some(true)),
            (Some(true), "Pass") => Some(None),
            _ => Some(Some(false)),
        }
    }

    /// Returns whether a rule matches; `None` if a part of it is unreadable.
    fn matches(&self, rule: &Value) -> Option<bool> {
        let (_, _, peers) = self.rules();
        let mut is_peer = false;
        for peer in elements(&rule[peers])? {
            is_peer |= self.is_cluster_peer(peer)?;
        }
        let protocols = elements(&rule["protocols"])?;
        let mut is_protocol = protocols.is_empty();
        for protocol in protocols {
            is_protocol |= self.is_cluster_protocol(protocol)?;
        }
        Some(is_peer && is_protocol)
    }

    fn is_cluster_peer(&self, peer: &Value) -> Option<bool> {
        if let Some(networks) = peer["networks"].as_array() {
            let mut is_in = false;
            for text in networks {
                let (first, last) = network(text.as_str()?)?;
                is_in |= is_between(self.address, first, last);
            }
            return Some(is_in);
        }
        let fields = ["namespaces", "pods"];
        if fields.iter().all(|field| peer[field].is_null()) {
            return None;
        }
        // An unreadable peer is one for all packets.
        let is_selected = self.is_selected(peer, self.peer.unwrap_or(self.subject))?;
        Some(is_selected && self.peer.is_some())
    }

    fn is_cluster_protocol(&self, protocol: &Value) -> Option<bool> {
        if let Some(name) = protocol["destinationNamedPort"].as_str() {
            return Some(self.has_port(name));
        }
        let (name, inner) = protocol.as_object()?.iter().next()?;
        let port = &inner["destinationPort"];
        let own = u64::from(self.probe.port);
        let is_port = match port["number"].as_u64() {
            Some(number) => number == own,
            None => {
                let range = &port["range"];
                (range["start"].as_u64()?..=range["end"].as_u64()?).contains(&own)
            }
        };
        Some(name.to_uppercase() == self.probe.protocol && is_port)
    }
}

/// Returns whether a policy applies to a direction. Without types, it applies to ingress, and to
/// egress if it has such rules.
fn has_type(spec: &Value, kind: &str) -> bool {
    let types = spec["policyTypes"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    match types {
        [] => {
            kind == "Ingress"
                || spec["egress"]
                    .as_array()
                    .is_some_and(|egress| !egress.is_empty())
        }
        types => types.iter().any(|one| one == kind),
    }
}

/// Returns whether a label selector selects an object; `None` if the selector is unreadable. A
/// missing or empty one selects all objects.
fn selects(selector: &Value, object: &Value) -> Option<bool> {
    let label = |key: &str| object["metadata"]["labels"][key].as_str();
    let mut is_selected = true;
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        is_selected &= label(key) == value.as_str();
    }
    for expression in elements(&selector["matchExpressions"])? {
        let value = label(expression["key"].as_str()?);
        let values = elements(&expression["values"])?;
        let is_one = value.is_some_and(|value| values.iter().any(|one| *one == value));
        is_selected &= match expression["operator"].as_str()? {
            "In" => is_one,
            "NotIn" => !is_one,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => return None,
        };
    }
    Some(is_selected)
}

/// Returns the first and last address of a network; `None` if its text is not of the strict form.
fn network(text: &str) -> Option<(IpAddr, IpAddr)> {
    let (address, length) = text.split_once('/')?;
    let length: u8 = length.parse().ok()?;
    if format!("{address}/{length}") != text {
        return None;
    }
    match address.parse().ok()? {
        IpAddr::V4(v4) if length <= 32 => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            let first = u32::from(v4) & mask;
            Some((IpAddr::V4(first.into()), IpAddr::V4((first | !mask).into())))
        }
        IpAddr::V6(v6) if length <= 128 => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            let first = u128::from(v6) & mask;
            Some((IpAddr::V6(first.into()), IpAddr::V6((first | !mask).into())))
        }
        _ => None,
    }
}

fn is_between(address: IpAddr, first: IpAddr, last: IpAddr) -> bool {
    address.is_ipv4() == first.is_ipv4() && first <= address && address <= last
}

#[test]
fn evaluator_follows_the_examples_of_the_documentation() {
    use serde_json::json;
    let pod = |namespace: &str, name: &str, role: &str, ip: &str| {
        json!({"metadata": {"namespace": namespace, "name": name, "labels": {"role": role}},
            "spec": {"containers": [{"ports": [{"name": "db", "containerPort": 6379}]}]},
            "status": {"podIPs": [{"ip": ip}]}})
    };
    // The example of the page "Network Policies" of Kubernetes' documentation.
    let spec = json!({"podSelector": {"matchLabels": {"role": "db"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [
            {"ipBlock": {"cidr": "172.17.0.0/16", "except": ["172.17.1.0/24"]}},
            {"namespaceSelector": {"matchLabels": {"project": "myproject"}}},
            {"podSelector": {"matchLabels": {"role": "frontend"}}}],
            "ports": [{"protocol": "TCP", "port": 6379}]}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/24"}}],
            "ports": [{"protocol": "TCP", "port": 5978}]}]});
    let cluster = Cluster {
        namespaces: vec![
            json!({"metadata": {"name": "default"}}),
            json!({"metadata": {"name": "other", "labels": {"project": "myproject"}}}),
        ],
        pods: vec![
            pod("default", "db", "db", "10.65.0.1"),
            pod("default", "front", "frontend", "10.65.0.2"),
            pod("default", "back", "backend", "10.65.0.3"),
            pod("other", "any", "any", "10.65.0.4"),
        ],
        policies: vec![json!({"metadata": {"namespace": "default", "name": "p"}, "spec": spec})],
        ..Cluster::default()
    };
    let db = &cluster.pods[0];
    for (direction, other, protocol, port, is_allowed) in [
        (Direction::Ingress, "172.17.0.1", "TCP", 6379, true),
        (Direction::Ingress, "172.17.1.1", "TCP", 6379, false),
        (Direction::Ingress, "10.65.0.2", "TCP", 6379, true),
        (Direction::Ingress, "10.65.0.2", "UDP", 6379, false),
        (Direction::Ingress, "10.65.0.2", "TCP", 6380, false),
        (Direction::Ingress, "10.65.0.3", "TCP", 6379, false),
        (Direction::Ingress, "10.65.0.4", "TCP", 6379, true),
        (Direction::Egress, "10.0.0.9", "TCP", 5978, true),
        (Direction::Egress, "10.0.1.9", "TCP", 5978, false),
    ] {
        let (own, other) = (addresses(db)[0], other.parse().unwrap());
        let (source, destination) = match direction {
            Direction::Ingress => (other, own),
            Direction::Egress => (own, other),
        };
        let probe = Probe {
            source,
            destination,
            protocol,
            port,
        };
        assert_eq!(
            allows(&cluster, db, direction, probe),
            is_allowed,
            "{probe:?}"
        );
    }
    let probe = Probe {
        source: "10.65.0.1".parse().unwrap(),
        destination: "10.65.0.3".parse().unwrap(),
        protocol: "TCP",
        port: 1,
    };
    assert!(allows(
        &cluster,
        &cluster.pods[2],
        Direction::Ingress,
        probe
    ));
}
