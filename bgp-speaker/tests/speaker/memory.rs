//! The limit of the octets in all accounts: one greedy client among five.

use bgp_fsm::{GracefulRestartConfig, State};
use bgp_proto::{AttrCode, Family, Ipv4Prefix, Notification, Open, RefreshSubtype, RouteRefresh};
use bgp_speaker::limits::{LIMIT_CHECK_EVERY, LIMIT_REST_S};
use bgp_speaker::{Event, LimitAction, MemoryAction, NoRefresh, PrefixLimit, Refusal};
use rib::PeerId;
use testkit::fixture::{clients, graceful_open, open, speaker_config};
use testkit::{OPTIONAL_TRANSITIVE, Received, Update};

use super::wire::{Wire, block};

const V4: Family = Family::IPV4_UNICAST;

/// Six blocks of the greedy client and the paths of the others are more than 85 percent of it, five
/// blocks are less.
const OCTETS_MAX: usize = 240_000;

/// The clients beside the greedy one.
const OTHERS: std::ops::RangeInclusive<usize> = 3..=6;

/// Returns the `n`th hundred of the routes of a client that is not greedy.
fn hundred(client: usize, n: u8) -> Update {
    let nets: Vec<String> = (0..100)
        .map(|host| format!("10.{}.{n}.{host}/32", 70 + client))
        .collect();
    Update::reach(nets)
}

struct Five {
    wire: Wire,
    greedy: PeerId,
    others: Vec<PeerId>,
}

impl Five {
    /// Returns a reflector with a limit, and five clients, four of which have a hundred routes each.
    fn new() -> Self {
        Self::limited(None)
    }

    fn limited(limit: Option<PrefixLimit>) -> Self {
        let mut config = speaker_config(1);
        let mut range = clients(1, 5);
        range.template.session.graceful_restart = Some(GracefulRestartConfig::default());
        range.template.prefix_limits = Default::default();
        if let Some(limit) = limit {
            range.template.prefix_limits.insert(V4, limit);
        }
        config.ranges.push(range);
        let mut wire = Wire::new(config);
        wire.speaker_mut().limit_memory(Some(OCTETS_MAX));
        let greedy = wire.connect(2, &hard_open(2));
        let others = OTHERS.map(|number| {
            let peer = wire.connect(number, &open(number));
            wire.send(peer, hundred(number, 0));
            peer
        });
        let others = others.collect();
        Self {
            wire,
            greedy,
            others,
        }
    }

    /// Lets the greedy client send its blocks up to this one, each in one UPDATE.
    fn flood(&mut self, blocks: std::ops::Range<u8>) {
        for third in blocks {
            self.wire.send(self.greedy, block(third));
        }
    }

    fn paths(&self, peer: PeerId) -> u32 {
        self.wire.speaker().rib().counters(peer, V4).paths
    }

    fn rejected(&self, peer: PeerId) -> u64 {
        self.wire.speaker().rib().counters(peer, V4).limited
    }

    /// Checks that the others are up and have this many routes each.
    fn others_have(&self, paths: u32) {
        for &peer in &self.others {
            assert_eq!(self.wire.state(peer), State::Established);
            assert_eq!((self.paths(peer), self.rejected(peer)), (paths, 0));
        }
    }

    fn actions(&self) -> Vec<(PeerId, MemoryAction)> {
        let events = self.wire.events().iter();
        let actions = events.filter_map(|event| match event {
            Event::MemoryLimit { peer, action, .. } => Some((*peer, *action)),
            _ => None,
        });
        actions.collect()
    }

    fn cleared(&self) -> Vec<Result<(), NoRefresh>> {
        let events = self.wire.events().iter();
        let cleared = events.filter_map(|event| match event {
            Event::MemoryCleared { refresh, .. } => Some(*refresh),
            _ => None,
        });
        cleared.collect()
    }

    /// Lets time pass, with KEEPALIVEs of all clients.
    fn pass(&mut self, seconds: u64) {
        let all: Vec<PeerId> = self.others.iter().copied().chain([self.greedy]).collect();
        self.wire.pass(seconds, &all);
    }

    fn pass_without_greedy(&mut self, seconds: u64) {
        let others = self.others.clone();
        self.wire.pass(seconds, &others);
    }

    /// Lets the greedy client withdraw these of its blocks.
    fn withdraw(&mut self, blocks: std::ops::Range<u8>) {
        for third in blocks {
            let nets: Vec<String> = (0..250).map(|n| format!("10.70.{third}.{n}/32")).collect();
            self.wire.send(self.greedy, Update::unreach(nets));
        }
    }

    /// Returns the number of ROUTE-REFRESH messages to the greedy client within three checks.
    fn requests(&mut self) -> usize {
        self.pass(3 * LIMIT_CHECK_EVERY.as_secs());
        let request = Received::Refresh(RouteRefresh::request(V4));
        let received = self.wire.received(self.greedy);
        received.iter().filter(|each| **each == request).count()
    }
}

/// An OPEN of a peer that would retain routes after a NOTIFICATION, unless it is a hard reset.
fn hard_open(number: usize) -> Open {
    graceful_open(number, |graceful| graceful.notification = true)
}

#[test]
fn rejected_paths_of_largest_peer_are_requested_again() {
    let mut five = Five::new();
    five.flood(0..5);
    assert_eq!(five.actions(), [], "there is room");
    five.flood(5..8);
    assert_eq!(five.actions(), [(five.greedy, MemoryAction::Reject)]);
    assert_eq!(
        (five.paths(five.greedy), five.rejected(five.greedy)),
        (1500, 500)
    );
    let usage = five.wire.speaker().usage().memory.expect("a limit");
    assert_eq!((usage.octets_max, usage.capped), (OCTETS_MAX, 1));
    assert!(usage.octets.now >= OCTETS_MAX * 85 / 100 && usage.octets.peak < OCTETS_MAX);
    // The others may advertise more, and the greedy one may exchange paths.
    let first = five.others[0];
    five.wire.send(first, Update::reach(["10.99.0.1/32"]));
    assert_eq!((five.paths(first), five.rejected(first)), (101, 0));
    five.wire.send(first, Update::unreach(["10.99.0.1/32"]));
    let first_of_all: Ipv4Prefix = "10.70.0.0/32".parse().expect("a prefix");
    let swapped = Update::reach(["10.70.6.0/32"]).withdrawing(first_of_all);
    five.wire.send(five.greedy, swapped);
    assert_eq!(
        (five.paths(five.greedy), five.rejected(five.greedy)),
        (1500, 500)
    );
    assert_eq!(five.requests(), 0, "there is no room");
    five.others_have(100);
    // Room for what was rejected.
    five.withdraw(0..5);
    assert_eq!(five.requests(), 1);
    assert_eq!(five.cleared(), [Ok(())]);
    five.flood(5..8);
    assert_eq!(five.paths(five.greedy), 750);
    assert_eq!(five.actions().len(), 1);
    assert_eq!(
        five.wire.speaker().usage().memory.map(|usage| usage.capped),
        Some(0)
    );
    assert_eq!(five.requests(), 0, "nothing was rejected since");
    five.others_have(100);
}

/// Each path gets attributes of its own, which no limit of paths prevents.
fn swollen(third: u8, host: u8) -> Update {
    let community = [0xfc, 0, third, host];
    Update::reach([format!("10.70.{third}.{host}/32")]).with(
        OPTIONAL_TRANSITIVE,
        AttrCode::Communities,
        &community,
    )
}

#[test]
fn session_of_the_greedy_peer_ends_if_it_grows_further() {
    let mut five = Five::new();
    five.flood(0..7);
    assert_eq!(five.actions(), [(five.greedy, MemoryAction::Reject)]);
    let mut sent = 0;
    while five.wire.state(five.greedy) == State::Established {
        assert!(
            sent < 250,
            "the session stays up: {:?}",
            five.wire.speaker().usage()
        );
        five.wire.send(five.greedy, swollen(0, sent));
        sent += 1;
    }
    let why = Notification::hard_reset(&Notification::out_of_resources("memory_max is reached"));
    let last = five.wire.received(five.greedy).pop();
    assert_eq!(last, Some(Received::Notification(why)));
    five.wire.settle();
    assert_eq!(
        five.actions(),
        [
            (five.greedy, MemoryAction::Reject),
            (five.greedy, MemoryAction::End)
        ]
    );
    assert_eq!(five.paths(five.greedy), 0, "no path is retained");
    five.others_have(100);
    // It is in idle hold, then its session and its paths come back.
    five.pass_without_greedy(u64::from(LIMIT_REST_S) - 2);
    assert!(matches!(five.wire.dial(2), Err(Refusal::Session(_))));
    five.pass_without_greedy(2);
    five.greedy = five.wire.connect(2, &hard_open(2));
    five.flood(0..2);
    assert_eq!(
        (five.paths(five.greedy), five.rejected(five.greedy)),
        (500, 0)
    );
    five.others_have(100);
}

/// The action of the neighbor's own limit is for the limit that the operator has set.
#[test]
fn rejection_for_memory_is_no_passed_prefix_limit() {
    let mut five = Five::limited(Some(
        PrefixLimit::new(100_000)
            .with_warning(75)
            .with_action(LimitAction::Restart { after_s: 60 }),
    ));
    five.flood(0..8);
    assert_eq!(five.actions(), [(five.greedy, MemoryAction::Reject)]);
    assert_eq!(five.rejected(five.greedy), 500);
    assert_eq!(five.wire.state(five.greedy), State::Established);
    let reported = five.wire.events().iter();
    let mut reported = reported.filter(|event| matches!(event, Event::PrefixLimit { .. }));
    assert!(reported.next().is_none());
}

/// A peer that has grown beyond the first one is capped too, and no session ends for it.
#[test]
fn next_greedy_peer_is_capped_once_it_has_the_most() {
    let mut five = Five::new();
    five.flood(0..6); // 1,250 of these paths are withdrawn again.
    let second = five.others[0];
    assert_eq!(five.actions(), [(five.greedy, MemoryAction::Reject)]);
    five.withdraw(1..6);
    for n in 1..20 {
        five.wire.send(second, hundred(3, n));
    }
    let expected = [
        (five.greedy, MemoryAction::Reject),
        (second, MemoryAction::Reject),
    ];
    assert_eq!(five.actions(), expected);
    assert!(five.rejected(second) > 0);
    assert_eq!(five.wire.state(five.greedy), State::Established);
    assert_eq!(five.wire.state(second), State::Established);
}

/// BoRR and EoRR remove paths later: they make room.
#[test]
fn room_after_a_sweep_is_used() {
    let mut five = Five::new();
    five.flood(0..8);
    let mark = |subtype| RouteRefresh {
        family: V4,
        subtype,
    };
    five.wire.send(five.greedy, mark(RefreshSubtype::Begin));
    five.flood(0..1);
    five.wire.send(five.greedy, mark(RefreshSubtype::End));
    assert_eq!(five.requests(), 1);
    assert_eq!(five.paths(five.greedy), 250);
}

#[test]
fn limit_that_is_removed_accepts_everything_again() {
    let mut five = Five::new();
    five.flood(0..8);
    assert_eq!(five.actions().len(), 1);
    five.wire.speaker_mut().limit_memory(None);
    assert_eq!(five.requests(), 1);
    five.flood(0..8);
    assert_eq!(five.paths(five.greedy), 2000);
    assert_eq!(five.wire.speaker().usage().memory, None);
}

#[test]
fn sum_of_all_accounts_is_what_the_tables_hold() {
    let five = Five::new();
    let speaker = five.wire.speaker();
    let accounts = speaker.peers().map(|peer| peer.octets.received);
    assert_eq!(accounts.sum::<usize>(), speaker.rib().octets_held());
    assert!(speaker.rib().octets_held() >= 400 * rib::limits::PATH_OCTETS);
}
