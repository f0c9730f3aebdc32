//! Rules of Calico from the parts of a rule of Kubernetes.

use calico_model::{Action, EntityRule, PolicyType, Protocol, Rule};

use crate::port::Ports;
use crate::report::Fault;

/// Returns one rule for each protocol and each peer, in this order.
pub(crate) fn rules(
    action: Action,
    ports: &[Ports],
    peers: &[EntityRule],
    direction: PolicyType,
) -> Vec<Rule> {
    let all = ports
        .iter()
        .flat_map(|ports| peers.iter().map(move |peer| (ports, peer)));
    all.map(|(ports, peer)| rule(action, ports, peer, direction))
        .collect()
}

fn rule(
    action: Action,
    (protocol, ports): &Ports,
    peer: &EntityRule,
    direction: PolicyType,
) -> Rule {
    let mut rule = Rule::every(action);
    rule.protocol = protocol.map(|name| Protocol::Name(name.to_owned()));
    match direction {
        PolicyType::Ingress => rule.source = peer.clone(),
        PolicyType::Egress => rule.destination = peer.clone(),
    }
    // The port of an ingress rule is one of the policy's subject.
    rule.destination.ports.clone_from(ports);
    rule
}

/// Returns the name of the list of rules of a direction, and that of its peers.
pub(crate) const fn fields(direction: PolicyType) -> (&'static str, &'static str) {
    match direction {
        PolicyType::Ingress => ("ingress", "from"),
        PolicyType::Egress => ("egress", "to"),
    }
}

/// Returns the first fault of a selector's parts.
pub(crate) fn whole<T>(
    value: T,
    faults: impl IntoIterator<Item = Option<Fault>>,
) -> Result<T, Fault> {
    match faults.into_iter().flatten().next() {
        Some(fault) => Err(fault),
        None => Ok(value),
    }
}
