//! Clients of several users on one path.

use super::*;

/// Returns a client of another user than [`client`].
fn stranger() -> Identity {
    Identity {
        uid: 8,
        name: "stranger".to_owned(),
    }
}

fn timers(last: u8, interval_ms: u32, multiplier: u8) -> Wanted {
    Wanted {
        interval_ms,
        receive_ms: interval_ms,
        multiplier,
        ..wanted(last)
    }
}

impl Pair {
    /// Sets a session of the other user on the first host.
    fn set_of_stranger(&mut self, wanted: &Wanted) {
        let (now, engine) = (self.now, &mut self.engines[0]);
        if !engine.clients.contains_key(&stranger()) {
            engine.attach(now, &stranger()).expect("accepted");
        }
        let set = engine.set(now, &stranger(), wanted, &LINKS[0]);
        set.expect("within the limits");
    }

    /// Returns the interval and the multiplier of the session on the first host.
    fn timers(&self) -> (u32, u8) {
        let mut views = self.engines[0].views();
        let (_, session) = views.find_map(|view| view.session).expect("a session");
        let config = session.config();
        (
            config.desired_min_tx_us / 1000,
            config.detect_multiplier.get(),
        )
    }

    /// Returns the problem of a client on the first host.
    fn problem_of(&self, identity: &Identity) -> Option<String> {
        let mut views = self.engines[0].views();
        let view = views.find(|view| view.client == identity);
        view.expect("a session").problem.map(str::to_owned)
    }
}

// Promise (BGP): A later user of a path of BFD does not change the timers of the user that was first.
#[test]
fn later_user_does_not_change_the_timers_of_a_path() {
    for (interval_ms, multiplier) in [(50, 1), (50, 3), (300, 1), (60_000, 255)] {
        let mut pair = Pair::up();
        pair.set_of_stranger(&timers(2, interval_ms, multiplier));
        assert_eq!(pair.engines[0].len(), 1);
        assert_eq!(pair.timers(), (300, 3));
        pair.run(Duration::from_secs(60));
        assert_eq!(pair.last(0).liveness, Reported::Alive);
        assert_eq!(pair.problem_of(&client("bgp")), None);
        let note = pair.problem_of(&stranger()).expect("a note");
        assert!(
            note.contains("user 7") && note.contains("every 300 ms"),
            "{note}"
        );
        let state = pair.engines[0].unreported(&stranger()).expect("a state");
        assert_eq!(state.liveness, Reported::Alive, "it has the state");
        assert_eq!(state.problem, Some(note));

        // The first user decides, also later, and the other one is shown it.
        let slower = timers(2, 400, 5);
        pair.set(0, "bgp", slower).expect("set");
        assert_eq!(pair.timers(), (400, 5));
        let note = pair.problem_of(&stranger()).expect("a note");
        assert!(note.contains("every 400 ms, multiplier 5"), "{note}");
        pair.set_of_stranger(&timers(2, 400, 5));
        assert_eq!(pair.problem_of(&stranger()), None);
    }
}

#[test]
fn later_user_decides_when_the_first_one_has_left() {
    let mut pair = Pair::up();
    pair.set_of_stranger(&timers(2, 100, 5));
    pair.engines[0].detach(pair.now, &client("bgp"));
    pair.run(Duration::from_secs(299));
    assert_eq!(pair.timers(), (300, 3), "the grace");
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.timers(), (100, 5));
    assert_eq!(pair.problem_of(&stranger()), None);
    assert_eq!(pair.last(1).liveness, Reported::Alive, "no failure");
    pair.attach(0, "bgp");
    pair.set(0, "bgp", timers(2, 50, 1)).expect("set");
    assert_eq!(pair.timers(), (100, 5));
    assert!(pair.problem_of(&client("bgp")).is_some());
}

#[test]
fn keys_of_a_later_user_do_not_reject_those_of_the_first() {
    let mut pair = Pair::new();
    for (host, last) in [(0, 2), (1, 1)] {
        pair.attach(host, "bgp");
        pair.set(host, "bgp", signed(last, &[1])).expect("set");
    }
    pair.set_of_stranger(&signed(2, &[3]));
    let note = pair.problem_of(&stranger()).expect("a note");
    assert!(
        note.contains("other keys") && !note.contains("secret"),
        "{note}"
    );
    // The first user changes its keys, as without the other one.
    for ids in [&[1, 2][..], &[2, 1], &[2]] {
        for (host, last) in [(0, 2), (1, 1)] {
            pair.set(host, "bgp", signed(last, ids)).expect("set");
            assert_eq!(pair.problem_of(&client("bgp")), None);
            pair.run(Duration::from_secs(3));
        }
    }
    let last = pair.last(0);
    assert_eq!((last.liveness, last.failures), (Reported::Alive, 0));
}

/// The next process of cambric-bfd has the same precedence, whichever client connects first.
#[test]
fn precedence_of_users_survives_the_process() {
    let mut pair = Pair::new();
    for host in 0..2 {
        pair.engines[host].remember(true);
        pair.attach(host, "bgp");
        pair.set(host, "bgp", wanted(2 - host as u8)).expect("set");
    }
    pair.run(Duration::from_secs(5));
    pair.set_of_stranger(&timers(2, 50, 1));
    pair.run(Duration::from_secs(1));
    let next = Engine::new(Seeded::new(9), Limits::default());
    pair.engines[0] = next;
    let records = pair.kept[0].values();
    let records = records.map(|octets| Record::decode(octets).expect("a record"));
    let records = records.collect();
    let restored = pair.engines[0].restore(pair.now, records);
    assert_eq!(restored.sessions, 1);
    let engine = &mut pair.engines[0];
    engine.attach(pair.now, &stranger()).expect("accepted");
    pair.set_of_stranger(&timers(2, 60, 1));
    assert_eq!(pair.timers(), (300, 3));
    pair.attach(0, "bgp");
    pair.set(0, "bgp", timers(2, 200, 3)).expect("set");
    assert_eq!(pair.timers(), (200, 3));
}
