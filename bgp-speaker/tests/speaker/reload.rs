//! A new configuration with sessions that stay established.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bgp_fsm::{Instant, State};
use bgp_proto::{Attributes, Capability, Family, Open, RouteRefresh};
use bgp_speaker::{
    Input, NeedsRestart, PeerConfig, PrefixLimit, Reconfigured, Speaker, SpeakerConfig,
};
use proptest::prelude::*;
use rib::{Budget, NextHopMode, PeerId, Policy, PrefixRange, Progress, Role};
use testkit::fixture::{address, clients, graceful_open, neighbor, open, prefix, speaker_config};
use testkit::{Received, Update};

use super::wire::{Wire, block};

const V4: Family = Family::IPV4_UNICAST;
const FOUR: [&str; 4] = [
    "10.65.0.1/32",
    "10.65.0.2/32",
    "10.65.0.3/32",
    "10.65.0.4/32",
];

/// Returns clients 2 and 3 by address, the latter as `edit` configures it, and a range.
fn config(edit: impl FnOnce(&mut PeerConfig)) -> SpeakerConfig {
    let mut config = speaker_config(1);
    for number in [2, 3] {
        let mut peer = neighbor(1, number, Role::Client);
        peer.session.passive = true;
        config.peers.push(peer);
    }
    edit(&mut config.peers[1]);
    config.ranges.push(clients(1, 10));
    config
}

fn connected(edit: impl FnOnce(&mut PeerConfig)) -> (Wire, PeerId, PeerId) {
    let mut wire = Wire::new(config(edit));
    let two = wire.connect(2, &open(2));
    let three = wire.connect(3, &open(3));
    (wire, two, three)
}

fn reload(wire: &mut Wire, new: SpeakerConfig) -> (Vec<String>, Vec<String>) {
    let done = wire.reconfigure(new).expect("taken");
    wire.settle();
    assert!(done.added.is_empty());
    (done.removed, done.reset)
}

/// Asserts that the reload resets no session.
fn gently(wire: &mut Wire, new: SpeakerConfig) {
    assert_eq!(reload(wire, new), (vec![], vec![]));
}

fn asked() -> Received {
    Received::Refresh(RouteRefresh::request(V4))
}

#[test]
fn new_export_policy_updates_the_peer_without_a_reset() {
    let (mut wire, two, three) = connected(|_| {});
    wire.send(two, Update::reach(FOUR));
    wire.received(three);
    gently(&mut wire, config(|peer| peer.export = Policy::RejectAll));
    let all: Vec<String> = FOUR.iter().map(|&net| net.into()).collect();
    assert_eq!(wire.received(three), [Received::Unreach(all.clone())]);
    assert!(wire.received(two).is_empty(), "no business of the others");
    wire.send(two, Update::unreach(&FOUR[3..]));
    let received = wire.received(three);
    assert!(
        received
            .iter()
            .all(|received| matches!(received, Received::Unreach(_))),
        "{received:?}"
    );
    gently(&mut wire, config(|_| {}));
    let received = wire.received(three);
    // It may receive withdrawals of routes that it does not have.
    assert!(
        received.ends_with(&[Received::Reach(all[..3].to_vec())]),
        "{received:?}"
    );
    wire.send(two, Update::reach(&FOUR[3..]));
    assert_eq!(wire.received(three), [Received::Reach(all[3..].to_vec())]);
    assert_eq!(wire.state(three), State::Established);
}

#[test]
fn changed_next_hop_is_advertised_with_all_routes() {
    let (mut wire, two, three) = connected(|_| {});
    wire.send(two, Update::reach(&FOUR[..1]));
    wire.received(three);
    gently(&mut wire, config(|peer| peer.next_hop = NextHopMode::Own));
    assert_eq!(
        wire.received(three),
        [Received::Reach(vec![FOUR[0].into()])]
    );
}

#[test]
fn changed_import_policy_applies_to_received_routes() {
    let mut wire = Wire::new(config(|_| {}));
    let mut plain: Open = open(3);
    plain
        .capabilities
        .retain(|c| *c != Capability::RouteRefresh);
    let two = wire.connect(2, &open(2));
    let three = wire.connect(3, &plain);
    wire.send(three, Update::reach(FOUR));
    wire.received(two);
    gently(&mut wire, config(|peer| peer.import = Policy::RejectAll));
    assert!(wire.prefixes().is_empty());
    let all: Vec<String> = FOUR.iter().map(|&net| net.into()).collect();
    assert_eq!(wire.received(two), [Received::Unreach(all.clone())]);
    gently(&mut wire, config(|_| {}));
    assert_eq!(wire.prefixes(), FOUR);
    assert_eq!(wire.received(two), [Received::Reach(all)]);
    assert!(wire.received(three).is_empty(), "nothing is asked for");
}

#[test]
fn range_is_evaluated_again_in_steps_and_without_messages() {
    let (mut wire, two, three) = connected(|_| {});
    wire.send(two, block(1));
    wire.received(three);
    let range = PrefixRange::inside("0.0.0.0/0".parse().expect("a prefix"));
    let input = Input::Reevaluate { family: V4, range };
    let now = wire.now();
    wire.speaker_mut().handle(now, input);
    let mut steps = 1;
    while wire.speaker_mut().run(now, Budget(10)) == Progress::More {
        steps += 1;
    }
    // 250 routes, a unit each; a step may exceed its budget by the routes of one unit's prefixes.
    assert!((13..=50).contains(&steps), "{steps} steps");
    assert!(wire.received(two).is_empty() && wire.received(three).is_empty());
    assert_eq!(wire.prefixes().len(), 250);
}

#[test]
fn peer_that_restarts_during_a_reload_keeps_its_routes() {
    let graceful = |peer: &mut PeerConfig| {
        peer.session.graceful_restart = Some(bgp_fsm::GracefulRestartConfig::default());
    };
    let mut wire = Wire::new(config(graceful));
    let three = wire.connect(3, &graceful_open(3, |_| {}));
    wire.send(three, Update::reach(FOUR));
    wire.lose(three);
    gently(&mut wire, config(graceful));
    assert_eq!(wire.prefixes(), FOUR);
    // A key that also affects its next session.
    let slower = |peer: &mut PeerConfig| {
        graceful(peer);
        peer.session.hold_time_s = 30;
        peer.password = Some("other".into());
    };
    gently(&mut wire, config(slower));
    assert_eq!(wire.prefixes(), FOUR);
    let deny = |peer: &mut PeerConfig| {
        slower(peer);
        peer.import = Policy::RejectAll;
    };
    gently(&mut wire, config(deny));
    assert!(wire.prefixes().is_empty());
    gently(&mut wire, config(slower));
    assert_eq!(wire.prefixes(), FOUR);
    wire.connect(3, &graceful_open(3, |_| {}));
    assert_eq!(wire.prefixes(), FOUR);
}

#[test]
fn raised_limit_accepts_refused_paths() {
    let limit = |max| {
        move |peer: &mut PeerConfig| {
            let limit = PrefixLimit::new(max).with_warning(100);
            peer.prefix_limits.insert(V4, limit);
        }
    };
    let (mut wire, _, three) = connected(limit(2));
    wire.send(three, Update::reach(FOUR));
    assert_eq!(wire.prefixes().len(), 2);
    wire.received(three);
    gently(&mut wire, config(limit(4)));
    assert!(wire.received(three).contains(&asked()));
    wire.send(three, Update::reach(FOUR));
    assert_eq!(wire.prefixes(), FOUR);
}

#[test]
fn a_range_changes_around_its_clients() {
    let mut wire = Wire::new(config(|_| {}));
    let two = wire.connect(2, &open(2));
    let client = wire.connect(7, &open(7));
    wire.send(two, Update::reach(&FOUR[..1]));
    wire.received(client);
    let change = |edit: &dyn Fn(&mut bgp_speaker::RangeConfig)| {
        let mut new = config(|_| {});
        edit(&mut new.ranges[0]);
        new
    };
    gently(&mut wire, change(&|range| range.limit = 1));
    assert!(wire.dial(8).is_err(), "full now");
    gently(&mut wire, change(&|range| range.name = "others".into()));
    assert_eq!(wire.speaker().peer_name(client), "others-10.0.0.7");
    let deny = change(&|range| range.template.export = Policy::RejectAll);
    gently(&mut wire, deny.clone());
    assert_eq!(
        wire.received(client),
        [Received::Unreach(vec![FOUR[0].into()])]
    );
    // Another range beside it, which precedes it, changes nothing.
    let mut more = deny;
    let mut other = clients(1, 5);
    other.prefix = "10.9.0.0/24".parse().expect("a prefix");
    more.ranges.insert(0, other);
    gently(&mut wire, more.clone());
    assert_eq!(wire.state(client), State::Established);
    gently(&mut wire, more);
    // The negotiated result of both OPENs cannot change in a session; and a range may be removed.
    let ipv4 = change(&|range| range.template.session.families = V4.into());
    assert_eq!(reload(&mut wire, ipv4).0, ["nodes-10.0.0.7"]);
    let client = wire.connect(7, &open(7));
    let mut none = config(|_| {});
    none.ranges.clear();
    assert_eq!(reload(&mut wire, none).0, ["nodes-10.0.0.7"]);
    assert_ne!(wire.state(client), State::Established);
}

/// A client of a range is configured by its address, and is a client of the range again: its
/// session stays established, and its routes stay.
#[test]
fn a_client_of_a_range_becomes_a_neighbor_and_back() {
    let mut wire = Wire::new(config(|_| {}));
    let client = wire.connect(7, &open(7));
    wire.send(client, Update::reach(FOUR));
    let mut named = config(|_| {});
    let mut peer = neighbor(1, 7, Role::Client);
    peer.session.passive = true;
    named.peers.push(peer);
    let is_dynamic = |wire: &Wire| {
        let mut peers = wire.speaker().peers();
        let peer = peers.find(|peer| peer.id == client).expect("there");
        (peer.dynamic, peer.session.state())
    };
    for _ in 0..2 {
        assert_eq!(is_dynamic(&wire), (true, State::Established));
        gently(&mut wire, named.clone());
        assert_eq!(is_dynamic(&wire), (false, State::Established));
        gently(&mut wire, config(|_| {}));
    }
    assert_eq!(wire.prefixes(), FOUR);
    // It stays although the range has no room for a new peer; a peer without a session is removed.
    gently(&mut wire, named);
    let mut full = config(|_| {});
    full.ranges[0].limit = 0;
    gently(&mut wire, full.clone());
    assert_eq!(is_dynamic(&wire), (true, State::Established));
    full.peers.remove(1);
    assert_eq!(reload(&mut wire, full).0, ["n3"]);
}

/// A client that has connected and not yet sent its OPEN is not rejected.
#[test]
fn connecting_client_survives_a_change_of_its_range() {
    let mut wire = Wire::new(config(|_| {}));
    let client = wire.dial(7).expect("room");
    wire.settle();
    assert_eq!(wire.state(client), State::OpenSent);
    gently(&mut wire, config(|peer| peer.export = Policy::RejectAll));
    assert_eq!(wire.state(client), State::OpenSent);
    assert!(wire.is_open(client));
}

/// Returns a connection of client 7 from which nothing has been read yet.
fn accept(wire: &mut Wire) -> Option<PeerId> {
    let [local, remote] = [1, 7].map(|number| SocketAddr::from((address(number), 179)));
    let now = wire.now();
    let accepted = wire.speaker_mut().accept(now, local, remote).ok()?;
    Some(accepted.0)
}

/// A client was sent a Cease that it does not read, and opens another connection: the new one has
/// the address for itself, whatever is configured in the meantime.
#[test]
fn peer_that_does_not_read_is_closed_once() {
    let mut wire = Wire::new(config(|_| {}));
    let former = wire.connect(7, &open(7));
    let mut none = config(|_| {});
    none.ranges.clear();
    let take = |wire: &mut Wire, new| wire.reconfigure(new).expect("taken");
    assert_eq!(take(&mut wire, none).removed, ["nodes-10.0.0.7"]);
    assert_eq!(take(&mut wire, config(|_| {})), Reconfigured::default());
    let again = accept(&mut wire).expect("room");
    assert_ne!(again, former);
    assert_eq!(take(&mut wire, config(|_| {})), Reconfigured::default());
    let second = accept(&mut wire);
    assert_eq!(second, Some(again), "one peer at an address");
}

/// Another range covers a client from now on.
#[test]
fn client_moves_to_another_range_without_reset() {
    let mut wire = Wire::new(config(|_| {}));
    let client = wire.connect(7, &open(7));
    let mut new = config(|_| {});
    let mut own = clients(1, 1);
    own.name = "own".into();
    own.prefix = "10.0.0.7/32".parse().expect("a prefix");
    new.ranges.push(own);
    gently(&mut wire, new);
    assert_eq!(wire.state(client), State::Established);
    assert_eq!(wire.speaker().peer_name(client), "own-10.0.0.7");
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Announce(u8),
    Withdraw(u8),
    Export(bool),
    NextHop(bool),
    Refresh,
    Run(u32),
    /// The peer reads only some octets.
    Read(usize),
    Settle,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0_u8..40).prop_map(Op::Announce),
        4 => (0_u8..40).prop_map(Op::Withdraw),
        2 => any::<bool>().prop_map(Op::Export),
        1 => any::<bool>().prop_map(Op::NextHop),
        1 => Just(Op::Refresh),
        3 => (1_u32..8).prop_map(Op::Run),
        3 => (1_usize..200).prop_map(Op::Read),
        1 => Just(Op::Settle),
    ]
}

fn own(wire: &mut Wire, number: u8, there: bool) {
    let net = format!("10.66.0.{number}/32");
    let attributes = there.then(Attributes::default);
    let input = Input::Local {
        family: V4,
        net: prefix(&net),
        attributes,
        interface: None,
    };
    let now = wire.now();
    wire.speaker_mut().handle(now, input);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    // Promise: as bgp-speaker the_table_is_what_a_living_session_sees
    /// For any progress of the table dumps at policy changes, the peer finally holds the routes of
    /// the last policy.
    #[test]
    fn adj_rib_out_is_that_of_the_last_policy(ops in prop::collection::vec(op(), 1..60)) {
        let (mut wire, _, three) = connected(|_| {});
        let (mut held, mut wanted) = (BTreeSet::<String>::new(), BTreeSet::new());
        let (mut export, mut next_hop) = (Policy::AcceptAll, NextHopMode::Auto);
        let update = |wire: &mut Wire, held: &mut BTreeSet<String>| {
            for received in wire.received_so_far(three) {
                match received {
                    Received::Reach(nets) => held.extend(nets),
                    Received::Unreach(nets) => nets.iter().for_each(|net| { held.remove(net); }),
                    _ => {}
                }
            }
        };
        for op in ops {
            match op {
                Op::Announce(n) => {
                    own(&mut wire, n, true);
                    wanted.insert(format!("10.66.0.{n}/32"));
                }
                Op::Withdraw(n) => {
                    own(&mut wire, n, false);
                    wanted.remove(&format!("10.66.0.{n}/32"));
                }
                Op::Export(_) | Op::NextHop(_) => {
                    match op {
                        Op::Export(true) => export = Policy::AcceptAll,
                        Op::Export(_) => export = Policy::RejectAll,
                        Op::NextHop(true) => next_hop = NextHopMode::Own,
                        _ => next_hop = NextHopMode::Auto,
                    }
                    let new = config(|peer| (peer.export, peer.next_hop) = (export.clone(), next_hop));
                    let done = wire.reconfigure(new).expect("taken");
                    prop_assert!(done.reset.is_empty() && done.removed.is_empty());
                }
                Op::Refresh => wire.send_only(three, RouteRefresh::request(V4)),
                Op::Run(prefixes) => {
                    let now = wire.now();
                    let _ = wire.speaker_mut().run(now, Budget(prefixes));
                }
                Op::Read(octets) => wire.take_some(three, octets),
                Op::Settle => {
                    wire.settle();
                    update(&mut wire, &mut held);
                }
            }
        }
        wire.settle();
        update(&mut wire, &mut held);
        if export == Policy::RejectAll {
            wanted.clear();
        }
        prop_assert_eq!(held, wanted);
    }
}

#[test]
fn tables_are_made_as_the_speaker_is_configured() {
    let mut config = speaker_config(1);
    config.decision.always_compare_med = true;
    config.limits.log_entries_min = 3;
    let mut speaker = Speaker::new(config.clone(), 1);
    let made = speaker.rib().config().clone();
    assert_eq!(
        (made.decision, made.limits),
        (config.decision, config.limits)
    );
    assert_eq!(made, config.rib());

    let mut other = config.clone();
    other.decision.always_compare_med = false;
    let refused = speaker.reconfigure(Instant::ZERO, other);
    assert_eq!(refused, Err(NeedsRestart::Decision));
    let mut other = config.clone();
    other.limits.tombstones_max = 1;
    let refused = speaker.reconfigure(Instant::ZERO, other);
    assert_eq!(refused, Err(NeedsRestart::Limits));
    assert!(speaker.reconfigure(Instant::ZERO, config).is_ok());
}
