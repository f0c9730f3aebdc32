//! Long-lived graceful restart as a helper (RFC 9494 §4).

use bgp_fsm::{GracefulRestartConfig, Instant, PeerAs};
use bgp_proto::notification::cease;
use bgp_proto::{Asn, AttrCode, Capability, Community, Family, LongLivedEntry, Notification, Open};
use bgp_speaker::{Event, SpeakerConfig, limits::STALE_TIME_S};
use rib::{PeerId, Role, Step};
use testkit::fixture::{clients, graceful_open, neighbor, open, prefix, speaker_config};
use testkit::{EndOfRib, OPTIONAL_TRANSITIVE, Received, Update, WELL_KNOWN};

use super::wire::Wire;

const V4: Family = Family::IPV4_UNICAST;
const BOTH: [&str; 2] = ["10.65.0.1/32", "10.65.0.2/32"];
/// The restart time of [`graceful_open`].
const RESTART_S: u64 = 60;
/// The local stale time: the smaller one.
const STALE_S: u64 = 1000;

/// Returns a reflector with a range for clients, and long-lived graceful restart of IPv4 on its side.
fn config() -> SpeakerConfig {
    let mut config = speaker_config(1);
    let mut range = clients(1, 4);
    let session = &mut range.template.session;
    session.graceful_restart = Some(GracefulRestartConfig::default());
    session.long_lived_stale_time_s = [(V4, STALE_S as u32)].into();
    config.ranges.push(range);
    config
}

/// Returns the OPEN of a client with both capabilities, and the F bit of the second.
fn long_lived_open(number: usize, stale_time_s: u32, forwarding: bool) -> Open {
    let mut open = graceful_open(number, |_| {});
    open.capabilities
        .push(Capability::LongLivedGracefulRestart(vec![LongLivedEntry {
            family: V4,
            forwarding,
            stale_time_s,
        }]));
    open
}

fn client_open() -> Open {
    long_lived_open(2, 86_400, true)
}

/// Returns a reflector with client 2, which has announced two prefixes.
fn reflector() -> (Wire, PeerId) {
    let mut wire = Wire::new(config());
    let client = wire.connect(2, &client_open());
    wire.send(client, Update::reach(BOTH));
    wire.send(client, EndOfRib(V4));
    assert_eq!(wire.prefixes(), BOTH);
    (wire, client)
}

/// Returns whether the path of client 2 to the first prefix has LLGR_STALE.
fn is_llgr_stale(wire: &Wire) -> bool {
    let view = wire.speaker().rib().lookup(V4, prefix(BOTH[0]));
    let view = view.expect("a route");
    let path = view
        .paths
        .iter()
        .find(|path| path.stale)
        .expect("a stale path");
    let accepted = path.accepted.as_ref().expect("accepted");
    accepted.communities.contains(&Community::LLGR_STALE)
}

fn with_community(nets: &[&str], community: Community) -> Update {
    Update::reach(nets).with(
        OPTIONAL_TRANSITIVE,
        AttrCode::Communities,
        &community.0.to_be_bytes(),
    )
}

#[test]
fn stale_paths_stay_for_the_smaller_stale_time() {
    let (mut wire, client) = reflector();
    wire.lose(client);
    wire.pass(RESTART_S - 1, &[]);
    assert!(!is_llgr_stale(&wire));
    wire.pass(1, &[]);
    assert!(is_llgr_stale(&wire));
    let begun = wire
        .take_events()
        .into_iter()
        .filter_map(|event| match event {
            Event::LongLivedStale { peer, families, .. } => Some((peer, families)),
            _ => None,
        });
    assert_eq!(begun.collect::<Vec<_>>(), [(client, V4.into())]);
    wire.pass(STALE_S - 1, &[]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[]);
    assert!(wire.prefixes().is_empty());
    assert_eq!(wire.speaker().peers().count(), 0, "and its place is free");
}

#[test]
fn a_fresh_path_is_preferred_to_every_stale_one() {
    let (mut wire, client) = reflector();
    let other = wire.connect(3, &open(3));
    let worse =
        Update::reach(&BOTH[..1]).replacing(WELL_KNOWN, AttrCode::LocalPref, &1_u32.to_be_bytes());
    wire.send(other, worse);
    wire.lose(client);
    let best = |wire: &Wire| {
        let view = wire.speaker().rib().lookup(V4, prefix(BOTH[0]));
        let view = view.expect("a route");
        let lost = view.paths.iter().find_map(|path| path.lost);
        (view.paths[0].peer, lost)
    };
    assert_eq!(best(&wire), (client, Some(Step::LocalPref)));
    wire.pass(RESTART_S, &[other]);
    assert_eq!(best(&wire), (other, Some(Step::LongLivedStale)));
}

/// Adds the external neighbors 3 and 4, with all routes in both directions.
pub(super) fn with_externals(mut config: SpeakerConfig) -> SpeakerConfig {
    for number in [3, 4] {
        let mut external = neighbor(1, number, Role::External);
        external.session.peer_asn = PeerAs::Any;
        external.import = rib::Policy::AcceptAll;
        external.export = rib::Policy::AcceptAll;
        config.peers.push(external);
    }
    config
}

/// Returns the OPEN of a neighbor in an AS of its own.
pub(super) fn of_other_as(number: usize, mut open: Open) -> Open {
    open.asn = Asn(64_600 + u32::try_from(number).expect("a small number"));
    let capabilities = &mut open.capabilities;
    capabilities.retain(|of| !matches!(of, Capability::FourOctetAsn(_)));
    capabilities.push(Capability::FourOctetAsn(open.asn));
    open
}

#[test]
fn peers_without_the_capability_get_no_stale_path() {
    let mut wire = Wire::new(with_externals(config()));
    let plain = wire.connect(3, &of_other_as(3, open(3)));
    let capable = wire.connect(4, &of_other_as(4, long_lived_open(4, 60, true)));
    let internal = wire.connect(5, &open(5));
    let client = wire.connect(2, &client_open());
    wire.send(client, Update::reach(BOTH));
    wire.send(client, EndOfRib(V4));
    for peer in [plain, capable, internal] {
        assert!(reached(&wire.received(peer)).contains(&BOTH[0].into()));
    }
    wire.lose(client);
    wire.pass(RESTART_S, &[plain, capable, internal]);
    let to_plain = wire.received(plain);
    assert!(
        unreached(&to_plain).contains(&BOTH[0].into()),
        "{to_plain:?}"
    );
    for peer in [capable, internal] {
        let sent = wire.received(peer);
        assert!(reached(&sent).contains(&BOTH[0].into()), "advertised again");
        assert!(unreached(&sent).is_empty());
    }
}

fn reached(received: &[Received]) -> Vec<String> {
    let lists = received.iter().filter_map(|of| match of {
        Received::Reach(nets) => Some(nets.clone()),
        _ => None,
    });
    lists.flatten().collect()
}

fn unreached(received: &[Received]) -> Vec<String> {
    let lists = received.iter().filter_map(|of| match of {
        Received::Unreach(nets) => Some(nets.clone()),
        _ => None,
    });
    lists.flatten().collect()
}

#[test]
fn paths_with_no_llgr_are_removed_after_the_restart_time() {
    let (mut wire, client) = reflector();
    wire.send(client, with_community(&BOTH[..1], Community::NO_LLGR));
    wire.lose(client);
    wire.pass(RESTART_S - 1, &[]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[]);
    assert_eq!(wire.prefixes(), BOTH[1..]);
}

/// RFC 9494 §4.2: the time is not extended, and nothing is removed before it has expired.
#[test]
fn a_second_restart_does_not_extend_the_stale_time() {
    let (mut wire, client) = reflector();
    wire.lose(client);
    wire.pass(RESTART_S + 500, &[]);
    let client = wire.connect(2, &client_open());
    wire.send(client, Update::reach(&BOTH[1..]));
    assert!(is_llgr_stale(&wire));
    wire.lose(client);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(RESTART_S, &[]);
    assert!(is_llgr_stale(&wire));
    wire.pass(STALE_S - 500 - RESTART_S - 1, &[]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[]);
    assert!(wire.prefixes().is_empty());
}

/// RFC 9494 §4.2: if the time expires before the End-of-RIB marker, paths that were not sent again are
/// removed, and the next reset removes the others.
#[test]
fn stale_time_ends_within_a_session() {
    let (mut wire, client) = reflector();
    wire.lose(client);
    wire.pass(RESTART_S + STALE_S - 100, &[]);
    let client = wire.connect(2, &client_open());
    wire.send(client, Update::reach(&BOTH[1..]));
    wire.pass(99, &[client]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[client]);
    assert_eq!(wire.prefixes(), BOTH[1..]);
    wire.lose(client);
    assert!(wire.prefixes().is_empty());
}

#[test]
fn stale_time_ends_within_a_restart_time() {
    let (mut wire, client) = reflector();
    wire.lose(client);
    wire.pass(RESTART_S + STALE_S - 30, &[]);
    let client = wire.connect(2, &client_open());
    wire.lose(client);
    wire.pass(29, &[]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[]);
    assert!(wire.prefixes().is_empty());
}

#[test]
fn smaller_stale_time_applies_to_an_absent_neighbor() {
    let (mut wire, client) = reflector();
    wire.lose(client);
    wire.pass(RESTART_S + 1, &[]);
    let mut shorter = config();
    let session = &mut shorter.ranges[0].template.session;
    session.long_lived_stale_time_s = [(V4, 10)].into();
    wire.reconfigure(shorter).expect("accepted");
    wire.pass(9, &[]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[]);
    assert!(wire.prefixes().is_empty());
}

#[test]
fn reload_without_the_n_bit_resets_no_session() {
    let mut config = config();
    config.ranges[0].template.session.graceful_notification = false;
    let mut wire = Wire::new(config.clone());
    let client = wire.connect(
        2,
        &graceful_open(2, |graceful| graceful.notification = true),
    );
    wire.reconfigure(config).expect("accepted");
    wire.pass(1, &[client]);
    assert_eq!(wire.state(client), bgp_fsm::State::Established);
}

/// RFC 9494 §4.2: the restart time of a family without graceful restart is 0.
#[test]
fn family_of_the_long_lived_capability_only_is_stale_at_once() {
    let mut open = client_open();
    for capability in &mut open.capabilities {
        if let Capability::GracefulRestart(graceful) = capability {
            graceful.families.clear();
        }
    }
    let mut wire = Wire::new(config());
    let client = wire.connect(2, &open);
    wire.send(client, Update::reach(BOTH));
    wire.lose(client);
    assert!(is_llgr_stale(&wire));
    wire.connect(2, &open);
    assert_eq!(wire.prefixes(), BOTH, "by the F bit of that capability");
}

#[test]
fn the_end_of_rib_marker_ends_the_stale_time() {
    let (mut wire, client) = reflector();
    wire.lose(client);
    wire.pass(RESTART_S + 500, &[]);
    let client = wire.connect(2, &client_open());
    wire.send(client, Update::reach(&BOTH[..1]));
    wire.send(client, EndOfRib(V4));
    assert_eq!(wire.prefixes(), BOTH[..1]);
    assert!(
        (wire.speaker().peer(client)).is_some_and(|peer| peer.long_lived_until.is_empty()),
        "a new time begins with the next restart"
    );
    wire.lose(client);
    wire.pass(RESTART_S + STALE_S - 1, &[]);
    assert_eq!(wire.prefixes(), BOTH[..1]);
    wire.pass(1, &[]);
    assert!(wire.prefixes().is_empty());
}

#[test]
fn missing_marker_ends_the_retention() {
    let (mut wire, client) = reflector();
    wire.lose(client);
    wire.pass(RESTART_S + 1, &[]);
    let client = wire.connect(2, &client_open());
    wire.pass(u64::from(STALE_TIME_S) - 1, &[client]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[client]);
    assert!(wire.prefixes().is_empty());
}

/// RFC 9494 §4.2: after the restart time the F bit of the long-lived capability decides.
#[test]
fn a_peer_that_lost_its_forwarding_state_keeps_no_path() {
    for (after, back, is_kept) in [
        (RESTART_S + 1, long_lived_open(2, 60, true), true),
        (RESTART_S + 1, long_lived_open(2, 60, false), false),
        (RESTART_S + 1, graceful_open(2, |_| {}), false),
        (RESTART_S + 1, open(2), false),
        (1, long_lived_open(2, 60, false), true),
    ] {
        let (mut wire, client) = reflector();
        wire.lose(client);
        wire.pass(after, &[]);
        wire.connect(2, &back);
        assert_eq!(!wire.prefixes().is_empty(), is_kept, "{after} s, {back:?}");
    }
}

#[test]
fn stale_time_begins_at_once_without_a_restart_time() {
    let mut open = client_open();
    for capability in &mut open.capabilities {
        if let Capability::GracefulRestart(graceful) = capability {
            graceful.time_s = 0;
            graceful.families.clear();
        }
    }
    let mut wire = Wire::new(config());
    let client = wire.connect(2, &open);
    wire.send(client, Update::reach(BOTH));
    wire.lose(client);
    assert!(is_llgr_stale(&wire));
    wire.pass(STALE_S - 1, &[]);
    assert_eq!(wire.prefixes(), BOTH);
    wire.pass(1, &[]);
    assert!(wire.prefixes().is_empty());
}

#[test]
fn an_end_that_is_no_restart_retains_nothing() {
    let (mut wire, client) = reflector();
    wire.send(client, Notification::cease(cease::ADMINISTRATIVE_SHUTDOWN));
    assert!(wire.prefixes().is_empty());
    for (ours, theirs) in [(0, 60), (60, 0)] {
        let mut config = config();
        let times = [(V4, ours)].into();
        config.ranges[0].template.session.long_lived_stale_time_s = times;
        let mut wire = Wire::new(config);
        let client = wire.connect(2, &long_lived_open(2, theirs, true));
        wire.send(client, Update::reach(BOTH));
        wire.lose(client);
        wire.pass(RESTART_S, &[]);
        assert!(
            wire.prefixes().is_empty(),
            "{ours} s here, {theirs} s there"
        );
    }
}

#[test]
fn stopping_a_neighbor_removes_its_stale_paths() {
    let (mut wire, client) = reflector();
    wire.lose(client);
    wire.pass(RESTART_S + 1, &[]);
    assert_eq!(wire.prefixes(), BOTH);
    let now: Instant = wire.now();
    let why = Notification::cease(cease::ADMINISTRATIVE_SHUTDOWN);
    wire.speaker_mut().stop(now, client, why);
    wire.pass(1, &[]);
    assert!(wire.prefixes().is_empty());
}
