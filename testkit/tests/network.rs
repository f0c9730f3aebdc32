//! The network itself: links, cuts, kills, stalls, and that a seed gives the same run.

use std::net::IpAddr;
use std::time::Duration;

use bgp_speaker::bgp_fsm::{Conn, Instant, State};
use bgp_speaker::bgp_proto::{AddPathMode, Capability, Family, MessageKind, Open};
use bgp_speaker::rib::Role;
use bgp_speaker::{Event, Speaker, SpeakerConfig};
use testkit::fixture::{address, clients, neighbor, open, speaker_config};
use testkit::limits::{RETRANSMIT, STEPS_MAX, STREAM_OCTETS};
use testkit::{
    Encode, EndOfRib, Keepalive, Link, Network, Node, Octets, Raw, Received, Update, matching,
    notification,
};

const V4: Family = Family::IPV4_UNICAST;
const SOON: Duration = Duration::from_secs(20);

fn at(number: usize) -> IpAddr {
    address(number).into()
}

/// A full mesh of internal peers.
fn mesh(seed: u64, numbers: &[usize], link: Link) -> Network {
    let mut network = Network::new(seed);
    network.set_links(link);
    for &us in numbers {
        network.start(us, at(us), member(us, numbers));
    }
    network
}

fn member(us: usize, numbers: &[usize]) -> SpeakerConfig {
    let mut config = speaker_config(us);
    let others = numbers.iter().filter(|them| **them != us);
    config.peers = others
        .map(|them| neighbor(us, *them, Role::Internal))
        .collect();
    config
}

/// A reflector for any peer that dials.
fn reflector() -> Network {
    let mut network = Network::new(7);
    let mut config = speaker_config(1);
    config.ranges.push(clients(1, 10));
    network.start(1, at(1), config);
    network
}

fn downs(network: &Network, number: usize) -> usize {
    let events = network.node(number).events.iter();
    events
        .filter(|event| matches!(event, Event::Down { .. }))
        .count()
}

#[test]
fn latency_delays_routes_by_that_time() {
    let mut network = mesh(1, &[1, 2], Link::late(Duration::from_millis(30)));
    network.advance(SOON);
    assert_eq!(network.established(1), [at(2)]);
    network.announce(1, "10.65.0.1/32");
    network.advance(Duration::from_millis(29));
    assert!(network.loc_rib(2, V4).is_empty());
    network.advance(Duration::from_millis(1));
    assert_eq!(network.loc_rib(2, V4), ["10.65.0.1/32"]);
}

#[test]
fn lossy_links_lose_no_octets() {
    let mut link = Link::late(Duration::from_millis(1));
    (link.jitter, link.loss_per_mille) = (Duration::from_millis(5), 300);
    let mut network = mesh(3, &[1, 2, 3], link);
    for number in 0..300 {
        network.announce(1, &format!("10.65.{}.{}/32", number / 250, number % 250));
    }
    network.advance(Duration::from_secs(60));
    for number in [2, 3] {
        assert_eq!(network.loc_rib(number, V4).len(), 300);
        assert_eq!(network.adj_rib_out(1, V4, at(number)).len(), 300);
        assert_eq!(downs(&network, number), 0);
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    let mut link = Link::default();
    (link.jitter, link.loss_per_mille) = (Duration::from_millis(50), 100);
    let run = |seed| {
        let mut network = mesh(seed, &[1, 2, 3, 4], link);
        let mut trace = vec![];
        for number in 1..=4 {
            network.announce(number, &format!("10.65.{number}.0/24"));
        }
        let end = network.now() + SOON;
        while network.step(end) {
            trace.push((network.now(), network.loc_rib(4, V4)));
        }
        trace
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn cut_is_noticed_by_the_hold_timer_alone() {
    let mut network = mesh(1, &[1, 2], Link::late(Duration::from_millis(1)));
    network.announce(1, "10.65.0.1/32");
    network.advance(SOON);
    network.cut(at(1), at(2));
    network.advance(Duration::from_secs(50));
    assert_eq!(network.established(2), [at(1)]);
    network.mend(at(1), at(2));
    network.advance(SOON);
    assert_eq!(
        downs(&network, 2),
        0,
        "the messages sent until then have arrived"
    );
    network.cut(at(1), at(2));
    network.advance(Duration::from_secs(91));
    assert_eq!((network.established(2).len(), downs(&network, 2)), (0, 1));
    network.mend(at(1), at(2));
    network.advance(Duration::from_secs(120));
    assert_eq!(network.loc_rib(2, V4), ["10.65.0.1/32"]);
}

#[test]
fn dial_across_a_cut_arrives_after_it() {
    let mut network = Network::new(1);
    network.cut(at(1), at(2));
    for us in [1, 2] {
        network.start(us, at(us), member(us, &[1, 2]));
    }
    network.advance(Duration::from_secs(1));
    assert!(network.established(1).is_empty());
    network.mend(at(1), at(2));
    // No speaker dials again in this time.
    network.advance(RETRANSMIT);
    assert_eq!(network.established(1), [at(2)]);
}

#[test]
fn abandoned_dial_opens_no_connection() {
    for is_abandoned in [false, true] {
        let mut network = Network::new(1);
        network.set_links(Link::late(Duration::from_millis(100)));
        let mut passive = member(2, &[1, 2]);
        passive.peers[0].session.passive = true;
        network.start(2, at(2), passive);
        network.start(1, at(1), member(1, &[1, 2]));
        network.advance(Duration::from_millis(50));
        if is_abandoned {
            let (now, without_peers) = (network.now(), speaker_config(1));
            let done = network.speaker_mut(1).reconfigure(now, without_peers);
            done.expect("the same speaker");
        }
        // The dial arrives.
        network.advance(Duration::from_millis(60));
        let mut peers = network.speaker(2).peers();
        let state = peers.next().expect("a neighbor").session.state();
        assert_eq!(state == State::OpenSent, !is_abandoned, "{state}");
    }
}

#[test]
fn later_segment_does_not_overtake() {
    let mut network = mesh(1, &[1, 2], Link::default());
    network.advance(SOON);
    for (milliseconds, net) in [(100, "10.65.0.1/32"), (10, "10.65.0.2/32")] {
        network.set_links(Link::late(Duration::from_millis(milliseconds)));
        network.announce(1, net);
        network.settle();
    }
    network.advance(Duration::from_millis(99));
    assert!(network.loc_rib(2, V4).is_empty());
    network.advance(Duration::from_millis(1));
    assert_eq!(network.loc_rib(2, V4), ["10.65.0.1/32", "10.65.0.2/32"]);
}

#[test]
fn stream_to_a_stalled_speaker_is_bounded() {
    const ROUTES: usize = STREAM_OCTETS / 4;
    let mut network = mesh(1, &[1, 2], Link::default());
    network.advance(SOON);
    network.stall(2, true);
    for number in 0..ROUTES {
        network.announce(1, &format!("10.65.{}.{}/32", number / 250, number % 250));
    }
    network.settle();
    let speaker = network.speaker(1);
    let peer = speaker.peers().next().expect("a neighbor").id;
    let waits = Conn::PLACES.map(|conn| speaker.wants_write(peer, conn));
    assert!(waits.contains(&true), "a route takes 5 octets");
    network.stall(2, false);
    network.settle();
    assert_eq!(network.loc_rib(2, V4).len(), ROUTES);
}

/// The speaker has two addresses, so that one of two paths to it can be cut.
#[test]
fn connection_over_a_cut_path_gives_way_to_a_newer_one() {
    let other = IpAddr::from([10, 0, 1, 1]);
    for is_cut in [false, true] {
        let mut network = reflector();
        network.add_address(1, other);
        let older = network.dial(at(2), at(1)).expect("accepted");
        network.send(older, open(2));
        network.send(older, Keepalive);
        assert_eq!(network.established(1), [at(2)]);
        if is_cut {
            network.cut(at(1), at(2));
        }
        let newer = network.dial(at(2), other).expect("held");
        network.send(newer, open(2));
        if is_cut {
            network.expect(newer, MessageKind::Open);
        } else {
            network.expect(newer, notification(6, 7));
        }
        assert_eq!(network.is_open(older), !is_cut);
    }
}

#[test]
fn killed_speaker_closes_its_connections_and_may_come_back() {
    let mut network = mesh(1, &[1, 2], Link::default());
    network.announce(1, "10.65.0.1/32");
    network.advance(SOON);
    network.remove(1).expect("it ran");
    network.settle();
    assert!(network.loc_rib(2, V4).is_empty() && downs(&network, 2) == 1);
    network.start(1, at(1), member(1, &[1, 2]));
    network.advance(Duration::from_secs(200));
    assert_eq!(network.established(2), [at(1)]);
}

#[test]
fn stalled_speaker_reads_later_what_came_meanwhile() {
    let mut network = mesh(1, &[1, 2], Link::default());
    network.advance(SOON);
    network.stall(2, true);
    network.announce(1, "10.65.0.1/32");
    network.advance(SOON);
    assert!(network.loc_rib(2, V4).is_empty());
    network.stall(2, false);
    network.settle();
    assert_eq!(network.loc_rib(2, V4), ["10.65.0.1/32"]);
}

#[test]
fn scripted_peer_brings_a_session_up_and_exchanges_routes() {
    let mut network = reflector();
    let [two, three] = [2, 3].map(|number| {
        let peer = network.dial(at(number), at(1)).expect("accepted");
        network.send(peer, open(number));
        network.expect(peer, MessageKind::Open);
        network.expect(peer, Received::Keepalive);
        network.send(peer, Keepalive);
        for family in [V4, Family::IPV6_UNICAST] {
            network.expect(peer, Received::EndOfRib(family));
        }
        peer
    });
    network.send(two, Update::reach(["10.65.0.1/32"]));
    network.send(two, EndOfRib(V4));
    network.expect(three, Received::Reach(vec!["10.65.0.1/32".into()]));
    assert_eq!(network.adj_rib_out(1, V4, at(3)), ["10.65.0.1/32"]);
    assert_eq!(network.received(two), [], "a route does not return");
    network.close_scripted(two);
    network.expect(
        three,
        matching("a withdrawal", |came| matches!(came, Received::Unreach(_))),
    );
    // Without a KEEPALIVE in 90 seconds of virtual time.
    network.expect(three, notification(4, 0));
    network.expect(three, Received::Closed);
    assert!(!network.is_open(three));
}

#[test]
fn path_identifiers_are_read_where_both_opens_settle_on_them() {
    let mut network = Network::new(7);
    let mut config = speaker_config(1);
    let mut range = clients(1, 10);
    range.template.session.add_path_send = V4.into();
    config.ranges.push(range);
    network.start(1, at(1), config);
    network.announce(1, "10.65.0.1/32");
    for mode in [AddPathMode::Receive, AddPathMode::Send] {
        let peer = network.dial(at(2), at(1)).expect("accepted");
        let mut open = open(2);
        open.capabilities
            .push(Capability::AddPath(vec![(V4, mode)]));
        network.send(peer, open);
        network.send(peer, Keepalive);
        network.expect(peer, MessageKind::Open);
        let net = match mode {
            AddPathMode::Receive => "10.65.0.1/32 path 1",
            _ => "10.65.0.1/32",
        };
        network.expect(peer, Received::Reach(vec![net.into()]));
        network.close_scripted(peer);
    }
}

#[test]
fn octets_that_are_no_message_are_answered() {
    let mut network = reflector();
    let peer = network.dial(at(2), at(1)).expect("accepted");
    network.expect(peer, MessageKind::Open);
    network.send(peer, Octets(b"GET / HTTP/1.1\r\n\r\n"));
    network.expect(peer, notification(1, 1));
    // In pieces, too.
    let peer = network.dial(at(3), at(1)).expect("accepted");
    network.expect(peer, MessageKind::Open);
    let keepalive = Keepalive.octets();
    for octet in &keepalive {
        network.send(peer, Octets(&[*octet]));
    }
    network.expect(peer, notification(5, 1));
}

#[test]
#[should_panic(expected = "expected NOTIFICATION 2/1\n  came: NOTIFICATION 2/4")]
fn failure_names_expected_and_received_message() {
    let mut network = reflector();
    let peer = network.dial(at(2), at(1)).expect("accepted");
    network.expect(peer, MessageKind::Open);
    // An optional parameter of an unknown type.
    let open = [4, 0xfc, 0, 0, 90, 10, 0, 0, 2, 3, 77, 1, 0];
    network.send(peer, Raw(1, &open));
    network.expect(peer, notification(2, 1));
}

#[test]
#[should_panic(expected = "came: nothing within 300s of virtual time\n  before: OPEN of AS 64512")]
fn failure_reports_that_nothing_was_received() {
    let mut network = reflector();
    let peer = network.dial(at(2), at(1)).expect("accepted");
    let without_timers = Open {
        hold_time: 0,
        ..open(2)
    };
    network.send(peer, without_timers);
    network.send(peer, Keepalive);
    network.expect(peer, MessageKind::Open);
    for family in [V4, Family::IPV6_UNICAST] {
        network.expect(peer, Received::EndOfRib(family));
    }
    network.expect(peer, Received::Reach(vec!["10.65.0.1/32".into()]));
}

/// A program whose speaker's connections with octets to write are lost.
struct Forgetful(Speaker);

impl Node for Forgetful {
    fn speaker(&self) -> Option<&Speaker> {
        Some(&self.0)
    }

    fn speaker_mut(&mut self) -> Option<&mut Speaker> {
        while self.0.poll_writable().is_some() {}
        Some(&mut self.0)
    }
}

#[test]
#[should_panic(expected = "octets to write that are not listed")]
fn connection_that_is_not_listed_is_found() {
    let mut config = speaker_config(1);
    config.ranges.push(clients(1, 10));
    let mut speaker = Speaker::new(config, 1);
    speaker.start(Instant::ZERO);
    let mut network = Network::new(1);
    network.add(1, at(1), Forgetful(speaker));
    // Its OPEN.
    let _ = network.dial(at(2), at(1));
}

/// A program without a speaker; its timer is due again so long after it was handled.
struct Timer {
    due: Instant,
    pause: Duration,
    handled: usize,
}

impl Node for Timer {
    fn speaker(&self) -> Option<&Speaker> {
        None
    }

    fn speaker_mut(&mut self) -> Option<&mut Speaker> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.due)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.due = now + self.pause;
        self.handled += 1;
    }
}

/// A network with one such program, after time has passed.
fn timed(pause: Duration, time: Duration) -> Network<Timer> {
    let mut network = Network::new(1);
    let (due, handled) = (Instant::ZERO, 0);
    network.add(
        1,
        at(1),
        Timer {
            due,
            pause,
            handled,
        },
    );
    network.advance(time);
    network
}

#[test]
#[should_panic(expected = "is still due")]
fn timer_that_stays_due_is_found() {
    timed(Duration::ZERO, SOON);
}

#[test]
fn timer_that_moves_may_be_due_any_number_of_times() {
    let pause = Duration::from_nanos(1);
    let times = STEPS_MAX + 10;
    let network = timed(pause, pause * u32::try_from(times).expect("few"));
    assert!(network.node(1).handled >= times);
}
