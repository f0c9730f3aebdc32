//! Rules of Calico from the parts of a rule of Kubernetes.

use calico_model::{EntityRule, PolicyType, Protocol, Rule};

use crate::limits::RULES_OCTETS_MAX;
use crate::port::Ports;
use crate::report::Fault;

/// The rules of a direction, of limited length.
#[derive(Debug, Default)]
pub(crate) struct RuleList {
    rules: Vec<Rule>,
    octets: usize,
}

impl RuleList {
    /// Adds one rule for each protocol and each peer, in this order, with the action of `base`.
    /// Returns whether there is room for all of them; the first one without room is the end.
    pub(crate) fn add(
        &mut self,
        base: &Rule,
        ports: &[Ports],
        peers: &[EntityRule],
        direction: PolicyType,
    ) -> bool {
        let mut all = ports
            .iter()
            .flat_map(|ports| peers.iter().map(move |peer| (ports, peer)));
        all.all(|(ports, peer)| self.push(rule(base, ports, peer, direction)))
    }

    /// Adds a rule. Returns whether there is room for it.
    pub(crate) fn push(&mut self, rule: Rule) -> bool {
        let length = serde_json::to_vec(&rule).map_or(usize::MAX, |octets| octets.len());
        self.octets = self.octets.saturating_add(length).saturating_add(1);
        let has_room = self.octets <= RULES_OCTETS_MAX;
        if has_room {
            self.rules.push(rule);
        }
        has_room
    }

    /// Adds a rule for which there is always room.
    pub(crate) fn close(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    pub(crate) fn into_rules(self) -> Vec<Rule> {
        self.rules
    }
}

fn rule(base: &Rule, (protocol, ports): &Ports, peer: &EntityRule, direction: PolicyType) -> Rule {
    let mut rule = base.clone();
    rule.protocol = protocol.map(|name| Protocol::Name(name.to_owned()));
    match direction {
        PolicyType::Ingress => rule.source = peer.clone(),
        PolicyType::Egress => rule.destination = peer.clone(),
    }
    // The port of an ingress rule is one of the policy's subject.
    rule.destination.ports.clone_from(ports);
    rule
}

/// Returns the reason for rules without room.
pub(crate) fn too_long() -> String {
    format!("the rules have more than {RULES_OCTETS_MAX} octets")
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
