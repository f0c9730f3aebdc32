//! Filters encapsulated packets: no policy sees the inner packet that a workload encapsulates, and
//! a tunnel device of the host would accept tunnel packets from any source.
//!
//! Encapsulated packets from a workload are dropped, unless a rule that names the protocol or port
//! explicitly allows them, or the settings allow them. This check is separate from the policies,
//! which have to allow them as well. The host accepts encapsulated packets from nodes only.
//!
//! A tunnel device that the fabric does not use, left over or of another program, decapsulates
//! packets of any sender. The devices of the fabric are recognized by name, kind and UDP port: the
//! packets that reach them come from nodes only. Any other device is foreign. A decapsulated packet to a workload must not have a source in a pool or
//! of a node, unless the source is routed to that device: policies trust such a source, and no
//! border sees it inside the tunnel.
//!
//! A workload in a pool with `natOutgoing` appears outside with the address of its node, so its
//! packets to a tunnel end would count there as packets of a node. Therefore no rule and no setting
//! allows them from a workload to a node, to a source of tunnels, or to the host itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calico_model::{Action as Decision, Rule as Stored};
use fib_sync::Tunnel;

use super::assembly::Part;
use super::build::{EndpointRules, Frame, chain, counted, dispatch_prefixes, rule};
use super::guard::NODES;
use super::outgoing::INSIDE;
use super::ruleset::{
    Action, Chain, End, Family, Is, Key, Match, Rule, Ruleset, Side, Value, Verdict,
};

const UDP: u8 = 17;
const IPIP: u8 = 4;
/// IP in IP (RFC 2003), IPv6 in IPv4 (RFC 4213), GRE (RFC 2784), ESP and AH (RFC 4303, RFC 4302),
/// L2TPv3 (RFC 3931).
const PROTOCOLS: [u8; 6] = [IPIP, 41, 47, 50, 51, 115];
/// The default UDP port of VXLAN (RFC 7348).
pub const VXLAN_PORT: u16 = 4789;
/// The UDP port of Geneve (RFC 8926).
const GENEVE_PORT: u16 = 6081;
/// The UDP port of L2TP (RFC 2661, RFC 3931).
const L2TP_PORT: u16 = 1701;
/// The UDP ports that are always those of encapsulation.
const PORTS: [u16; 3] = [VXLAN_PORT, GENEVE_PORT, L2TP_PORT];
/// The map from interfaces to the chains of rules that explicitly allow encapsulation.
pub(super) const ALLOWED: &str = "encapsulation-allowed";
/// The sets of sources of tunnels that are not nodes, by family.
pub(super) const SOURCES: [&str; 2] = ["tunnel-sources-ipv4", "tunnel-sources-ipv6"];
pub(super) const FROM_WORKLOAD: &str = "workload-encapsulation";
/// The chain, evaluated before anything is allowed, that checks whether the destination is a tunnel
/// end.
pub(super) const TO_TUNNEL_END: &str = "workload-tunnel";
/// The same chain for packets to the host, which is a tunnel end itself.
pub(super) const TO_OWN_HOST: &str = "workload-tunnel-to-host";
/// The chain that accepts tunnel packets to the host from nodes only.
pub(crate) const TO_HOST: &str = "tunnel-to-host";
/// The chain of packets to the host, before all others.
pub(super) const GUARD_INPUT: &str = "guard-input";
/// The set of kinds of tunnel devices of which the tunnels have no authentication of their own.
pub(super) const KINDS: &str = "foreign-tunnel-kinds";
/// The set of tunnel devices of the fabric.
pub(super) const OF_FABRIC: &str = "fabric-tunnels";
const OWN_TUNNEL: &str = "tunnel of the fabric";
const FROM_TUNNEL: &str = "foreign-tunnel";
const TUNNEL_TO_WORKLOAD: &str = "foreign-tunnel-to-workload";
const ALL_KINDS: [&str; 12] = [
    "ipip",
    "vxlan",
    "sit",
    "gre",
    "gretap",
    "ip6tnl",
    "ip6gre",
    "ip6gretap",
    "erspan",
    "ip6erspan",
    "geneve",
    "bareudp",
];
/// The device for IP in IP, as in Calico.
pub const IPIP_DEVICE: &str = "tunl0";
/// The VXLAN devices of the fabric for IPv4 and IPv6, as in Calico.
pub const VXLAN_DEVICES: [&str; 2] = ["vxlan.calico", "vxlan-v6.calico"];
/// The names that a tunnel device of the fabric may have.
pub const TUNNEL_DEVICES: [&str; 3] = [IPIP_DEVICE, VXLAN_DEVICES[0], VXLAN_DEVICES[1]];

/// The settings of encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encapsulation {
    /// The UDP port of VXLAN.
    pub vxlan_port: u16,
    /// IP in IP is in use between hosts.
    pub ipip: bool,
    /// VXLAN is in use between hosts.
    pub vxlan: bool,
    /// Workloads may send VXLAN.
    pub allows_vxlan: bool,
    /// Workloads may send IP in IP.
    pub allows_ipip: bool,
}

impl Default for Encapsulation {
    fn default() -> Self {
        Self {
            vxlan_port: VXLAN_PORT,
            ipip: false,
            vxlan: false,
            allows_vxlan: false,
            allows_ipip: false,
        }
    }
}

/// Returns the elements of the set of kinds.
pub(super) fn kinds() -> impl Iterator<Item = Key> {
    let kinds = ALL_KINDS.into_iter();
    kinds.map(Key::interface)
}

/// Returns the tunnel devices of the fabric among those of the host, by name: [`to_host`] accepts
/// their tunnels from nodes only. A device with another port than the fabric's is foreign.
pub(super) fn of_fabric(
    settings: Encapsulation,
    devices: &BTreeMap<String, Tunnel>,
) -> BTreeSet<Key> {
    let is_own = |name: &str, tunnel: Tunnel| match tunnel {
        Tunnel::Ipip => settings.ipip && name == IPIP_DEVICE,
        Tunnel::Vxlan { port } => {
            settings.vxlan && port == settings.vxlan_port && VXLAN_DEVICES.contains(&name)
        }
        _ => false,
    };
    let own = devices
        .iter()
        .filter(|(name, tunnel)| is_own(name, **tunnel));
    own.map(|(name, _)| Key::interface(name)).collect()
}

/// Returns the rule for packets through the host.
pub(super) fn forwarded() -> Rule {
    let kind = Match::InputKindIn(KINDS.into());
    rule(vec![kind], Verdict::Jump(FROM_TUNNEL.into()))
}

/// Returns the rules for packets from a tunnel.
fn from_tunnel(frame: &Frame) -> Vec<Rule> {
    let own = Match::InterfaceIn(Side::Input, OF_FABRIC.into());
    let goto = Verdict::Goto(TUNNEL_TO_WORKLOAD.into());
    let mut rules = vec![rule(vec![own], Verdict::Return)];
    rules.extend(dispatch_prefixes(frame, Side::Output, &goto));
    rules
}

/// Returns the rules for decapsulated packets to workloads.
fn tunnel_to_workload() -> Vec<Rule> {
    let families = Family::ALL.into_iter().zip(INSIDE.into_iter().zip(NODES));
    let sets = families.flat_map(|(family, (pools, nodes))| [(family, pools), (family, nodes)]);
    let words = "source is not behind this tunnel";
    sets.map(|(family, set)| {
        let from = Match::InSet(End::Source, family, set.into(), Is::Yes);
        counted(vec![from, Match::SourceElsewhere], Verdict::Drop, words)
    })
    .collect()
}

fn datagrams(port: u16) -> Match {
    Match::Port(End::Destination, UDP, port, Is::Yes)
}

/// Returns the rules that send encapsulated packets of workloads to a chain.
pub(super) fn of_workloads(settings: Encapsulation, chain: &str) -> Vec<Rule> {
    let mut ports = PORTS.to_vec();
    ports.extend(Some(settings.vxlan_port).filter(|port| !ports.contains(port)));
    let protocols = PROTOCOLS.into_iter();
    let protocols = protocols.map(|protocol| Match::Protocol(protocol, Is::Yes));
    let all = protocols.chain(ports.into_iter().map(datagrams));
    all.map(|one| rule(vec![one], Verdict::Jump(chain.into())))
        .collect()
}

/// Returns the rules for packets to the host from any interface: tunnels of the fabric come from
/// nodes only. If the fabric has no tunnels, those of the host are not filtered: the path to the
/// datastore may be one, before any node is known.
pub(super) fn to_host(settings: Encapsulation) -> Vec<Rule> {
    let tunnels = in_use(settings).into_iter();
    let goto = |matches| rule(matches, Verdict::Goto(TO_HOST.into()));
    tunnels.map(Tunneled::anywhere).map(goto).collect()
}

/// Returns whether a packet filter accepts IP in IP to the host from nodes only.
pub(crate) fn guards_ipip(rules: &Ruleset) -> bool {
    // No other chain has the rule, and the others are as many as the endpoints.
    let Some(chain) = rules.chains.get(GUARD_INPUT) else {
        return false;
    };
    let goto = Action::Verdict(Verdict::Goto(TO_HOST.into()));
    let ipip = Match::Protocol(IPIP, Is::Yes);
    let mut rules = chain.rules.iter();
    rules.any(|rule| rule.action == goto && rule.matches.contains(&ipip))
}

/// Tunnel packets of the fabric of one encapsulation.
struct Tunneled {
    families: &'static [Family],
    condition: Match,
}

impl Tunneled {
    /// Returns the conditions for any source and destination.
    fn anywhere(self) -> Vec<Match> {
        let family = match self.families {
            [one] => Some(Match::Family(*one)),
            _ => None,
        };
        family.into_iter().chain([self.condition]).collect()
    }
}

/// Returns the encapsulations in use.
fn in_use(settings: Encapsulation) -> Vec<Tunneled> {
    let ipip = settings.ipip.then_some(Tunneled {
        families: &[Family::V4],
        condition: Match::Protocol(IPIP, Is::Yes),
    });
    let vxlan = settings.vxlan.then(|| Tunneled {
        families: &Family::ALL,
        condition: datagrams(settings.vxlan_port),
    });
    ipip.into_iter().chain(vxlan).collect()
}

/// Returns the rules that accept tunnel packets of the fabric to the host, whatever the policies of its
/// host endpoints are: those of other sources are dropped before.
pub(super) fn received(settings: Encapsulation) -> impl Iterator<Item = Rule> {
    let tunnels = in_use(settings).into_iter().map(Tunneled::anywhere);
    tunnels.map(|matches| counted(matches, Verdict::Accept, OWN_TUNNEL))
}

/// Returns the rules that accept tunnel packets of the host to other ends of tunnels.
pub(super) fn sent(settings: Encapsulation) -> Vec<Rule> {
    with_end(settings, End::Destination)
}

/// Returns the rules that accept tunnel packets of other ends of tunnels, before those of other sources
/// are dropped.
pub(super) fn received_from_ends(settings: Encapsulation) -> Vec<Rule> {
    with_end(settings, End::Source)
}

/// Returns the rules that accept tunnel packets of which this address is an end of tunnels.
fn with_end(settings: Encapsulation, end: End) -> Vec<Rule> {
    let mut rules = Vec::new();
    for tunnel in in_use(settings) {
        for family in tunnel.families {
            let place = usize::from(*family == Family::V6);
            for set in [NODES[place], SOURCES[place]] {
                let other = Match::InSet(end, *family, set.into(), Is::Yes);
                let matches = vec![other, tunnel.condition.clone()];
                rules.push(counted(matches, Verdict::Accept, OWN_TUNNEL));
            }
        }
    }
    rules
}

/// Returns one rule for each set of tunnel ends in which one end of a packet is looked up.
fn tunnel_ends(end: End, of: impl Fn(Vec<Match>) -> Rule) -> Vec<Rule> {
    let families = Family::ALL.into_iter().zip(NODES.into_iter().zip(SOURCES));
    let sets = families.flat_map(|(family, (nodes, sources))| [(family, nodes), (family, sources)]);
    sets.map(|(family, set)| of(vec![Match::InSet(end, family, set.into(), Is::Yes)]))
        .collect()
}

/// Returns all chains.
pub(super) fn chains(frame: &Frame) -> BTreeMap<String, Chain> {
    let from_node = |matches| rule(matches, Verdict::Accept);
    let mut sources = tunnel_ends(End::Source, from_node);
    sources.push(counted(Vec::new(), Verdict::Drop, "tunnel of no node"));
    let to_end = |matches| counted(matches, Verdict::Drop, "tunnel packet of a workload");
    let settings = frame.encapsulation;
    let mut chains = BTreeMap::from([
        chain(FROM_WORKLOAD, from_workload(settings)),
        chain(TO_TUNNEL_END, tunnel_ends(End::Destination, to_end)),
        chain(TO_OWN_HOST, vec![to_end(Vec::new())]),
        chain(FROM_TUNNEL, from_tunnel(frame)),
        chain(TUNNEL_TO_WORKLOAD, tunnel_to_workload()),
    ]);
    if settings.ipip || settings.vxlan {
        chains.extend([chain(TO_HOST, sources)]);
    }
    chains
}

/// Returns the rules for packets of workloads to other workloads and to the outside.
fn from_workload(settings: Encapsulation) -> Vec<Rule> {
    let mut rules = vec![rule(Vec::new(), Verdict::Jump(TO_TUNNEL_END.into()))];
    if settings.allows_ipip {
        let ipip = vec![Match::Protocol(IPIP, Is::Yes)];
        rules.push(counted(
            ipip,
            Verdict::Return,
            "allowIPIPPacketsFromWorkloads",
        ));
    }
    if settings.allows_vxlan {
        let vxlan = vec![datagrams(settings.vxlan_port)];
        rules.push(counted(
            vxlan,
            Verdict::Return,
            "allowVXLANPacketsFromWorkloads",
        ));
    }
    rules.push(Rule {
        action: Action::Lookup(Side::Input, ALLOWED.into()),
        ..rule(Vec::new(), Verdict::Drop)
    });
    rules.push(counted(
        Vec::new(),
        Verdict::Drop,
        "encapsulation from a workload",
    ));
    rules
}

/// Adds the part of an endpoint that has rules about encapsulation.
pub(super) fn endpoint(interface: &str, endpoint: &EndpointRules, part: &mut Part) {
    if endpoint.encapsulation.is_empty() {
        return;
    }
    let name = format!("encapsulation-{interface}");
    let jumps = endpoint.encapsulation.iter();
    let mut rules: Vec<Rule> = jumps
        .map(|chain| rule(Vec::new(), Verdict::Jump(chain.clone())))
        .collect();
    let words = "encapsulation that no rule names";
    rules.push(counted(Vec::new(), Verdict::Drop, words));
    let goto = Value::Verdict(Verdict::Goto(name.clone()));
    let key = Key::interface(interface);
    part.elements.push((ALLOWED, key, Some(goto)));
    part.chains
        .insert(name, Arc::new(Chain { hook: None, rules }));
}

/// Returns the part of a rule that explicitly allows encapsulation: the whole rule if it names a
/// protocol, otherwise its single destination ports.
pub(super) fn named(stored: &Stored) -> Option<Stored> {
    if stored.action != Decision::Allow {
        return None;
    }
    let number = stored.protocol.as_ref()?.number()?;
    if PROTOCOLS.contains(&number) {
        return Some(stored.clone());
    }
    let mut named = stored.clone();
    let names = |first, last| first == last && PORTS.contains(&first);
    named.destination.ports.retain(|port| {
        let range = port.range();
        range.is_some_and(|range| names(*range.start(), *range.end()))
    });
    (number == UDP && !named.destination.ports.is_empty()).then_some(named)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ipip_is_guarded_by_a_rule_of_the_chain_for_the_host_only() {
        let settings = Encapsulation {
            ipip: true,
            ..Encapsulation::default()
        };
        let guarded = |name: &str| {
            let chain = Arc::new(Chain {
                hook: None,
                rules: to_host(settings),
            });
            let chains = [(name.to_owned(), chain)].into();
            guards_ipip(&Ruleset {
                chains,
                ..Ruleset::default()
            })
        };
        assert!(guarded(GUARD_INPUT));
        assert!(!guarded("cali1"));
        assert!(!guards_ipip(&Ruleset::default()));
    }

    #[test]
    fn tunnel_of_fabric_has_its_name_kind_and_port() {
        let vxlan = |port| Tunnel::Vxlan { port };
        let devices = [
            ("tunl0", Tunnel::Ipip),
            ("tunl1", Tunnel::Ipip),
            ("vxlan.calico", vxlan(4790)),
            ("vxlan-v6.calico", vxlan(4789)),
            ("vxlan0", vxlan(4790)),
        ];
        let found = |ipip, vxlan, vxlan_port, devices: &[(&str, Tunnel)]| {
            let settings = Encapsulation {
                vxlan_port,
                ipip,
                vxlan,
                ..Encapsulation::default()
            };
            let devices = devices.iter().map(|(name, kind)| ((*name).into(), *kind));
            let keys = of_fabric(settings, &devices.collect());
            let names = keys.into_iter().map(|key| match key {
                Key::Interface(name) => String::from(name),
                other => panic!("{other:?}"),
            });
            names.collect::<Vec<_>>()
        };
        assert!(found(false, false, 4789, &devices).is_empty());
        assert_eq!(found(true, false, 4789, &devices), ["tunl0"]);
        assert_eq!(found(false, true, 4789, &devices), ["vxlan-v6.calico"]);
        assert_eq!(found(true, true, 4790, &devices), ["tunl0", "vxlan.calico"]);
        let swapped = [("tunl0", vxlan(4789)), ("vxlan.calico", Tunnel::Ipip)];
        assert!(found(true, true, 4789, &swapped).is_empty());
    }

    #[test]
    fn udp_rule_names_only_ports_of_encapsulation() {
        let rule = |ports| {
            let destination = json!({ "ports": ports });
            let rule = json!({"action": "Allow", "protocol": "UDP", "destination": destination});
            let rule: Stored = serde_json::from_value(rule).unwrap();
            let found = named(&rule)?.destination.ports;
            Some(
                found
                    .iter()
                    .filter_map(|port| Some(*port.range()?.start()))
                    .collect(),
            )
        };
        let all = json!([53, 1701, 4789, 6081, "1700:1702"]);
        assert_eq!(rule(all), Some(vec![1701, 4789, 6081]));
        assert_eq!(rule(json!([53, "1701:1702"])), None);
    }
}
