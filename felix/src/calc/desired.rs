//! The state that a host should be in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::{DEFAULT_ALLOW_PROFILE, Mac};

use super::calculator::Calculator;
use super::policy::Policy;
use super::profile::{Outcome, Profile};
use super::read::{local_id, profile_key};
use super::settings::Settings;
use super::types::{Endpoint, EndpointId, Problem};
use crate::render::{
    Compiled, Direction, EndpointRules, OpenStack, Passage, RuleInputs, Ruleset, render,
    tier_chain, tier_name,
};

/// What a host should look like, and what is said about its endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The settings that all else follows.
    pub settings: Settings,
    /// Workload interfaces to set up, by name, each with its endpoint.
    pub interfaces: BTreeMap<String, Endpoint>,
    /// Routes: a workload's address, or one outside that stands for it, to interface; /32 or /128.
    pub routes: BTreeMap<IpAddr, String>,
    /// Permanent neighbour entries, by interface and address.
    pub neighbours: BTreeMap<(String, IpAddr), Mac>,
    /// The packet filter.
    pub rules: Ruleset,
    /// Every endpoint of this host, and whether it has its interface.
    pub endpoints: BTreeMap<EndpointId, Placement>,
    /// What cannot be followed, or not in full.
    pub problems: BTreeSet<Problem>,
    /// How many values are refused; of each the one before, if any, stays in force.
    pub refused: usize,
}

/// Whether an endpoint has its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The endpoint, with the addresses that are its own.
    pub endpoint: Endpoint,
    /// Why it is refused, if it is: it is not set up, or not with all its addresses, or as it was
    /// before its last value.
    pub denied: Option<String>,
}

pub(super) fn desired(calculator: &Calculator) -> Desired {
    let mut builder = Builder {
        calculator,
        desired: Desired {
            settings: calculator.settings(),
            problems: calculator.refused.values().cloned().collect(),
            refused: calculator.refused.len(),
            ..Desired::default()
        },
        inputs: RuleInputs::default(),
    };
    // In the order of ids: of two that claim the same thing, the lower one wins.
    let mut endpoints: Vec<(&String, &Endpoint)> = calculator.endpoints.iter().collect();
    endpoints.sort_unstable_by(|(a_key, a), (b_key, b)| (&a.id, a_key).cmp(&(&b.id, b_key)));
    for (key, endpoint) in endpoints {
        builder.place(key, endpoint);
    }
    for (key, problem) in &calculator.refused {
        builder.refuse(key, problem);
    }
    builder.finish()
}

/// Of its endpoints the host takes care in OpenStack's way.
const OPENSTACK: &str = "openstack";

static DEFAULT_ALLOW: Profile = Profile::default_allow();

struct Builder<'c> {
    calculator: &'c Calculator,
    desired: Desired,
    inputs: RuleInputs,
}

impl<'c> Builder<'c> {
    fn place(&mut self, key: &str, endpoint: &Endpoint) {
        let mut endpoint = endpoint.clone();
        let denied = match self.denial(&endpoint) {
            Some((field, reason)) => {
                self.problem(key, field, &reason);
                Some(reason)
            }
            None => {
                let refused = self.take_addresses(key, &mut endpoint);
                self.set_up(key, &endpoint);
                refused
            }
        };
        let id = endpoint.id.clone();
        let placement = Placement { endpoint, denied };
        self.desired.endpoints.insert(id, placement);
    }

    /// An endpoint of this host whose value cannot be read is refused, too.
    fn refuse(&mut self, key: &str, problem: &Problem) {
        let Some((id, resource)) = local_id(key, &self.calculator.hostname) else {
            return;
        };
        let what = problem.what();
        if let Some(placement) = self.desired.endpoints.get_mut(&id) {
            placement.denied = Some(format!("{what}; the value before it stays in force"));
            return;
        }
        let endpoint = Endpoint {
            id: id.clone(),
            resource,
            ..Endpoint::default()
        };
        let denied = Some(what);
        let placement = Placement { endpoint, denied };
        self.desired.endpoints.insert(id, placement);
    }

    /// Why the endpoint cannot have its interface.
    fn denial(&self, endpoint: &Endpoint) -> Option<(&'static str, String)> {
        let name = &endpoint.interface;
        if !self.desired.settings.is_workload_interface(name) {
            let prefixes = self.desired.settings.interface_prefixes.join(", ");
            let reason = format!("{name} does not begin with an interface prefix ({prefixes})");
            return Some(("spec.interfaceName", reason));
        }
        let holder = self.desired.interfaces.get(name)?;
        let reason = format!("{name} is the interface of endpoint {}", holder.id);
        Some(("spec.interfaceName", reason))
    }

    /// Leaves the endpoint those addresses that no other has. Returns why one is refused.
    fn take_addresses(&mut self, key: &str, endpoint: &mut Endpoint) -> Option<String> {
        let mut refused = None;
        let ipv6 = self.desired.settings.ipv6;
        let mut kept = Vec::with_capacity(endpoint.addresses.len());
        for address in std::mem::take(&mut endpoint.addresses) {
            let reason = match self.holder(address) {
                None if ipv6 || address.is_ipv4() => {
                    kept.push(address);
                    continue;
                }
                None => format!("{address} is left out: ipv6Support is off"),
                Some(holder) => {
                    let reason = format!("{address} is the address of endpoint {holder}");
                    refused.get_or_insert(reason).clone()
                }
            };
            self.problem(key, "spec.ipNetworks", &reason);
        }
        endpoint.addresses = kept;
        refused
    }

    /// Whose an address is already.
    fn holder(&self, address: IpAddr) -> Option<&EndpointId> {
        let interface = self.desired.routes.get(&address)?;
        Some(&self.desired.interfaces.get(interface)?.id)
    }

    fn set_up(&mut self, key: &str, endpoint: &Endpoint) {
        let name = &endpoint.interface;
        for address in &endpoint.addresses {
            self.desired.routes.insert(*address, name.clone());
            if let Some(mac) = endpoint.mac {
                self.desired
                    .neighbours
                    .insert((name.clone(), *address), mac);
            }
        }
        if endpoint.id.orchestrator == OPENSTACK {
            self.inputs.openstack.interfaces.insert(name.clone());
        }
        self.float(key, endpoint);
        let rules = EndpointRules {
            addresses: endpoint.addresses.clone(),
            from: self.passage(key, endpoint, Direction::Egress),
            to: self.passage(key, endpoint, Direction::Ingress),
        };
        self.inputs.endpoints.insert(name.clone(), rules);
        self.desired
            .interfaces
            .insert(name.clone(), endpoint.clone());
    }

    /// Takes the addresses outside that stand for addresses of the endpoint.
    fn float(&mut self, key: &str, endpoint: &Endpoint) {
        let enabled = self.desired.settings.floating_ips;
        if !enabled && endpoint.id.orchestrator != OPENSTACK {
            return;
        }
        for (at, (outside, inside)) in endpoint.floating.iter().enumerate() {
            let reason = if !endpoint.addresses.contains(inside) {
                format!("{inside} is not an address of the endpoint")
            } else if outside.is_ipv4() != inside.is_ipv4() {
                format!("{outside} cannot stand for {inside}")
            } else if let Some(other) = self.desired.routes.get(outside) {
                format!("{outside} belongs to the endpoint on {other}")
            } else {
                let interface = endpoint.interface.clone();
                self.desired.routes.insert(*outside, interface);
                self.inputs.floating.insert(*outside, *inside);
                continue;
            };
            self.problem(key, &format!("spec.ipNATs[{at}]"), &reason);
        }
    }

    /// Tiers in order, then profiles in order: the first that says something decides; if none does,
    /// nothing passes.
    fn passage(&mut self, key: &str, endpoint: &Endpoint, direction: Direction) -> Passage {
        let mut through = self.tiers(key, direction);
        for name in &endpoint.profiles {
            let Some(profile) = self.profile(name) else {
                let reason = format!("profile {name} does not exist");
                self.problem(
                    &profile_key(name),
                    "",
                    &format!("{reason}; its endpoints pass nothing"),
                );
                return Passage {
                    through,
                    allowed: false,
                    reason,
                };
            };
            let allowed = match profile.side(direction) {
                Outcome::Allow => true,
                Outcome::Deny => false,
                Outcome::Next => continue,
                Outcome::Ask(chain) => {
                    self.take(&profile_key(name), chain);
                    through.push(chain.name.clone());
                    continue;
                }
            };
            return Passage {
                through,
                allowed,
                reason: format!("profile {name}"),
            };
        }
        let reason = match (through.is_empty(), endpoint.profiles.is_empty()) {
            (false, _) => "no policy or profile allows it",
            (true, true) => "no profile or policy",
            (true, false) => "no profile allows it",
        };
        Passage {
            through,
            allowed: false,
            reason: reason.into(),
        }
    }

    /// The chains of the tiers that have policies for the endpoint.
    fn tiers(&mut self, endpoint: &str, direction: Direction) -> Vec<String> {
        let calculator = self.calculator;
        let policies = || {
            let used = calculator.index.used(endpoint);
            used.filter_map(|key| Some((key, calculator.policies.get(key)?)))
        };
        for (key, policy) in policies() {
            if let Some(side) = policy.side(direction) {
                self.take(key, side);
            }
        }
        let mut through = Vec::new();
        for asked in calculator.tiers.asked(direction, policies()) {
            if asked.unknown {
                self.unknown_tier(asked.tier, policies());
            }
            let name = tier_name(direction, asked.tier, asked.denies, &asked.policies);
            if !self.inputs.chains.contains_key(&name) {
                let chain = tier_chain(asked.tier, asked.denies, &asked.policies);
                self.inputs.chains.insert(name.clone(), Arc::new(chain));
            }
            through.push(name);
        }
        through
    }

    fn unknown_tier<'p>(
        &mut self,
        tier: &str,
        policies: impl Iterator<Item = (&'p String, &'p Policy)>,
    ) {
        let reason = format!(
            "there is no tier {tier}; it is taken for the last one, and for one that denies"
        );
        for (key, _) in policies.filter(|(_, policy)| policy.tier == tier) {
            self.problem(key, "spec.tier", &reason);
        }
    }

    /// Takes a chain of rules with the sets that they ask, and says what of it is not followed.
    fn take(&mut self, key: &str, chain: &Compiled) {
        // One with rules that pass stands in the chains of its tier.
        if self.inputs.chains.contains_key(&chain.name) {
            return;
        }
        self.inputs
            .chains
            .insert(chain.name.clone(), Arc::clone(&chain.chain));
        let sets = chain.sets.iter();
        let sets = sets.map(|(name, set)| (name.clone(), Arc::clone(set)));
        self.inputs.sets.extend(sets);
        for fault in &chain.unsupported {
            self.problem(key, &fault.field, &fault.reason);
        }
    }

    fn profile(&self, name: &str) -> Option<&'c Profile> {
        match name {
            DEFAULT_ALLOW_PROFILE => Some(&DEFAULT_ALLOW),
            _ => self.calculator.profiles.get(name),
        }
    }

    fn problem(&mut self, key: &str, field: &str, reason: &str) {
        self.desired
            .problems
            .insert(Problem::new(key, field, reason));
    }

    fn finish(mut self) -> Desired {
        let settings = &self.desired.settings;
        let inputs = RuleInputs {
            interface_prefixes: settings.interface_prefixes.clone(),
            to_host: settings.to_host,
            openstack: OpenStack {
                metadata: settings.metadata,
                ..self.inputs.openstack
            },
            ..self.inputs
        };
        let mut rules = render(&inputs);
        rules.sets.extend(self.calculator.index.sets());
        self.desired.rules = rules;
        self.desired
    }
}
