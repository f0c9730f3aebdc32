//! Route target membership (RFC 4684): each client is sent the VPN routes of its route targets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bgp_proto::{
    AttrCode, Attributes, Capability, ExtendedCommunity, Family, FamilySet, GracefulRestart, Net,
    NextHop, Open, RouteTargetMembership,
};
use bgp_speaker::limits::{PREFIXES_MAX, ROUTE_TARGETS_MAX, SENT_PASS_EVERY, TARGETS_WAIT_MAX};
use bgp_speaker::{Input, PeerConfig, PrefixLimits, PrefixLimitsOut, SpeakerConfig};
use proptest::prelude::*;
use rib::{PeerId, Role, SendPaths};
use testkit::fixture::{ASN, address, neighbor, open, speaker_config};
use testkit::{Network, OPTIONAL, OPTIONAL_TRANSITIVE, Received, Update};

use super::network;
use super::wire::Wire;

const VPN: Family = Family::IPV4_VPN;
const MEMBERS: Family = Family::ROUTE_TARGET;
const SOON: Duration = Duration::from_secs(30);
/// The clients of reflector 1. Client 5 receives several paths of a prefix.
const CLIENTS: [usize; 4] = [2, 3, 4, 5];
const MANY: usize = 5;

fn both() -> FamilySet {
    FamilySet::EMPTY.with(VPN).with(MEMBERS)
}

fn peer(us: usize, them: usize, role: Role) -> PeerConfig {
    let mut peer = neighbor(us, them, role);
    peer.session.families = both();
    peer.session.connect_retry_s = 5;
    peer
}

fn config(number: usize) -> SpeakerConfig {
    let mut config = speaker_config(number);
    config.families = both();
    config
}

fn reflector(number: usize, clients: &[usize]) -> SpeakerConfig {
    let mut config = config(number);
    for &client in clients {
        let mut peer = peer(number, client, Role::Client);
        peer.session.passive = true;
        if client == MANY {
            peer.session.add_path_send = both();
            peer.send_paths = [(VPN, SendPaths::All)].into();
        }
        config.peers.push(peer);
    }
    config
}

fn client(number: usize, reflector: usize) -> SpeakerConfig {
    let mut config = config(number);
    let mut peer = peer(number, reflector, Role::Internal);
    if number == MANY {
        peer.session.add_path_receive = both();
    }
    config.peers.push(peer);
    config
}

fn fabric() -> Network {
    let mut configs = vec![(1, reflector(1, &CLIENTS))];
    configs.extend(CLIENTS.map(|number| (number, client(number, 1))));
    let mut fabric = network(configs);
    fabric.advance(SOON);
    assert_eq!(fabric.established(1).len(), CLIENTS.len());
    fabric
}

fn target(number: u32) -> ExtendedCommunity {
    ExtendedCommunity::route_target_as2(64_512, number)
}

fn membership(wanted: Option<u32>) -> Vec<u8> {
    let membership = match wanted {
        Some(number) => RouteTargetMembership::new(ASN, target(number)),
        None => RouteTargetMembership::DEFAULT,
    };
    let mut nlri = Vec::new();
    membership.put_nlri(&mut nlri);
    nlri
}

/// Returns the NLRI of 10.65.`at`.0/24 with a label and a route distinguisher.
fn net(at: u8) -> Vec<u8> {
    vec![112, 0, 6, 0x41, 0, 0, 0xfc, 0, 0, 0, 0, 1, 10, 65, at]
}

fn local(fabric: &mut Network, number: usize, route: (Family, &[u8]), set: Option<Attributes>) {
    let now = fabric.now();
    let input = Input::Local {
        family: route.0,
        net: Net::Opaque(route.1),
        attributes: set,
        interface: None,
    };
    fabric.speaker_mut(number).handle(now, input);
}

/// Adds a membership of a speaker; without a number the default one.
fn want(fabric: &mut Network, number: usize, wanted: Option<u32>) {
    let route = (MEMBERS, &*membership(wanted));
    local(fabric, number, route, Some(Attributes::default()));
}

fn unwant(fabric: &mut Network, number: usize, wanted: Option<u32>) {
    local(fabric, number, (MEMBERS, &membership(wanted)), None);
}

/// A route: its LOCAL_PREF and its route target.
type Route = (u32, u32);

fn announce(fabric: &mut Network, number: usize, at: u8, (pref, of): Route) {
    let attributes = Attributes {
        local_pref: Some(pref),
        next_hop: Some(NextHop::V4(address(number))),
        extended_communities: vec![target(of)],
        ..Attributes::default()
    };
    local(fabric, number, (VPN, &net(at)), Some(attributes));
}

fn withdraw(fabric: &mut Network, number: usize, at: u8) {
    local(fabric, number, (VPN, &net(at)), None);
}

/// Returns the VPN routes that a speaker has received: the third octet, LOCAL_PREF, route target.
fn held(fabric: &Network, number: usize) -> BTreeSet<(u8, Route)> {
    let rib = fabric.speaker(number).rib();
    let paths = rib.prefixes(VPN).flat_map(|view| {
        let Net::Opaque(octets) = view.net else {
            panic!("{}", view.net)
        };
        let at = *octets.last().expect("octets");
        let paths = view.paths.into_iter();
        let others = paths.filter(|path| path.peer != PeerId::LOCAL);
        others.map(move |path| {
            let [.., of] = path.received.extended_communities[0].0;
            (
                at,
                (path.received.local_pref.unwrap_or_default(), of.into()),
            )
        })
    });
    paths.collect()
}

/// Returns the third octets of the VPN routes that a speaker has received.
fn nets(fabric: &Network, number: usize) -> Vec<u8> {
    held(fabric, number).into_iter().map(|(at, _)| at).collect()
}

// Promise (BGP): A neighbor that has negotiated `route-target` is sent exactly the VPN routes
// with the route targets that it wants.
#[test]
fn clients_are_sent_the_routes_of_their_targets() {
    let mut fabric = fabric();
    for number in [2, 3] {
        want(&mut fabric, number, Some(7));
    }
    want(&mut fabric, 3, Some(9));
    want(&mut fabric, 4, Some(8));
    announce(&mut fabric, 2, 2, (100, 7));
    announce(&mut fabric, 3, 3, (100, 7));
    announce(&mut fabric, 2, 4, (100, 9));
    announce(&mut fabric, 4, 5, (100, 1));
    fabric.advance(SOON);
    assert_eq!(nets(&fabric, 2), [3]);
    assert_eq!(nets(&fabric, 3), [2, 4]);
    assert_eq!(nets(&fabric, 4), [0; 0]);
    assert_eq!(nets(&fabric, 1), [2, 3, 4], "the client withholds target 1");

    // The report of sent paths.
    let octets = net(2);
    let sent = fabric.speaker(1).sent_paths(VPN, Net::Opaque(&octets));
    let mut to: Vec<_> = sent
        .map(|(peer, _)| fabric.speaker(1).peer_name(peer).to_owned())
        .collect();
    to.sort();
    assert_eq!(to, ["n3"]);

    // A withdrawn membership withdraws its routes alone, a new one adds its own alone.
    unwant(&mut fabric, 3, Some(7));
    want(&mut fabric, 4, Some(9));
    fabric.advance(SOON);
    assert_eq!(nets(&fabric, 3), [4]);
    assert_eq!(nets(&fabric, 4), [4]);
    // A route that gets another target.
    announce(&mut fabric, 2, 4, (100, 8));
    fabric.advance(SOON);
    assert_eq!((nets(&fabric, 3), nets(&fabric, 4)), (vec![], vec![4]));
    // The default membership.
    want(&mut fabric, 3, None);
    fabric.advance(SOON);
    assert_eq!(nets(&fabric, 3), [2, 4, 5]);
    assert!(fabric.speaker(1).all_sent());
}

#[test]
fn reflectors_exchange_the_targets_of_their_clients() {
    let mut configs = vec![];
    for (number, other, of) in [(1, 2, 3), (2, 1, 4)] {
        let mut config = reflector(number, &[of]);
        config.peers.push(peer(number, other, Role::Internal));
        configs.extend([(number, config), (of, client(of, number))]);
    }
    configs.push((5, client(5, 1)));
    configs[0].1.peers.push(peer(1, 5, Role::Client));
    let mut fabric = network(configs);
    fabric.advance(SOON);
    want(&mut fabric, 3, Some(7));
    announce(&mut fabric, 3, 3, (100, 7));
    fabric.advance(SOON);
    assert_eq!(
        nets(&fabric, 2),
        [0; 0],
        "reflector 2 has no client with this target"
    );
    want(&mut fabric, 4, Some(7));
    announce(&mut fabric, 4, 4, (100, 7));
    fabric.advance(SOON);
    assert_eq!((nets(&fabric, 3), nets(&fabric, 4)), (vec![4], vec![3]));
    assert_eq!(nets(&fabric, 5), [0; 0]);
    unwant(&mut fabric, 4, Some(7));
    fabric.advance(SOON);
    assert_eq!((nets(&fabric, 3), nets(&fabric, 4)), (vec![4], vec![]));
    assert_eq!(nets(&fabric, 2), [4], "from its own client alone");
}

/// A reflector of reflectors: two of its clients have clients of their own with one target.
#[test]
fn reflectors_below_another_one_exchange_routes() {
    let mut configs = vec![(1, reflector(1, &[2, 3]))];
    for (number, of) in [(2, 4), (3, 6)] {
        let mut config = reflector(number, &[of]);
        config.peers.push(peer(number, 1, Role::Internal));
        configs.extend([(number, config), (of, client(of, number))]);
    }
    let mut fabric = network(configs);
    fabric.advance(SOON);
    for number in [4, 6] {
        want(&mut fabric, number, Some(7));
        let at = u8::try_from(number).expect("small");
        announce(&mut fabric, number, at, (100, 7));
    }
    fabric.advance(SOON);
    assert_eq!((nets(&fabric, 4), nets(&fabric, 6)), (vec![6], vec![4]));
}

/// RFC 4684 §4: it wants all routes, so their sources must send them.
#[test]
fn peer_without_the_family_is_sent_all_routes() {
    let mut config = reflector(1, &[2, 3]);
    config.peers[1].session.families = VPN.into();
    let mut old = client(3, 1);
    old.peers[0].session.families = VPN.into();
    let mut fabric = network(vec![(1, config), (2, client(2, 1)), (3, old)]);
    fabric.advance(SOON);
    announce(&mut fabric, 2, 2, (100, 7));
    announce(&mut fabric, 3, 3, (100, 7));
    fabric.advance(SOON);
    assert_eq!((nets(&fabric, 2), nets(&fabric, 3)), (vec![], vec![2]));
}

fn with_families(number: usize) -> Open {
    let mut open = open(number);
    (open.capabilities).retain(|each| !matches!(each, Capability::MultiProtocol(_)));
    let families = both().iter().map(Capability::MultiProtocol);
    open.capabilities.extend(families);
    open
}

/// Returns the update of a scripted peer that announces an NLRI.
fn reach(family: Family, nlri: &[u8], of: u32) -> Update {
    let hop: &[u8] = match family {
        VPN => &[0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2],
        _ => &[10, 0, 0, 2],
    };
    let [high, low] = family.afi.to_be_bytes();
    let hop_octets = u8::try_from(hop.len()).expect("short");
    let value = [&[high, low, family.safi, hop_octets], hop, &[0], nlri].concat();
    let update = Update::via(address(2)).without(AttrCode::NextHop);
    update.with(OPTIONAL, AttrCode::MpReach, &value).with(
        OPTIONAL_TRANSITIVE,
        AttrCode::ExtendedCommunities,
        &target(of).0,
    )
}

fn unreach(family: Family, nlri: &[u8]) -> Update {
    let [high, low] = family.afi.to_be_bytes();
    let value = [&[high, low, family.safi], nlri].concat();
    Update::default().with(OPTIONAL, AttrCode::MpUnreach, &value)
}

fn of_vpn(received: &[Received]) -> Vec<Received> {
    let octets = net(0).len() * 2;
    let is_vpn = |message: &&Received| match message {
        Received::Reach(nets) | Received::Unreach(nets) => nets[0].len() == octets,
        Received::EndOfRib(family) => *family == VPN,
        _ => false,
    };
    received.iter().filter(is_vpn).cloned().collect()
}

fn wire() -> (Wire, PeerId) {
    let mut wire = Wire::new(reflector(1, &CLIENTS));
    let source = wire.connect(2, &with_families(2));
    (0..2).for_each(|at| wire.send(source, reach(VPN, &net(at), at.into())));
    (wire, source)
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// RFC 4684 §6.
#[test]
fn vpn_routes_wait_for_the_memberships() {
    for has_marker in [true, false] {
        let (mut wire, source) = wire();
        let (member, greeting) = wire.greet(3, &with_families(3));
        assert!(greeting.contains(&Received::EndOfRib(MEMBERS)));
        wire.send(member, reach(MEMBERS, &membership(Some(1)), 0));
        assert_eq!(of_vpn(&wire.received(member)), []);
        assert!(!wire.speaker().all_sent());
        wire.pass(TARGETS_WAIT_MAX.as_secs() - 1, &[source, member]);
        assert_eq!(of_vpn(&wire.received(member)), []);
        if has_marker {
            wire.send(member, unreach(MEMBERS, &[]));
        } else {
            wire.pass(1, &[source, member]);
        }
        let expected = [Received::Reach(vec![hex(&net(1))]), Received::EndOfRib(VPN)];
        assert_eq!(of_vpn(&wire.received(member)), expected, "{has_marker}");
    }
}

#[test]
fn flapping_membership_delays_no_other_client() {
    let (mut wire, source) = wire();
    let mut clients = [3, 4].map(|number| {
        let client = wire.connect(number, &with_families(number));
        wire.send(client, unreach(MEMBERS, &[]));
        client
    });
    clients.sort();
    let [flaps, other] = clients;
    wire.send(other, reach(MEMBERS, &membership(Some(1)), 0));
    wire.pass(SENT_PASS_EVERY.as_secs(), &[source]);
    wire.received(flaps);
    let mut updates = 0;
    for round in 0..100_u8 {
        wire.send(flaps, reach(MEMBERS, &membership(Some(1)), 0));
        wire.send(flaps, unreach(MEMBERS, &membership(Some(1))));
        wire.network.advance(SENT_PASS_EVERY / 20);
        updates += of_vpn(&wire.received(flaps)).len();
        wire.received(other);
        wire.send(source, reach(VPN, &net(100 + round), 1));
        let sent = [Received::Reach(vec![hex(&net(100 + round))])];
        assert_eq!(of_vpn(&wire.received(other)), sent, "at once");
    }
    // A pass each second at most; at its end none is wanted.
    assert!(updates <= 12, "{updates}");
    let done = Received::Unreach(vec![hex(&net(1))]);
    wire.pass(2, &[]);
    let last = of_vpn(&wire.received(flaps));
    assert!(last.is_empty() || last.contains(&done), "{last:?}");
}

#[test]
fn memberships_have_a_limit_of_their_own() {
    let limit = |limits: &PrefixLimits, family| limits.get(family).map(|limit| limit.max);
    let limits = PrefixLimits::default();
    assert_eq!(limit(&limits, MEMBERS), Some(ROUTE_TARGETS_MAX));
    assert!(limit(&limits, VPN) > Some(ROUTE_TARGETS_MAX));
    assert_eq!(limit(&PrefixLimits::of_all(7), MEMBERS), Some(7));
    assert_eq!(limit(&PrefixLimits::of_all(0), MEMBERS), None);
    // The value of another default, if it is configured.
    let configured = PrefixLimits::of_all(PREFIXES_MAX);
    assert_eq!(limit(&configured, MEMBERS), Some(PREFIXES_MAX));
}

/// The memberships of a restarting client keep its VPN routes until its End-of-RIB marker.
#[test]
fn stale_memberships_count_until_end_of_rib() {
    let mut config = reflector(1, &CLIENTS);
    for peer in &mut config.peers {
        let families_forwarding = peer.session.families;
        peer.session.graceful_restart =
            Some(bgp_fsm::GracefulRestartConfig::new(60).with_forwarding(families_forwarding));
    }
    let mut wire = Wire::new(config);
    let source = wire.connect(2, &with_families(2));
    (0..2).for_each(|at| wire.send(source, reach(VPN, &net(at), at.into())));
    let mut open = with_families(3);
    open.capabilities
        .push(Capability::GracefulRestart(GracefulRestart {
            time_s: 60,
            families: vec![(MEMBERS, true), (VPN, true)],
            ..GracefulRestart::default()
        }));
    let member = wire.connect(3, &open);
    for wanted in 0..2 {
        wire.send(member, reach(MEMBERS, &membership(Some(wanted)), 0));
    }
    wire.send(member, unreach(MEMBERS, &[]));
    wire.lose(member);
    wire.pass(5, &[source]);
    let again = wire.connect(3, &open);
    assert_eq!(again, member);
    let wants = |wire: &Wire| wire.speaker().rib().route_targets(member).len();
    assert_eq!(wants(&wire), 2, "stale");
    wire.send(member, reach(MEMBERS, &membership(Some(1)), 0));
    wire.send(member, unreach(MEMBERS, &[]));
    let sent = of_vpn(&wire.received(member));
    assert_eq!(wants(&wire), 1);
    assert_eq!(sent.last(), Some(&Received::EndOfRib(VPN)), "{sent:?}");
    wire.pass(2, &[source, member]);
    let later = of_vpn(&wire.received(member));
    let mut holds = BTreeSet::new();
    for message in sent.into_iter().chain(later) {
        match message {
            Received::Reach(nets) => holds.extend(nets),
            Received::Unreach(nets) => nets.iter().for_each(|net| {
                holds.remove(net);
            }),
            _ => {}
        }
    }
    assert_eq!(holds, [hex(&net(1))].into());
}

#[derive(Clone, Debug)]
enum Op {
    Want(Option<u32>),
    Unwant(Option<u32>),
    Announce(u8, Route),
    Withdraw(u8),
    Limit(u32),
    Refresh,
    Stall(bool),
    Disconnect,
    Pass(u64),
    Settle,
}

fn op() -> impl Strategy<Value = (usize, Op)> {
    let wanted = || prop_oneof![4 => (0..3_u32).prop_map(Some), 1 => Just(None)];
    let op = prop_oneof![
        6 => wanted().prop_map(Op::Want),
        5 => wanted().prop_map(Op::Unwant),
        9 => (0..4_u8, (1..4_u32, 0..3_u32)).prop_map(|(at, route)| Op::Announce(at, route)),
        4 => (0..4_u8).prop_map(Op::Withdraw),
        1 => prop_oneof![Just(0), Just(100)].prop_map(Op::Limit),
        1 => Just(Op::Refresh),
        2 => any::<bool>().prop_map(Op::Stall),
        1 => Just(Op::Disconnect),
        3 => (1..3_000_u64).prop_map(Op::Pass),
        4 => Just(Op::Settle),
    ];
    (prop::sample::select(&CLIENTS[..]), op)
}

/// The memberships and routes that the operations leave.
#[derive(Default)]
struct Model {
    wanted: BTreeSet<(usize, Option<u32>)>,
    routes: BTreeMap<(u8, usize), Route>,
    limits: BTreeMap<usize, u32>,
}

impl Model {
    fn wants(&self, number: usize, of: u32) -> bool {
        let wanted = |of| self.wanted.contains(&(number, of));
        wanted(None) || wanted(Some(of))
    }

    /// Returns the paths that a client must hold.
    fn paths(&self, number: usize) -> BTreeSet<(u8, Route)> {
        let mut all = BTreeSet::new();
        for at in 0..4 {
            // Clients send the reflector the routes that any client wants.
            let routes = self.routes.iter().filter(|((of, _), (_, target))| {
                *of == at && CLIENTS.iter().any(|&each| self.wants(each, *target))
            });
            let mut routes: Vec<_> = routes.map(|((_, from), route)| (*route, *from)).collect();
            routes.sort_unstable();
            if number != MANY {
                routes = routes.pop().into_iter().collect();
            }
            let routes = routes.into_iter();
            let routes =
                routes.filter(|(route, from)| *from != number && self.wants(number, route.1));
            all.extend(routes.map(|(route, _)| (at, route)));
        }
        all
    }

    fn apply(&mut self, fabric: &mut Network, number: usize, op: &Op) {
        match *op {
            Op::Want(wanted) => {
                self.wanted.insert((number, wanted));
                want(fabric, number, wanted);
            }
            Op::Unwant(wanted) => {
                self.wanted.remove(&(number, wanted));
                unwant(fabric, number, wanted);
            }
            // Each client has other values, so that the best path is known.
            Op::Announce(at, (pref, of)) => {
                let route = (pref * 10 + u32::try_from(number).expect("small"), of);
                self.routes.insert((at, number), route);
                announce(fabric, number, at, route);
            }
            Op::Withdraw(at) => {
                self.routes.remove(&(at, number));
                withdraw(fabric, number, at);
            }
            Op::Limit(max) => {
                self.limits.insert(number, max);
                let mut config = reflector(1, &CLIENTS);
                for (peer, number) in config.peers.iter_mut().zip(CLIENTS) {
                    let max = self.limits.get(&number).copied().unwrap_or_default();
                    peer.prefix_limits_out = PrefixLimitsOut::of_all(max);
                }
                let now = fabric.now();
                let done = fabric.speaker_mut(1).reconfigure(now, config);
                assert_eq!(done.expect("applied").reset, Vec::<String>::new());
            }
            Op::Refresh => {
                let mut peers = fabric.speaker(number).peers();
                let peer = peers.next().expect("the reflector").id;
                drop(peers);
                let _ = fabric.speaker_mut(number).request_refresh(peer, None);
            }
            Op::Stall(stalled) => fabric.stall(number, stalled),
            Op::Disconnect => fabric.disconnect(number),
            Op::Pass(ms) => fabric.advance(Duration::from_millis(ms)),
            Op::Settle => fabric.settle(),
        }
    }

    /// Lets everything that waits happen, and compares.
    fn check(&mut self, fabric: &mut Network) {
        (CLIENTS.iter()).for_each(|&number| fabric.stall(number, false));
        // A client that was disconnected is in idle hold for a while.
        let all_up = (0..20).any(|_| {
            fabric.advance(SOON);
            fabric.established(1).len() == CLIENTS.len()
        });
        assert!(all_up, "{:?}", fabric.established(1));
        fabric.advance(SOON);
        for number in CLIENTS {
            assert_eq!(held(fabric, number), self.paths(number), "at {number}");
        }
        assert!(fabric.speaker(1).all_sent());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    // Promise: as bgp-speaker clients_are_sent_the_routes_of_their_targets
    #[test]
    fn sent_routes_are_those_that_a_naive_model_selects(
        parts in prop::collection::vec(prop::collection::vec(op(), 1..25), 1..4),
    ) {
        let mut fabric = fabric();
        let mut model = Model::default();
        for ops in &parts {
            for (number, op) in ops {
                model.apply(&mut fabric, *number, op);
            }
            model.check(&mut fabric);
        }
    }
}
