//! The rules applied to the stored values, without an index.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_bgp::validation::{Neighbor, ReceivedRoute};
use ipnet::IpNet;
use serde_json::Value;

/// The last valid value of every key.
#[derive(Debug, Default)]
pub(crate) struct Model(BTreeMap<String, Value>);

/// Returns the texts at a list's field, or the field itself if it is no list.
fn texts(list: &Value, field: &str) -> Vec<String> {
    let items = list.as_array().cloned().unwrap_or_default();
    let items = items.iter().map(|item| match field {
        "" => item.clone(),
        _ => item[field].clone(),
    });
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a network")
}

fn address(text: &str) -> Option<IpAddr> {
    text.split('/').next()?.parse().ok()
}

fn is_host(net: IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

impl Model {
    pub(crate) fn put(&mut self, key: &str, value: Option<Value>) {
        match value {
            Some(value) => self.0.insert(key.to_owned(), value),
            None => self.0.remove(key),
        };
    }

    /// Returns the values of a kind with the last parts of their keys.
    fn of(&self, part: &str) -> Vec<(String, &Value)> {
        let found = self.0.iter().filter(|(key, _)| key.contains(part));
        let named = found.map(|(key, value)| {
            let name = key.rsplit('/').next().unwrap_or_default();
            (name.to_owned(), value)
        });
        named.collect()
    }

    /// Returns the addresses of endpoints, each with its node.
    fn endpoints(&self) -> Vec<(IpAddr, String)> {
        let mut all = Vec::new();
        for (_, value) in self.of("/workloadendpoints/") {
            let spec = &value["spec"];
            let node = spec["node"].as_str().unwrap_or_default();
            let mut found = texts(&spec["ipNetworks"], "");
            if !found.is_empty() {
                found.extend(texts(&spec["ipNATs"], "externalIP"));
            }
            let found = found.iter().filter_map(|text| address(text));
            all.extend(found.map(|address| (address, node.to_owned())));
        }
        all
    }

    /// Returns the addresses of nodes.
    fn nodes(&self) -> Vec<(IpAddr, String)> {
        let mut all = Vec::new();
        for (name, value) in self.of("/nodes/") {
            let spec = &value["spec"];
            let mut found = texts(&spec["addresses"], "address");
            for text in [&spec["bgp"]["ipv4Address"], &spec["ipv4VXLANTunnelAddr"]] {
                found.extend(text.as_str().map(str::to_owned));
            }
            let found = found.iter().filter_map(|text| address(text));
            all.extend(found.map(|address| (address, name.clone())));
        }
        all
    }

    /// Returns the nodes that hold an address, in the order of their names.
    fn holders(&self, address: IpAddr) -> Vec<String> {
        let all = self.endpoints().into_iter().chain(self.nodes());
        let mut found: Vec<String> = all
            .filter(|(at, _)| *at == address)
            .map(|(_, node)| node)
            .collect();
        found.sort();
        found
    }

    fn blocks(&self) -> Vec<(IpNet, String)> {
        let mut all = Vec::new();
        for (key, value) in &self.0 {
            let Some(rest) = key.strip_prefix("/calico/ipam/v2/host/") else {
                continue;
            };
            let (node, rest) = rest.split_once('/').expect("a node");
            let block = rest.rsplit('/').next().expect("a block");
            if value["state"] != "pending" {
                all.push((net(&block.replace('-', "/")), node.to_owned()));
            }
        }
        all
    }

    fn services(&self) -> Vec<IpNet> {
        let settings = self.of("/bgpconfigurations/");
        let lists = settings.iter().flat_map(|(_, value)| {
            let spec = &value["spec"];
            let external = texts(&spec["serviceExternalIPs"], "cidr");
            let cluster = texts(&spec["serviceClusterIPs"], "cidr");
            cluster.into_iter().chain(external)
        });
        lists.map(|text| net(&text)).collect()
    }

    fn grants(&self, node: &str) -> Vec<IpNet> {
        let nodes = self.of("/nodes/");
        let Some((_, value)) = nodes.iter().find(|(name, _)| name == node) else {
            return Vec::new();
        };
        let text = value["metadata"]["annotations"]["cambric.io/granted-prefixes"].as_str();
        let words = text.unwrap_or_default().split(',');
        let words = words.map(str::trim).filter(|word| !word.is_empty());
        words.map(net).collect()
    }

    fn asn(&self, node: &str) -> Option<u64> {
        let nodes = self.of("/nodes/");
        let (_, value) = nodes.iter().find(|(name, _)| name == node)?;
        let own = value["spec"]["bgp"]["asNumber"].as_str();
        let settings = self.of("/bgpconfigurations/");
        let cluster = settings.first();
        let cluster = cluster.and_then(|(_, value)| value["spec"]["asNumber"].as_u64());
        match own {
            Some(own) => own.parse().ok(),
            None => Some(cluster.unwrap_or(64_512)),
        }
    }

    pub(crate) fn neighbor_at(&self, at: IpAddr) -> String {
        for (name, value) in self.of("/nodes/") {
            let bgp = &value["spec"]["bgp"];
            if bgp["ipv4Address"].as_str().and_then(address) == Some(at) {
                return match bgp["routeReflectorClusterID"].is_null() {
                    true => format!("Node({name:?})"),
                    false => format!("Reflector({name:?})"),
                };
            }
        }
        "Other".to_owned()
    }

    pub(crate) fn origin(&self, neighbor: Neighbor<'_>, route: &ReceivedRoute) -> String {
        let prefix = IpNet::from(route.prefix);
        match neighbor {
            Neighbor::Node(name) => self.of_node(name, prefix, route.next_hop),
            Neighbor::Reflector(name) => {
                let mut endpoints = self.endpoints().into_iter();
                let mut blocks = self.blocks().into_iter();
                let is_host =
                    endpoints.any(|(_, node)| node == name) || blocks.any(|(_, node)| node == name);
                match route.has_originator_id || !is_host {
                    true => "Confirmed".to_owned(),
                    false => self.of_node(name, prefix, route.next_hop),
                }
            }
            Neighbor::Other => self.of_other(prefix),
            Neighbor::Transit { origin } => {
                let nodes = self.of("/nodes/").into_iter();
                let mut nodes = nodes.filter(|(name, _)| self.asn(name) == Some(origin.0.into()));
                match nodes.any(|(name, _)| self.of_prefix(&name, prefix) == "Confirmed") {
                    true => "Confirmed".to_owned(),
                    false => self.of_other(prefix),
                }
            }
        }
    }

    fn of_node(&self, node: &str, prefix: IpNet, next_hop: Option<IpAddr>) -> String {
        let mut nodes = self.nodes().into_iter();
        match nodes.any(|(at, name)| name == node && Some(at) == next_hop) {
            true => self.of_prefix(node, prefix),
            false => "NextHop".to_owned(),
        }
    }

    /// Applies the rules 1 to 7, without a controller of services.
    fn of_prefix(&self, node: &str, prefix: IpNet) -> String {
        let conflict = |name: &String| format!("Conflict(Node({name:?}))");
        let holders = match is_host(prefix) {
            true => self.holders(prefix.addr()),
            false => Vec::new(),
        };
        if holders.iter().any(|name| name == node) {
            return "Confirmed".to_owned();
        }
        let grants = self.grants(node);
        if grants.contains(&prefix) {
            return "Confirmed".to_owned();
        }
        let blocks = self.blocks();
        let mut around = blocks.iter().filter(|(block, _)| block.contains(&prefix));
        let is_granted = grants.iter().any(|grant| grant.contains(&prefix))
            && !around.any(|(_, holder)| holder != node);
        let own = blocks.iter().filter(|(_, name)| name == node);
        let own: Vec<IpNet> = own
            .map(|(block, _)| *block)
            .chain(self.services())
            .collect();
        if own.contains(&prefix) {
            return "Confirmed".to_owned();
        }
        if is_granted || own.iter().any(|range| range.contains(&prefix)) {
            let all = self.endpoints().into_iter().chain(self.nodes());
            let others = all.filter(|(at, name)| name != node && prefix.contains(at));
            return match others.min() {
                Some((_, name)) => conflict(&name),
                None => "Confirmed".to_owned(),
            };
        }
        if let Some(name) = holders.first() {
            return conflict(name);
        }
        let around = blocks.iter().filter(|(block, _)| block.contains(&prefix));
        let longest = around.max_by(|(a, of_a), (b, of_b)| {
            a.prefix_len().cmp(&b.prefix_len()).then(of_b.cmp(of_a))
        });
        match longest {
            Some((_, name)) => conflict(name),
            None => "Unknown".to_owned(),
        }
    }

    fn of_other(&self, prefix: IpNet) -> String {
        let mut inside: Vec<(IpAddr, String)> = Vec::new();
        if is_host(prefix) {
            let nodes = self.nodes().into_iter();
            inside.extend(nodes.filter(|(at, _)| *at == prefix.addr()));
        }
        for (name, value) in self.of("/nodes/") {
            let text = value["spec"]["bgp"]["ipv4Address"].as_str();
            let Some((at, length)) = text.and_then(|text| text.split_once('/')) else {
                continue;
            };
            let length: u8 = length.parse().expect("a length");
            let at = address(at).expect("an address");
            if prefix.contains(&at) && prefix.prefix_len() > length {
                inside.push((at, name));
            }
        }
        if let Some((_, name)) = inside.iter().min() {
            return format!("Conflict(Node({name:?}))");
        }
        if self.services().iter().any(|range| range.contains(&prefix)) {
            return "Conflict(Services)".to_owned();
        }
        for (name, value) in self.of("/ippools/") {
            let range = value["spec"]["cidr"].as_str().map(net);
            if range.is_some_and(|range| range.contains(&prefix)) {
                return format!("Conflict(Pool({name:?}))");
            }
        }
        "Confirmed".to_owned()
    }
}
