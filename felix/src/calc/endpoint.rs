//! The placement of one endpoint: its share of what it wants, and its part of the packet filter.

use std::net::IpAddr;

use super::assignments::{Assignment, Claim, Order};
use super::calculator::Calculator;
use super::desired::Placement;
use super::passage::Passages;
use super::types::Endpoint;
use crate::render::{Direction, EndpointRules, endpoint_part};

/// The orchestrator of which the endpoints get OpenStack's services from the host.
const OPENSTACK: &str = "openstack";

impl Calculator {
    /// Computes the assignment of an endpoint from the assignments before it.
    pub(super) fn assign(&self, order: &Order, endpoint: &Endpoint) -> Assignment {
        let mut builder = Builder {
            calculator: self,
            order,
            passages: Passages::new(self, &order.key),
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
                missing: builder.passages.missing(),
                endpoint,
                denied,
            },
            has_interface,
            part: builder.passages.part,
            problems: builder.passages.problems,
        }
    }
}

struct Builder<'c> {
    calculator: &'c Calculator,
    order: &'c Order,
    passages: Passages<'c>,
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
        for (field, reason) in &endpoint.idle_limits {
            self.problem(field, reason);
        }
        let passages = &mut self.passages;
        let rules = EndpointRules {
            addresses: endpoint.addresses.clone(),
            from: passages.passage(&endpoint.profiles, Direction::Egress),
            to: passages.passage(&endpoint.profiles, Direction::Ingress),
            encapsulation: std::mem::take(&mut passages.encapsulation),
            openstack,
            qos: endpoint.qos,
            takes_invalid: self.calculator.desired.settings.takes_invalid,
            denial: self.calculator.desired.settings.denial,
            flows: self.calculator.desired.flows,
            spoofed: endpoint.spoofed.clone(),
            floating: endpoint.floating.clone(),
        };
        let own = endpoint_part(&endpoint.interface, &rules);
        let part = &mut self.passages.part;
        part.chains.extend(own.chains);
        part.sets.extend(own.sets);
        part.elements.extend(own.elements);
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

    fn problem(&mut self, field: &str, reason: &str) {
        self.passages.problem(field, reason);
    }
}
