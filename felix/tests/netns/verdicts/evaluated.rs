//! The decision of the stored policies on a packet, by the evaluator that shares no code with Felix.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rule_audit::Fabric;
use rule_audit::evaluator::{Endpoint, Hook, HostHook, Spec};
use rule_audit::packet::{Family, Field, Packet, state};
use rule_audit::ranges::number;
use rule_audit::space::{Outcome, ProgramId, Space};

use super::probe::{Kind, Probe, Tracked};
use super::wires::Party;

/// A chain that a packet reaches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reached {
    /// A chain of a workload.
    Workload(Hook),
    /// A chain of the host endpoint of an interface.
    Host(HostHook, String),
}

/// The chains that a packet reaches, each with its decision and the rule that has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// `None`: both are correct.
    pub(super) passes: Option<bool>,
    /// The state of its connection.
    pub(super) state: u128,
    /// The place where it arrives, if it passes.
    pub(super) receiver: Party,
    pub(super) steps: Vec<(Reached, String)>,
}

/// Destinations that another table of the kernel translates: address, protocol and port.
pub(super) type Services = BTreeMap<(IpAddr, u8, u16), (IpAddr, u16)>;

/// Evaluates packets.
pub(super) struct Evaluator<'f> {
    endpoints: BTreeMap<IpAddr, &'f Endpoint>,
    pub(super) services: Services,
    has_hosts: bool,
    spec: Spec<'f>,
    space: Space,
    programs: BTreeMap<(IpAddr, Hook), ProgramId>,
    host_programs: BTreeMap<(String, HostHook, Family), ProgramId>,
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
        for host in &fabric.hosts {
            assert_eq!(host.fault, None, "{}", host.name);
        }
        Self {
            endpoints: endpoints.collect(),
            services: Services::new(),
            has_hosts: !fabric.hosts.is_empty(),
            spec: Spec::new(fabric),
            space: Space::new(),
            programs: BTreeMap::new(),
            host_programs: BTreeMap::new(),
        }
    }

    /// Returns the packet behind the translation of its destination.
    pub(super) fn translated(&self, probe: &Probe) -> Option<Probe> {
        let key = (probe.to, probe.protocol(), probe.destination_port);
        let (to, destination_port) = *self.services.get(&key).filter(|_| probe.has_ports())?;
        Some(Probe {
            to,
            destination_port,
            ..*probe
        })
    }

    /// Returns the decision about a packet that `sender` sends.
    pub(super) fn verdict(&mut self, sender: Party, probe: &Probe, tracked: &Tracked) -> Verdict {
        let packet = packet(probe, tracked);
        let mut verdict = Verdict {
            passes: Some(true),
            state: packet.get(Field::State),
            receiver: Party::of(probe.to),
            steps: Vec::new(),
        };
        self.pass_all(sender, probe, packet, &mut verdict);
        verdict
    }

    /// Evaluates the chains that a packet reaches, in their order, until one drops it.
    fn pass_all(
        &mut self,
        sender: Party,
        probe: &Probe,
        mut packet: Packet,
        verdict: &mut Verdict,
    ) -> Option<()> {
        let former = Party::of(probe.to);
        let is_looped = sender == Party::Host && former == Party::Host;
        let translated = self.translated(probe);
        if let Some(translated) = translated {
            verdict.receiver = Party::of(translated.to);
        }
        if sender == verdict.receiver && !is_looped {
            // The place also receives its own packets.
            verdict.passes = None;
            return None;
        }
        let link = |party: Party| match is_looped {
            true => "lo".to_owned(),
            false => party.interface(),
        };
        if sender == Party::Host {
            self.early(
                HostHook::UntrackedOutput,
                &link(former),
                &mut packet,
                verdict,
            )?;
        } else {
            self.workload(sender, Hook::Source, &packet, verdict)?;
        }
        let arrives = sender != Party::Host || is_looped;
        if arrives {
            self.early(HostHook::Untracked, &link(sender), &mut packet, verdict)?;
            self.early(HostHook::Untranslated, &link(sender), &mut packet, verdict)?;
        }
        let is_untracked = packet.get(Field::State) == state::UNTRACKED;
        let translated = translated.filter(|_| !is_untracked);
        if translated.is_none() {
            verdict.receiver = former;
        }
        let receiver = verdict.receiver;
        if sender == receiver && !is_looped {
            verdict.passes = None;
            return None;
        }
        if let Some(translated) = translated {
            packet = packet
                .with(Field::Destination, number(translated.to))
                .with(Field::DestinationPort, translated.destination_port.into());
            if sender == Party::Host {
                packet = packet.with(Field::Translated, 1);
            }
        }
        if sender == Party::Host {
            if translated.is_none() {
                self.workload(receiver, Hook::Output, &packet, verdict)?;
            }
            self.host(HostHook::Output, &link(former), &packet, verdict)?;
        }
        match receiver {
            Party::Host if arrives => {
                self.workload(sender, Hook::Input, &packet, verdict)?;
                self.host(HostHook::Input, &link(sender), &packet, verdict)?;
                self.workload(sender, Hook::InputToHost, &packet, verdict)?;
            }
            _ if arrives => {
                self.workload(sender, Hook::Forward, &packet, verdict)?;
                self.host(HostHook::Forward, &link(sender), &packet, verdict)?;
                self.workload(receiver, Hook::ForwardTo, &packet, verdict)?;
                self.host(HostHook::ForwardTo, &link(receiver), &packet, verdict)?;
            }
            _ => {}
        }
        Some(())
    }

    /// Evaluates a chain of a workload; others have none.
    fn workload(
        &mut self,
        party: Party,
        hook: Hook,
        packet: &Packet,
        verdict: &mut Verdict,
    ) -> Option<()> {
        let Party::Workload(n) = party else {
            return Some(());
        };
        let [v4, v6] = super::wires::addresses(n);
        let address = match packet.family {
            Family::V4 => v4,
            Family::V6 => v6,
        };
        let program = self.program(address.parse().unwrap(), hook, packet.family);
        self.run(program, Reached::Workload(hook), packet, verdict)
            .map(drop)
    }

    /// Evaluates a chain of host endpoints.
    fn host(
        &mut self,
        hook: HostHook,
        interface: &str,
        packet: &Packet,
        verdict: &mut Verdict,
    ) -> Option<Outcome> {
        if !self.has_hosts {
            return Some(Outcome::Accept);
        }
        let key = (interface.to_owned(), hook, packet.family);
        let (spec, space) = (&mut self.spec, &mut self.space);
        let program = *self
            .host_programs
            .entry(key)
            .or_insert_with(|| spec.host_program(space, interface, hook, packet.family));
        self.run(
            program,
            Reached::Host(hook, interface.to_owned()),
            packet,
            verdict,
        )
    }

    /// Evaluates a chain of host endpoints that may mark packets.
    fn early(
        &mut self,
        hook: HostHook,
        interface: &str,
        packet: &mut Packet,
        verdict: &mut Verdict,
    ) -> Option<()> {
        match self.host(hook, interface, packet, verdict)? {
            Outcome::Marked => *packet = packet.with(Field::Marked, 1),
            Outcome::Untracked => {
                verdict.state = state::UNTRACKED;
                *packet = packet
                    .with(Field::Marked, 1)
                    .with(Field::State, state::UNTRACKED)
                    .with(Field::Direction, 0);
            }
            _ => {}
        }
        Some(())
    }

    /// Runs a program; `None` if the packet is dropped.
    fn run(
        &mut self,
        program: ProgramId,
        reached: Reached,
        packet: &Packet,
        verdict: &mut Verdict,
    ) -> Option<Outcome> {
        let (outcome, place) = self.space.run(program, packet);
        verdict
            .steps
            .push((reached, self.space.text(place).to_owned()));
        match outcome {
            Outcome::Accept
            | Outcome::Undecided
            | Outcome::Marked
            | Outcome::Untracked
            | Outcome::Translated(_) => Some(outcome),
            Outcome::Drop => {
                verdict.passes = Some(false);
                None
            }
            Outcome::Either => {
                verdict.passes = None;
                Some(outcome)
            }
            Outcome::Unknown => panic!("{packet}: {verdict:?} is not evaluated"),
        }
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

pub(super) fn packet(probe: &Probe, tracked: &Tracked) -> Packet {
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
        (
            Field::SourceLocal,
            u128::from(Party::of(probe.from) == Party::Host),
        ),
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
