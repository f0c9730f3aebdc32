//! Two engines with a link between them, in virtual time.

use std::time::Duration;

use bfd::{AuthType, Hops as Port, Path, Seeded};
use bfd_client::limits::IDLE_MS;
use bfd_client::{Auth, AuthKey, Hops, Liveness as Reported, State as ReportedState};

use super::*;

mod other_port;
mod precedence;
mod survival;
mod work;

/// The paths of a host with one link and the interface number 7.
struct Link {
    local: IpAddr,
}

impl Resolve for Link {
    fn way(&self, wanted: &Wanted) -> Result<Way, String> {
        let (remote, local) = (wanted.remote, wanted.local.unwrap_or(self.local));
        let (path, interface) = match wanted.hops {
            Hops::Multi => {
                let (table, ttl_min) = (0, wanted.ttl_min);
                (multihop(table, local, remote, ttl_min), 0)
            }
            Hops::Auto | Hops::Single => (
                Path::SingleHop {
                    interface: 7,
                    remote,
                },
                7,
            ),
        };
        Ok(Way {
            path,
            local,
            remote,
            interface,
        })
    }

    fn interface(&self, number: u32) -> Option<String> {
        (number == 7).then(|| "eth7".to_owned())
    }
}

const fn multihop(table: u32, local: IpAddr, remote: IpAddr, ttl_min: u8) -> Path {
    Path::Multihop {
        table,
        local,
        remote,
        ttl_min,
    }
}

/// A host without any path.
struct Nowhere;

impl Resolve for Nowhere {
    fn way(&self, _: &Wanted) -> Result<Way, String> {
        Err("no route".to_owned())
    }

    fn interface(&self, _: u32) -> Option<String> {
        None
    }
}

fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn wanted(last: u8) -> Wanted {
    Wanted {
        remote: address(last),
        local: None,
        hops: Hops::Auto,
        interval_ms: 300,
        receive_ms: 300,
        idle_ms: IDLE_MS,
        multiplier: 3,
        ttl_min: 254,
        auth: None,
    }
}

fn client(name: &str) -> Identity {
    Identity {
        uid: 7,
        name: name.to_owned(),
    }
}

/// Two hosts with the addresses 10.0.0.1 and 10.0.0.2.
struct Pair {
    engines: [Engine<Seeded>; 2],
    now: Instant,
    cut: bool,
    /// The addresses that packets reach.
    at: [IpAddr; 2],
    /// The states that the client `bgp` of each host was sent.
    sent: [Vec<SessionState>; 2],
    /// The records that the next process of each host continues.
    kept: [BTreeMap<Key, Vec<u8>>; 2],
    /// The states in the packets of the first host.
    on_wire: Vec<State>,
    /// The packets in the sockets of the first host, while no process reads them.
    waiting: Option<Vec<(Instant, Outgoing)>>,
}

const LINKS: [Link; 2] = [
    Link {
        local: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    },
    Link {
        local: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
    },
];

impl Pair {
    fn new() -> Self {
        let engine = |seed| Engine::new(Seeded::new(seed), Limits::default());
        Self {
            engines: [engine(1), engine(2)],
            now: Instant::from_secs(1),
            cut: false,
            at: [LINKS[0].local, LINKS[1].local],
            sent: [Vec::new(), Vec::new()],
            kept: [BTreeMap::new(), BTreeMap::new()],
            on_wire: Vec::new(),
            waiting: None,
        }
    }

    /// A pair with a session between the clients `bgp` that is up.
    fn up() -> Self {
        let mut pair = Self::new();
        for host in 0..2 {
            pair.attach(host, "bgp");
            pair.set(host, "bgp", wanted(2 - host as u8)).expect("set");
        }
        pair.run(Duration::from_secs(5));
        for host in 0..2 {
            let last = pair.sent[host].last().expect("a state");
            assert_eq!(last.liveness, Reported::Alive);
        }
        pair
    }

    fn attach(&mut self, host: usize, name: &str) {
        let welcome = self.engines[host].attach(self.now, &client(name));
        assert_eq!(welcome.expect("accepted").version, VERSION);
    }

    fn set(&mut self, host: usize, name: &str, wanted: Wanted) -> Result<(), String> {
        self.engines[host].set(self.now, &client(name), &wanted, &LINKS[host])
    }

    /// Lets time pass, in steps of a millisecond.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(1);
            for host in 0..2 {
                while let Some(outgoing) = self.engines[host].step(self.now) {
                    self.keep(host);
                    self.deliver(1 - host, &outgoing);
                }
                let bgp = client("bgp");
                let engine = &mut self.engines[host];
                while let Some(state) = engine.unreported(&bgp) {
                    engine.reported(&bgp, &state);
                    self.sent[host].push(state);
                }
                self.keep(host);
            }
        }
    }

    /// Keeps the changed records of a host, as the daemon does before each packet.
    fn keep(&mut self, host: usize) {
        let engine = &mut self.engines[host];
        while let Some(key) = engine.take_changed() {
            match engine.record(self.now, &key, |_| None) {
                Some(record) => {
                    let octets = record.encode().expect("short");
                    self.kept[host].insert(key, octets);
                }
                None => drop(self.kept[host].remove(&key)),
            }
        }
    }

    fn deliver(&mut self, to: usize, outgoing: &Outgoing) {
        let way = &outgoing.way;
        if to == 1 {
            let packet = bfd::Packet::decode(outgoing.packet.octets()).expect("a packet");
            self.on_wire.push(packet.state);
        }
        let is_for = way.remote == self.at[to];
        if self.cut || !is_for {
            return;
        }
        if let Some(waiting) = self.waiting.as_mut().filter(|_| to == 0) {
            waiting.push((self.now, *outgoing));
            return;
        }
        self.receive(to, self.now, outgoing);
    }

    fn receive(&mut self, to: usize, arrived_at: Instant, outgoing: &Outgoing) {
        let way = &outgoing.way;
        let hops = way.path.hops();
        let interface = if hops == Port::Single { 7 } else { 0 };
        let arrival = Arrival::new(hops, interface, way.local, way.remote, 255);
        let arrival = arrival.with(|arrival| arrival.arrived_at = Some(arrived_at));
        let _ = self.engines[to].receive(self.now, &arrival, outgoing.packet.octets());
    }

    fn last(&self, host: usize) -> &SessionState {
        self.sent[host].last().expect("a state")
    }

    fn state(&self, host: usize, name: &str) -> Option<State> {
        let client = client(name);
        let mut views = self.engines[host].views();
        let view = views.find(|view| *view.client == client)?;
        Some(view.session?.1.state())
    }
}

#[test]
fn cut_path_is_reported_within_the_detection_time() {
    let mut pair = Pair::up();
    pair.cut = true;
    pair.run(Duration::from_millis(900));
    for host in 0..2 {
        let last = pair.last(host);
        assert_eq!((last.liveness, last.failures), (Reported::Failed, 1));
        assert!(last.control_plane_independent);
        assert!(last.diagnostic.contains("expired"), "{last:?}");
    }
    pair.cut = false;
    pair.run(Duration::from_secs(5));
    let last = pair.last(0);
    assert_eq!((last.liveness, last.failures), (Reported::Alive, 0));
}

#[test]
fn session_survives_a_client_that_returns_within_the_grace() {
    let mut pair = Pair::up();
    pair.engines[0].detach(pair.now, &client("bgp"));
    pair.run(Duration::from_secs(200));
    pair.attach(0, "bgp");
    pair.sent[0].clear();
    pair.set(0, "bgp", wanted(2)).expect("set");
    pair.run(Duration::from_secs(400));
    let [taken_over] = &pair.sent[0][..] else {
        panic!("{:?}", pair.sent[0]);
    };
    assert_eq!(
        (taken_over.liveness, taken_over.failures),
        (Reported::Alive, 0)
    );
    let downs = pair.engines[1].views().filter_map(|view| view.session);
    assert_eq!(
        downs.map(|(_, session)| session.stats().downs).sum::<u64>(),
        0
    );
}

/// A daemon that starts again does not know the local address of the session yet.
#[test]
fn returned_client_without_a_local_address_keeps_the_path() {
    let mut pair = Pair::new();
    let second = IpAddr::from([10, 0, 0, 11]);
    for host in 0..2 {
        pair.attach(host, "bgp");
    }
    let with_local = Wanted {
        local: Some(second),
        ..wanted(2)
    };
    let of_second = Wanted {
        remote: second,
        ..wanted(1)
    };
    pair.set(0, "bgp", with_local).expect("set");
    pair.set(1, "bgp", of_second).expect("set");
    pair.at = [second, address(2)];
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.state(0, "bgp"), Some(State::Up));

    pair.engines[0].detach(pair.now, &client("bgp"));
    pair.attach(0, "bgp");
    pair.set(0, "bgp", wanted(2)).expect("set");
    pair.run(Duration::from_secs(5));
    let local = |pair: &Pair| {
        let view = pair.engines[0].views().next().expect("one");
        view.session.expect("a path").0.local
    };
    assert_eq!(local(&pair), second);
    assert_eq!(pair.last(1).liveness, Reported::Alive);
    assert!(pair.sent.iter().flatten().all(|state| state.failures == 0));

    // Another mode is another path.
    let multi = Wanted {
        hops: Hops::Multi,
        ..wanted(2)
    };
    pair.set(0, "bgp", multi).expect("set");
    assert_eq!(local(&pair), address(1));
}

#[test]
fn ways_of_removed_sessions_are_kept_only_while_they_send() {
    let mut pair = Pair::up();
    for _ in 0..100 {
        // A remote system that never answers has no session to end.
        pair.set(0, "bgp", wanted(3)).expect("set");
        pair.engines[0].remove(pair.now, &client("bgp"), address(3));
    }
    let ended = |pair: &Pair| pair.engines[0].leaving.len();
    assert!(ended(&pair) <= 1, "{}", ended(&pair));
    pair.engines[0].remove(pair.now, &client("bgp"), address(2));
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.last(1).liveness, Reported::DisabledThere);
    pair.run(Duration::from_secs(40));
    let now = pair.now;
    pair.engines[0].resolve_again(now, &LINKS[0]);
    assert_eq!((ended(&pair), pair.engines[0].len()), (0, 0));
}

#[test]
fn session_of_a_lost_client_ends_in_admin_down_after_the_grace() {
    let mut pair = Pair::up();
    pair.engines[0].detach(pair.now, &client("bgp"));
    pair.run(Duration::from_secs(299));
    assert_eq!(pair.last(1).liveness, Reported::Alive);
    pair.run(Duration::from_secs(2));
    let last = pair.last(1);
    assert_eq!((last.liveness, last.failures), (Reported::DisabledThere, 0));
    assert_eq!(last.state, ReportedState::Down);
    pair.run(Duration::from_secs(60));
    assert!(pair.engines[0].is_empty());
    assert_eq!(pair.engines[0].clients(), 0);
}

#[test]
fn session_that_a_returned_client_no_longer_wants_ends() {
    let mut pair = Pair::up();
    pair.engines[0].detach(pair.now, &client("bgp"));
    pair.attach(0, "bgp");
    pair.run(Duration::from_secs(301));
    assert_eq!(pair.last(1).liveness, Reported::DisabledThere);
}

#[test]
fn failure_without_the_client_is_reported_when_it_returns() {
    let mut pair = Pair::up();
    pair.engines[0].detach(pair.now, &client("bgp"));
    pair.cut = true;
    pair.run(Duration::from_secs(2));
    pair.cut = false;
    pair.run(Duration::from_secs(8));
    pair.attach(0, "bgp");
    pair.set(0, "bgp", wanted(2)).expect("set");
    pair.run(Duration::from_millis(1));
    let last = pair.last(0);
    assert_eq!((last.liveness, last.failures), (Reported::Alive, 1));
}

#[test]
fn removed_session_is_no_failure_for_the_remote_system() {
    let mut pair = Pair::up();
    let now = pair.now;
    pair.engines[0].remove(now, &client("bgp"), address(2));
    pair.run(Duration::from_secs(40));
    let last = pair.last(1);
    assert_eq!((last.liveness, last.failures), (Reported::DisabledThere, 0));
    assert!(pair.engines[0].is_empty());
}

#[test]
fn clients_with_one_path_share_its_session() {
    let mut pair = Pair::up();
    pair.attach(0, "other");
    let faster = Wanted {
        interval_ms: 100,
        receive_ms: 100,
        ..wanted(2)
    };
    pair.set(0, "other", faster).expect("set");
    assert_eq!(pair.engines[0].len(), 1);
    pair.run(Duration::from_secs(3));
    let interval = |pair: &Pair| {
        let mut views = pair.engines[0].views();
        let session = views.find_map(|view| view.session).expect("a session");
        session.1.config().desired_min_tx_us
    };
    assert_eq!(interval(&pair), 100_000);
    let now = pair.now;
    pair.engines[0].remove(now, &client("other"), address(2));
    pair.run(Duration::from_secs(3));
    assert_eq!(interval(&pair), 300_000);
    assert_eq!(pair.last(1).liveness, Reported::Alive);
    pair.attach(0, "third");
    let source = Wanted {
        local: Some(address(9)),
        ..wanted(2)
    };
    pair.set(0, "third", source).expect("the request is valid");
    let problem = pair.engines[0].unreported(&client("third"));
    let problem = problem.and_then(|state| state.problem).expect("a reason");
    assert!(problem.contains("another local address"), "{problem}");
}

#[test]
fn timers_of_a_client_are_applied_within_the_limits() {
    let mut pair = Pair::new();
    for host in 0..2 {
        pair.attach(host, "bgp");
    }
    let timers = |last| Wanted {
        interval_ms: 200,
        receive_ms: 10,
        idle_ms: 5_000,
        multiplier: 4,
        ..wanted(last)
    };
    pair.set(0, "bgp", timers(2)).expect("set");
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.last(0).interface.as_deref(), Some("eth7"));
    let session = |pair: &Pair| {
        let mut views = pair.engines[0].views();
        let (_, session) = views.find_map(|view| view.session).expect("a session");
        let config = session.config();
        (
            config.required_min_rx_us,
            config.detect_multiplier.get(),
            session.transmit_interval(),
        )
    };
    let idle = Duration::from_secs(5);
    assert_eq!(session(&pair), (50_000, 4, Some(idle)));
    pair.set(1, "bgp", timers(1)).expect("set");
    pair.run(Duration::from_secs(20));
    assert_eq!(pair.last(0).liveness, Reported::Alive);
    let up = Duration::from_millis(200);
    assert_eq!(session(&pair), (50_000, 4, Some(up)));
}

/// Returns the wish with keys of the numbers, the first of which signs.
fn signed(last: u8, ids: &[u8]) -> Wanted {
    let key = |id: &u8| AuthKey {
        id: *id,
        secret: format!("secret {id}"),
    };
    let auth = Auth {
        kind: AuthType::MeticulousKeyedSha1.code(),
        keys: ids.iter().map(key).collect(),
    };
    Wanted {
        auth: Some(auth),
        ..wanted(last)
    }
}

#[test]
fn keys_are_changed_without_a_failure() {
    let mut pair = Pair::new();
    for (host, last) in [(0, 2), (1, 1)] {
        pair.attach(host, "bgp");
        pair.set(host, "bgp", signed(last, &[1])).expect("set");
    }
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.last(0).liveness, Reported::Alive);
    for ids in [&[1, 2][..], &[2, 1], &[2]] {
        for (host, last) in [(0, 2), (1, 1)] {
            pair.set(host, "bgp", signed(last, ids)).expect("set");
            pair.run(Duration::from_secs(3));
        }
    }
    for host in 0..2 {
        let last = pair.last(host);
        assert_eq!((last.liveness, last.failures), (Reported::Alive, 0));
    }
    // A system without the key is not accepted.
    pair.set(1, "bgp", signed(1, &[3])).expect("set");
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.last(0).liveness, Reported::Failed);
}

#[test]
fn clients_of_a_path_need_the_same_keys() {
    let mut pair = Pair::new();
    pair.attach(0, "bgp");
    pair.attach(0, "other");
    pair.set(0, "bgp", signed(2, &[1])).expect("set");
    pair.set(0, "other", signed(2, &[2]))
        .expect("the request is valid");
    let state = pair.engines[0].unreported(&client("other"));
    let problem = state.and_then(|state| state.problem).expect("a reason");
    assert!(problem.contains("other keys"), "{problem}");
    assert!(!problem.contains("secret"), "{problem}");
    let wrong = Wanted {
        auth: signed(3, &[1]).auth.map(|auth| Auth { kind: 9, ..auth }),
        ..wanted(3)
    };
    pair.set(0, "bgp", wrong).expect("the request is valid");
    pair.run(Duration::from_millis(1));
    let problem = pair.last(0).problem.clone().expect("a reason");
    assert!(problem.contains("type 9"), "{problem}");
}

#[test]
fn limits_of_a_user_reject_further_sessions() {
    let mut pair = Pair::new();
    pair.engines[0].set_limits(Limits {
        sessions: 2,
        packets_per_second: 20,
        interval_ms_min: 50,
        grace_s: 300,
    });
    pair.attach(0, "bgp");
    let fast = |last, interval_ms| Wanted {
        interval_ms,
        receive_ms: interval_ms,
        ..wanted(last)
    };
    let error = pair.set(0, "bgp", fast(2, 49)).expect_err("too fast");
    assert!(error.contains("interval_min_ms"), "{error}");
    pair.set(0, "bgp", fast(2, 100))
        .expect("10 packets a second");
    let error = pair
        .set(0, "bgp", fast(3, 90))
        .expect_err("too many packets");
    assert!(error.contains("packets_per_second"), "{error}");
    pair.set(0, "bgp", fast(3, 100))
        .expect("20 packets a second");
    pair.set(0, "bgp", fast(2, 200)).expect("a change");
    let error = pair.set(0, "bgp", wanted(4)).expect_err("a third session");
    assert!(error.contains("2 sessions"), "{error}");
    assert_eq!(pair.engines[0].views().count(), 2);
    // A further name is no further limit.
    pair.attach(0, "other");
    let error = pair
        .set(0, "other", wanted(4))
        .expect_err("a third session");
    assert!(error.contains("2 sessions"), "{error}");
    let another = Identity {
        uid: 8,
        ..client("bgp")
    };
    let now = pair.now;
    let engine = &mut pair.engines[0];
    engine.attach(now, &another).expect("accepted");
    let set = engine.set(now, &another, &wanted(4), &LINKS[0]);
    set.expect("the limits of another user");
    let strange = client("not connected");
    let set = pair.engines[0].set(pair.now, &strange, &wanted(2), &Nowhere);
    assert!(set.is_err());
}

#[test]
fn clients_are_bounded_and_return_to_their_places() {
    let mut pair = Pair::new();
    let now = pair.now;
    let engine = &mut pair.engines[0];
    let of = |number: usize| Identity {
        uid: (number / CLIENTS_OF_USER_MAX) as u32,
        name: number.to_string(),
    };
    for number in 0..CLIENTS_MAX {
        engine.attach(now, &of(number)).expect("accepted");
        let set = engine.set(now, &of(number), &wanted(2), &LINKS[0]);
        set.expect("set");
    }
    let further = of(CLIENTS_MAX);
    assert!(engine.attach(now, &further).is_err());
    engine.detach(now, &of(0));
    assert!(engine.attach(now, &further).is_err(), "it is away");
    engine.attach(now, &of(0)).expect("accepted");
    engine.remove(now, &of(0), address(2));
    engine.detach(now, &of(0));
    assert!(engine.attach(now, &further).is_ok());
}

#[test]
fn user_does_not_take_the_places_of_other_users() {
    let mut pair = Pair::new();
    let now = pair.now;
    for number in 0..CLIENTS_OF_USER_MAX {
        pair.attach(0, &number.to_string());
    }
    let engine = &mut pair.engines[0];
    let error = engine
        .attach(now, &client("further"))
        .expect_err("too many of the user");
    assert!(error.contains("of this user"), "{error}");
    let another = Identity {
        uid: 8,
        ..client("further")
    };
    assert!(engine.attach(now, &another).is_ok());
}

#[test]
fn session_without_a_path_is_made_when_there_is_one() {
    let mut pair = Pair::new();
    pair.attach(0, "bgp");
    let (now, bgp) = (pair.now, client("bgp"));
    pair.engines[0]
        .set(now, &bgp, &wanted(2), &Nowhere)
        .expect("the request is valid");
    assert_eq!(pair.state(0, "bgp"), None);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.last(0).problem.as_deref(), Some("no route"));
    let now = pair.now;
    pair.engines[0].resolve_again(now, &LINKS[0]);
    assert_eq!(pair.state(0, "bgp"), Some(State::Down));
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.last(0).problem, None);
}

#[test]
fn session_that_is_up_keeps_its_path_until_it_fails() {
    let mut pair = Pair::up();
    pair.engines[0].resolve_again(pair.now, &Nowhere);
    assert_eq!(pair.state(0, "bgp"), Some(State::Up));
    pair.cut = true;
    pair.run(Duration::from_secs(1));
    pair.engines[0].resolve_again(pair.now, &Nowhere);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.last(0).problem.as_deref(), Some("no route"));
}

#[test]
fn session_moves_to_another_path_without_a_failure() {
    let mut pair = Pair::up();
    for host in 0..2 {
        let multi = Wanted {
            hops: Hops::Multi,
            ..wanted(2 - host as u8)
        };
        pair.set(host, "bgp", multi).expect("set");
    }
    pair.run(Duration::from_secs(5));
    for host in 0..2 {
        assert_eq!(pair.last(host).liveness, Reported::Alive);
        assert!(pair.sent[host].iter().all(|state| state.failures == 0));
    }
}

#[test]
fn stopped_engine_ends_all_sessions() {
    let mut pair = Pair::up();
    let now = pair.now;
    pair.engines[0].stop(now);
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.last(1).liveness, Reported::DisabledThere);
    pair.run(Duration::from_secs(40));
    assert!(pair.engines[0].is_empty());
    assert_eq!(pair.engines[0].views().count(), 0);
}
