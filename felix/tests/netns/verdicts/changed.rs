//! Changed rules in the kernel, and packets that show it: each change that the comparison with the stored
//! policies finds is found by sent packets, too.
//!
//! The compiled listings give packets that the two rulesets treat differently. Only the treatment by the
//! kernel counts: it must differ from that of the original rules, which are sent the same packets at the end.

use std::collections::BTreeMap;
use std::net::IpAddr;

use cambric_felix::apply::{Rules, conntrack};
use cambric_felix::render::{Touched, changes, creation};
use rule_audit::evaluator::{Hook, HostHook, Spec};
use rule_audit::packet::{Family, Field, Packet, protocol, state};
use rule_audit::ranges::{address, number};
use rule_audit::ruleset::{Compiler, Table, View};
use rule_audit::space::{Comparison, Outcome, ProgramId, Space, compare};
use rule_audit::{Fabric, Listing};

use super::draw::Draw;
use super::evaluated::packet;
use super::hosts::{any_probe, at_link};
use super::probe::{Kind, Probe, RESET, SYN, Tracked};
use super::wires::Party;
use super::{Lab, Stored, everyone, is_long, stores};
use crate::readback::{add_hosts, add_translation, fabric, listing, typed};
use crate::world::{lab, try_run};

/// Drawn packets.
const CANDIDATES: usize = 2500;
/// Packets near one that the comparison reports.
const NEAR: usize = 600;
/// Packets that are sent for one change.
const SENT: usize = 8;
/// Changes in a run of all tests, and in a long run.
const CHANGES: [usize; 2] = [130, 400];
/// Minimum number of changes that packets find.
const FOUND_MIN: usize = 40;
/// The kinds of host endpoints and translations. Without `doNotTrack`, fewer hooks decide in the same way.
const KINDS: [(usize, usize); 2] = [(0b0000_1101, 0b0010_1011), (0b0001_1101, 0b0000_1011)];
const FELIX: &str = "cambric-felix";

/// A packet, and whether it is followed by an answer and a later packet.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    sender: Party,
    probe: Probe,
    goes_on: bool,
}

/// The treatment of a packet: the place where it arrives, its destination and its source there.
type Treatment = Option<(Party, IpAddr, Source)>;

/// The source of a packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// As it was sent.
    Kept,
    /// Another address, and a port in this range.
    Translated(u16, u16),
}

/// A chain, the places of its packets before and after it, and their family.
type Path = (&'static str, Option<Party>, Option<Party>, Family);

/// The rules of a listing, as programs for the links of the host.
struct Listed<'l> {
    /// The places of floating addresses.
    routes: &'l BTreeMap<IpAddr, Party>,
    space: Space,
    compiler: Compiler,
    table: &'l Table,
    programs: BTreeMap<Path, ProgramId>,
}

/// A packet on its way.
struct Way {
    packet: Packet,
    probe: Probe,
    source: Source,
}

/// The end of a way: the packet is dropped, or the decision is not known.
enum End {
    Dropped,
    Unknown,
}

impl<'l> Listed<'l> {
    fn new(listing: &'l Listing, routes: &'l BTreeMap<IpAddr, Party>) -> Self {
        let key = ("inet".to_owned(), FELIX.to_owned());
        Self {
            routes,
            space: Space::new(),
            compiler: Compiler::default(),
            table: &listing.tables[&key],
            programs: BTreeMap::new(),
        }
    }

    fn place(&self, address: IpAddr) -> Party {
        let floating = self.routes.get(&address);
        floating.copied().unwrap_or_else(|| Party::of(address))
    }

    /// Returns the treatment of a packet, and those of the packets after it; `None` if one is not known.
    fn follow(&mut self, candidate: &Candidate) -> Option<Vec<(Party, Probe, Treatment)>> {
        let mut tracked = Tracked::default();
        let mut all = Vec::new();
        let mut next = |own: &mut Self, sender, probe: &Probe| {
            let (treatment, is_plain) = own.treat(sender, probe, &tracked)?;
            if treatment.is_some() && is_plain {
                tracked.add(probe);
            }
            all.push((sender, *probe, treatment));
            Some(is_plain)
        };
        let Candidate { sender, probe, .. } = *candidate;
        let is_plain = next(self, sender, &probe)?;
        let receiver = self.place(probe.to);
        let is_claimed = Party::of(probe.from) != sender;
        let is_quiet = receiver != Party::Host && receiver != sender && !is_claimed;
        let answer = probe.answer().filter(|_| is_plain && is_quiet);
        if let (true, Some(answer)) = (candidate.goes_on, answer) {
            next(self, receiver, &answer)?;
            if sender != Party::Host || probe.kind == Kind::Udp {
                next(self, sender, &probe.later())?;
            }
        }
        Some(all)
    }

    /// Returns the treatment of a packet, and whether its connection is tracked without a translation.
    fn treat(
        &mut self,
        sender: Party,
        probe: &Probe,
        tracked: &Tracked,
    ) -> Option<(Treatment, bool)> {
        let mut way = Way {
            packet: packet(probe, tracked),
            probe: *probe,
            source: Source::Kept,
        };
        let is_answer = way.packet.get(Field::Direction) == 1;
        let (first, second) = match is_answer {
            true => (probe.to, probe.from),
            false => (probe.from, probe.to),
        };
        way.packet = way
            .packet
            .with(Field::OriginalSource, number(first))
            .with(Field::ReplySource, number(second));
        match self.pass(sender, &mut way) {
            Err(End::Dropped) => Some((None, true)),
            Err(End::Unknown) => None,
            Ok(()) => {
                let is_untracked = way.packet.get(Field::State) == state::UNTRACKED;
                let is_kept = way.source == Source::Kept && way.probe.to == probe.to;
                let receiver = self.place(way.probe.to);
                // A place receives its own packets, too.
                let is_clear = receiver != sender || sender == Party::Host;
                let treatment = (receiver, way.probe.to, way.source);
                is_clear.then_some((Some(treatment), is_kept && !is_untracked))
            }
        }
    }

    fn pass(&mut self, sender: Party, way: &mut Way) -> Result<(), End> {
        let former = self.place(way.probe.to);
        let is_looped = sender == Party::Host && former == Party::Host;
        if sender == Party::Host {
            self.all(&["host-untracked-output"], None, Some(former), way)?;
            self.translate("translate-own", None, Some(former), way)?;
            self.all(&["output", "host-output"], None, Some(former), way)?;
        }
        if sender != Party::Host || is_looped {
            let input = Some(sender);
            self.all(&["prerouting", "host-untracked"], input, None, way)?;
            self.all(&["host-untranslated"], input, None, way)?;
            self.translate("translate", input, None, way)?;
            if self.place(way.probe.to) == Party::Host {
                let chains = ["input", "host-input", "input-to-host"];
                return self.all(&chains, input, None, way);
            }
            let output = Some(self.place(way.probe.to));
            let chains = ["forward", "host-forward", "forward-to", "host-forward-to"];
            self.all(&chains, input, output, way)?;
        }
        let output = Some(self.place(way.probe.to));
        self.translate("translate-source", None, output, way)
    }

    fn all(
        &mut self,
        chains: &[&'static str],
        input: Option<Party>,
        output: Option<Party>,
        way: &mut Way,
    ) -> Result<(), End> {
        for chain in chains {
            match self.run(chain, input, output, &way.packet)? {
                Outcome::Marked => way.packet = way.packet.with(Field::Marked, 1),
                Outcome::Untracked => {
                    way.packet = way
                        .packet
                        .with(Field::Marked, 1)
                        .with(Field::State, state::UNTRACKED)
                        .with(Field::Direction, 0);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Translates an address of the first packet of a connection.
    fn translate(
        &mut self,
        chain: &'static str,
        input: Option<Party>,
        output: Option<Party>,
        way: &mut Way,
    ) -> Result<(), End> {
        if way.packet.get(Field::State) != state::NEW {
            return Ok(());
        }
        let Outcome::Translated(text) = self.run(chain, input, output, &way.packet)? else {
            return Ok(());
        };
        let text = self.space.text(text);
        let Some(to) = text.strip_prefix("translate the destination to ") else {
            let range = text.split(" port ").nth(1).and_then(|ports| {
                let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                Some((first.parse().ok()?, last.parse().ok()?))
            });
            let (first, last) = range.unwrap_or((0, u16::MAX));
            way.source = Source::Translated(first, last);
            return Ok(());
        };
        let mut words = to.split(' ');
        let to = words.next().and_then(|word| word.parse::<IpAddr>().ok());
        way.probe.to = to.ok_or(End::Unknown)?;
        let port = words.nth(1).and_then(|word| word.parse::<u16>().ok());
        way.probe.destination_port = port.unwrap_or(way.probe.destination_port);
        way.packet = way
            .packet
            .with(Field::Destination, number(way.probe.to))
            .with(Field::ReplySource, number(way.probe.to));
        if way.probe.has_ports() {
            let port = way.probe.destination_port.into();
            way.packet = way.packet.with(Field::DestinationPort, port);
        }
        if chain == "translate-own" {
            way.packet = way.packet.with(Field::Translated, 1);
        }
        Ok(())
    }

    fn run(
        &mut self,
        chain: &'static str,
        input: Option<Party>,
        output: Option<Party>,
        packet: &Packet,
    ) -> Result<Outcome, End> {
        let key = (chain, input, output, packet.family);
        let program = match self.programs.get(&key) {
            Some(known) => *known,
            None if !self.table.chains.contains_key(chain) => return Ok(Outcome::Accept),
            None => {
                let view = View {
                    family: packet.family,
                    input: input.map(Party::interface),
                    output: output.map(Party::interface),
                };
                let of = (FELIX, self.table);
                let made = self.compiler.chain(&mut self.space, of, chain, &view);
                self.programs.insert(key, made);
                made
            }
        };
        match self.space.run(program, packet).0 {
            Outcome::Drop => Err(End::Dropped),
            Outcome::Either | Outcome::Unknown => Err(End::Unknown),
            outcome => Ok(outcome),
        }
    }
}

/// Returns a packet that the rules treat differently from the stored policies, with its chain and link, by
/// the exact comparison.
fn reported(fabric: &Fabric, listing: &Listing) -> Option<(&'static str, String, Packet)> {
    let key = ("inet".to_owned(), FELIX.to_owned());
    let table = &listing.tables[&key];
    let (mut space, mut spec) = (Space::new(), Spec::new(fabric));
    let mut compiler = Compiler::default();
    let mut different = |space: &mut Space, wanted, chain, inbound, link: &str, family| {
        let link = Some(link.to_owned());
        let (input, output) = if inbound { (link, None) } else { (None, link) };
        let view = View {
            family,
            input,
            output,
        };
        if !table.chains.contains_key(chain) {
            return None;
        }
        let found = compiler.chain(space, (FELIX, table), chain, &view);
        match compare(space, Packet::new(family), wanted, found) {
            Comparison::Different(difference) => Some(difference.packet),
            _ => None,
        }
    };
    for family in Family::ALL {
        for endpoint in &fabric.endpoints {
            for hook in Hook::ALL {
                let wanted = spec.program(&mut space, endpoint, hook, family);
                let (chain, inbound) = (hook.chain().0, hook.is_from_workload());
                let link = &endpoint.interface;
                if let Some(packet) = different(&mut space, wanted, chain, inbound, link, family) {
                    return Some((chain, link.clone(), packet));
                }
            }
        }
        for link in ["uplink", "side", "cali1"] {
            for hook in HostHook::ALL {
                let wanted = spec.host_program(&mut space, link, hook, family);
                let (chain, inbound) = (hook.chain().0, hook.is_inbound());
                if let Some(packet) = different(&mut space, wanted, chain, inbound, link, family) {
                    return Some((chain, link.to_owned(), packet));
                }
            }
        }
    }
    None
}

/// Draws a packet like one that the comparison reports.
fn near(chain: &str, link: &str, of: &Packet, draw: &mut Draw) -> Candidate {
    let at = at_link(link);
    let is_out = matches!(
        chain,
        "forward-to" | "output" | "host-output" | "host-forward-to" | "host-untracked-output"
    );
    let is_of_host = chain.ends_with("output");
    loop {
        let (sender, mut probe) = any_probe(draw);
        let reached = if is_out { Party::of(probe.to) } else { sender };
        let is_other = is_of_host != (sender == Party::Host);
        let is_v4 = of.family == Family::V4;
        if reached != at || is_other || probe.to.is_ipv4() != is_v4 {
            continue;
        }
        let mut take = |field: Field| (draw.below(4) > 0).then(|| of.get(field));
        let [from, to, source, destination, protocol] = [
            Field::Source,
            Field::Destination,
            Field::SourcePort,
            Field::DestinationPort,
            Field::Protocol,
        ]
        .map(&mut take);
        let own = |number: Option<u128>| number.map(|number| address(of.family, number));
        let is_at = |one: &IpAddr, party: Party| Party::of(*one) == party && !one.is_unspecified();
        let receiver = Party::of(probe.to);
        probe.from = own(from)
            .filter(|one| is_at(one, sender))
            .unwrap_or(probe.from);
        probe.to = own(to)
            .filter(|one| is_at(one, receiver))
            .unwrap_or(probe.to);
        let port = |number: Option<u128>, drawn| number.map_or(drawn, |n| n.try_into().unwrap());
        probe.source_port = port(source, probe.source_port);
        probe.destination_port = port(destination, probe.destination_port);
        probe.kind = match protocol {
            Some(protocol::TCP) if of.get(Field::State) == state::INVALID => Kind::Tcp(RESET),
            Some(protocol::TCP) => Kind::Tcp(SYN),
            Some(protocol::UDP) => Kind::Udp,
            Some(protocol::SCTP) => Kind::OPENING[2],
            Some(protocol::ICMP | protocol::ICMPV6) => {
                let [kind, code] = [Field::IcmpType, Field::IcmpCode]
                    .map(|field| u8::try_from(of.get(field)).unwrap());
                Kind::Icmp(kind, code)
            }
            _ => probe.kind,
        };
        vary(sender, &mut probe, draw);
        return Candidate {
            sender,
            probe,
            goes_on: draw.below(2) == 0,
        };
    }
}

fn drawn(draw: &mut Draw, is_floating: bool) -> Candidate {
    let (sender, mut probe) = match draw.below(2) {
        0 => draw.probe(),
        _ => any_probe(draw),
    };
    let is_floating = is_floating || draw.below(10) == 0;
    if is_floating {
        let n = 1 + draw.below(4);
        let text = match (probe.to.is_ipv4(), draw.below(2)) {
            (true, 0) => format!("172.16.0.{n}"),
            (true, _) => format!("172.16.0.{}", 100 + n),
            (false, _) => format!("fd16::{n}"),
        };
        probe.to = text.parse().unwrap();
    }
    // The kernel finds another route for a translated packet of the host, by its source.
    if !is_floating {
        vary(sender, &mut probe, draw);
    }
    Candidate {
        sender,
        probe,
        goes_on: draw.below(3) == 0,
    }
}

/// Gives some packets of the host a source that few have.
fn vary(sender: Party, probe: &mut Probe, draw: &mut Draw) {
    if sender == Party::Host && draw.below(4) == 0 {
        probe.from = draw.address(Party::Far, usize::from(probe.to.is_ipv6()));
    }
}

/// Whether two treatments of the same packets differ.
fn differ(one: &[(Party, Probe, Treatment)], other: &[(Party, Probe, Treatment)]) -> bool {
    let treatments = |all: &[(Party, Probe, Treatment)]| -> Vec<Treatment> {
        all.iter().map(|(_, _, treatment)| *treatment).collect()
    };
    treatments(one) != treatments(other)
}

impl Lab {
    /// Sends packets that the changed rules treat differently. Returns those that the kernel really treats
    /// differently, with their treatment by the original rules.
    fn difference(
        &mut self,
        changed: &mut Listed<'_>,
        candidates: impl Iterator<Item = (Candidate, Vec<(Party, Probe, Treatment)>)>,
    ) -> Option<Vec<(Party, Probe, Treatment)>> {
        let mut different = candidates.filter_map(|(candidate, wanted)| {
            let treated = changed.follow(&candidate)?;
            differ(&wanted, &treated).then_some(wanted)
        });
        let mut different = different.by_ref().take(SENT);
        different.find(|wanted| !self.are_treated(wanted))
    }

    /// Sends packets, each after the connections of earlier ones are removed, and returns whether the
    /// kernel treats all of them in this way.
    fn are_treated(&mut self, wanted: &[(Party, Probe, Treatment)]) -> bool {
        conntrack::flush(&everyone()).unwrap();
        let first = self.numbers;
        for (number, (sender, probe, _)) in (first..).zip(wanted) {
            self.wires.send(*sender, &probe.octets(number), probe.to);
        }
        self.numbers += u32::try_from(wanted.len()).unwrap();
        let arrived = self.wires.arrived_packets();
        (first..)
            .zip(wanted)
            .all(|(number, (sender, probe, treatment))| {
                let is_looped = *sender == Party::Host && Party::of(probe.to) == *sender;
                let mut places = arrived
                    .iter()
                    .filter(|(place, _)| *place != sender || is_looped);
                let found = places.find_map(|(place, packets)| {
                    let octets = packets.get(&number)?;
                    Some((*place, ends(*place, octets)))
                });
                match (found, treatment) {
                    (None, None) => true,
                    (Some((place, ends)), Some((wanted, to, of))) => {
                        place == *wanted && are_ends(ends, *to, *of, probe)
                    }
                    _ => false,
                }
            })
    }
}

/// Addresses and source port of a received packet.
#[derive(Clone, Copy)]
struct Ends {
    from: IpAddr,
    to: IpAddr,
    port: u16,
}

/// Returns whether the ends of a received packet are the wanted ones; those of IPv6 packets to the host are
/// not received.
fn are_ends(found: Option<Ends>, to: IpAddr, source: Source, probe: &Probe) -> bool {
    let Some(found) = found else {
        return true;
    };
    let is_port =
        |first: u16, last: u16| !probe.has_ports() || (first..=last).contains(&found.port);
    let is_source = match source {
        Source::Kept => found.from == probe.from && is_port(probe.source_port, probe.source_port),
        Source::Translated(first, last) => found.from != probe.from && is_port(first, last),
    };
    found.to == to && is_source
}

fn ends(place: Party, octets: &[u8]) -> Option<Ends> {
    let port = |at: usize| {
        let own: [u8; 2] = octets.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_be_bytes(own))
    };
    match octets.first()? >> 4 {
        4 => {
            let own = |at: usize| -> Option<[u8; 4]> { octets.get(at..at + 4)?.try_into().ok() };
            Some(Ends {
                from: own(12)?.into(),
                to: own(16)?.into(),
                port: port(20)?,
            })
        }
        6 if place != Party::Host => {
            let own = |at: usize| -> Option<[u8; 16]> { octets.get(at..at + 16)?.try_into().ok() };
            Some(Ends {
                from: own(8)?.into(),
                to: own(24)?.into(),
                port: port(40)?,
            })
        }
        _ => None,
    }
}

/// Returns the places of all floating addresses.
fn floating(store: &Stored) -> BTreeMap<IpAddr, Party> {
    let endpoints = store
        .values()
        .filter(|value| value["spec"]["ipNATs"].is_array());
    let all = endpoints.flat_map(|value| {
        let name = value["spec"]["interfaceName"].as_str().unwrap();
        let place = at_link(name);
        let addresses = value["spec"]["ipNATs"].as_array().unwrap().iter();
        addresses.map(move |one| (one["externalIP"].as_str().unwrap().parse().unwrap(), place))
    });
    all.collect()
}

/// The results of all changes.
#[derive(Debug, Default)]
struct Results {
    /// Packets that are treated differently, with their treatment by the original rules.
    sent: Vec<Vec<(Party, Probe, Treatment)>>,
    /// Changes that only the comparison finds, with its packet.
    others: Vec<String>,
    without_effect: usize,
    rejected: usize,
}

impl Lab {
    /// Writes changed rules into the kernel, at most about this number, and sends packets that show it.
    fn change(&mut self, store: &Stored, count: usize, draw: &mut Draw) -> Results {
        let routes = floating(store);
        let fabric = fabric(store);
        let own = typed::computed(store);
        let mut rules = Rules::open().unwrap();
        rules.write(&creation(&own)).unwrap();
        try_run("nft --check add table inet published");
        let original = listing();
        let report = rule_audit::audit(&fabric, &original);
        assert!(report.is_equal(), "{report:#?}");
        let mut of_original = Listed::new(&original, &routes);
        let candidates: Vec<_> = (0..CANDIDATES)
            .filter_map(|_| {
                let candidate = drawn(draw, false);
                Some((candidate, of_original.follow(&candidate)?))
            })
            .collect();
        let all = typed::mutants(&own);
        let step = all.len().div_ceil(count);
        let first = draw.below(step);
        let mut held = own.clone();
        let mut results = Results::default();
        for mutant in all.into_iter().skip(first).step_by(step) {
            let touched = Touched::between(&held, &mutant.ruleset);
            if rules
                .write(&changes(&held, &mutant.ruleset, &touched))
                .is_err()
            {
                results.rejected += 1;
                continue;
            }
            held = mutant.ruleset;
            // The kernel has published all sets when another transaction is done.
            try_run("nft --check add table inet published");
            let changed = listing();
            let mut of_changed = Listed::new(&changed, &routes);
            let drawn_before = candidates
                .iter()
                .map(|(candidate, wanted)| (*candidate, wanted.clone()));
            if let Some(wanted) = self.difference(&mut of_changed, drawn_before) {
                results.sent.push(wanted);
                continue;
            }
            if !rule_audit::audit(&fabric, &changed).is_different() {
                results.without_effect += 1;
                continue;
            }
            let example = reported(&fabric, &changed);
            let further = (0..NEAR).filter_map(|_| {
                let candidate = match &example {
                    Some((chain, link, packet)) => near(chain, link, packet, draw),
                    None => drawn(draw, true),
                };
                Some((candidate, of_original.follow(&candidate)?))
            });
            match self.difference(&mut of_changed, further) {
                Some(wanted) => results.sent.push(wanted),
                None => {
                    let example =
                        example.map(|(chain, link, packet)| format!("{chain} {link}: {packet}"));
                    let example =
                        example.unwrap_or_else(|| "a link or state that is not here".into());
                    results
                        .others
                        .push(format!("{}: {}\n{example}", mutant.kind, mutant.change));
                }
            }
        }
        rules.write(&creation(&own)).unwrap();
        try_run("nft --check add table inet published");
        for wanted in &results.sent {
            assert!(self.are_treated(wanted), "{wanted:#?}");
        }
        results
    }
}

// Promise: as felix generated_policies_decide_about_real_packets
#[test]
fn mistakes_in_computed_rules_are_found_by_packets() {
    lab("mistakes_in_computed_rules_are_found_by_packets", || {
        let mut lab = Lab::new();
        // The rules are the same in each run. In a long run, the seed selects the changes.
        let mut draw = Draw(if is_long() > 0 { lab.seed } else { 1 });
        let generated = stores(1, &mut Draw(1), 1).swap_remove(0);
        for (hosts, translation) in KINDS.into_iter().take(1 + is_long()) {
            let mut store = generated.clone();
            add_hosts(&mut store, hosts);
            add_translation(&mut store, translation);
            lab.program(&store, &fabric(&store));
            // Felix would revert a change of its table.
            lab.host.stop();
            let results = lab.change(&store, CHANGES[is_long()], &mut draw);
            println!(
                "{} found by packets, {} by the comparison only, {} without effect, {} rejected\n{}",
                results.sent.len(),
                results.others.len(),
                results.without_effect,
                results.rejected,
                results.others.join("\n\n"),
            );
            assert!(results.sent.len() >= FOUND_MIN, "{}", results.sent.len());
            lab.host.start();
        }
    });
}
