//! Names of addresses and of chains, for the flow log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calico_model::{EndpointName, Key, Kind, ResourceKey};

use super::calculator::Calculator;
use super::lookup::{ListOwner, RemoteEndpoint, profile_owner};
use super::policy::Policy;
use crate::render::token;

/// The gateway of workloads, which is the host itself.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const GATEWAY_IPV6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Returns whether an address is one of every host.
pub(crate) fn is_gateway(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4 == GATEWAY || v4.is_loopback(),
        IpAddr::V6(v6) => v6 == GATEWAY_IPV6 || v6.is_loopback(),
    }
}

impl Calculator {
    /// Returns the name of this host.
    pub(crate) fn hostname(&self) -> &str {
        &self.hostname
    }

    /// Returns the addresses of this host: of its Node, and of its interfaces that are no workload
    /// interfaces.
    pub(crate) fn all_own_addresses(&self) -> BTreeSet<IpAddr> {
        let settings = &self.desired.settings;
        let interfaces = self.hosts.interfaces.iter();
        let own = interfaces.filter(|(name, _)| !settings.is_workload_interface(name));
        let held = own.flat_map(|(_, held)| held.iter().copied());
        self.own_addresses().chain(held).collect()
    }

    /// Returns the endpoint of another host with an address, while the flow log is on.
    pub(crate) fn remote_endpoint_at(&self, address: IpAddr) -> Option<RemoteEndpoint> {
        let key = self.index.located()?.endpoint(address)?;
        let (key, addresses) = self.index.remote_endpoint(key)?;
        RemoteEndpoint::of(key, addresses)
    }

    /// Returns the addresses of Nodes, each with the name of the first one in the order of their keys.
    pub(crate) fn node_addresses(&self) -> BTreeMap<IpAddr, String> {
        let mut found = BTreeMap::new();
        for (key, own) in self.fabric.nodes() {
            let name = key.rsplit('/').next().unwrap_or_default();
            for address in own {
                found.entry(*address).or_insert_with(|| name.to_owned());
            }
        }
        found
    }

    /// Returns kind and name of the network set with the most specific network around an address,
    /// while the flow log is on.
    pub(crate) fn network_set_at(&self, address: IpAddr) -> Option<String> {
        self.index.located()?.set(address)
    }

    /// Returns the policy or profile of a chain, by its [`token`].
    pub(crate) fn owner_of(&self, chain: &str) -> Option<ListOwner> {
        let of = |policy: &Policy| policy.sides().any(|side| token(&side.name) == chain);
        let named = chain.get(3..).unwrap_or_default().splitn(3, '/');
        let named: Vec<&str> = named.collect();
        let key = match *named {
            ["np", namespace, name] => {
                ResourceKey::new(Kind::NetworkPolicy, Some(namespace), name).ok()
            }
            ["gnp", name] => ResourceKey::new(Kind::GlobalNetworkPolicy, None, name).ok(),
            _ => None,
        };
        if let Some(key) = key.map(|key| key.to_string())
            && self.policies.get(&key).is_some_and(of)
        {
            return self.policy_owner(&key);
        }
        let has_chain = |name: &str| {
            let profile = self.profiles.get(name)?;
            let mut chains = profile.chains();
            chains.any(|own| token(&own.name) == chain).then_some(())
        };
        if let ["profile", name] = *named
            && has_chain(name).is_some()
        {
            return Some(profile_owner(name));
        }
        // A long name, of which the chain has a hash.
        let mut policies = self.policies.iter();
        if let Some((key, _)) = policies.find(|(_, policy)| of(policy)) {
            return self.policy_owner(key);
        }
        let mut profiles = self.profiles.keys();
        let found = profiles.find(|name| has_chain(name).is_some());
        found.map(|name| profile_owner(name))
    }
}

impl RemoteEndpoint {
    /// Returns the endpoint with this key and these addresses.
    pub(super) fn of(key: &str, addresses: &[ipnet::IpNet]) -> Option<Self> {
        let Ok(Key::Resource(key)) = key.parse() else {
            return None;
        };
        let name: EndpointName = key.name().parse().ok()?;
        let namespace = key.namespace().unwrap_or_default();
        Some(Self {
            resource: format!("{namespace}/{}", key.name()),
            workload: format!("{namespace}/{}", name.workload()),
            node: name.node().to_owned(),
            addresses: addresses.iter().map(ipnet::IpNet::addr).collect(),
        })
    }
}
