//! Tests that the table of changes matches their effect on an established session, field by field.

use std::net::IpAddr;

use bgp_fsm::{PeerAs, State};
use bgp_proto::open::ExtendedNextHopEntry;
use bgp_proto::{AddPathMode, Asn, Capability, Family, Open, RouterId};
use bgp_speaker::keys::{Kind, Value};
use bgp_speaker::{Effect, PEER_KEYS, PeerConfig, PeerKey, Reconfigured, SpeakerConfig, changes};
use rib::{Policy, Role};
use testkit::fixture::{address, neighbor, open, speaker_config};
use testkit::{Received, Update};

use super::wire::Wire;

const V4: Family = Family::IPV4_UNICAST;

/// Returns a route reflector client.
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

/// Returns an OPEN that supports every capability of the speaker.
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

/// Changes one key to its example, and a flag to its opposite, so that any effect is visible to
/// [`willing`].
fn change(key: &PeerKey, peer: &mut PeerConfig) {
    let old = peer.clone();
    if key.kind == Kind::InCode {
        return change_in_code(key.name, peer);
    }
    let mut faults = vec![];
    key.set(peer, &(key.example)().into(), &mut faults);
    if !key.differs(&old, peer) {
        key.set(peer, &Value::Flag(false).into(), &mut faults);
    }
    assert_eq!(faults, [], "{}", key.name);
}

fn change_in_code(key: &str, peer: &mut PeerConfig) {
    let session = &mut peer.session;
    match key {
        "local_asn" => session.local_asn = Asn(64_513),
        "local_id" => session.local_id = RouterId(address(7)),
        "idle_hold" => session.idle_hold_s = (2, 3),
        "open_delay" => session.open_delay_s = 2,
        "send_hold" => session.send_hold_s = Some(900),
        "hostname" => session.hostname = Some("node".into()),
        _ => panic!("what would another {key} be?"),
    }
}

/// Returns the messages that the peer receives after a change, the result of the reload, and the
/// number of its remaining routes.
fn flip(row: &PeerKey) -> (Vec<Received>, Reconfigured, usize) {
    let mut wire = Wire::new(config(peer()));
    let two = wire.connect(2, &open(2));
    let three = wire.connect(3, &willing());
    wire.send(two, Update::reach(["10.65.0.2/32"]));
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    wire.received(three);
    let mut new = peer();
    change(row, &mut new);
    assert!(row.differs(&peer(), &new), "{}", row.name);
    let done = wire.reconfigure(config(new)).expect("taken");
    wire.settle();
    let received = wire.received(three);
    let stays = wire.state(three) == State::Established;
    assert_eq!(stays, row.effect < Effect::Renegotiated, "{}", row.name);
    // And back again: no session is lost that was not lost before.
    if stays {
        let done = wire.reconfigure(config(peer()));
        let done = done.expect("taken");
        assert!(done.reset.is_empty() && done.removed.is_empty());
        wire.settle();
        assert_eq!(wire.prefixes().len(), 2, "{}", row.name);
        assert_eq!(wire.state(three), State::Established);
    }
    (received, done, wire.prefixes().len())
}

// Promise (BGP): A reload resets only the sessions that it must reset, and every peer holds what
// its current policy allows.
#[test]
fn the_table_is_what_a_living_session_sees() {
    for row in PEER_KEYS {
        let (received, done, _) = flip(row);
        let field = row.name;
        let asks = received
            .iter()
            .any(|received| matches!(received, Received::Refresh(_)));
        let is_route =
            |received: &Received| matches!(received, Received::Reach(_) | Received::Unreach(_));
        let has_routes = received.iter().any(is_route);
        match row.effect {
            Effect::Live | Effect::Reevaluated => assert_eq!(received, [], "{field}"),
            Effect::Refreshed => assert!(asks && !has_routes, "{field}: {received:?}"),
            Effect::Readvertised => assert!(has_routes && !asks, "{field}: {received:?}"),
            Effect::NextSession => {
                assert_eq!(
                    (received, &*done.later),
                    (vec![], &["n3".into()][..]),
                    "{field}"
                );
            }
            Effect::Renegotiated | Effect::Reset => {
                let ended = done.reset.len() + done.removed.len();
                assert_eq!(ended, 1, "{field}: {done:?}");
                assert!(
                    matches!(received[..], [Received::Notification(_)]),
                    "{field}: {received:?}"
                );
            }
        }
        let waits = matches!(row.effect, Effect::NextSession);
        assert_eq!(!done.later.is_empty(), waits, "{field}");
    }
}

/// A session whose OPENs negotiate the same result with the new configuration need not be reset.
#[test]
fn unoffered_capability_resets_no_session() {
    let settled = PEER_KEYS.iter();
    for row in settled.filter(|row| row.effect == Effect::Renegotiated) {
        if ["local_asn", "local_id", "families"].contains(&row.name) {
            continue; // Decided by the speaker alone, or offered by the peer in any case.
        }
        let mut wire = Wire::new(config(peer()));
        let three = wire.connect(3, &open(3));
        let mut new = peer();
        match row.name {
            "asn" => new.session.peer_asn = PeerAs::Exactly(Asn(64_512)),
            _ => change(row, &mut new),
        }
        let done = wire.reconfigure(config(new));
        assert_eq!(done.expect("taken").later, ["n3"], "{}", row.name);
        assert_eq!(wire.state(three), State::Established, "{}", row.name);
    }
}

#[test]
fn a_source_that_is_the_one_in_use_changes_nothing() {
    let mut wire = Wire::new(config(peer()));
    let three = wire.connect(3, &open(3));
    for local in [Some(IpAddr::V4(address(1))), None] {
        let mut new = peer();
        new.local = local;
        let done = wire.reconfigure(config(new));
        assert_eq!(done, Ok(Reconfigured::default()));
    }
    assert_eq!(wire.state(three), State::Established);
}

#[test]
fn keys_that_differ_are_listed() {
    let mut new = peer();
    (new.import, new.session.hold_time_s) = (Policy::RejectAll, 30);
    let keys: Vec<&str> = changes(&peer(), &new).map(|row| row.name).collect();
    assert_eq!(keys, ["hold_time", "import"]);
}
