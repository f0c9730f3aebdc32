//! Limits of the paths that a peer is sent (`prefix_limit_out`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bgp_proto::{Attributes, Family, FamilySet};
use bgp_speaker::limits::{FEED_PREFIXES, SENT_PASS_EVERY, SILENT_STEPS_MAX};
use bgp_speaker::{Event, Input, LimitLevel, PrefixLimitsOut, SentPaths, SpeakerConfig};
use proptest::prelude::*;
use rib::{PeerId, Role, SendPaths};
use testkit::Network;
use testkit::fixture::{address, neighbor, prefix, speaker_config};

use super::network;

const V4: Family = Family::IPV4_UNICAST;
const SOON: Duration = Duration::from_secs(30);
/// The clients of reflector 1. Client 5 receives several paths of a prefix.
const CLIENTS: [usize; 4] = [2, 3, 4, 5];
const MANY: usize = 5;
const NETS: usize = 6;

/// The limit of each client; 0 is none.
type Limits = BTreeMap<usize, u32>;

fn reflector(limits: &Limits) -> SpeakerConfig {
    let mut config = speaker_config(1);
    for number in CLIENTS {
        let mut peer = neighbor(1, number, Role::Client);
        peer.session.passive = true;
        if number == MANY {
            peer.session.add_path_send = FamilySet::UNICAST;
            peer.send_paths = [(V4, SendPaths::All)].into();
        }
        let max = limits.get(&number).copied().unwrap_or_default();
        peer.prefix_limits_out = PrefixLimitsOut::of_all(max);
        config.peers.push(peer);
    }
    config
}

fn client(number: usize) -> SpeakerConfig {
    let mut config = speaker_config(number);
    let mut peer = neighbor(number, 1, Role::Internal);
    if number == MANY {
        peer.session.add_path_receive = FamilySet::UNICAST;
    }
    peer.session.connect_retry_s = 5;
    config.peers.push(peer);
    config
}

fn fabric(limits: impl Into<Limits>) -> Network {
    let mut configs = vec![(1, reflector(&limits.into()))];
    configs.extend(CLIENTS.map(|number| (number, client(number))));
    let mut fabric = network(configs);
    fabric.advance(SOON);
    assert_eq!(fabric.established(1).len(), CLIENTS.len());
    fabric
}

fn set_limits(fabric: &mut Network, limits: impl Into<Limits>) {
    let (now, config) = (fabric.now(), reflector(&limits.into()));
    let done = fabric.speaker_mut(1).reconfigure(now, config);
    assert_eq!(done.expect("applied").reset, Vec::<String>::new());
    fabric.settle();
}

fn net(at: usize) -> String {
    format!("10.65.0.{at}/32")
}

/// Returns the received paths of a client: prefix and LOCAL_PREF.
fn held(fabric: &Network, number: usize) -> BTreeSet<(String, u32)> {
    let rib = fabric.speaker(number).rib();
    let paths = rib.prefixes(V4).flat_map(|view| {
        let net = view.net.to_string();
        let paths = view.paths.into_iter();
        let others = paths.filter(|path| path.peer != PeerId::LOCAL);
        others.map(move |path| (net.clone(), path.received.local_pref.unwrap_or_default()))
    });
    paths.collect()
}

/// Returns the state of the limit of a client at the reflector.
fn sent(fabric: &Network, number: usize) -> SentPaths {
    let peers = fabric.speaker(1).peers();
    let mut found = peers.filter(|peer| peer.config.remote == address(number));
    let sent = found.next().expect("a client").sent;
    *sent.iter().find(|sent| sent.family == V4).expect("a limit")
}

fn levels(fabric: &Network) -> Vec<Option<LimitLevel>> {
    let events = fabric.node(1).events.iter();
    let levels = events.filter_map(|event| match event {
        Event::SentLimit { level, .. } => Some(Some(*level)),
        Event::SentLimitCleared { .. } => Some(None),
        _ => None,
    });
    levels.collect()
}

// Promise (BGP): A neighbor with `prefix_limit_out` is never sent more paths of a family
// than that; when a withdrawal makes room, suppressed paths are advertised.
#[test]
fn suppressed_paths_are_sent_when_there_is_room() {
    let mut fabric = fabric([(3, 4)]);
    (0..NETS).for_each(|at| fabric.announce(2, &net(at)));
    fabric.advance(SOON);
    assert_eq!(held(&fabric, 3).len(), 4);
    assert_eq!(held(&fabric, 4).len(), NETS, "no limit");
    let at_limit = sent(&fabric, 3);
    assert_eq!((at_limit.paths, at_limit.peak), (4, 4));
    assert!(at_limit.is_short && at_limit.suppressed >= 2);
    let out = fabric.adj_rib_out(1, V4, address(3).into());
    assert_eq!(out.len(), 4, "what the reflector reports");

    let mut withdrawn: Vec<String> = held(&fabric, 3).into_iter().map(|(net, _)| net).collect();
    withdrawn.truncate(2);
    fabric.withdraw(2, &withdrawn[0]);
    fabric.settle();
    assert!(!fabric.speaker(1).all_sent(), "the room is not used yet");
    fabric.advance(SENT_PASS_EVERY);
    assert_eq!(held(&fabric, 3).len(), 4);
    fabric.withdraw(2, &withdrawn[1]);
    fabric.advance(2 * SENT_PASS_EVERY);
    assert_eq!(held(&fabric, 3), held(&fabric, 4));
    assert!(!sent(&fabric, 3).is_short || sent(&fabric, 3).paths == 4);
}

#[test]
fn own_routes_do_not_count_for_the_sent_limit() {
    let mut fabric = fabric([(3, 2)]);
    (0..4).for_each(|at| fabric.announce(3, &net(at)));
    fabric.announce(2, &net(4));
    fabric.announce(2, &net(5));
    fabric.advance(SOON);
    assert_eq!(held(&fabric, 3).len(), 2);
    assert_eq!(
        (sent(&fabric, 3).paths, sent(&fabric, 3).suppressed),
        (2, 0)
    );
    // A route of its own becomes the best one: it is withdrawn from the client, which makes room.
    announce(&mut fabric, (3, 4), 900);
    fabric.announce(2, "10.66.0.1/32");
    fabric.advance(SOON);
    let nets: Vec<String> = held(&fabric, 3).into_iter().map(|(net, _)| net).collect();
    assert_eq!(nets, [net(5), "10.66.0.1/32".into()]);
}

#[test]
fn sent_limit_changes_while_the_session_stays_up() {
    let mut fabric = fabric([]);
    (0..NETS).for_each(|at| fabric.announce(2, &net(at)));
    fabric.advance(SOON);
    for (limit, expected) in [(2, 2), (5, 5), (3, 3), (100, NETS), (1, 1), (0, NETS)] {
        set_limits(&mut fabric, [(3, limit), (MANY, limit)]);
        fabric.advance(SOON);
        for number in [3, MANY] {
            assert_eq!(held(&fabric, number).len(), expected, "{limit} at {number}");
        }
        assert_eq!(held(&fabric, 4).len(), NETS);
    }
}

#[test]
fn sent_limit_reports_levels() {
    let mut fabric = fabric([(3, 4)]);
    let reported = |fabric: &mut Network| {
        fabric.advance(SOON);
        let levels = levels(fabric);
        fabric.node_mut(1).events.clear();
        levels
    };
    (0..2).for_each(|at| fabric.announce(2, &net(at)));
    assert_eq!(reported(&mut fabric), []);
    fabric.announce(2, &net(2));
    assert_eq!(reported(&mut fabric), [Some(LimitLevel::Near)]);
    fabric.announce(2, &net(3));
    assert_eq!(reported(&mut fabric), [], "the limit itself is allowed");
    fabric.announce(2, &net(4));
    assert_eq!(reported(&mut fabric), [Some(LimitLevel::Passed)]);
    fabric.announce(2, &net(5));
    assert_eq!(reported(&mut fabric), [], "reported already");
    (0..3).for_each(|at| fabric.withdraw(2, &net(at)));
    assert_eq!(reported(&mut fabric), [None], "all are sent");
    assert!(!sent(&fabric, 3).is_short);
    fabric.announce(2, &net(0));
    fabric.announce(2, &net(1));
    assert_eq!(reported(&mut fabric), [Some(LimitLevel::Passed)]);
}

#[test]
fn long_pass_without_output_takes_turns() {
    let mut fabric = fabric([(3, 2)]);
    let several = 2 * FEED_PREFIXES * SILENT_STEPS_MAX;
    let nets = (0..several).map(|at| format!("10.{}.{}.{}/32", at >> 16, at >> 8 & 255, at & 255));
    let nets: Vec<String> = nets.collect();
    nets.iter().for_each(|net| fabric.announce(2, net));
    fabric.advance(SOON);
    assert_eq!(held(&fabric, 3).len(), 2);
    let (first, rest) = nets.split_at(2);
    assert_eq!(held(&fabric, 4).len(), nets.len());
    // Only the last one is left: the whole table is read to find it.
    first.iter().for_each(|net| fabric.withdraw(2, net));
    rest[..rest.len() - 1]
        .iter()
        .for_each(|net| fabric.withdraw(2, net));
    fabric.advance(SOON);
    let last = rest.last().cloned().expect("a prefix");
    let nets: Vec<String> = held(&fabric, 3).into_iter().map(|(net, _)| net).collect();
    assert_eq!(nets, [last]);
    assert!(!sent(&fabric, 3).is_short);
}

fn announce(fabric: &mut Network, (number, at): (usize, usize), pref: u32) {
    let attributes = Attributes {
        local_pref: Some(pref),
        ..Attributes::default()
    };
    let (now, net) = (fabric.now(), net(at));
    let input = Input::Local {
        family: V4,
        net: prefix(&net),
        attributes: Some(attributes),
        interface: None,
    };
    fabric.speaker_mut(number).handle(now, input);
}

#[derive(Clone, Debug)]
enum Op {
    Announce(usize, u32),
    Withdraw(usize),
    Limit(u32),
    Refresh,
    Stall(bool),
    Disconnect,
    Pass(u64),
    Settle,
}

fn op() -> impl Strategy<Value = (usize, Op)> {
    let op = prop_oneof![
        8 => (0..NETS, 1..4_u32).prop_map(|(net, pref)| Op::Announce(net, pref)),
        5 => (0..NETS).prop_map(Op::Withdraw),
        3 => (0..6_u32).prop_map(Op::Limit),
        1 => Just(Op::Refresh),
        2 => any::<bool>().prop_map(Op::Stall),
        1 => Just(Op::Disconnect),
        2 => (1..3_000_u64).prop_map(Op::Pass),
        4 => Just(Op::Settle),
    ];
    (prop::sample::select(&CLIENTS[..]), op)
}

/// The routes and limits that the operations leave.
#[derive(Default)]
struct Model {
    /// LOCAL_PREF by prefix and client.
    routes: BTreeMap<(usize, usize), u32>,
    limits: Limits,
    /// The clients whose limit has not changed since their last complete output.
    steady: BTreeSet<usize>,
}

impl Model {
    /// Returns the paths that a client would be sent without a limit.
    fn paths(&self, number: usize) -> BTreeSet<(String, u32)> {
        let mut all = BTreeSet::new();
        for at in 0..NETS {
            let routes = self.routes.iter().filter(|((of, _), _)| *of == at);
            let mut routes: Vec<(u32, usize)> =
                routes.map(|((_, from), pref)| (*pref, *from)).collect();
            routes.sort_unstable();
            if number != MANY {
                routes = routes.pop().into_iter().collect();
            }
            let others = routes.into_iter().filter(|(_, from)| *from != number);
            all.extend(others.map(|(pref, _)| (net(at), pref)));
        }
        all
    }

    fn apply(&mut self, fabric: &mut Network, number: usize, op: &Op) {
        match *op {
            // Each client has other values, so that the best path is known.
            Op::Announce(at, pref) => {
                let pref = pref * 10 + u32::try_from(number).expect("small");
                self.routes.insert((at, number), pref);
                announce(fabric, (number, at), pref);
            }
            Op::Withdraw(at) => {
                self.routes.remove(&(at, number));
                fabric.withdraw(number, &net(at));
            }
            Op::Limit(max) => {
                self.limits.insert(number, max);
                self.steady.remove(&number);
                set_limits(fabric, self.limits.clone());
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
        CLIENTS
            .iter()
            .for_each(|&number| fabric.stall(number, false));
        // A client that was disconnected is in idle hold for a while.
        let all_up = (0..20).any(|_| {
            fabric.advance(SOON);
            fabric.established(1).len() == CLIENTS.len()
        });
        assert!(all_up, "{:?}", fabric.established(1));
        fabric.advance(SOON);
        for number in CLIENTS {
            let (paths, held) = (self.paths(number), held(fabric, number));
            let max = self.limits.get(&number).copied().unwrap_or_default();
            let expected = match max {
                0 => paths.len(),
                max => paths.len().min(max as usize),
            };
            assert!(held.is_subset(&paths), "{held:?} of {paths:?} at {number}");
            assert_eq!(held.len(), expected, "{held:?} of {paths:?} at {number}");
            if max > 0 {
                let sent = sent(fabric, number);
                assert_eq!(sent.paths as usize, expected);
                assert!(sent.is_short || expected == paths.len());
                self.steady.insert(number);
            }
        }
        assert!(fabric.speaker(1).all_sent());
    }

    /// Compares with the limits alone.
    fn check_limits(&self, fabric: &Network) {
        for &number in &self.steady {
            let max = self.limits.get(&number).copied().unwrap_or_default();
            let held = held(fabric, number).len();
            assert!(max == 0 || held <= max as usize, "{held} of {max}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    // Promise: as bgp-speaker suppressed_paths_are_sent_when_there_is_room
    #[test]
    fn sent_paths_are_those_of_a_naive_model(
        parts in prop::collection::vec(prop::collection::vec(op(), 1..25), 1..4),
    ) {
        let mut fabric = fabric([]);
        let mut model = Model::default();
        for ops in &parts {
            for (number, op) in ops {
                model.apply(&mut fabric, *number, op);
                model.check_limits(&fabric);
            }
            model.check(&mut fabric);
        }
    }
}
