//! For any behavior of peers, no state that only a timer can end is kept forever.

use bgp_fsm::GracefulRestartConfig;
use bgp_proto::{Family, GracefulRestart, Notification, RefreshSubtype, RouteRefresh};
use bgp_speaker::limits::{REFRESH_MAX, STALE_TIME_S};
use bgp_speaker::{LimitAction, PrefixLimit, SpeakerConfig};
use proptest::prelude::*;
use rib::PeerId;
use testkit::fixture::{clients, graceful_open, speaker_config};
use testkit::{Encode, EndOfRib, Update};

use super::wire::Wire;

const V4: Family = Family::IPV4_UNICAST;
const NETS: [&str; 3] = ["10.65.0.1/32", "10.65.0.2/32", "10.65.0.3/32"];
/// The idle hold time of a session after a prefix limit, in seconds.
const REST_S: u32 = 200;

#[derive(Clone, Debug)]
enum Op {
    Connect {
        n_bit: bool,
        forwarding: bool,
        restart_state: bool,
    },
    /// The peer dials and sends nothing.
    Dial,
    Lose,
    Reach(usize),
    Unreach(usize),
    EndOfRib,
    Border(bool),
    Cease(u8),
    Pass(u8),
}

fn op() -> impl Strategy<Value = (usize, Op)> {
    let op = prop_oneof![
        6 => any::<(bool, bool, bool)>().prop_map(|(n_bit, forwarding, restart_state)| {
            Op::Connect { n_bit, forwarding, restart_state }
        }),
        1 => Just(Op::Dial),
        4 => Just(Op::Lose),
        6 => (1..=NETS.len()).prop_map(Op::Reach),
        2 => (1..=NETS.len()).prop_map(Op::Unreach),
        2 => Just(Op::EndOfRib),
        2 => any::<bool>().prop_map(Op::Border),
        2 => prop::sample::select(&[2_u8, 4, 9][..]).prop_map(Op::Cease),
        2 => (1_u8..100).prop_map(Op::Pass),
    ];
    (2_usize..5, op)
}

fn config() -> SpeakerConfig {
    let mut config = speaker_config(1);
    let mut range = clients(1, 3);
    range.template.session.graceful_restart = Some(GracefulRestartConfig::default());
    let limit = PrefixLimit::new(2)
        .with_warning(50)
        .with_action(LimitAction::Restart { after_s: REST_S });
    range.template.prefix_limits.insert(V4, limit);
    config.ranges.push(range);
    config
}

fn run(wire: &mut Wire, number: usize, op: &Op) {
    let peer = wire.peer(number);
    let send = |wire: &mut Wire, message: &dyn Encode| {
        if let Some(peer) = peer.filter(|&peer| wire.is_open(peer)) {
            wire.send(peer, message);
        }
    };
    match op {
        Op::Connect {
            n_bit,
            forwarding,
            restart_state,
        } => {
            let edit = |graceful: &mut GracefulRestart| {
                graceful.notification = *n_bit;
                graceful.families[0].1 = *forwarding;
                graceful.restart_state = *restart_state;
            };
            wire.try_connect(number, &graceful_open(number, edit));
        }
        Op::Dial => {
            let _ = wire.dial(number);
        }
        Op::Lose => {
            if let Some(peer) = peer.filter(|&peer| wire.is_open(peer)) {
                wire.lose(peer);
            }
        }
        Op::Reach(n) => send(wire, &Update::reach(&NETS[..*n])),
        Op::Unreach(n) => send(wire, &Update::unreach(&NETS[..*n])),
        Op::EndOfRib => send(wire, &EndOfRib(V4)),
        Op::Border(begin) => {
            let subtype = if *begin {
                RefreshSubtype::Begin
            } else {
                RefreshSubtype::End
            };
            send(
                wire,
                &RouteRefresh {
                    family: V4,
                    subtype,
                },
            );
        }
        Op::Cease(subcode) => send(wire, &Notification::cease(*subcode)),
        Op::Pass(seconds) => wire.pass(u64::from(*seconds), &[]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    // Promise: as bgp-speaker routes_are_deferred_until_all_peers_sent_end_of_rib
    /// When all peers have become silent, their sessions end with the hold timer, and their
    /// remaining state is removed within its time limits: stale paths, refreshes, idle holds, the
    /// peers.
    #[test]
    fn silence_ends_everything(ops in prop::collection::vec(op(), 1..60)) {
        let mut wire = Wire::new(config());
        for (number, op) in &ops {
            run(&mut wire, *number, op);
            let over = wire.speaker().peers().filter(|peer| peer.dynamic).count();
            prop_assert!(over <= 3, "the limit of the range");
        }
        let longest = u64::from(STALE_TIME_S).max(REFRESH_MAX.as_secs()).max(u64::from(REST_S));
        // The longest wait is that for a missing OPEN.
        wire.pass(bgp_fsm::limits::OPEN_HOLD.as_secs() + 90 + longest + 60, &[]);
        let left: Vec<PeerId> = wire.speaker().peers().map(|peer| peer.id).collect();
        prop_assert!(left.is_empty(), "{left:?}");
        prop_assert!(wire.prefixes().is_empty());
        let stats = wire.speaker().rib().stats();
        prop_assert_eq!((stats.paths, stats.attribute_sets), (0, 0));
        prop_assert_eq!(wire.speaker().poll_timeout(), None);
    }
}
