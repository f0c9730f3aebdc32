//! Next hops that are local addresses, next hops that are not on the peer's link, and paths that do
//! not begin with the AS of an external peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp_fsm::{PeerAs, State};
use bgp_proto::{Asn, AttrCode, Capability, Family, Ipv6Prefix, Net, Open};
use bgp_speaker::{InterfaceAddress, PeerConfig};
use rib::{Ineligible, PeerId, Policy, Role};
use testkit::fixture::{neighbor, open, prefix, speaker_config};
use testkit::{OPTIONAL, Update, WELL_KNOWN};

use super::wire::Wire;

const NET: &str = "10.65.0.1/32";
const THEIR_AS: Asn = Asn(64_999);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const ON_LINK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 77);
const OFF_LINK: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 77);
const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn external() -> PeerConfig {
    let mut peer = neighbor(1, 2, Role::External);
    (peer.import, peer.export) = (Policy::AcceptAll, Policy::AcceptAll);
    peer
}

fn their_open() -> Open {
    let mut open = open(2);
    open.asn = THEIR_AS;
    open.capabilities
        .retain(|capability| !matches!(capability, Capability::FourOctetAsn(_)));
    open.capabilities.push(Capability::FourOctetAsn(THEIR_AS));
    open
}

/// Returns a speaker with this peer, which is on the link of eth0.
fn session(peer: PeerConfig) -> (Wire, PeerId) {
    let mut config = speaker_config(1);
    config.peers.push(peer);
    let mut wire = Wire::prepared(config, |speaker| speaker.set_addresses(machine(24)));
    let peer = wire.connect(2, &their_open());
    (wire, peer)
}

fn machine(prefix_len: u8) -> Vec<InterfaceAddress> {
    let address = |interface: &str, address: Ipv4Addr, prefix_len| {
        InterfaceAddress::new(interface.to_string(), IpAddr::V4(address), prefix_len)
    };
    vec![
        address("eth0", Ipv4Addr::new(10, 0, 0, 1), prefix_len),
        address("lo", OWN, 32),
    ]
}

/// Returns why the route with this next hop is not used.
fn refusal(wire: &mut Wire, peer: PeerId, next_hop: Ipv4Addr) -> Option<Ineligible> {
    wire.send(peer, Update::reach([NET]).path(&[THEIR_AS], next_hop));
    standing(wire)
}

fn standing(wire: &Wire) -> Option<Ineligible> {
    let rib = wire.speaker().rib();
    let view = rib.lookup(Family::IPV4_UNICAST, prefix(NET));
    view.expect("the route is there").paths[0].ineligible
}

#[test]
fn external_next_hop_must_be_on_the_link() {
    let (mut wire, peer) = session(external());
    assert_eq!(refusal(&mut wire, peer, PEER), None);
    assert_eq!(refusal(&mut wire, peer, ON_LINK), None);
    let off_link = Some(Ineligible::NextHopOffLink);
    assert_eq!(refusal(&mut wire, peer, OFF_LINK), off_link);
}

/// RFC 4271 §6.3
#[test]
fn first_as_of_another_is_unused_unless_accepted() {
    assert!(external().as_path.enforce_first_as, "the default");
    let (mut wire, peer) = session(external());
    let enforce = |wire: &mut Wire, enforce| {
        let (mut config, mut peer) = (speaker_config(1), external());
        peer.as_path.enforce_first_as = enforce;
        config.peers.push(peer);
        let done = wire.reconfigure(config).expect("taken");
        assert!(done.reset.is_empty() && done.later.is_empty(), "{done:?}");
        wire.settle();
        standing(wire)
    };
    let (other, refused) = (Asn(64_998), Some(Ineligible::FirstAs));
    for (path, expected) in [
        (vec![THEIR_AS], None),
        (vec![THEIR_AS, other], None),
        (vec![other], refused),
        (vec![other, THEIR_AS], refused),
    ] {
        wire.send(peer, Update::reach([NET]).path(&path, PEER));
        assert_eq!(standing(&wire), expected, "{path:?}");
        assert_eq!(enforce(&mut wire, false), None, "{path:?}");
        assert_eq!(enforce(&mut wire, true), expected, "{path:?}");
    }
}

/// RFC 4271 §5.1.2: even a route server passes on the AS of its client. The peer's AS may be the
/// speaker's own, which the neighbor AS of an empty path is, too.
#[test]
fn empty_as_path_of_external_peer_is_never_accepted() {
    let own_asn = speaker_config(1).local_asn;
    for (local, theirs, open) in [
        (own_asn, THEIR_AS, their_open()),
        (THEIR_AS, own_asn, open(2)),
    ] {
        for enforce in [true, false] {
            let mut config = external();
            config.session.local_asn = local;
            config.session.peer_asn = PeerAs::Exactly(theirs);
            config.as_path.enforce_first_as = enforce;
            let mut speaker = speaker_config(1);
            speaker.peers.push(config);
            let mut wire = Wire::new(speaker);
            let peer = wire.connect(2, &open);
            wire.send(
                peer,
                Update::reach([NET]).path(&[theirs, Asn(64_998)], PEER),
            );
            let held = |wire: &Wire| wire.speaker().rib().counters(peer, Family::IPV4_UNICAST);
            assert_eq!(held(&wire).paths, 1);
            let update = Update::reach([NET]).path(&[theirs], PEER);
            wire.send(peer, update.replacing(WELL_KNOWN, AttrCode::AsPath, &[]));
            assert_eq!(held(&wire).paths, 0, "{local} {enforce}");
            assert_eq!(wire.state(peer), State::Established);
        }
    }
}

#[test]
fn first_as_of_internal_peers_is_not_enforced() {
    let mut config = speaker_config(1);
    config.peers.push(neighbor(1, 2, Role::Internal));
    assert!(config.peers[0].as_path.enforce_first_as);
    let mut wire = Wire::new(config);
    let peer = wire.connect(2, &open(2));
    wire.send(peer, Update::reach([NET]).path(&[THEIR_AS], PEER));
    assert_eq!(standing(&wire), None);
}

/// A prepended AS counts each time (RFC 4271 §9.1.2.2).
#[test]
fn as_path_longer_than_the_limit_is_unused() {
    let (mut wire, peer) = session(external());
    let limit = |wire: &mut Wire, max| {
        let (mut config, mut peer) = (speaker_config(1), external());
        peer.as_path.length_max = max;
        config.peers.push(peer);
        let done = wire.reconfigure(config).expect("taken");
        assert!(done.reset.is_empty() && done.later.is_empty(), "{done:?}");
        wire.settle();
        standing(wire)
    };
    let (other, too_long) = (Asn(64_998), Some(Ineligible::AsPathTooLong));
    wire.send(
        peer,
        Update::reach([NET]).path(&[THEIR_AS, other, other], PEER),
    );
    for (max, expected) in [(3, None), (2, too_long), (0, None), (1, too_long)] {
        assert_eq!(limit(&mut wire, max), expected, "at most {max}");
    }
    // A shorter path of the same neighbor is used at once, a longer one is not.
    wire.send(peer, Update::reach([NET]).path(&[THEIR_AS], PEER));
    assert_eq!(standing(&wire), None);
    wire.send(peer, Update::reach([NET]).path(&[THEIR_AS, other], PEER));
    assert_eq!(standing(&wire), too_long);
}

#[test]
fn change_of_addresses_evaluates_routes_again() {
    let (mut wire, peer) = session(external());
    let off_link = Some(Ineligible::NextHopOffLink);
    assert_eq!(refusal(&mut wire, peer, OFF_LINK), off_link);
    wire.speaker_mut().set_addresses(machine(8));
    wire.settle();
    assert_eq!(standing(&wire), None);
    wire.speaker_mut().set_addresses(machine(24));
    wire.settle();
    assert_eq!(standing(&wire), off_link);
    // Without the addresses of the machine there is no check.
    wire.speaker_mut().set_addresses(Vec::new());
    wire.settle();
    assert_eq!(standing(&wire), None);
}

/// RFC 4271 §6.3: of a peer in no local subnet only its own address is known to be on the link.
#[test]
fn next_hop_of_peer_in_no_local_subnet_must_be_the_peer() {
    let off_link = Some(Ineligible::NextHopOffLink);
    let (mut wire, peer) = session(external());
    wire.speaker_mut().set_addresses(machine(32));
    for next_hop in [ON_LINK, OFF_LINK] {
        assert_eq!(refusal(&mut wire, peer, next_hop), off_link, "{next_hop}");
    }
    assert_eq!(refusal(&mut wire, peer, PEER), None);
    assert_eq!(refusal(&mut wire, peer, OWN), Some(Ineligible::OwnNextHop));
}

/// RFC 4760 §3: the rule applies to the next hop of any family.
#[test]
fn ipv6_next_hop_needs_a_subnet_of_the_peers_link() {
    let net = Ipv6Prefix::new("2001:db8:1::".parse().expect("an address"), 48);
    let net = net.expect("a prefix");
    let mut peer = external();
    peer.session.families = [Family::IPV4_UNICAST, Family::IPV6_UNICAST]
        .into_iter()
        .collect();
    let mut open = their_open();
    let ipv6 = Capability::MultiProtocol(Family::IPV6_UNICAST);
    open.capabilities.push(ipv6);
    let mut config = speaker_config(1);
    config.peers.push(peer);
    let mut wire = Wire::prepared(config, |speaker| speaker.set_addresses(machine(24)));
    let peer = wire.connect(2, &open);
    let mut value = vec![0, 2, 1, 16];
    value.extend("fd00::77".parse::<Ipv6Addr>().expect("an address").octets());
    value.extend([0, 48]);
    value.extend(&net.addr().octets()[..6]);
    let update = Update::reach::<&str>([]).path(&[THEIR_AS], PEER);
    let update = update.without(AttrCode::NextHop);
    wire.send(peer, update.with(OPTIONAL, AttrCode::MpReachNlri, &value));
    let standing = |wire: &Wire| {
        let rib = wire.speaker().rib();
        let view = rib.lookup(Family::IPV6_UNICAST, Net::V6(net));
        view.expect("the route is there").paths[0].ineligible
    };
    assert_eq!(standing(&wire), Some(Ineligible::NextHopOffLink));
    let mut addresses = machine(24);
    addresses.push(InterfaceAddress::new(
        "eth0".to_string(),
        "fd00::1".parse().expect("an address"),
        64,
    ));
    wire.speaker_mut().set_addresses(addresses);
    wire.settle();
    assert_eq!(standing(&wire), None);
}

#[test]
fn multihop_peer_may_send_any_next_hop_but_the_local_one() {
    for change in [
        |peer: &mut PeerConfig| peer.multihop = true,
        |peer: &mut PeerConfig| peer.ttl_security_hops = Some(2),
    ] {
        let mut peer = external();
        change(&mut peer);
        let (mut wire, peer) = session(peer);
        assert_eq!(refusal(&mut wire, peer, OFF_LINK), None);
        let own = Some(Ineligible::OwnNextHop);
        assert_eq!(refusal(&mut wire, peer, OWN), own);
    }
}

#[test]
fn peer_on_this_machine_may_name_its_addresses() {
    let mut config = speaker_config(1);
    config.peers.push(neighbor(1, 2, Role::Internal));
    let mut addresses = machine(24);
    addresses.push(InterfaceAddress::new(
        "eth0".to_string(),
        IpAddr::V4(PEER),
        24,
    ));
    let mut wire = Wire::prepared(config, |speaker| speaker.set_addresses(addresses));
    let peer = wire.connect(2, &open(2));
    assert_eq!(refusal(&mut wire, peer, OWN), None);
}

#[test]
fn internal_peer_may_send_any_next_hop_but_the_local_one() {
    let mut config = speaker_config(1);
    config.peers.push(neighbor(1, 2, Role::Internal));
    let mut wire = Wire::prepared(config, |speaker| speaker.set_addresses(machine(24)));
    let peer = wire.connect(2, &open(2));
    assert_eq!(refusal(&mut wire, peer, OFF_LINK), None);
    assert_eq!(refusal(&mut wire, peer, OWN), Some(Ineligible::OwnNextHop));
    wire.speaker_mut().set_addresses(Vec::new());
    wire.settle();
    assert_eq!(standing(&wire), None, "the address is no longer ours");
}
