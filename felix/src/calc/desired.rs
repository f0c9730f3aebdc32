//! The state that a host should be in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::{DEFAULT_ALLOW_PROFILE, Kind, Mac};

use super::calculator::Calculator;
use super::profile::{Direction, Outcome, Profile};
use super::settings::Settings;
use super::types::{Endpoint, EndpointId, Problem};
use crate::render::{EndpointRules, Passage, RuleInputs, Ruleset, render};

/// What a host should look like, and what is said about its endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The settings that all else follows.
    pub settings: Settings,
    /// Workload interfaces to set up, by name, each with its endpoint.
    pub interfaces: BTreeMap<String, Endpoint>,
    /// Routes: workload address to interface, /32 or /128.
    pub routes: BTreeMap<IpAddr, String>,
    /// Permanent neighbour entries, by interface and address.
    pub neighbours: BTreeMap<(String, IpAddr), Mac>,
    /// The packet filter.
    pub rules: Ruleset,
    /// Every endpoint of this host, and whether it has its interface.
    pub endpoints: BTreeMap<EndpointId, Placement>,
    /// What cannot be followed, or not in full.
    pub problems: BTreeSet<Problem>,
}

/// Whether an endpoint has its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The endpoint, with the addresses that are its own.
    pub endpoint: Endpoint,
    /// Why it is refused, if it is: it is not set up, or not with all its addresses.
    pub denied: Option<String>,
}

pub(super) fn desired(calculator: &Calculator) -> Desired {
    let mut builder = Builder {
        calculator,
        desired: Desired {
            settings: calculator.settings(),
            problems: calculator.refused.values().cloned().collect(),
            ..Desired::default()
        },
        rules: BTreeMap::new(),
    };
    // In the order of ids: of two that claim the same thing, the lower one wins.
    let mut endpoints: Vec<(&String, &Endpoint)> = calculator.endpoints.iter().collect();
    endpoints.sort_unstable_by(|(a_key, a), (b_key, b)| (&a.id, a_key).cmp(&(&b.id, b_key)));
    for (key, endpoint) in endpoints {
        builder.place(key, endpoint);
    }
    builder.finish()
}

struct Builder<'c> {
    calculator: &'c Calculator,
    desired: Desired,
    rules: BTreeMap<String, EndpointRules>,
}

impl Builder<'_> {
    fn place(&mut self, key: &str, endpoint: &Endpoint) {
        let mut endpoint = endpoint.clone();
        let denied = match self.denial(&endpoint) {
            Some((field, reason)) => {
                self.problem(key, field, &reason);
                Some(reason)
            }
            None => {
                let refused = self.take_addresses(key, &mut endpoint);
                self.set_up(&endpoint);
                refused
            }
        };
        let id = endpoint.id.clone();
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

    fn set_up(&mut self, endpoint: &Endpoint) {
        let name = &endpoint.interface;
        for address in &endpoint.addresses {
            self.desired.routes.insert(*address, name.clone());
            if let Some(mac) = endpoint.mac {
                self.desired
                    .neighbours
                    .insert((name.clone(), *address), mac);
            }
        }
        let rules = EndpointRules {
            addresses: endpoint.addresses.clone(),
            from: self.passage(endpoint, "egress", |profile| profile.egress),
            to: self.passage(endpoint, "ingress", |profile| profile.ingress),
        };
        self.rules.insert(name.clone(), rules);
        self.desired
            .interfaces
            .insert(name.clone(), endpoint.clone());
    }

    /// The profiles in order: the first that says something decides; if none does, nothing
    /// passes.
    fn passage(
        &mut self,
        endpoint: &Endpoint,
        side: &str,
        of: fn(&Profile) -> Direction,
    ) -> Passage {
        for name in &endpoint.profiles {
            let Some(profile) = self.profile(name) else {
                let reason = format!("profile {name} does not exist");
                self.problem(
                    &profile_key(name),
                    "",
                    &format!("{reason}; its endpoints pass nothing"),
                );
                return Passage {
                    allowed: false,
                    reason,
                };
            };
            let direction = of(&profile);
            if let Some(at) = direction.conditional {
                let field = format!("spec.{side}[{at}]");
                let reason =
                    "rules with conditions are not enforced yet; what they would decide is dropped";
                self.problem(&profile_key(name), &field, reason);
            }
            let allowed = match direction.outcome {
                Outcome::Allow => true,
                Outcome::Deny => false,
                Outcome::Next => continue,
            };
            return Passage {
                allowed,
                reason: format!("profile {name}"),
            };
        }
        let reason = match endpoint.profiles.is_empty() {
            true => "no profile or policy",
            false => "no profile allows it",
        };
        Passage {
            allowed: false,
            reason: reason.into(),
        }
    }

    fn profile(&self, name: &str) -> Option<Profile> {
        match name {
            DEFAULT_ALLOW_PROFILE => Some(Profile::default_allow()),
            _ => self.calculator.profiles.get(name).copied(),
        }
    }

    fn problem(&mut self, key: &str, field: &str, reason: &str) {
        self.desired
            .problems
            .insert(Problem::new(key, field, reason));
    }

    fn finish(mut self) -> Desired {
        self.desired.rules = render(&RuleInputs {
            interface_prefixes: self.desired.settings.interface_prefixes.clone(),
            to_host: self.desired.settings.to_host,
            endpoints: self.rules,
        });
        self.desired
    }
}

fn profile_key(name: &str) -> String {
    format!("{}{name}", Kind::Profile.prefix())
}
