//! The decision of the stored policies on a packet, by the evaluator that shares no code with Felix.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rule_audit::Fabric;
use rule_audit::evaluator::{Endpoint, Hook, Spec};
use rule_audit::packet::{Family, Field, Packet};
use rule_audit::ranges::number;
use rule_audit::space::{Outcome, ProgramId, Space};

use super::probe::{Kind, Probe, Tracked};
use super::wires::Party;

/// The chains that a packet reaches, each with its decision and the rule that has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// `None`: both are correct.
    pub(super) passes: Option<bool>,
    /// The state of its connection.
    pub(super) state: u128,
    pub(super) steps: Vec<(Hook, String)>,
}

/// Evaluates packets.
pub(super) struct Evaluator<'f> {
    endpoints: BTreeMap<IpAddr, &'f Endpoint>,
    spec: Spec<'f>,
    space: Space,
    programs: BTreeMap<(IpAddr, Hook), ProgramId>,
}

impl<'f> Evaluator<'f> {
    pub(super) fn new(fabric: &'f Fabric) -> Self {
        let endpoints = fabric.endpoints.iter().flat_map(|endpoint| {
            assert_eq!(endpoint.fault, None, "{}", endpoint.name);
            endpoint
                .addresses
                .iter()
                .map(move |address| (*address, endpoint))
        });
        Self {
            endpoints: endpoints.collect(),
            spec: Spec::new(fabric),
            space: Space::new(),
            programs: BTreeMap::new(),
        }
    }

    /// Returns the decision about a packet that `sender` sends.
    pub(super) fn verdict(&mut self, sender: Party, probe: &Probe, tracked: &Tracked) -> Verdict {
        let packet = packet(sender, probe, tracked);
        let receiver = Party::of(probe.to);
        let own = |party: Party| match party {
            Party::Workload(n) => {
                let [v4, v6] = super::wires::addresses(n);
                Some(
                    if probe.to.is_ipv4() { v4 } else { v6 }
                        .parse::<IpAddr>()
                        .unwrap(),
                )
            }
            Party::Host | Party::Far => None,
        };
        let from: &[Hook] = match receiver {
            Party::Host => &[Hook::Source, Hook::Input, Hook::InputToHost],
            _ => &[Hook::Source, Hook::Forward],
        };
        let to: &[Hook] = match sender {
            Party::Host => &[Hook::Output],
            _ => &[Hook::ForwardTo],
        };
        let from = from.iter().filter_map(|hook| Some((own(sender)?, *hook)));
        let to = to.iter().filter_map(|hook| Some((own(receiver)?, *hook)));
        let mut verdict = Verdict {
            passes: Some(true),
            state: packet.get(Field::State),
            steps: Vec::new(),
        };
        for (address, hook) in from.chain(to) {
            let program = self.program(address, hook, packet.family);
            let (outcome, place) = self.space.run(program, &packet);
            verdict
                .steps
                .push((hook, self.space.text(place).to_owned()));
            match outcome {
                Outcome::Accept
                | Outcome::Undecided
                | Outcome::Marked
                | Outcome::Untracked
                | Outcome::Translated(_) => {}
                Outcome::Drop => {
                    verdict.passes = Some(false);
                    return verdict;
                }
                Outcome::Either => verdict.passes = None,
                Outcome::Unknown => panic!("{probe}: {verdict:?} is not evaluated"),
            }
        }
        verdict
    }

    fn program(&mut self, address: IpAddr, hook: Hook, family: Family) -> ProgramId {
        if let Some(known) = self.programs.get(&(address, hook)) {
            return *known;
        }
        let endpoint = self.endpoints[&address];
        let program = self.spec.program(&mut self.space, endpoint, hook, family);
        self.programs.insert((address, hook), program);
        program
    }
}

fn packet(sender: Party, probe: &Probe, tracked: &Tracked) -> Packet {
    let family = if probe.to.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    let (state, is_answer) = tracked.state(probe);
    let (mut packet, is_answer) = (Packet::new(family), u128::from(is_answer));
    for (field, value) in [
        (Field::Source, number(probe.from)),
        (Field::Destination, number(probe.to)),
        (Field::Protocol, probe.protocol().into()),
        (Field::State, state),
        (Field::Direction, is_answer),
        (Field::SourceLocal, u128::from(sender == Party::Host)),
    ] {
        packet = packet.with(field, value);
    }
    if probe.has_ports() {
        packet = packet
            .with(Field::SourcePort, probe.source_port.into())
            .with(Field::DestinationPort, probe.destination_port.into());
    }
    if let Kind::Icmp(kind, code) = probe.kind {
        packet = packet
            .with(Field::IcmpType, kind.into())
            .with(Field::IcmpCode, code.into());
    }
    packet
}
