//! The placement of one endpoint: its share of what it wants, and its part of the packet filter.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use calico_model::DEFAULT_ALLOW_PROFILE;

use super::assignments::{Assignment, Claim, Order};
use super::calculator::Calculator;
use super::desired::Placement;
use super::policy::Policy;
use super::profile::{Outcome, Profile};
use super::read::profile_key;
use super::types::{Endpoint, Problem};
use crate::render::{
    Compiled, Direction, EndpointRules, Part, Passage, endpoint_part, tier_chain, tier_name,
};

/// The orchestrator of which the endpoints get OpenStack's services from the host.
const OPENSTACK: &str = "openstack";

static DEFAULT_ALLOW: Profile = Profile::default_allow();

impl Calculator {
    /// Computes the assignment of an endpoint from the assignments before it.
    pub(super) fn assign(&self, order: &Order, endpoint: &Endpoint) -> Assignment {
        let mut builder = Builder {
            calculator: self,
            order,
            part: Part::default(),
            problems: BTreeSet::new(),
            missing: Vec::new(),
            encapsulation: Vec::new(),
        };
        let mut endpoint = endpoint.clone();
        let denial = builder.denial(&endpoint);
        let has_interface = denial.is_none();
        let denied = match denial {
            Some(reason) => {
                builder.problem("spec.interfaceName", &reason);
                Some(reason)
            }
            None => {
                let refused = builder.take_addresses(&mut endpoint);
                builder.set_up(&mut endpoint);
                refused
            }
        };
        Assignment {
            placement: Placement {
                missing: missing(&builder.missing),
                endpoint,
                denied,
            },
            has_interface,
            part: builder.part,
            problems: builder.problems,
        }
    }
}

struct Builder<'c> {
    calculator: &'c Calculator,
    order: &'c Order,
    part: Part,
    problems: BTreeSet<Problem>,
    missing: Vec<Missing>,
    /// Chains of rules that explicitly allow encapsulation.
    encapsulation: Vec<String>,
}

/// A missing profile that a direction needs.
struct Missing {
    profile: String,
    direction: Direction,
    /// Policies or other profiles precede it.
    is_asked_last: bool,
}

impl<'c> Builder<'c> {
    /// Returns the endpoint that already has an address.
    fn holder(&self, address: IpAddr) -> Option<&'c Endpoint> {
        let assignments = &self.calculator.assignments;
        assignments.holder(self.order, &Claim::Address(address))
    }

    /// Returns why the endpoint cannot have its interface.
    fn denial(&self, endpoint: &Endpoint) -> Option<String> {
        let name = &endpoint.interface;
        let settings = &self.calculator.desired.settings;
        if !settings.is_workload_interface(name) {
            let prefixes = settings.interface_prefixes.join(", ");
            return Some(format!(
                "{name} does not begin with an interface prefix ({prefixes})"
            ));
        }
        let claim = Claim::Interface(name.clone());
        let holder = self.calculator.assignments.holder(self.order, &claim)?;
        Some(format!("{name} is the interface of endpoint {}", holder.id))
    }

    /// Removes the addresses that another endpoint has. Returns why one is rejected.
    fn take_addresses(&mut self, endpoint: &mut Endpoint) -> Option<String> {
        let mut refused = None;
        let ipv6 = self.calculator.desired.settings.ipv6;
        let mut kept = Vec::with_capacity(endpoint.addresses.len());
        for address in std::mem::take(&mut endpoint.addresses) {
            let reason = match self.holder(address) {
                None if ipv6 || address.is_ipv4() => {
                    kept.push(address);
                    continue;
                }
                None => format!("{address} is left out: ipv6Support is off"),
                Some(holder) => {
                    let reason = format!("{address} is the address of endpoint {}", holder.id);
                    refused.get_or_insert(reason).clone()
                }
            };
            self.problem("spec.ipNetworks", &reason);
        }
        endpoint.addresses = kept;
        refused
    }

    fn set_up(&mut self, endpoint: &mut Endpoint) {
        let openstack = endpoint.id.orchestrator == OPENSTACK;
        self.take_floating(endpoint, openstack);
        self.take_spoofed(endpoint);
        for field in &endpoint.idle_limits {
            self.problem(field, "a burst has no effect without a packet rate");
        }
        let rules = EndpointRules {
            addresses: endpoint.addresses.clone(),
            from: self.passage(endpoint, Direction::Egress),
            to: self.passage(endpoint, Direction::Ingress),
            encapsulation: std::mem::take(&mut self.encapsulation),
            openstack,
            qos: endpoint.qos,
            takes_invalid: self.calculator.desired.settings.takes_invalid,
            denial: self.calculator.desired.settings.denial,
            spoofed: endpoint.spoofed.clone(),
            floating: endpoint.floating.clone(),
        };
        let own = endpoint_part(&endpoint.interface, &rules);
        self.part.chains.extend(own.chains);
        self.part.sets.extend(own.sets);
        self.part.elements.extend(own.elements);
    }

    /// Keeps further source addresses if the settings allow them.
    fn take_spoofed(&mut self, endpoint: &mut Endpoint) {
        if !endpoint.spoofed.is_empty() && !self.calculator.desired.settings.source_spoofing {
            endpoint.spoofed.clear();
            let reason = "workloadSourceSpoofing is not Any: packets from addresses that are not \
                          the endpoint's own are dropped";
            self.problem("spec.allowSpoofedSourcePrefixes", reason);
        }
    }

    /// Keeps the floating addresses that are translated to addresses of the endpoint.
    fn take_floating(&mut self, endpoint: &mut Endpoint, openstack: bool) {
        let wanted = std::mem::take(&mut endpoint.floating);
        if !self.calculator.desired.settings.floating_ips && !openstack {
            return;
        }
        for (at, (outside, inside)) in wanted.into_iter().enumerate() {
            let other = match endpoint.routes().any(|own| own == outside) {
                true => Some(&endpoint.interface),
                false => self.holder(outside).map(|holder| &holder.interface),
            };
            let reason = if !endpoint.addresses.contains(&inside) {
                format!("{inside} is not an address of the endpoint")
            } else if outside.is_ipv4() != inside.is_ipv4() {
                format!("{outside} and {inside} are not of one IP version")
            } else if let Some(other) = other {
                format!("{outside} belongs to the endpoint on {other}")
            } else {
                endpoint.floating.push((outside, inside));
                continue;
            };
            self.problem(&format!("spec.ipNATs[{at}]"), &reason);
        }
    }

    /// Returns the passage of a direction: tiers in order, then profiles in order. The first that
    /// decides counts; without a decision all traffic is dropped.
    fn passage(&mut self, endpoint: &Endpoint, direction: Direction) -> Passage {
        let mut through = self.tiers(direction);
        for name in &endpoint.profiles {
            let Some(profile) = self.profile(name) else {
                self.missing.push(Missing {
                    profile: name.clone(),
                    direction,
                    is_asked_last: !through.is_empty(),
                });
                let reason = format!("profile {name} does not exist");
                self.problem_of(
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
                    self.take_sets(&profile_key(name), chain);
                    self.take_chain(chain);
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

    /// Returns the chains of the tiers with policies for the endpoint.
    fn tiers(&mut self, direction: Direction) -> Vec<String> {
        let (calculator, order) = (self.calculator, self.order);
        let policies = || {
            let used = calculator.index.used(&order.key);
            used.filter_map(|key| Some((key, calculator.policies.get(key)?)))
        };
        for (key, policy) in policies() {
            if let Some(side) = policy.side(direction) {
                self.take_sets(key, side);
                // The rules of a policy with `Pass` are in the chain of its tier instead.
                if !side.passes {
                    self.take_chain(side);
                }
            }
        }
        let mut through = Vec::new();
        for asked in calculator.tiers.asked(direction, policies()) {
            if asked.unknown {
                self.unknown_tier(asked.tier, policies());
            }
            let name = tier_name(direction, asked.tier, asked.denies, &asked.policies);
            let chain = tier_chain(asked.tier, asked.denies, &asked.policies);
            self.part.chains.insert(name.clone(), Arc::new(chain));
            through.push(name);
        }
        through
    }

    fn unknown_tier<'p>(
        &mut self,
        tier: &str,
        policies: impl Iterator<Item = (&'p str, &'p Policy)>,
    ) {
        let reason = format!(
            "tier {tier} does not exist: it is evaluated as the last one, with the default action \
             Deny"
        );
        for (key, _) in policies.filter(|(_, policy)| policy.tier == tier) {
            self.problem_of(key, "spec.tier", &reason);
        }
    }

    fn take_chain(&mut self, chain: &Compiled) {
        let (name, rules) = (chain.name.clone(), Arc::clone(&chain.chain));
        self.part.chains.insert(name, rules);
    }

    /// Collects the sets that rules use and the rules that allow encapsulation, and records the
    /// unsupported parts of the rules.
    fn take_sets(&mut self, key: &str, chain: &Compiled) {
        if let Some((name, rules)) = &chain.encapsulation {
            self.part.chains.insert(name.clone(), Arc::clone(rules));
            self.encapsulation.push(name.clone());
        }
        let sets = chain.sets.iter();
        let sets = sets.map(|(name, set)| (name.clone(), Arc::clone(set)));
        self.part.sets.extend(sets);
        for fault in &chain.unsupported {
            self.problem_of(key, &fault.field, &fault.reason);
        }
    }

    fn profile(&self, name: &str) -> Option<&'c Profile> {
        match name {
            DEFAULT_ALLOW_PROFILE => Some(&DEFAULT_ALLOW),
            _ => self.calculator.profiles.get(name),
        }
    }

    fn problem(&mut self, field: &str, reason: &str) {
        let key = &self.order.key;
        self.problems.insert(Problem::new(key, field, reason));
    }

    /// Records a problem of a resource that the endpoint needs.
    fn problem_of(&mut self, key: &str, field: &str, reason: &str) {
        self.problems.insert(Problem::new(key, field, reason));
    }
}

/// Returns the effect of missing profiles on their endpoint.
fn missing(missing: &[Missing]) -> Option<String> {
    let profile = &missing.first()?.profile;
    let directions: Vec<&str> = missing.iter().map(|one| one.direction.field()).collect();
    let is_all = directions.len() == 2 && missing.iter().all(|one| !one.is_asked_last);
    let dropped = match is_all {
        true => "all traffic".to_owned(),
        false => format!(
            "{} traffic that nothing else allows is",
            directions.join(" and ")
        ),
    };
    Some(format!(
        "profile \"{profile}\" does not exist: {dropped} dropped"
    ))
}
