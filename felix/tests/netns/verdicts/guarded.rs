//! Changed rules of the guard in the kernel: each change is found by packets of all kinds to all kinds of
//! destinations, or by the comparison with the datastore, or is proven to change nothing.
//!
//! Policies allow everything here. A packet shows a change if it arrives at another place than with the
//! original rules.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use cambric_felix::apply::{Rules, conntrack};
use cambric_felix::render::{Key, Ruleset, creation};
use rule_audit::evaluator::Guard;
use rule_audit::packet::{Family, Packet};
use rule_audit::ruleset::{Compiler, View};
use rule_audit::space::{Comparison, ProgramId, Space, compare};
use rule_audit::{Fabric, Listing};
use serde_json::json;

use super::changed::FELIX;
use super::changed::sendable::Message;
use super::probe::{EXPERIMENT, GRE, Kind, Probe, SYN};
use super::wires::{ALL_WORKLOADS, Party, WORKLOADS, addresses};
use super::{BATCH, Lab, Stored, everyone, is_long};
use crate::readback::typed::{self, Mutant};
use crate::readback::{common, fabric, listing};
use crate::world::host::{OPEN, mac};
use crate::world::{lab, run, try_run};

/// The addresses of a node, of a BGP peer, of a host outside the pools, of a workload of another host, and of
/// the tunnel of the node, by family. All are behind the uplink.
const FAR: [[&str; 5]; 2] = [
    [
        "10.0.0.2",
        "10.0.0.3",
        "198.51.100.7",
        "10.65.9.9",
        "10.65.9.2",
    ],
    [
        "2001:db8:9::2",
        "2001:db8:9::3",
        "2001:db8:8::7",
        "fd65::9:9",
        "fd65::9:2",
    ],
];
/// A source of tunnels that is no node, behind the second link.
const TUNNEL_SOURCE: [&str; 2] = ["203.0.113.7", "2001:db8:2::7"];
/// The host, its address for workloads, another one of the link, and its loopback address.
const HOST: [&[&str]; 2] = [
    &["10.0.0.11", "127.0.0.1"],
    &["fd00::11", "fe80::1", "fe80::2", "::1"],
];
/// The workload with the policies that name encapsulation, and the exception from the guard.
const NAMES: u8 = 3;
const EXEMPT: u8 = 4;
/// A port of the datastore on nodes, of BGP, and of a peer.
const OF_NODES: u16 = 2379;
const LISTENED: u16 = 1790;
const OF_PEER: u16 = 8179;
const TCP: [u16; 5] = [9, 179, LISTENED, OF_PEER, OF_NODES];
/// The ports of DHCP clients, BFD and tunnels.
const UDP: [u16; 9] = [9, 68, 546, 1701, 3784, 4784, 4789, 6081, 179];
const PROTOCOLS: [u8; 7] = [4, 41, GRE, 50, 51, 115, EXPERIMENT];
/// The beginnings of the chains that are changed.
const CHAINS: [&str; 9] = [
    "control-",
    "encapsulation-",
    "guard",
    "pe-",
    "tunnel-to-host",
    "workload-encapsulation",
    "workload-guard",
    "workload-icmp",
    "workload-tunnel",
];
/// The sets that are changed.
const SETS: [&str; 4] = ["control-", "encapsulation-", "nodes-", "tunnel-sources-"];
/// The interfaces by which packets arrive.
const INPUTS: [&str; 5] = ["cali1", "cali3", "cali5", "tap6", "uplink"];
/// Number of changes in a run of all tests. A long run makes all of them.
const CHANGES: usize = 100;
/// Minimum number of changes that packets find.
const FOUND_MIN: usize = 40;
/// Maximum number of changes that the kernel rejects.
const REJECTED_MAX: usize = 3;

/// Sources outside the pools, which one workload may use.
const SPOOFED: [[&str; 2]; 2] = [
    ["198.51.99.0/24", "198.51.99.9"],
    ["2001:db8:99::/64", "2001:db8:99::9"],
];

/// The conditions that the reader cannot evaluate, of rules for neighbors and for foreign tunnels.
/// `neighbors_of_the_host_stay_few_in_a_flood` and `foreign_tunnel_forges_no_source_of_the_fabric` send the
/// packets that they decide about. Each is listed with a condition that no rule of the guard has: the
/// comparison takes it for any condition on a packet.
const UNREAD: [(&str, &str, &str); 3] = [
    (
        "DestinationElsewhere",
        r#"{"fib": {"result": "type", "flags": ["daddr", "iif"]}}, "right": 2"#,
        r#"{"meta": {"key": "skuid"}}, "right": {"set": [1, 3, 5, 7]}"#,
    ),
    (
        "InputKindIn",
        r#"{"meta": {"key": "iifkind"}}, "right": "@foreign-tunnel-kinds""#,
        r#"{"meta": {"key": "skuid"}}, "right": {"set": [2, 3, 6, 7]}"#,
    ),
    (
        "SourceElsewhere",
        r#"{"fib": {"result": "oif", "flags": ["saddr", "iif"]}}, "right": false"#,
        r#"{"meta": {"key": "skuid"}}, "right": {"set": [4, 5, 6, 7]}"#,
    ),
];

/// Changes without an effect, with the reason, which the comparison of programs cannot find.
const WITHOUT_EFFECT: [(&str, &str); 3] = [
    (
        "state: control-unknown[0] ",
        "only a connection tracking helper relates a segment of TCP to another connection",
    ),
    (
        "verdict: guard-forward[0] ",
        "the rules after it are about tunnels, which no interface of a workload is",
    ),
    (
        "verdict: guard-forward[1] ",
        "the rules after it are about tunnels, which no interface of a workload is",
    ),
];

/// A selection of names.
type Names<'n> = &'n dyn Fn(&str) -> bool;

/// Returns the datastore: a fabric of two nodes, and open workloads.
fn store() -> Stored {
    let mut store = Stored::new();
    let mut put = |key: &str, value: serde_json::Value| {
        store.insert(format!("{}{key}", common::PREFIX), value);
    };
    let spoofed = SPOOFED.map(|[prefix, _]| prefix);
    for n in (1..=WORKLOADS).chain([ALL_WORKLOADS]) {
        let interface = Party::Workload(n).interface();
        let [v4, v6] = addresses(n);
        let name = format!("n1-k8s-p{n}-eth0");
        put(
            &format!("workloadendpoints/prod/{name}"),
            json!({"metadata": {"name": name, "namespace": "prod", "labels": {"n": n.to_string()}},
                "spec": {"orchestrator": "k8s", "node": common::NODE, "pod": format!("p{n}"),
                    "endpoint": "eth0", "interfaceName": interface, "mac": mac(n),
                    "profiles": OPEN,
                    "allowSpoofedSourcePrefixes": if n == NAMES { &spoofed[..] } else { &[] }, "ipNetworks": [format!("{v4}/32"), format!("{v6}/128")]}}),
        );
    }
    // Each encapsulation is named.
    let mut egress: Vec<serde_json::Value> = PROTOCOLS
        .map(|protocol| json!({"action": "Allow", "protocol": protocol}))
        .into();
    let ports = json!({"ports": [1701, 4789, 6081]});
    egress.push(json!({"action": "Allow", "protocol": "UDP", "destination": ports}));
    egress.push(json!({"action": "Allow"}));
    let spec =
        json!({"selector": format!("n == '{NAMES}'"), "types": ["Egress"], "egress": egress});
    put("globalnetworkpolicies/names", json!({ "spec": spec }));
    let [
        [v4, peer_v4, _, _, tunnel_v4],
        [v6, peer_v6, _, _, tunnel_v6],
    ] = FAR;
    let bgp = json!({"ipv4Address": format!("{v4}/24"), "ipv6Address": format!("{v6}/64"),
        "ipv4IPIPTunnelAddr": tunnel_v4});
    let spec = json!({"bgp": bgp, "ipv6VXLANTunnelAddr": tunnel_v6});
    put("nodes/n2", json!({ "spec": spec }));
    for (name, address) in [("v4", peer_v4.to_owned()), ("v6", format!("[{peer_v6}]"))] {
        let spec = json!({"peerIP": format!("{address}:{OF_PEER}"), "asNumber": 64512});
        put(&format!("bgppeers/{name}"), json!({ "spec": spec }));
    }
    put(
        "bgpconfigurations/default",
        json!({"spec": {"listenPort": LISTENED}}),
    );
    let pool = json!({"cidr": "10.65.0.0/16", "ipipMode": "Always", "vxlanMode": "Never"});
    put("ippools/v4", json!({ "spec": pool }));
    put("ippools/v6", json!({"spec": {"cidr": "fd65::/64"}}));
    let spec = json!({"defaultEndpointToHostAction": "Accept",
        "workloadSourceSpoofing": "Any",
        "externalNodesList": TUNNEL_SOURCE});
    put("felixconfigurations/default", json!({ "spec": spec }));
    store
}

/// Translates destinations of one workload: a node to another workload, and an address outside to the node. So
/// the chains before and after it see different destinations.
fn translate() {
    run("nft add table inet translate");
    run("nft add chain inet translate c { type nat hook prerouting priority -110 ; }");
    for (at, family) in ["ip", "ip6"].into_iter().enumerate() {
        let (node, outside, other) = (FAR[at][0], FAR[at][2], &addresses(2)[at]);
        for (from, to) in [(node, other.as_str()), (outside, node)] {
            let rule = format!("iifname cali{NAMES} {family} daddr {from} dnat {family} to {to}");
            run(&format!("nft add rule inet translate c {rule}"));
        }
    }
}

/// Returns the rules, with settings that are in files; `is_closed`: the ports of the host are unknown.
fn ruleset(store: &Stored, is_closed: bool) -> Ruleset {
    let mut own = typed::computed(store);
    let mut add = |set: &str, key: Key| {
        let set = own.sets.get_mut(set).unwrap();
        set.elements.extend([(key, None)]);
    };
    add("control-ports-of-nodes", Key::Ports(OF_NODES, OF_NODES));
    for (set, address) in ["ipv4", "ipv6"].into_iter().zip(addresses(EXEMPT)) {
        let address: IpAddr = address.parse().unwrap();
        add(
            &format!("control-exceptions-{set}"),
            Key::Net(address.into()),
        );
    }
    if is_closed {
        add("control-ports-unknown", Key::Ports(0, u16::MAX));
    }
    own
}

fn probe([from, to]: [&str; 2], kind: Kind, port: u16) -> Probe {
    Probe {
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        kind,
        source_port: 40_000,
        destination_port: port,
    }
}

/// Returns packets of all kinds between two addresses.
fn kinds(sender: Party, ends: [&str; 2]) -> Vec<Message> {
    let tcp = TCP.map(|port| (Kind::Tcp(SYN), port));
    let udp = UDP.map(|port| (Kind::Udp, port));
    let others = PROTOCOLS.map(|protocol| (Kind::Other(protocol), 0));
    let icmp: &[Kind] = match ends[0].contains(':') {
        true => &[Kind::Icmp(128, 0), Kind::Icmp(134, 0), Kind::Icmp(3, 0)],
        false => &[Kind::Icmp(8, 0), Kind::Icmp(11, 0)],
    };
    let icmp = icmp.iter().map(|kind| (*kind, 0));
    let all = tcp.into_iter().chain(udp).chain(others).chain(icmp);
    all.map(|(kind, port)| Message::of(sender, probe(ends, kind, port)))
        .collect()
}

/// Returns first packets of workloads and of other hosts, which open connections or belong to none.
fn first_packets() -> Vec<Message> {
    let mut all = Vec::new();
    for (at, far) in FAR.into_iter().enumerate() {
        let own = |n: u8| addresses(n)[at].clone();
        for n in [1, NAMES, EXEMPT, WORKLOADS + 1, ALL_WORKLOADS] {
            let other = own(2);
            let to = far
                .iter()
                .chain(HOST[at])
                .copied()
                .chain([&*other, TUNNEL_SOURCE[at]]);
            all.extend(to.flat_map(|to| kinds(Party::Workload(n), [&own(n), to])));
        }
        for to in [HOST[at][0], &own(2), far[2]] {
            all.extend(kinds(Party::Workload(NAMES), [SPOOFED[at][1], to]));
        }
        for (sender, from) in [
            (Party::Far, far[0]),
            (Party::Far, far[2]),
            (Party::Side, TUNNEL_SOURCE[at]),
        ] {
            for to in [HOST[at][0], &own(2)] {
                all.extend(kinds(sender, [from, to]));
            }
        }
    }
    all
}

/// Returns the packets that make connections, and packets about these connections: errors of their ends and
/// of others, and answers.
fn later_packets() -> [Vec<Message>; 2] {
    let (mut before, mut last) = (Vec::new(), Vec::new());
    for (at, far) in FAR.into_iter().enumerate() {
        let own = [1, 2, 3].map(|n| addresses(n)[at].clone());
        let party = |n: u8| Party::Workload(n);
        let host = HOST[at][0];
        let error = if at == 0 {
            Kind::Icmp(3, 1)
        } else {
            Kind::Icmp(1, 0)
        };
        for (opener, from, receiver, to, port) in [
            (party(1), &*own[0], party(2), &*own[1], 41_000),
            (party(1), &*own[0], Party::Far, far[2], 41_001),
            (Party::Host, host, party(2), &*own[1], 41_002),
            (party(1), &*own[0], Party::Host, host, 41_003),
        ] {
            let mut opening = probe([from, to], Kind::Udp, 9);
            opening.source_port = port;
            let answer = opening.answer().unwrap();
            before.push(Message::of(opener, opening));
            before.push(Message::of(receiver, answer));
            let ends = [(receiver, to, from, opening), (opener, from, to, answer)];
            for (sender, own_address, other, quoted) in ends {
                let forger = (party(3), &*own[2]);
                for (sender, source) in [(sender, own_address), forger] {
                    let mut message = Message::of(sender, probe([source, other], error, 0));
                    message.quoted = Some(quoted);
                    last.push(message);
                }
            }
        }
        // The answer of a workload to its host, from a port that may be unknown.
        let opening = Probe {
            source_port: OF_NODES + 1,
            ..probe([host, &own[0]], Kind::Tcp(SYN), 80)
        };
        before.push(Message::of(Party::Host, opening));
        last.push(Message::of(party(1), opening.answer().unwrap()));
    }
    [before, last]
}

/// The places where packets arrived, by the place of the packet; and the sources of packets to the host of
/// protocols that it does not receive, as `nft` lists them.
type Treatment = (BTreeSet<(usize, Party)>, String);

impl Lab {
    /// Sends all packets, and returns their treatment. The sender receives errors of the host at any rate, which
    /// do not count.
    fn treatment(&mut self, first: &[Message], [before, later]: &[Vec<Message>; 2]) -> Treatment {
        conntrack::flush(&everyone()).unwrap();
        run("nft flush set inet seen sources-v4 ; flush set inet seen sources-v6");
        run(&format!("nft add table inet {FELIX} {{ flags dormant ; }}"));
        self.send_all(before);
        run(&format!("nft add table inet {FELIX}"));
        let mut arrived = self.send_all(later);
        let count = later.len();
        let others = self.send_all(first).into_iter();
        arrived.extend(others.map(|(at, party)| (count + at, party)));
        let listed = ["v4", "v6"].map(|of| run(&format!("nft list set inet seen sources-{of}")));
        let mut lines: Vec<&str> = listed.iter().flat_map(|text| text.lines()).collect();
        lines.sort_unstable();
        (arrived, lines.join("\n"))
    }

    fn send_all(&mut self, all: &[Message]) -> BTreeSet<(usize, Party)> {
        let mut found = BTreeSet::new();
        for (batch, messages) in all.chunks(BATCH).enumerate() {
            let base = self.numbers;
            self.numbers += u32::try_from(messages.len()).unwrap();
            for (number, message) in (base..).zip(messages) {
                // Special addresses have no route at the sender: the host is their next hop.
                let to = message.probe.to;
                let is_special = HOST.iter().any(|own| own[1..].contains(&&*to.to_string()));
                let hop = match is_special {
                    true => HOST[usize::from(to.is_ipv6())][0].parse().unwrap(),
                    false => to,
                };
                self.wires
                    .send(message.sender, &message.octets(number), hop);
            }
            for (party, numbers) in self.wires.arrived() {
                for number in numbers.range(base..) {
                    let at = usize::try_from(number - base).unwrap();
                    if messages[at].sender != party {
                        found.insert((batch * BATCH + at, party));
                    }
                }
            }
        }
        found
    }
}

/// The programs of the guard for packets of an interface, by chain, IP version and interface.
fn programs(space: &mut Space, listing: &Listing) -> Vec<(Family, ProgramId)> {
    let table = &listing.tables[&("inet".to_owned(), FELIX.to_owned())];
    let mut compiler = Compiler::default();
    let mut all = Vec::new();
    for chain in Guard::ALL {
        // Packets leave by an interface only when they are forwarded. No interface has an empty name.
        let outputs: &[&str] = match chain {
            Guard::Forward => &["cali2", "tap6", "uplink"],
            Guard::Untranslated | Guard::Input => &[""],
        };
        for family in Family::ALL {
            for (input, output) in INPUTS
                .iter()
                .flat_map(|input| outputs.iter().map(move |output| (input, output)))
            {
                let view = View {
                    family,
                    input: Some((*input).to_owned()),
                    output: Some((*output).to_owned()),
                };
                let of = (FELIX, table);
                let program = compiler.chain(space, of, chain.chain().0, &view);
                all.push((family, program));
            }
        }
    }
    all
}

/// Lists the rules, with other conditions in place of those that the reader cannot evaluate: [`UNREAD`].
fn readable() -> Listing {
    let mut text = run("nft --json --numeric --stateless list ruleset");
    for (_, unread, other) in UNREAD {
        assert!(text.contains(unread), "no {unread}");
        assert!(!text.contains(other), "{other}");
        text = text.replace(unread, other);
    }
    Listing::parse(&text).unwrap()
}

/// Returns the first packet about which the guard decides otherwise, or cannot be evaluated.
fn difference(
    space: &mut Space,
    original: &[(Family, ProgramId)],
    changed: &Listing,
) -> Option<Comparison> {
    let changed = programs(space, changed);
    let pairs = original.iter().zip(changed);
    let mut other = pairs.filter(|((_, old), (_, new))| old != new);
    other.find_map(|((family, old), (_, new))| {
        let found = compare(space, Packet::new(*family), *old, new);
        (found != Comparison::Equal).then_some(found)
    })
}

#[derive(Debug, Default)]
struct Results {
    by_packets: usize,
    by_reading: usize,
    proven: Vec<String>,
    rejected: usize,
    missed: Vec<String>,
}

/// Changes each rule of these chains, and each of the first elements of these sets.
fn change(
    lab: &mut Lab,
    fabric: &Fabric,
    own: &Ruleset,
    (is_chain, is_set): (Names<'_>, Names<'_>),
) -> Results {
    let mut rules = Rules::open().unwrap();
    let mut write = |ruleset: &Ruleset| {
        let is_written = rules.write(&creation(ruleset)).is_ok();
        // The kernel has published all sets when another transaction is done.
        try_run("nft --check add table inet published");
        is_written
    };
    let (first, later) = (first_packets(), later_packets());
    assert!(write(own));
    let wanted = lab.treatment(&first, &later);
    assert!(
        lab.treatment(&first, &later) == wanted,
        "another treatment in a second round"
    );
    let report = rule_audit::audit(fabric, &listing());
    assert!(!report.is_different(), "{report:#?}");
    let mut space = Space::new();
    let original = programs(&mut space, &readable());
    let mark = space.mark();
    let mut results = Results::default();
    let all = typed::mutants_of(own, is_chain, is_set);
    // The changes of one rule are neighbors, so a step selects rules of all chains.
    let step = match is_long() {
        0 => all.len().div_ceil(CHANGES),
        _ => 1,
    };
    println!("every {step}. of {} changes", all.len());
    let all = all.into_iter().step_by(step);
    let is_read = |mutant: &Mutant| !UNREAD.iter().any(|(own, ..)| mutant.change.contains(own));
    for mutant in all.filter(is_read) {
        if !write(&mutant.ruleset) {
            results.rejected += 1;
            continue;
        }
        // A packet that was lost by chance arrives in the second round.
        if (0..2).all(|_| lab.treatment(&first, &later) != wanted) {
            results.by_packets += 1;
            continue;
        }
        let changed = listing();
        let text = format!("{}: {}", mutant.kind, mutant.change);
        if rule_audit::audit(fabric, &changed).is_different() {
            results.by_reading += 1;
        } else if let Some(found) = difference(&mut space, &original, &readable())
            && !WITHOUT_EFFECT.iter().any(|(own, _)| text.starts_with(own))
        {
            println!("missed {text}\n{found:?}");
            results.missed.push(text);
        } else {
            results.proven.push(text);
        }
        space.forget(mark);
    }
    assert!(write(own));
    assert!(
        lab.treatment(&first, &later) == wanted,
        "another treatment by the original rules at the end"
    );
    results
}

// Promise: as felix workload_reaches_no_control_port_of_the_fabric
#[test]
fn mistakes_in_the_guard_are_found() {
    lab("mistakes_in_the_guard_are_found", || {
        let mut lab = Lab::new();
        let store = store();
        lab.program(&store, &fabric(&store));
        let fabric = Fabric::read(&store, common::NODE, |settings| {
            let control = &mut settings.control;
            let exempt = addresses(EXEMPT).map(|own| own.parse().unwrap());
            control.exceptions.extend(exempt.map(|own| (own, own)));
            control
                .services
                .push((Ipv4Addr::UNSPECIFIED, OF_NODES).into());
        });
        // Felix would revert a change of its table.
        lab.host.stop();
        run("nft add table inet seen");
        run("nft add chain inet seen in { type filter hook input priority 100 ; }");
        for (of, family) in [("v4", "ip"), ("v6", "ip6")] {
            let kind = format!("typeof meta iifname . {family} saddr . meta l4proto");
            run(&format!(
                "nft add set inet seen sources-{of} {{ {kind} ; flags dynamic ; size 4096 ; }}"
            ));
            let add = format!("add @sources-{of} {{ iifname . {family} saddr . meta l4proto }}");
            let protocols = "meta l4proto { 4, 41, 47, 50, 51, 115 }";
            run(&format!("nft add rule inet seen in {protocols} {add}"));
        }
        translate();
        // The errors of the host return to the sender.
        for (family, [prefix, _]) in ["-4", "-6"].iter().zip(SPOOFED) {
            run(&format!("ip {family} route add {prefix} dev cali{NAMES}"));
        }
        let is_any = |all: &[&str], name: &str| all.iter().any(|own| name.starts_with(own));
        let is_chain = |name: &str| is_any(&CHAINS, name);
        let is_set = |name: &str| is_any(&SETS, name);
        let open = ruleset(&store, false);
        let mut results = change(&mut lab, &fabric, &open, (&is_chain, &is_set));
        let closed = ruleset(&store, true);
        let of_host = |name: &str| ["control-host", "control-unknown"].contains(&name);
        let more = change(&mut lab, &fabric, &closed, (&of_host, &|_: &str| false));
        results.by_packets += more.by_packets;
        results.by_reading += more.by_reading;
        results.rejected += more.rejected;
        results.proven.extend(more.proven);
        results.missed.extend(more.missed);
        let Results {
            by_packets,
            by_reading,
            proven,
            rejected,
            missed,
        } = results;
        println!(
            "{by_packets} found by packets, {by_reading} by reading back, {} without effect, \
             {rejected} rejected\n{}",
            proven.len(),
            proven.join("\n")
        );
        assert!(
            missed.is_empty(),
            "{} missed\n{}",
            missed.len(),
            missed.join("\n")
        );
        assert!(by_packets >= FOUND_MIN, "{by_packets} found by packets");
        assert!(rejected <= REJECTED_MAX, "{rejected} rejected");
    });
}
