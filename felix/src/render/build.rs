//! Builds the ruleset.
//!
//! ```text
//! fragments         ours in?  → workload-fragments the budget of fragments
//! prerouting (raw)  ours in?  → workload-source    source address check, both families
//! guard (raw + 1)   ours in?  → workload-guard     loopback addresses, control ports
//! guard-forward     ours in?  → workload-guard-…   control ports, of translated destinations
//! guard-input       ours in?  → workload-guard-…   the same, and loopback addresses
//! cut-forward, cut-input, cut-output               connections that are cut
//! forward           ours in?  → dispatch-from      ─ map dispatch-from ─→ from-<interface>
//! mark-dscp         input interface → dscp-<interface>   the DSCP of packets that leave the cluster
//! forward-to        ours out? → dispatch-to        ─ map dispatch-to   ─→ to-<interface>
//! service-loops                                    services without translation
//! input             ours in?  → workload-services  neighbor discovery, what OpenStack's host
//!                                                  offers, dispatch-from
//! input-to-host     ours in?  → workload-to-host   the same, then the action for endpoint to host
//!                                                  traffic
//! output            ours out? → host-to-workload   neighbor discovery, what the host itself
//!                                                  sends, dispatch-to
//! budget-forward    ours in?  → workload-budgets   the budgets of connections and next hops
//! budget-input      ours in?  → workload-connections
//! arp/input         ours in?  → arp/workload       the senders of ARP
//!
//! from-<interface>, to-<interface>: answers; tiers, in order; profiles, in order
//! tier chain:                       policies, in order; the tier's default action
//! policy chain:                     rules, in order
//! ```
//!
//! "Ours" is a workload interface: its name begins with one of the interface prefixes. Every
//! dispatch ends in `drop`, so all traffic of a workload interface without an endpoint is dropped.
//! A rule that allows has the verdict `accept`, which ends only the base chain that it was reached
//! from: the egress of the sender and the ingress of the receiver are evaluated in two base chains,
//! one after the other. A chain without a match returns. So no packet marks are needed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use fib_sync::Tunnel;
use ipnet::IpNet;

use super::assembly::{Assembly, Part, Used};
use super::cut;
use super::decision::{Denial, PacketLog};
use super::encapsulation::{self, Encapsulation};
use super::flows;
use super::guard::{self, Budgets, Control};
use super::openstack::{self, OpenStack};
use super::outgoing::{self, Outgoing, Pools};
use super::owner::Direction;
use super::qos::{self, Limits, Qos};
use super::ruleset::{
    Action, Chain, ConnectionStates, End, Family, Hook, Is, Key, Match, Rule, Ruleset, Set,
    SetKind, Side, Value, Verdict,
};
use super::service_loops::{self, LoopPrevention};
use super::translate;

/// The name of the tables; their families are `inet` and `arp`.
pub const TABLE: &str = "cambric-felix";

/// The name of the tables of the boot, which an operator may load before the network is configured.
/// They drop all workload traffic, and Felix removes them.
pub const BOOT_TABLE: &str = "cambric-felix-boot";

/// ICMPv6 types for neighbor discovery between a workload and its host, and for the workload's
/// multicast groups: MLD query, report, done (RFC 2710), router and neighbor solicitation, neighbor
/// advertisement (RFC 4861), MLDv2 report (RFC 3810).
pub const NEIGHBOR_DISCOVERY: [u8; 7] = [130, 131, 132, 133, 135, 136, 143];

const SOURCE_CHECK: &str = "workload-source";
const SERVICES: &str = "workload-services";
/// The loopback addresses, by family.
const LOOPBACK: [IpNet; 2] = [
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
];
const TO_HOST: &str = "workload-to-host";
const FROM_HOST: &str = "host-to-workload";
// Chain and map have the same name: the kernel separates their names. The names differ from those
// of endpoints' chains, `from-<interface>` and `to-<interface>`.
const DISPATCH_FROM: &str = "dispatch-from";
const DISPATCH_TO: &str = "dispatch-to";
/// The source addresses that interfaces may use, by family.
pub(super) const SOURCES_IPV4: &str = "sources-ipv4";
pub(super) const SOURCES_IPV6: &str = "sources-ipv6";
/// The map from interfaces with further source addresses to their chains.
pub(super) const SPOOFED: &str = "spoofed-sources";
const NOT_ITS_OWN: &str = "source is not the endpoint's";
const WORKLOADS: &str = "workloads";
/// The set of the types of neighbor discovery.
pub(super) const NEIGHBORS: &str = "neighbour-discovery";

/// The inputs of the ruleset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleInputs {
    /// The common part of every host.
    pub frame: Frame,
    /// The pools of the fabric.
    pub pools: Pools,
    /// The addresses and ports of the fabric itself.
    pub control: Control,
    /// The ranges of services.
    pub service_ranges: Vec<IpNet>,
    /// The tunnel devices of the host, by name.
    pub tunnels: BTreeMap<String, Tunnel>,
    /// Endpoints by interface name.
    pub endpoints: BTreeMap<String, EndpointRules>,
    /// Further parts, such as that of host endpoints.
    pub parts: Vec<Part>,
    /// Chains that passages use, and the chains that these use.
    pub chains: BTreeMap<String, Arc<Chain>>,
    /// The sets that these chains use.
    pub sets: BTreeMap<String, Arc<Set>>,
}

/// The part of the ruleset that is independent of endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Prefixes of workload interface names, each 1 to 15 octets.
    pub interface_prefixes: Vec<String>,
    /// The action for workload traffic to the host itself that its endpoint may send.
    pub to_host: ToHostAction,
    /// Policies also apply to traffic from the host to its own workloads.
    pub police_host: bool,
    /// Address and port of OpenStack's metadata service, if there is one.
    pub metadata: Option<(Ipv4Addr, u16)>,
    /// Source translation for destinations outside all pools.
    pub outgoing: Outgoing,
    /// The settings of encapsulation.
    pub encapsulation: Encapsulation,
    /// The budgets of each workload.
    pub budgets: Budgets,
    /// The action for packets to services that are not translated.
    pub service_loops: LoopPrevention,
    /// The bit of the connection mark of cut connections, if connections are cut.
    pub cut_mark: Option<u32>,
    /// Records of the flow log in a second of the packets of one input interface; 0: any number.
    pub records_per_second: u32,
}

/// The part of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRules {
    /// The source addresses it may use.
    pub addresses: Vec<IpAddr>,
    /// Further source addresses that it may use.
    pub spoofed: Vec<IpNet>,
    /// Traffic from it (egress in policy).
    pub from: Passage,
    /// Traffic to it (ingress in policy).
    pub to: Passage,
    /// Limits of its traffic.
    pub qos: Qos,
    /// Policies also apply to packets that are part of no connection; otherwise they are dropped.
    pub takes_invalid: bool,
    /// The action for packets that no policy and no profile allows.
    pub denial: Denial,
    /// The chains of rules that explicitly allow it encapsulation.
    pub encapsulation: Vec<String>,
    /// The packet log to which its last rules report.
    pub flows: Option<PacketLog>,
    /// Whether it gets OpenStack's services from its host.
    pub openstack: bool,
    /// Floating addresses, each with the endpoint's own address that it is translated to.
    pub floating: Vec<(IpAddr, IpAddr)>,
}

/// Whether traffic of one direction passes, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The chains that are evaluated first: those of tiers, then of profiles with conditions.
    pub through: Vec<String>,
    /// Whether traffic passes that none of them decides.
    pub allowed: bool,
    /// For the rule's comment: the deciding profile, or the missing one.
    pub reason: String,
}

impl Passage {
    /// Returns whether rules decide about traffic.
    pub(super) const fn asks(&self) -> bool {
        !self.through.is_empty()
    }

    /// Returns whether any traffic of its direction can pass.
    const fn is_open(&self) -> bool {
        self.allowed || !self.through.is_empty()
    }
}

/// The action for traffic from a workload to its host (`DefaultEndpointToHostAction`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ToHostAction {
    /// Dropped, except replies to connections from the host.
    #[default]
    Drop,
    /// Accepted by this table.
    Accept,
    /// Left to the other tables of the host.
    Return,
}

/// Builds a whole ruleset.
pub fn render(inputs: &RuleInputs) -> Ruleset {
    let mut assembly = Assembly::default();
    assembly.set_frame(inputs.frame.clone());
    assembly.set_pools(&inputs.pools);
    assembly.set_control(&inputs.control);
    assembly.set_service_ranges(&inputs.service_ranges);
    assembly.set_tunnels(inputs.tunnels.clone());
    assembly.add(&Part {
        chains: inputs.chains.clone(),
        sets: inputs.sets.clone(),
        elements: Vec::new(),
    });
    for (interface, endpoint) in &inputs.endpoints {
        assembly.add(&endpoint_part(interface, endpoint));
    }
    inputs.parts.iter().for_each(|part| assembly.add(part));
    assembly.close();
    assembly.ruleset().clone()
}

/// Returns the part of an endpoint, without the chains that its passages use.
pub fn endpoint_part(interface: &str, endpoint: &EndpointRules) -> Part {
    let (from, to, limits) = (&endpoint.from, &endpoint.to, endpoint.qos);
    let (from_name, to_name) = (from_chain(interface), to_chain(interface));
    let key = || Key::interface(interface);
    let chain = |direction, own, other, limits| {
        let takes_invalid = endpoint.takes_invalid;
        let denial = endpoint.denial;
        let mut chain = endpoint_chain(own, other, limits, takes_invalid, denial);
        chain.rules = flows::of_end(endpoint.flows, direction, chain.rules);
        Arc::new(chain)
    };
    let goto = |chain: &String| Some(Value::Verdict(Verdict::Goto(chain.clone())));
    let mut elements = vec![
        (DISPATCH_FROM, key(), goto(&from_name)),
        (DISPATCH_TO, key(), goto(&to_name)),
        (WORKLOADS, key(), None),
    ];
    for address in &endpoint.addresses {
        let (set, key) = source(interface, *address);
        let arp = (set == SOURCES_IPV4).then(|| (guard::ARP_SOURCES, key.clone(), None));
        elements.push((set, key, None));
        elements.extend(arp);
    }
    let mut part = Part {
        chains: [
            (from_name, chain(Direction::Egress, from, to, limits.egress)),
            (to_name, chain(Direction::Ingress, to, from, limits.ingress)),
        ]
        .into(),
        sets: BTreeMap::new(),
        elements,
    };
    if endpoint.openstack {
        openstack::endpoint(interface, &mut part);
    }
    spoofed(interface, &endpoint.spoofed, &mut part);
    qos::endpoint(interface, limits, &mut part);
    encapsulation::endpoint(interface, endpoint, &mut part);
    translate::endpoint(&endpoint.floating, &mut part);
    part
}

/// Adds the chain that accepts further source addresses of an endpoint.
fn spoofed(interface: &str, prefixes: &[IpNet], part: &mut Part) {
    if prefixes.is_empty() {
        return;
    }
    let prefixes: Vec<IpNet> = prefixes.iter().map(IpNet::trunc).collect();
    let mut rules: Vec<Rule> = IpNet::aggregate(&prefixes)
        .into_iter()
        .map(|net| {
            let is_all = net.prefix_len() == 0;
            let condition = match is_all {
                true => Match::Family(Family::of(net.addr())),
                false => Match::InNet(End::Source, net, Is::Yes),
            };
            counted(vec![condition], Verdict::Accept, "allowed spoofed source")
        })
        .collect();
    rules.push(counted(Vec::new(), Verdict::Drop, NOT_ITS_OWN));
    let name = format!("spoofed-{interface}");
    let goto = Some(Value::Verdict(Verdict::Goto(name.clone())));
    part.chains
        .insert(name, Arc::new(Chain { hook: None, rules }));
    let map = Set::of(SetKind::InterfaceVerdict, []);
    part.sets.insert(SPOOFED.into(), Arc::new(map));
    let key = || Key::interface(interface);
    part.elements.push((SPOOFED, key(), goto));
    part.elements.push((guard::ARP_SPOOFING, key(), None));
}

/// Returns the set and element that permit an address as the source of packets from an interface.
pub fn source(interface: &str, address: IpAddr) -> (&'static str, Key) {
    let name = interface.into();
    match address {
        IpAddr::V4(v4) => (SOURCES_IPV4, Key::InterfaceIpv4(name, v4)),
        IpAddr::V6(v6) => (SOURCES_IPV6, Key::InterfaceIpv6(Box::new((name, v6)))),
    }
}

/// Returns the frame's chains.
pub(super) fn base_chains(frame: &Frame, used: Used) -> BTreeMap<String, Chain> {
    let goto = |side, chain: &str| dispatch_prefixes(frame, side, &Verdict::Goto(chain.into()));
    let openstack = OpenStack {
        used: used.openstack,
        metadata: frame.metadata,
    };
    let mut chains: BTreeMap<String, Chain> = [
        base(
            "prerouting",
            Hook::Prerouting,
            goto(Side::Input, SOURCE_CHECK),
        ),
        base("forward", Hook::Forward, goto(Side::Input, DISPATCH_FROM)),
        base(
            "forward-to",
            Hook::ForwardTo,
            goto(Side::Output, DISPATCH_TO),
        ),
        base("input", Hook::Input, goto(Side::Input, SERVICES)),
        base(
            "input-to-host",
            Hook::InputToHost,
            goto(Side::Input, TO_HOST),
        ),
        base("output", Hook::Output, goto(Side::Output, FROM_HOST)),
        chain(SOURCE_CHECK, source_check(frame, openstack, used.spoofed)),
        chain(DISPATCH_FROM, dispatch(Side::Input, DISPATCH_FROM)),
        chain(DISPATCH_TO, dispatch(Side::Output, DISPATCH_TO)),
        chain(SERVICES, services(frame.police_host, openstack)),
        chain(TO_HOST, to_host(frame.to_host, openstack)),
        chain(FROM_HOST, from_host(frame.police_host, openstack)),
    ]
    .into();
    if used.dscp {
        chains.extend([base("mark-dscp", Hook::MarkForward, qos::rules())]);
    }
    let loops = service_loops::rules(frame.service_loops, used.service_ranges);
    if !loops.is_empty() {
        chains.extend([base("service-loops", Hook::ForwardLast, loops)]);
    }
    chains.extend(cut::chains(frame));
    chains.extend(flows::chains(frame.records_per_second));
    chains.extend(guard::chains(frame, openstack));
    chains.extend(translate::chains(openstack, &frame.outgoing, used));
    chains
}

/// Returns the frame's sets, which are always there.
pub(super) fn base_sets() -> BTreeMap<String, Set> {
    let discovery = NEIGHBOR_DISCOVERY.into_iter().map(Key::Icmpv6Type);
    let inside = Family::ALL.into_iter().zip(outgoing::INSIDE);
    let inside = inside.map(|(family, name)| (name, Set::of(SetKind::Nets(family), [])));
    let fabric = guard::empty_sets().into_iter().chain(inside);
    let fabric = fabric.chain(guard::whole());
    let fabric = fabric.map(|(name, set)| (name.to_owned(), set));
    let mut sets: BTreeMap<String, Set> = [
        (DISPATCH_FROM.into(), Set::of(SetKind::InterfaceVerdict, [])),
        (DISPATCH_TO.into(), Set::of(SetKind::InterfaceVerdict, [])),
        (SOURCES_IPV4.into(), Set::of(SetKind::InterfaceIpv4, [])),
        (SOURCES_IPV6.into(), Set::of(SetKind::InterfaceIpv6, [])),
        (WORKLOADS.into(), Set::of(SetKind::Interface, [])),
        (NEIGHBORS.into(), Set::of(SetKind::Icmpv6Type, discovery)),
        (
            encapsulation::KINDS.into(),
            Set::of(SetKind::Interface, encapsulation::kinds()),
        ),
    ]
    .into();
    sets.extend(fabric);
    sets
}

pub(super) fn base(name: &str, hook: Hook, rules: Vec<Rule>) -> (String, Chain) {
    let hook = Some(hook);
    (name.into(), Chain { hook, rules })
}

pub(super) fn chain(name: &str, rules: Vec<Rule>) -> (String, Chain) {
    (name.into(), Chain { hook: None, rules })
}

pub(super) const fn rule(matches: Vec<Match>, verdict: Verdict) -> Rule {
    Rule {
        matches,
        counter: false,
        report: None,
        action: Action::Verdict(verdict),
        comment: None,
    }
}

pub(super) fn counted(matches: Vec<Match>, verdict: Verdict, comment: impl Into<String>) -> Rule {
    Rule {
        counter: true,
        comment: Some(comment.into()),
        ..rule(matches, verdict)
    }
}

pub(super) fn dispatch_prefixes(frame: &Frame, side: Side, verdict: &Verdict) -> Vec<Rule> {
    frame
        .interface_prefixes
        .iter()
        .map(|prefix| {
            rule(
                vec![Match::InterfacePrefix(side, prefix.clone())],
                verdict.clone(),
            )
        })
        .collect()
}

fn dispatch(side: Side, map: &str) -> Vec<Rule> {
    let lookup = Rule {
        action: Action::Lookup(side, map.into()),
        ..rule(Vec::new(), Verdict::Drop)
    };
    let mut rules = guard::committed();
    rules.push(lookup);
    rules.push(counted(
        Vec::new(),
        Verdict::Drop,
        "interface without endpoint",
    ));
    rules
}

fn source_check(frame: &Frame, openstack: OpenStack, has_spoofed: bool) -> Vec<Rule> {
    let discovery = || {
        [
            Match::Icmpv6TypeIn(NEIGHBORS.into()),
            Match::InterfaceIn(Side::Input, WORKLOADS.into()),
        ]
    };
    let mut link_local = vec![Match::SourceLinkLocal];
    link_local.extend(discovery());
    // Duplicate address detection and the preceding MLD reports: RFC 4862 §5.4.2, RFC 3590.
    let mut unspecified = vec![
        Match::SourceUnspecified,
        Match::DestinationLinkLocalMulticast,
    ];
    unspecified.extend(discovery());
    let link_local_verdict = match frame.budgets.link_local_per_minute {
        0 => Verdict::Accept,
        _ => Verdict::Goto(guard::LINK_LOCAL.into()),
    };
    let mut rules = vec![
        rule(
            vec![Match::SourceIpv4In(SOURCES_IPV4.into())],
            Verdict::Accept,
        ),
        rule(
            vec![Match::SourceIpv6In(SOURCES_IPV6.into())],
            Verdict::Accept,
        ),
        rule(link_local, link_local_verdict),
        rule(unspecified, Verdict::Accept),
    ];
    rules.extend(openstack::sources(openstack));
    if has_spoofed {
        // No prefix permits these: the kernel accepts loopback addresses of workload interfaces.
        for net in LOOPBACK {
            let condition = vec![Match::InNet(End::Source, net, Is::Yes)];
            rules.push(counted(condition, Verdict::Drop, NOT_ITS_OWN));
        }
        rules.push(Rule {
            action: Action::Lookup(Side::Input, SPOOFED.into()),
            ..rule(Vec::new(), Verdict::Drop)
        });
    }
    rules.push(counted(Vec::new(), Verdict::Drop, NOT_ITS_OWN));
    rules
}

fn discovery(side: Side) -> Rule {
    let matches = vec![
        Match::InterfaceIn(side, WORKLOADS.into()),
        Match::Icmpv6TypeIn(NEIGHBORS.into()),
    ];
    rule(matches, Verdict::Accept)
}

/// Returns the rules for services of a workload's host that are independent of policies, then for
/// other traffic that the workload may send.
fn services(police_host: bool, openstack: OpenStack) -> Vec<Rule> {
    let mut rules = vec![discovery(Side::Input)];
    rules.extend(openstack::to_host(openstack));
    if !police_host {
        let workload = Match::InterfaceIn(Side::Input, WORKLOADS.into());
        // Not `related`: an ICMP error of a workload may refer to any connection of the host.
        let established = Match::Connection(ConnectionStates::Established);
        let matches = vec![workload, Match::ReplyDirection, established];
        rules.push(counted(matches, Verdict::Accept, "answers to the host"));
    }
    rules.push(rule(Vec::new(), Verdict::Goto(DISPATCH_FROM.into())));
    rules
}

fn to_host(action: ToHostAction, openstack: OpenStack) -> Vec<Rule> {
    let (verdict, words) = match action {
        ToHostAction::Drop => (Verdict::Drop, "endpoint to host: drop"),
        ToHostAction::Accept => (Verdict::Accept, "endpoint to host: accept"),
        ToHostAction::Return => (Verdict::Return, "endpoint to host: return"),
    };
    let mut rules = vec![discovery(Side::Input)];
    rules.extend(openstack::to_host(openstack));
    rules.push(rule(vec![answers()], Verdict::Accept));
    rules.push(counted(Vec::new(), verdict, words));
    rules
}

/// Returns the rules for traffic from the host to its workload: that of processes of the host is
/// independent of policies. IPVS services also leave as packets of the host, with the source of the
/// client.
fn from_host(police_host: bool, openstack: OpenStack) -> Vec<Rule> {
    let mut rules = vec![discovery(Side::Output)];
    rules.extend(openstack::from_host(openstack));
    if !police_host {
        let workload = Match::InterfaceIn(Side::Output, WORKLOADS.into());
        let matches = vec![workload, Match::SourceLocal];
        rules.push(counted(
            matches,
            Verdict::Accept,
            "host to its own workload",
        ));
    }
    rules.push(rule(Vec::new(), Verdict::Goto(DISPATCH_TO.into())));
    rules
}

pub(super) const fn answers() -> Match {
    Match::Connection(ConnectionStates::EstablishedOrRelated)
}

/// Returns the rule for packets that are part of no connection, and begin none.
pub(super) fn no_connection() -> Rule {
    let invalid = vec![Match::Connection(ConnectionStates::Invalid)];
    counted(invalid, Verdict::Drop, "part of no connection")
}

/// Returns the chain of one direction. Replies pass if any traffic can pass, in this direction or
/// the other: rules decide about new connections, and an accepted connection is not cut off when
/// they change. If no traffic can pass at all, earlier connections are cut off too.
fn endpoint_chain(
    own: &Passage,
    other: &Passage,
    limits: Limits,
    takes_invalid: bool,
    denial: Denial,
) -> Chain {
    let mut rules = Vec::new();
    let connections = limits.connection_rule().filter(|_| own.is_open());
    rules.extend(limits.packet_rule());
    if !own.through.is_empty() || (!own.allowed && other.is_open()) || connections.is_some() {
        rules.push(counted(vec![answers()], Verdict::Accept, "answers"));
    }
    if own.is_open() && !takes_invalid {
        rules.push(no_connection());
    }
    rules.extend(connections);
    let through = own.through.iter();
    rules.extend(through.map(|chain| rule(Vec::new(), Verdict::Jump(chain.clone()))));
    let action = match own.allowed {
        true => Action::Verdict(Verdict::Accept),
        false => denial.action(),
    };
    rules.push(Rule {
        action,
        ..counted(Vec::new(), Verdict::Drop, own.reason.clone())
    });
    Chain { hook: None, rules }
}

fn from_chain(interface: &str) -> String {
    format!("from-{interface}")
}

fn to_chain(interface: &str) -> String {
    format!("to-{interface}")
}
