use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use bfd::{Arrival, Seeded, State};
use bfd_client::limits::IDLE_MS;
use bfd_client::{Hops, SessionState};
use tokio::time::timeout;

use super::*;
use crate::config::Limits;
use crate::engine::Identity;

const MILLISECOND: Duration = Duration::from_millis(1);
/// Longest wait for the thread, which has nothing to do but to answer.
const THREAD_WITHIN: Duration = Duration::from_secs(60);

/// Two hosts in virtual time. The thread of the first one returns addresses when it is told to.
struct World {
    near: Engine<Seeded>,
    far: Engine<Seeded>,
    host: Host,
    release: SyncSender<()>,
    now: Instant,
    /// The last packet of the first host to each address, and the longest time between two.
    sent: BTreeMap<IpAddr, (Instant, Duration)>,
    states: Vec<SessionState>,
}

fn client() -> Identity {
    Identity {
        uid: 7,
        name: "bgp".to_owned(),
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn wanted(local: &str, remote: &str, hops: Hops) -> Wanted {
    Wanted {
        remote: address(remote),
        local: Some(address(local)),
        hops,
        interval_ms: 100,
        receive_ms: 100,
        idle_ms: IDLE_MS,
        multiplier: 3,
        ttl_min: 254,
        auth: None,
    }
}

impl World {
    fn new() -> Self {
        let (release, released) = sync_channel::<()>(1);
        let read = move || {
            released.recv().expect("the test ends later");
            Addresses::read()
        };
        let now = Instant::from_secs(1);
        let engine = |seed| {
            let mut engine = Engine::new(Seeded::new(seed), Limits::default());
            engine.attach(now, &client()).expect("accepted");
            engine
        };
        Self {
            near: engine(1),
            far: engine(2),
            host: Host::start(read).expect("a thread"),
            release,
            now,
            sent: BTreeMap::new(),
            states: Vec::new(),
        }
    }

    fn set(&mut self, remote: &str, hops: Hops) {
        let wanted = wanted("127.0.0.1", remote, hops);
        let set = self.near.set(self.now, &client(), &wanted, &self.host);
        set.expect("within the limits");
    }

    /// Makes the session of the other host.
    fn answer(&mut self, remote: &str, hops: Hops) {
        let wanted = wanted(remote, "127.0.0.1", hops);
        let host = Addresses::read();
        let set = self.far.set(self.now, &client(), &wanted, &host);
        set.expect("within the limits");
    }

    /// Does one turn of both hosts.
    fn turn(&mut self) {
        self.now += MILLISECOND;
        let now = self.now;
        self.host.turn(now, &mut self.near);
        while let Some(outgoing) = self.near.step(now) {
            let (last, longest) = self
                .sent
                .entry(outgoing.way.remote)
                .or_insert((now, Duration::ZERO));
            *longest = (*longest).max(now.saturating_duration_since(*last));
            *last = now;
            deliver(now, &mut self.far, &outgoing);
        }
        while let Some(outgoing) = self.far.step(now) {
            deliver(now, &mut self.near, &outgoing);
        }
        while let Some(state) = self.near.unreported(&client()) {
            self.near.reported(&client(), &state);
            self.states.push(state);
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.turn();
        }
    }

    /// Lets the thread return addresses, and takes them.
    async fn read(&mut self) {
        self.release.send(()).expect("the thread runs");
        let ready = timeout(THREAD_WITHIN, self.host.ready()).await;
        ready.expect("addresses");
        self.turn();
    }

    fn last(&self, remote: &str) -> Option<&SessionState> {
        let mut states = self.states.iter().rev();
        states.find(|state| state.remote == address(remote))
    }

    fn state(&self, remote: &str) -> Option<State> {
        let mut views = self.near.views();
        let view = views.find(|view| view.wanted.remote == address(remote))?;
        Some(view.session?.1.state())
    }
}

fn deliver(now: Instant, to: &mut Engine<Seeded>, outgoing: &crate::engine::Outgoing) {
    let way = &outgoing.way;
    let arrival = Arrival::new(way.path.hops(), way.interface, way.local, way.remote, 255);
    // A neighbor that is not there has no session.
    let _ = to.receive(now, &arrival, outgoing.packet.octets());
}

#[tokio::test]
async fn slow_reading_of_addresses_delays_no_packet() {
    let mut world = World::new();
    let (multi, dead) = ("127.0.0.2", "127.0.0.3");
    // A path over several hops needs no addresses.
    world.set(multi, Hops::Multi);
    world.answer(multi, Hops::Multi);
    world.run(Duration::from_secs(5));
    assert_eq!(world.state(multi), Some(State::Up));
    world.set(dead, Hops::Single);
    world.sent.clear();
    world.run(Duration::from_secs(4));
    assert_eq!((world.last(dead), world.host.note(world.now)), (None, None));
    world.run(Duration::from_secs(16));
    // The thread still reads: this is reported, and every packet was sent in time.
    let problem = world.last(dead).and_then(|state| state.problem.clone());
    assert!(problem.is_some_and(|problem| problem.contains("has not returned")));
    let note = world.host.note(world.now).expect("a note");
    assert!(
        note.contains("for 20 s") || note.contains("for 19 s"),
        "{note}"
    );
    let (_, longest) = world.sent[&address(multi)];
    assert!(longest <= Duration::from_millis(101), "{longest:?}");
    world.read().await;
    assert_eq!(world.state(dead), Some(State::Down));
    let state = world.last(dead).expect("a state");
    assert_eq!(
        (state.problem.as_deref(), state.interface.as_deref()),
        (None, Some("lo"))
    );
    assert_eq!(world.host.note(world.now), None);
    // The dead neighbor causes further readings, which are as slow.
    world.sent.clear();
    world.run(Duration::from_secs(20));
    assert!(world.host.note(world.now).is_some());
    let (_, longest) = world.sent[&address(multi)];
    assert!(longest <= Duration::from_millis(101), "{longest:?}");
}

#[tokio::test]
async fn wish_during_a_reading_is_answered_by_the_next_one() {
    let mut world = World::new();
    let (first, second) = ("127.0.0.2", "127.0.0.3");
    world.set(first, Hops::Auto);
    world.turn();
    world.run(Duration::from_millis(10));
    // The reading may have passed the address that this one needs.
    world.set(second, Hops::Auto);
    world.run(Duration::from_millis(10));
    assert!(world.states.is_empty(), "{:?}", world.states);
    world.read().await;
    assert_eq!(
        (world.state(first), world.state(second)),
        (Some(State::Down), None)
    );
    assert!(world.last(first).is_some());
    assert_eq!(world.last(second), None);
    world.read().await;
    assert_eq!(world.state(second), Some(State::Down));
    assert!(
        world
            .last(second)
            .is_some_and(|state| state.problem.is_none())
    );
}

#[tokio::test]
async fn session_that_is_up_is_set_again_without_a_reading() {
    let mut world = World::new();
    let remote = "127.0.0.2";
    world.set(remote, Hops::Single);
    world.answer(remote, Hops::Single);
    world.turn();
    world.read().await;
    world.run(Duration::from_secs(4));
    assert_eq!(world.state(remote), Some(State::Up));
    // Another neighbor keeps the thread busy; then the client restarts.
    world.set("127.0.0.3", Hops::Single);
    world.run(Duration::from_millis(10));
    world.near.detach(world.now, &client());
    world.near.attach(world.now, &client()).expect("accepted");
    world.states.clear();
    let faster = Wanted {
        local: None,
        interval_ms: 60,
        ..wanted("127.0.0.1", remote, Hops::Single)
    };
    let set = world.near.set(world.now, &client(), &faster, &world.host);
    set.expect("within the limits");
    world.turn();
    let state = world.last(remote).expect("a state");
    assert_eq!((state.failures, state.problem.as_deref()), (0, None));
    let mut views = world.near.views();
    let session = views.find_map(|view| view.session).expect("a session").1;
    assert_eq!(session.config().desired_min_tx_us, 60_000);
}
