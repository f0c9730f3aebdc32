//! Answers about the stored values, for explanations.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_model::{DEFAULT_ALLOW_PROFILE, Key, Kind, RESOURCES_PREFIX, ResourceKey};

use super::calculator::Calculator;
use super::profile::{Outcome, Profile};
use super::types::Endpoint;
use crate::render::{Compiled, Direction};

/// A workload endpoint of another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteEndpoint {
    /// `namespace/name` of its resource.
    pub(crate) resource: String,
    /// `namespace/workload`.
    pub(crate) workload: String,
    /// Its host.
    pub(crate) node: String,
    /// Its addresses.
    pub(crate) addresses: Vec<IpAddr>,
}

/// The policy or profile of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListOwner {
    /// The tier of a policy; a profile has none.
    pub(crate) tier: Option<String>,
    /// Kind and name, such as `NetworkPolicy prod/web`.
    pub(crate) name: String,
    /// The selector of a policy.
    pub(crate) selector: Option<String>,
}

/// A list of rules that applies to a direction of an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct AppliedList<'c> {
    pub(crate) owner: ListOwner,
    /// Its chain; `None`: it decides about all packets, or about none.
    pub(crate) chain: Option<&'c Compiled>,
    /// Its effect without a chain, or after all rules.
    pub(crate) end: &'static str,
}

impl Calculator {
    /// Returns the endpoint of this host with a key.
    pub(crate) fn local_endpoint(&self, key: &str) -> Option<&Endpoint> {
        self.endpoints.get(key)
    }

    /// Returns the endpoints of other hosts.
    pub(crate) fn remote_endpoints(&self) -> impl Iterator<Item = RemoteEndpoint> {
        let prefix = Kind::WorkloadEndpoint.prefix();
        let remote = self.index.remote(prefix);
        remote.filter_map(|(key, addresses)| RemoteEndpoint::of(key, addresses))
    }

    /// Returns the addresses of the Node of this host.
    pub(crate) fn own_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let key = ResourceKey::new(Kind::Node, None, &self.hostname);
        let key = key.map(|key| key.to_string()).unwrap_or_default();
        self.fabric.addresses_of(&key)
    }

    /// Returns whether an address is one of this host: of its Node, or of an interface that is no
    /// workload interface.
    pub(crate) fn is_own_address(&self, address: IpAddr) -> bool {
        let settings = &self.desired.settings;
        let interfaces = self.hosts.interfaces.iter();
        let mut own = interfaces.filter(|(name, _)| !settings.is_workload_interface(name));
        self.own_addresses().any(|own| own == address)
            || own.any(|(_, held)| held.contains(&address))
    }

    /// Returns the owners of all chains of rules, by the name of the chain.
    pub(crate) fn owners(&self) -> BTreeMap<&str, ListOwner> {
        let policies = self.policies.iter().flat_map(|(key, policy)| {
            let owner = self.policy_owner(key);
            let sides = policy.sides();
            sides.filter_map(move |side| Some((side.name.as_str(), owner.clone()?)))
        });
        let profiles = self.profiles.iter().flat_map(|(name, profile)| {
            let chains = profile.chains();
            chains.map(|chain| (chain.name.as_str(), profile_owner(name)))
        });
        policies.chain(profiles).collect()
    }

    pub(super) fn policy_owner(&self, key: &str) -> Option<ListOwner> {
        let policy = self.policies.get(key)?;
        let Ok(Key::Resource(resource)) = key.parse() else {
            return None;
        };
        // The key may have another name than the policy.
        let name = policy.tie.split('/').next().unwrap_or_default();
        let name = match resource.namespace() {
            Some(namespace) => format!("{} {namespace}/{name}", resource.kind().name()),
            None => format!("{} {name}", resource.kind().name()),
        };
        Some(ListOwner {
            tier: Some(policy.tier.clone()),
            name,
            selector: Some(policy.subjects.to_string()),
        })
    }

    /// Returns the lists of rules that apply to a direction of an endpoint, in order.
    pub(crate) fn applied(
        &self,
        endpoint: &Endpoint,
        direction: Direction,
    ) -> Vec<AppliedList<'_>> {
        let key = format!(
            "{RESOURCES_PREFIX}{}/{}",
            Kind::WorkloadEndpoint.plural(),
            endpoint.resource
        );
        let used = self.index.used(&key);
        let used = used.filter_map(|key| Some((key, self.policies.get(key)?)));
        let owners = self.owners();
        let mut lists = Vec::new();
        for asked in self.tiers.asked(direction, used) {
            for policy in &asked.policies {
                lists.extend(owners.get(policy.name.as_str()).map(|owner| AppliedList {
                    owner: owner.clone(),
                    chain: Some(policy),
                    end: "the next policy",
                }));
            }
            lists.push(AppliedList {
                owner: ListOwner {
                    tier: Some(asked.tier.to_owned()),
                    name: "default action of the tier".to_owned(),
                    selector: None,
                },
                chain: None,
                end: if asked.denies {
                    "deny"
                } else {
                    "the next tier"
                },
            });
        }
        for name in &endpoint.profiles {
            let (chain, end) = self.profile_effect(name, direction);
            let owner = profile_owner(name);
            lists.push(AppliedList { owner, chain, end });
            if matches!(end, "allow" | "deny" | MISSING) {
                return lists;
            }
        }
        lists.push(AppliedList {
            owner: ListOwner {
                tier: None,
                name: "all else".to_owned(),
                selector: None,
            },
            chain: None,
            end: "deny",
        });
        lists
    }

    fn profile_effect(
        &self,
        name: &str,
        direction: Direction,
    ) -> (Option<&Compiled>, &'static str) {
        if name == DEFAULT_ALLOW_PROFILE {
            return (None, "allow");
        }
        match self.profiles.get(name).map(|p: &Profile| p.side(direction)) {
            None => (None, MISSING),
            Some(Outcome::Allow) => (None, "allow"),
            Some(Outcome::Deny) => (None, "deny"),
            Some(Outcome::Next) => (None, "the next profile"),
            Some(Outcome::Ask(chain)) => (Some(chain), "the next profile"),
        }
    }
}

/// The effect of a profile that does not exist.
const MISSING: &str = "deny: it does not exist";

pub(super) fn profile_owner(name: &str) -> ListOwner {
    ListOwner {
        tier: None,
        name: format!("Profile {name}"),
        selector: None,
    }
}
