//! The table of changes is what a living session sees of them, field by field.

use alloc::{vec, vec::Vec};
use core::net::IpAddr;

use bgp_fsm::{GracefulRestartConfig, PeerAs, State};
use bgp_proto::open::ExtendedNextHopEntry;
use bgp_proto::{AddPathMode, Asn, Capability, ClusterId, Family, FamilySet, Open, RouterId};
use rib::{NextHopMode, Policy, Role, SendPaths};

use super::fabric::{address, neighbor, speaker_config};
use super::wire::{Heard, Say, Wire, open};
use crate::{
    Change, Effect, LimitAction, PEER_CHANGES, PeerConfig, PrefixLimit, Reconfigured,
    SESSION_CHANGES, SpeakerConfig, changes,
};

const V4: Family = Family::IPV4_UNICAST;

/// A peer that is a client of ours.
fn peer() -> PeerConfig {
    let mut peer = neighbor(1, 3, Role::Client);
    peer.session.passive = true;
    peer.session.add_path_send = V4.into();
    peer
}

fn config(peer: PeerConfig) -> SpeakerConfig {
    let mut config = speaker_config(1);
    let mut other = neighbor(1, 2, Role::Client);
    other.session.passive = true;
    config.peers = vec![other, peer];
    config
}

/// An OPEN that takes whatever we offer.
fn willing() -> Open {
    let mut open = open(3);
    let both = |family| (family, AddPathMode::Both);
    open.capabilities.extend([
        Capability::AddPath(vec![both(V4), both(Family::IPV6_UNICAST)]),
        Capability::ExtendedMessage,
        Capability::ExtendedNextHop(vec![ExtendedNextHopEntry {
            afi: 1,
            safi: 1,
            next_hop_afi: 2,
        }]),
    ]);
    open
}

/// Changes one field, so that it would matter to [`willing`] if it mattered at all.
fn change(field: &str, peer: &mut PeerConfig) {
    let session = &mut peer.session;
    match field {
        "name" => peer.name = "other".into(),
        "remote" => peer.remote = IpAddr::V4(address(9)),
        "port" => peer.port = 1179,
        "local" => peer.local = Some(IpAddr::V4(address(8))),
        "role" => peer.role = Role::Internal,
        "session" => session.hold_time_s = 30,
        "next_hop" => peer.next_hop = NextHopMode::Own,
        "import" => peer.import = Policy::RejectAll,
        "own_as_max" => peer.own_as_max = 1,
        "allow_as_sets" => peer.allow_as_sets = true,
        "multihop" => peer.multihop = true,
        "export" => peer.export = Policy::RejectAll,
        "send_paths" => peer.send_paths = [(V4, SendPaths::Best(1))].into(),
        "cluster_id" => peer.cluster_id = Some(ClusterId([9, 9, 9, 9].into())),
        "prefix_limits" => {
            let limit = PrefixLimit {
                max: 100,
                warn_percent: 75,
                action: LimitAction::Drop,
            };
            peer.prefix_limits = [(V4, limit)].into();
        }
        "ttl_security_hops" => peer.ttl_security_hops = Some(1),
        "password" => peer.password = Some("other".into()),
        "local_asn" => session.local_asn = Asn(64_513),
        "local_id" => session.local_id = RouterId(address(7)),
        "peer_asn" => session.peer_asn = PeerAs::Exactly(Asn(64_514)),
        "passive" => session.passive = false,
        "hold_time_s" => session.hold_time_s = 30,
        "keepalive_s" => session.keepalive_s = Some(7),
        "connect_retry_s" => session.connect_retry_s = 77,
        "handshake_s" => session.handshake_s = 30,
        "idle_hold_s" => session.idle_hold_s = (2, 3),
        "open_delay_s" => session.open_delay_s = 2,
        "send_hold_s" => session.send_hold_s = Some(900),
        "families" => session.families = V4.into(),
        "add_path_receive" => session.add_path_receive = V4.into(),
        "add_path_send" => session.add_path_send = FamilySet::UNICAST,
        "graceful_restart" => session.graceful_restart = Some(GracefulRestartConfig::default()),
        "extended_messages" => session.extended_messages = true,
        "extended_next_hop" => session.extended_next_hop = true,
        "hostname" => session.hostname = Some("node".into()),
        _ => panic!("what would another {field} be?"),
    }
}

/// What the peer hears of a change, the reload's account of it, and what is left of its routes.
fn flip(row: &Change) -> (Vec<Heard>, Reconfigured, usize) {
    let mut wire = Wire::new(config(peer()));
    let two = wire.connect(2, &open(2));
    let three = wire.connect(3, &willing());
    wire.say(two, Say::Reach(&["10.65.0.2/32"]));
    wire.say(three, Say::Reach(&["10.65.0.3/32"]));
    wire.hear(three);
    let mut new = peer();
    change(row.field, &mut new);
    assert!((row.differs)(&peer(), &new), "{}", row.field);
    let now = wire.now;
    let done = wire.speaker.reconfigure(now, config(new)).expect("taken");
    wire.settle();
    let heard = wire.hear(three);
    let stays = wire.state(three) == State::Established;
    assert_eq!(stays, row.effect < Effect::Settled, "{}", row.field);
    // And back again: no session is lost that was not lost before.
    if stays {
        let done = wire.speaker.reconfigure(now, config(peer()));
        let done = done.expect("taken");
        assert!(done.reset.is_empty() && done.removed.is_empty());
        wire.settle();
        assert_eq!(wire.prefixes().len(), 2, "{}", row.field);
        assert_eq!(wire.state(three), State::Established);
    }
    (heard, done, wire.prefixes().len())
}

#[test]
fn the_table_is_what_a_living_session_sees() {
    for row in PEER_CHANGES.iter().chain(SESSION_CHANGES) {
        if row.field == "session" {
            continue; // Its own table has it field by field.
        }
        let (heard, done, _) = flip(row);
        let field = row.field;
        let asks = heard.iter().any(|heard| matches!(heard, Heard::Refresh(_)));
        let tells = |heard: &Heard| matches!(heard, Heard::Reach(_) | Heard::Unreach(_));
        let told = heard.iter().any(tells);
        match row.effect {
            Effect::Live | Effect::Judged => assert_eq!(heard, [], "{field}"),
            Effect::Asked => assert!(asks && !told, "{field}: {heard:?}"),
            Effect::Told => assert!(told && !asks, "{field}: {heard:?}"),
            Effect::NextSession => {
                assert_eq!(
                    (heard, &*done.later),
                    (vec![], &["n3".into()][..]),
                    "{field}"
                );
            }
            Effect::Settled | Effect::Reset => {
                let ended = done.reset.len() + done.removed.len();
                assert_eq!(ended, 1, "{field}: {done:?}");
                assert!(
                    matches!(heard[..], [Heard::Notification(_)]),
                    "{field}: {heard:?}"
                );
            }
        }
        let waits = matches!(row.effect, Effect::NextSession);
        assert_eq!(!done.later.is_empty(), waits, "{field}");
    }
}

/// A session whose OPENs settle on the same under the new configuration has nothing to gain.
#[test]
fn what_the_peer_does_not_offer_ends_no_session() {
    for row in SESSION_CHANGES
        .iter()
        .filter(|row| row.effect == Effect::Settled)
    {
        if ["local_asn", "local_id", "families", "add_path_send"].contains(&row.field) {
            continue; // Ours alone to say, or the peer offers it in any case.
        }
        let mut wire = Wire::new(config(peer()));
        let three = wire.connect(3, &open(3));
        let mut new = peer();
        change(row.field, &mut new);
        if row.field == "peer_asn" {
            new.session.peer_asn = PeerAs::Exactly(Asn(64_512));
        }
        let done = wire.speaker.reconfigure(wire.now, config(new));
        assert_eq!(done.expect("taken").later, ["n3"], "{}", row.field);
        assert_eq!(wire.state(three), State::Established, "{}", row.field);
    }
}

#[test]
fn a_source_that_is_the_one_in_use_changes_nothing() {
    let mut wire = Wire::new(config(peer()));
    let three = wire.connect(3, &open(3));
    for local in [Some(IpAddr::V4(address(1))), None] {
        let new = PeerConfig { local, ..peer() };
        let done = wire.speaker.reconfigure(wire.now, config(new));
        assert_eq!(done, Ok(Reconfigured::default()));
    }
    assert_eq!(wire.state(three), State::Established);
}

#[test]
fn the_fields_that_differ_are_listed() {
    let mut new = peer();
    change("import", &mut new);
    change("hold_time_s", &mut new);
    let fields: Vec<&str> = changes(&peer(), &new).map(|row| row.field).collect();
    assert_eq!(fields, ["import", "hold_time_s"]);
}
