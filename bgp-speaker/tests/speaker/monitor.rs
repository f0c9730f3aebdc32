//! The monitor: what peers send and are sent, in order.

mod replay;

use std::sync::Arc;

use bgp_fsm::{DownReason, GracefulRestartConfig, Instant};
use bgp_proto::{Family, Notification, Prefix, notification::cease};
use bgp_speaker::{Monitor, Record, Speaker, SpeakerConfig};
use rib::{Match, Outcome, Policy, PrefixRange, Rules, Stage, Term, Then};
use testkit::fixture::{clients, graceful_open, open, speaker_config};
use testkit::{EndOfRib, Update};

use super::wire::{Wire, block};

const V4: Family = Family::IPV4_UNICAST;
const PRE: Stage = Stage::AdjRibInPrePolicy;
const POST: Stage = Stage::AdjRibInPostPolicy;
const OUT: Stage = Stage::AdjRibOutPostPolicy;
const ONE: &str = "10.65.0.1/32";
const TWO: &str = "10.65.0.2/32";

/// Returns a reflector with a range of clients that restart gracefully.
fn config(import: Policy) -> SpeakerConfig {
    let mut config = speaker_config(1);
    let mut range = clients(1, 10);
    range.template.session.graceful_restart = Some(GracefulRestartConfig::default());
    range.template.import = import;
    config.ranges.push(range);
    config
}

fn monitored<const N: usize>(stages: [Stage; N]) -> Wire {
    Wire::prepared(config(Policy::AcceptAll), |speaker| {
        speaker.start_monitor(Instant::ZERO, Monitor::new(stages));
    })
}

fn records(speaker: &mut Speaker) -> Vec<Record> {
    std::iter::from_fn(|| speaker.poll_record()).collect()
}

/// Returns the records as lines: the last octet of the neighbor, then what happened.
fn lines(speaker: &mut Speaker) -> Vec<String> {
    let lines = records(speaker)
        .into_iter()
        .flat_map(|record| line(&record));
    lines.collect()
}

fn line(record: &Record) -> Vec<String> {
    let of = |text: String, neighbor: &bgp_speaker::Neighbor| {
        let address = neighbor.address.to_string();
        vec![format!("{} {text}", address.replace("10.0.0.", ""))]
    };
    match record {
        Record::Up { neighbor, .. } => of("up".into(), neighbor),
        Record::Down {
            neighbor, retained, ..
        } => of(
            format!("down, retains {}", retained.iter().count()),
            neighbor,
        ),
        Record::EndOfRib {
            neighbor,
            stage,
            family,
            ..
        } => of(format!("{stage} {family} end"), neighbor),
        Record::Routes {
            neighbor, routes, ..
        } => {
            let sign = if routes.attributes.is_some() {
                '+'
            } else {
                '-'
            };
            let nets = routes.nlri().map(|nlri| format!(" {sign}{}", nlri.net));
            let nets: String = nets.collect();
            of(format!("{}{nets}", routes.stage), neighbor)
        }
        Record::Lost { count } => vec![format!("lost {count}")],
        _ => unreachable!("a record of another kind"),
    }
}

#[test]
fn records_are_in_the_order_of_what_happened() {
    let mut wire = monitored([PRE]);
    let client = wire.connect(2, &open(2));
    wire.send(client, Update::reach([ONE, TWO]));
    wire.send(client, EndOfRib(V4));
    wire.send(client, Update::unreach([ONE]));
    wire.lose(client);
    wire.settle();
    let expected = [
        "2 up",
        "2 adj-rib-in-pre-policy +10.65.0.1/32 +10.65.0.2/32",
        "2 adj-rib-in-pre-policy ipv4-unicast end",
        "2 adj-rib-in-pre-policy -10.65.0.1/32",
        "2 down, retains 0",
    ];
    assert_eq!(lines(wire.speaker_mut()), expected);
}

#[test]
fn session_records_have_their_parameters_and_reason() {
    let mut wire = monitored([PRE]);
    let client = wire.connect(2, &open(2));
    let why = Notification::cease(cease::ADMINISTRATIVE_RESET);
    wire.send(client, why.clone());
    let records = records(wire.speaker_mut());
    let [
        Record::Up {
            neighbor, params, ..
        },
        Record::Down {
            neighbor: same,
            reason,
            ..
        },
    ] = &records[..]
    else {
        panic!("{records:?}");
    };
    assert_eq!((neighbor.peer, neighbor.router_id), (client, open(2).id));
    assert_eq!(params.hold_time_s, 90);
    assert!(Arc::ptr_eq(neighbor, same));
    assert_eq!(*reason, DownReason::Received(why));
}

#[test]
fn sessions_that_are_up_are_reported_when_it_starts() {
    let mut wire = Wire::new(config(Policy::AcceptAll));
    let client = wire.connect(2, &open(2));
    wire.send(client, Update::reach([ONE]));
    assert_eq!(wire.speaker_mut().poll_record(), None);
    let now = wire.now();
    let monitor = Monitor::new([PRE]);
    wire.speaker_mut().start_monitor(now, monitor);
    wire.send(client, Update::reach([TWO]));
    let expected = ["2 up", "2 adj-rib-in-pre-policy +10.65.0.2/32"];
    assert_eq!(lines(wire.speaker_mut()), expected);
    wire.send(client, Update::reach([ONE]));
    wire.speaker_mut().stop_monitor();
    assert_eq!(wire.speaker_mut().poll_record(), None);
}

#[test]
fn full_queue_drops_the_oldest_records_and_counts_them() {
    let mut monitor = Monitor::new([PRE]);
    monitor.entries_max = 300;
    let mut wire = Wire::prepared(config(Policy::AcceptAll), |speaker| {
        speaker.start_monitor(Instant::ZERO, monitor);
    });
    let client = wire.connect(2, &open(2));
    wire.send(client, block(1));
    wire.send(client, Update::reach([ONE]));
    assert!(wire.speaker().is_monitor_busy());
    wire.send(client, block(2));
    let records = records(wire.speaker_mut());
    // The session and the first 250 routes are lost.
    assert_eq!(records.first(), Some(&Record::Lost { count: 251 }));
    let left = records[1..].iter().map(|record| match record {
        Record::Routes { routes, .. } => routes.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(left.collect::<Vec<_>>(), [1, 250]);
    assert!(!wire.speaker().is_monitor_busy());
    wire.send(client, Update::unreach([ONE]));
    assert_eq!(lines(wire.speaker_mut()).len(), 1, "no further loss");
}

#[test]
fn queue_is_bounded_in_octets() {
    let mut monitor = Monitor::new([PRE]);
    monitor.octets_max = 4000;
    let mut wire = Wire::prepared(config(Policy::AcceptAll), |speaker| {
        speaker.start_monitor(Instant::ZERO, monitor);
    });
    let client = wire.connect(2, &open(2));
    wire.send(client, block(1));
    wire.send(client, Update::reach([ONE]));
    // A record that exceeds the limit alone is lost, too.
    let expected = ["lost 251", "2 adj-rib-in-pre-policy +10.65.0.1/32"];
    assert_eq!(lines(wire.speaker_mut()), expected);
}

/// Returns a policy that rejects one prefix.
fn without(prefix: &str) -> Policy {
    let prefix: Prefix = prefix.parse().expect("a prefix");
    let set = [PrefixRange::equal(prefix)].into_iter().collect();
    Policy::from(Rules::new(
        "without",
        vec![Term::new("1", vec![Match::Net(set)], vec![], Then::Reject)],
        Outcome::Accept,
    ))
}

#[test]
fn rejected_route_is_reported_before_policy_only() {
    let mut wire = Wire::prepared(config(without(TWO)), |speaker| {
        speaker.start_monitor(Instant::ZERO, Monitor::new([PRE, POST]));
    });
    let client = wire.connect(2, &open(2));
    wire.send(client, Update::reach([ONE, TWO]));
    let both = lines(wire.speaker_mut());
    let expected = [
        "2 up",
        "2 adj-rib-in-pre-policy +10.65.0.1/32 +10.65.0.2/32",
        "2 adj-rib-in-post-policy +10.65.0.1/32",
    ];
    assert_eq!(both, expected);
    // Another policy, and no message of the peer.
    wire.reconfigure(config(without(ONE))).expect("taken");
    wire.settle();
    let mut changed = lines(wire.speaker_mut());
    changed.sort();
    let expected = [
        "2 adj-rib-in-post-policy +10.65.0.2/32",
        "2 adj-rib-in-post-policy -10.65.0.1/32",
    ];
    assert_eq!(changed, expected);
    // A route that replaces an accepted one is withdrawn after policy, another rejected one is not.
    wire.send(client, Update::unreach([ONE, TWO]));
    let expected = [
        "2 adj-rib-in-pre-policy -10.65.0.1/32 -10.65.0.2/32",
        "2 adj-rib-in-post-policy -10.65.0.2/32",
    ];
    assert_eq!(lines(wire.speaker_mut()), expected);
}

#[test]
fn same_attributes_are_shared_by_the_records() {
    let mut wire = monitored([PRE, POST]);
    let client = wire.connect(2, &open(2));
    wire.send(client, Update::reach([ONE]));
    wire.send(client, Update::reach([TWO]));
    let records = records(wire.speaker_mut());
    let sets = records.iter().filter_map(|record| match record {
        Record::Routes { routes, .. } => routes.attributes.as_ref(),
        _ => None,
    });
    let sets: Vec<_> = sets.collect();
    assert_eq!(sets.len(), 4);
    assert!(sets.iter().all(|set| Arc::ptr_eq(set, sets[0])));
}

#[test]
fn retained_routes_are_withdrawn_when_their_time_is_over() {
    let mut wire = monitored([PRE]);
    let client = wire.connect(2, &graceful_open(2, |_| {}));
    wire.send(client, Update::reach([ONE]));
    wire.lose(client);
    wire.pass(30, &[]);
    let before = lines(wire.speaker_mut());
    assert_eq!(before.last().map(String::as_str), Some("2 down, retains 1"));
    wire.pass(31, &[]);
    let expected = ["2 adj-rib-in-pre-policy -10.65.0.1/32"];
    assert_eq!(lines(wire.speaker_mut()), expected);
}

#[test]
fn refused_route_is_not_reported() {
    let mut config = config(Policy::AcceptAll);
    let limit = bgp_speaker::PrefixLimit::new(1).with_warning(75);
    let template = &mut config.ranges[0].template;
    template.prefix_limits.insert(V4, limit);
    let mut wire = Wire::prepared(config, |speaker| {
        speaker.start_monitor(Instant::ZERO, Monitor::new([PRE]));
    });
    let client = wire.connect(2, &open(2));
    wire.send(client, Update::reach([ONE, TWO]));
    let expected = ["2 up", "2 adj-rib-in-pre-policy +10.65.0.1/32"];
    assert_eq!(lines(wire.speaker_mut()), expected);
}

/// The routes and the end of the session come from one message.
#[test]
fn routes_are_reported_before_the_session_that_they_end() {
    let mut config = config(Policy::AcceptAll);
    let limit = bgp_speaker::PrefixLimit::new(1)
        .with_warning(75)
        .with_action(bgp_speaker::LimitAction::Restart { after_s: 300 });
    let template = &mut config.ranges[0].template;
    template.prefix_limits.insert(V4, limit);
    let mut wire = Wire::prepared(config, |speaker| {
        speaker.start_monitor(Instant::ZERO, Monitor::new([PRE]));
    });
    let client = wire.connect(2, &open(2));
    wire.send(client, Update::reach([ONE, TWO]));
    let expected = [
        "2 up",
        "2 adj-rib-in-pre-policy +10.65.0.1/32 +10.65.0.2/32",
        "2 down, retains 0",
    ];
    assert_eq!(lines(wire.speaker_mut()), expected);
}

#[test]
fn sent_routes_and_markers_are_reported() {
    let mut wire = monitored([OUT]);
    let source = wire.connect(2, &open(2));
    wire.send(source, Update::reach([ONE]));
    let client = wire.connect(3, &open(3));
    wire.received(client);
    wire.send(source, Update::unreach([ONE]));
    wire.received(client);
    let all = lines(wire.speaker_mut());
    let of_client: Vec<_> = all.iter().filter(|line| line.starts_with('3')).collect();
    let expected = [
        "3 up",
        "3 adj-rib-out-post-policy +10.65.0.1/32",
        "3 adj-rib-out-post-policy ipv4-unicast end",
        "3 adj-rib-out-post-policy ipv6-unicast end",
        "3 adj-rib-out-post-policy -10.65.0.1/32",
    ];
    assert_eq!(of_client, expected);
    assert!(all.iter().all(|line| !line.starts_with("2 adj-rib-in")));
}
