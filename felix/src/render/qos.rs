//! Limits of the traffic of endpoints: packets in a second, TCP connections, and the DSCP of packets
//! that leave the cluster.

use std::sync::Arc;

use super::assembly::Part;
use super::build::{counted, rule};
use super::guard::NODES;
use super::outgoing::INSIDE;
use super::ruleset::{
    Action, Chain, ConnectionStates, End, Family, Is, Key, Match, Rate, Rule, Set, SetKind, Side,
    Value, Verdict,
};

const TCP: u8 = 6;
/// The map from interfaces with a DSCP to their chains.
pub(super) const DSCP: &str = "dscp-interfaces";

/// The limits of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Qos {
    /// Traffic to it.
    pub ingress: Limits,
    /// Traffic from it.
    pub egress: Limits,
    /// The DSCP of its packets to destinations outside the pools and nodes.
    pub dscp: Option<u8>,
}

/// The limits of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The rate of packets.
    pub packets: Option<Rate>,
    /// The number of concurrent TCP connections.
    pub connections: Option<u32>,
}

impl Limits {
    /// Returns the rule that drops packets beyond the rate. It precedes all others.
    pub(super) fn packet_rule(self) -> Option<Rule> {
        let rate = self.packets?;
        let beyond = vec![Match::Rate(rate, Is::Not)];
        Some(counted(beyond, Verdict::Drop, "over the packet rate"))
    }

    /// Returns the rule that rejects further connections. It follows the one that accepts answers.
    pub(super) fn connection_rule(self) -> Option<Rule> {
        let connections = self.connections?;
        let beyond = vec![
            Match::Protocol(TCP, Is::Yes),
            Match::Connection(ConnectionStates::New),
            Match::ConnectionsOver(connections),
        ];
        Some(Rule {
            action: Action::ResetTcp,
            ..counted(beyond, Verdict::Drop, "over the number of connections")
        })
    }
}

/// Adds the chain that sets the DSCP of an endpoint's packets.
pub(super) fn endpoint(interface: &str, qos: Qos, part: &mut Part) {
    let Some(dscp) = qos.dscp else {
        return;
    };
    let families = Family::ALL.into_iter().zip(INSIDE).zip(NODES);
    let rules = families.map(|((family, pools), nodes)| {
        let outside = [pools, nodes]
            .map(|set| Match::InSet(End::Destination, family, set.into(), Is::Not))
            .into();
        Rule {
            action: Action::Dscp(family, dscp),
            ..counted(outside, Verdict::Return, "leaves the cluster")
        }
    });
    let chain = Chain {
        hook: None,
        rules: rules.collect(),
    };
    let name = format!("dscp-{interface}");
    let goto = Some(Value::Verdict(Verdict::Goto(name.clone())));
    part.chains.insert(name, Arc::new(chain));
    let map = Set::of(SetKind::InterfaceVerdict, []);
    part.sets.insert(DSCP.into(), Arc::new(map));
    part.elements.push((DSCP, Key::interface(interface), goto));
}

/// Returns the rules of the base chain: they find the chain of the input interface.
pub(super) fn rules() -> Vec<Rule> {
    vec![Rule {
        action: Action::Lookup(Side::Input, DSCP.into()),
        ..rule(Vec::new(), Verdict::Return)
    }]
}
