//! Graceful restart as the restarting speaker (RFC 4724 §4.1): the awaited peers, and events during
//! the wait.

use std::collections::BTreeSet;
use std::{net::IpAddr, time::Duration};

use bgp_fsm::GracefulRestartConfig;
use bgp_proto::{Capability, Family, FamilySet, GracefulRestart, Open, RouteRefresh};
use bgp_speaker::{Event, Restart, SpeakerConfig};
use rib::{Budget, PeerId, Progress};
use testkit::fixture::{address, clients, graceful_open, neighbor, open, speaker_config};
use testkit::{EndOfRib, Received, Update};

use super::wire::Wire;

pub(super) const V4: Family = Family::IPV4_UNICAST;
pub(super) const V6: Family = Family::IPV6_UNICAST;
pub(super) const WAIT: u64 = 90;

fn graceful() -> Option<GracefulRestartConfig> {
    Some(GracefulRestartConfig::default())
}

/// Returns a reflector with the configured client 2 and a range.
pub(super) fn config() -> SpeakerConfig {
    let mut config = speaker_config(1);
    let mut client = neighbor(1, 2, rib::Role::Client);
    client.session.passive = true;
    client.session.graceful_restart = graceful();
    config.peers.push(client);
    let mut range = clients(1, 10);
    range.template.session.graceful_restart = graceful();
    config.ranges.push(range);
    config
}

/// Returns the reflector after a restart, with client 3 from its former process.
pub(super) fn restarted(own_routes: bool) -> Wire {
    Wire::prepared(config(), |speaker| {
        speaker.restarted(
            Restart::new(Duration::from_secs(WAIT))
                .with_dynamic(BTreeSet::from([IpAddr::V4(address(3))]))
                .with_own_routes(own_routes),
        );
    })
}

/// Returns the OPEN of a client that lists both families without the Restart State bit.
pub(super) fn client(number: usize) -> Open {
    graceful_open(number, |graceful| graceful.families.push((V6, true)))
}

pub(super) fn whole(wire: &mut Wire, peer: PeerId) {
    wire.send(peer, EndOfRib(V4));
    wire.send(peer, EndOfRib(V6));
}

fn our_graceful(received: &[Received]) -> GracefulRestart {
    let opens = received.iter().filter_map(|received| match received {
        Received::Open(open) => Some(open),
        _ => None,
    });
    let mut capabilities = opens.flat_map(|open| open.capabilities.clone());
    let found = capabilities.find_map(|capability| match capability {
        Capability::GracefulRestart(graceful) => Some(graceful),
        _ => None,
    });
    found.expect("we restart gracefully")
}

// Promise (BGP): A restart of either side withdraws no route, and stale routes are kept for a
// limited time.
#[test]
fn routes_are_deferred_until_all_peers_sent_end_of_rib() {
    let mut wire = restarted(false);
    let two = wire.connect(2, &client(2));
    wire.send(two, Update::reach(["10.65.0.2/32"]));
    whole(&mut wire, two);
    wire.pass(30, &[two]);
    assert!(
        wire.received(two).is_empty(),
        "no route, and no End-of-RIB marker"
    );
    let three = wire.connect(3, &client(3));
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    assert!(wire.received(two).is_empty() && wire.received(three).is_empty());
    wire.send(three, EndOfRib(V4));
    let expected = vec![
        Received::Reach(vec!["10.65.0.3/32".into()]),
        Received::EndOfRib(V4),
    ];
    assert_eq!(
        wire.received(two),
        expected,
        "everything, and only then the marker"
    );
    assert_eq!(wire.speaker().deferred(), V6.into(), "family by family");
    wire.send(three, EndOfRib(V6));
    assert_eq!(wire.received(two), [Received::EndOfRib(V6)]);
    assert!(wire.speaker().deferred().is_empty() && wire.speaker().awaited().is_empty());
    let selected = wire
        .events()
        .iter()
        .filter(|e| matches!(e, Event::Selected { .. }));
    assert_eq!(selected.count(), 2);
    // Later changes are sent at once, and a client that is established later is served at once.
    wire.send(three, Update::reach(["10.65.0.9/32"]));
    assert_eq!(
        wire.received(two),
        [Received::Reach(vec!["10.65.0.9/32".into()])]
    );
    let four = wire.dial(4).expect("admitted");
    assert!(
        !our_graceful(&wire.received(four)).restart_state,
        "R: the restart is over"
    );
}

#[test]
fn absent_peer_is_awaited_until_timeout() {
    let mut wire = restarted(false);
    let two = wire.connect(2, &client(2));
    whole(&mut wire, two);
    wire.pass(WAIT - 1, &[two]);
    assert!(wire.received(two).is_empty());
    assert_eq!(
        wire.speaker().awaited(),
        BTreeSet::from([Some(IpAddr::V4(address(3)))])
    );
    wire.pass(1, &[two]);
    assert_eq!(
        wire.received(two),
        [Received::EndOfRib(V4), Received::EndOfRib(V6)]
    );
}

/// RFC 4724 §4.1; and only the families that the peer lists and the session carries.
#[test]
fn peer_without_end_of_rib_is_not_awaited() {
    let awaited = |open: &Open| -> Vec<Family> {
        let mut wire = restarted(false);
        let three = wire.connect(3, &client(3));
        whole(&mut wire, three);
        wire.connect(2, open);
        wire.speaker().deferred().iter().collect()
    };
    assert_eq!(awaited(&client(2)), [V4, V6]);
    assert_eq!(awaited(&open(2)), [], "no graceful restart");
    let restarting = graceful_open(2, |graceful| graceful.restart_state = true);
    assert_eq!(awaited(&restarting), [], "it might wait for ours");
    assert_eq!(
        awaited(&graceful_open(2, |_| {})),
        [V4],
        "it lists one family"
    );
    let helper = graceful_open(2, |graceful| graceful.families.clear());
    assert_eq!(
        awaited(&helper),
        [V4, V6],
        "a helper alone lists none and sends all markers"
    );
    let mut narrow = graceful_open(2, |graceful| graceful.families = vec![(V6, true)]);
    narrow
        .capabilities
        .retain(|c| *c != Capability::MultiProtocol(V6));
    assert_eq!(awaited(&narrow), [], "a family of another session");
}

#[test]
fn two_that_restart_at_once_do_not_wait_for_each_other() {
    let mut wire = restarted(false);
    let both = |number| graceful_open(number, |graceful| graceful.restart_state = true);
    let (two, received) = wire.greet(2, &both(2));
    assert_eq!(received, []);
    let markers = [Received::EndOfRib(V4), Received::EndOfRib(V6)];
    assert_eq!(wire.greet(3, &both(3)).1, markers);
    assert_eq!(wire.received(two), markers);
}

/// A non-client peer, such as another reflector, receives the clients' routes before it must send
/// its own: so it is awaited although it has restarted as well, and the markers sent to clients
/// cover the whole fabric.
#[test]
fn restarting_reflectors_sync_before_their_clients() {
    for restart_state in [false, true] {
        let mut config = config();
        let mut non_client = neighbor(1, 9, rib::Role::Internal);
        non_client.session.passive = true;
        non_client.session.graceful_restart = graceful();
        config.peers.push(non_client);
        let mut wire = Wire::prepared(config, |speaker| {
            speaker.restarted(Restart::new(Duration::from_secs(WAIT)));
        });
        let nine = graceful_open(9, |graceful| {
            graceful.families.push((V6, true));
            graceful.restart_state = restart_state;
        });
        let (nine, received) = wire.greet(9, &nine);
        assert_eq!(received, [], "our clients' routes are not there yet");
        let two = wire.connect(2, &client(2));
        wire.send(two, Update::reach(["10.65.0.2/32"]));
        whole(&mut wire, two);
        let expected = vec![
            Received::Reach(vec!["10.65.0.2/32".into()]),
            Received::EndOfRib(V4),
            Received::EndOfRib(V6),
        ];
        assert_eq!(
            wire.received(nine),
            expected,
            "all that a non-client receives"
        );
        assert_eq!(
            wire.received(two),
            [],
            "routes of the other reflector's clients are not sent yet"
        );
        let waits_for = BTreeSet::from([Some(IpAddr::V4(address(9)))]);
        assert_eq!(wire.speaker().awaited(), waits_for);
        wire.send(nine, Update::reach(["10.65.0.9/32"]));
        assert_eq!(wire.received(two), []);
        whole(&mut wire, nine);
        let expected = vec![
            Received::Reach(vec!["10.65.0.9/32".into()]),
            Received::EndOfRib(V4),
            Received::EndOfRib(V6),
        ];
        assert_eq!(
            wire.received(two),
            expected,
            "everything, and only then the markers"
        );
        let again = wire.received(nine).into_iter();
        let again: Vec<_> = again
            .filter(|h| !matches!(h, Received::Unreach(_)))
            .collect();
        assert_eq!(again, [], "no route is sent twice");
    }
}

/// Reflectors that were all down for long register one after the other.
#[test]
fn peer_configured_during_the_deferral_is_awaited() {
    let mut wire = restarted(false);
    let two = wire.connect(2, &client(2));
    whole(&mut wire, two);
    let mut more = config();
    let mut non_client = neighbor(1, 9, rib::Role::Internal);
    non_client.session.passive = true;
    non_client.session.graceful_restart = graceful();
    more.peers.push(non_client);
    wire.reconfigure(more).expect("taken");
    let three = wire.connect(3, &client(3));
    whole(&mut wire, three);
    let waits_for = BTreeSet::from([Some(IpAddr::V4(address(9)))]);
    assert_eq!(wire.speaker().awaited(), waits_for);
    wire.reconfigure(config()).expect("taken");
    assert_eq!(
        wire.received(two),
        [Received::EndOfRib(V4), Received::EndOfRib(V6)]
    );
}

/// Its peers are hosts, which advertise their own routes only.
#[test]
fn new_peer_of_a_speaker_without_clients_is_not_awaited() {
    let internal = |number| {
        let mut peer = neighbor(1, number, rib::Role::Internal);
        peer.session.passive = true;
        peer.session.graceful_restart = graceful();
        peer
    };
    let config = speaker_config(1).with_peer(internal(2));
    let mut wire = Wire::prepared(config.clone(), |speaker| {
        speaker.restarted(Restart::new(Duration::from_secs(WAIT)));
    });
    let more = config.with_peer(internal(9));
    wire.reconfigure(more).expect("taken");
    let waits_for = BTreeSet::from([Some(IpAddr::V4(address(2)))]);
    assert_eq!(wire.speaker().awaited(), waits_for);
}

/// A late non-client peer receives all routes; one that stays away is not awaited forever.
#[test]
fn silent_non_client_does_not_delay_another_one() {
    let mut config = config();
    for number in [8, 9] {
        let mut non_client = neighbor(1, number, rib::Role::Internal);
        non_client.session.passive = true;
        non_client.session.graceful_restart = graceful();
        config.peers.push(non_client);
    }
    let mut wire = Wire::prepared(config, |speaker| {
        speaker.restarted(Restart::new(Duration::from_secs(WAIT)));
    });
    let two = wire.connect(2, &client(2));
    whole(&mut wire, two);
    let markers = [Received::EndOfRib(V4), Received::EndOfRib(V6)];
    let (nine, received) = wire.greet(9, &client(9));
    assert_eq!(received, markers);
    whole(&mut wire, nine);
    wire.pass(WAIT - 1, &[two, nine]);
    assert_eq!(wire.received(two), []);
    wire.pass(1, &[two, nine]);
    assert_eq!(wire.received(two), markers);
    assert_eq!(wire.received(nine), []);
}

#[test]
fn open_lists_families_with_kept_forwarding_state() {
    let mut wire = restarted(false);
    let two = wire.dial(2).expect("admitted");
    let graceful_restart = our_graceful(&wire.received(two));
    assert!(graceful_restart.restart_state && graceful_restart.notification);
    assert_eq!(graceful_restart.families, [(V4, true), (V6, true)]);

    // The client's machine has been restarted, too: it has not preserved its forwarding state.
    let mut wire = Wire::prepared(config(), |speaker| {
        speaker.forwarding_kept(FamilySet::EMPTY)
    });
    let two = wire.connect(2, &client(2));
    wire.lose(two);
    let dynamic = wire.dial(5).expect("admitted");
    let graceful_restart = our_graceful(&wire.received(dynamic));
    assert_eq!(
        (graceful_restart.restart_state, graceful_restart.families),
        (false, vec![(V4, false), (V6, false)])
    );
    // After an established session, a lost session does not affect the local forwarding state.
    let two = wire.dial(2).expect("admitted");
    let graceful_restart = our_graceful(&wire.received(two));
    assert_eq!(graceful_restart.families, [(V4, true), (V6, true)]);
}

#[test]
fn first_start_defers_no_routes() {
    let mut wire = Wire::new(config());
    let (_, received) = wire.greet(2, &client(2));
    assert_eq!(received, [Received::EndOfRib(V4), Received::EndOfRib(V6)]);
    assert!(wire.speaker().deferred().is_empty());
}

#[test]
fn selection_waits_for_own_routes_of_the_program() {
    let mut wire = restarted(true);
    let two = wire.connect(2, &client(2));
    let three = wire.connect(3, &client(3));
    for peer in [two, three] {
        whole(&mut wire, peer);
    }
    assert_eq!(wire.speaker().awaited(), BTreeSet::from([None]));
    wire.network.announce(1, "10.65.1.1/32");
    assert!(wire.received(two).is_empty());
    wire.speaker_mut().own_routes_complete();
    assert_eq!(
        wire.received(two),
        [
            Received::Reach(vec!["10.65.1.1/32".into()]),
            Received::EndOfRib(V4),
            Received::EndOfRib(V6)
        ]
    );
}

#[test]
fn readers_see_nothing_half_chosen() {
    let mut wire = restarted(false);
    let reader = wire.speaker_mut().add_reader();
    let two = wire.connect(2, &client(2));
    wire.send(two, Update::reach(["10.65.0.2/32"]));
    let read = |wire: &mut Wire| {
        let mut changes = 0;
        let progress = wire
            .speaker_mut()
            .read(reader, V4, Budget(100), &mut |_| changes += 1);
        assert_eq!(progress, Progress::Done);
        changes
    };
    assert_eq!(read(&mut wire), 0);
    wire.pass(WAIT, &[two]);
    assert_eq!(read(&mut wire), 1);
}

#[test]
fn refreshes_and_losses_during_the_wait_do_no_harm() {
    let mut wire = restarted(false);
    let two = wire.connect(2, &client(2));
    wire.send(two, RouteRefresh::request(V4));
    assert!(wire.received(two).is_empty());
    wire.lose(two);
    assert_eq!(wire.speaker().awaited().len(), 2, "it may come back");
    let two = wire.connect(2, &client(2));
    let three = wire.connect(3, &client(3));
    wire.send(three, Update::reach(["10.65.0.3/32"]));
    wire.lose(three);
    whole(&mut wire, two);
    wire.pass(59, &[two]);
    assert_eq!(
        wire.prefixes(),
        ["10.65.0.3/32"],
        "client 3 has its own time to come back"
    );
    wire.pass(WAIT - 59, &[two]);
    let markers = [Received::EndOfRib(V4), Received::EndOfRib(V6)];
    assert_eq!(wire.received(two), markers, "a withdrawn route is not sent");
}

#[test]
fn removed_peer_is_not_awaited() {
    let mut wire = restarted(false);
    let three = wire.connect(3, &client(3));
    whole(&mut wire, three);
    let mut fewer = config();
    fewer.peers.clear();
    wire.reconfigure(fewer).expect("taken");
    assert!(wire.speaker().deferred().is_empty());
    assert_eq!(
        wire.received(three),
        [Received::EndOfRib(V4), Received::EndOfRib(V6)]
    );
}

/// Both at once: a reflector shuts down, its successor starts, and no client receives a withdrawal.
#[test]
fn reflector_stopped_for_a_restart_sends_no_cease() {
    use bgp_proto::{Notification, notification::cease};
    for n_bit in [false, true] {
        let mut wire = Wire::new(config());
        let open = graceful_open(3, |graceful| graceful.notification = n_bit);
        let three = wire.connect(3, &open);
        wire.received(three);
        let why = Notification::cease(cease::ADMINISTRATIVE_SHUTDOWN);
        let now = wire.now();
        wire.speaker_mut().stop_all_for_restart(now, &why);
        let expected: Vec<Received> = n_bit
            .then_some(Received::Notification(why))
            .into_iter()
            .collect();
        assert_eq!(wire.received(three), expected);
    }
}
