//! Processes of the first host that are killed, and replaced by the next one.

use super::*;

impl Pair {
    /// A pair with a session that is up, whose first host keeps its state from the start.
    fn kept() -> Self {
        let mut pair = Self::new();
        for host in 0..2 {
            pair.engines[host].remember(true);
            pair.attach(host, "bgp");
            pair.set(host, "bgp", wanted(2 - host as u8)).expect("set");
        }
        pair.run(Duration::from_secs(5));
        assert_eq!(pair.state(0, "bgp"), Some(State::Up));
        pair.on_wire.clear();
        pair
    }

    /// Kills the process of the first host; the next one starts after this time.
    fn kill(&mut self, gap: Duration, seed: u64) -> Restored {
        let dead = Engine::new(Seeded::new(seed), Limits::default());
        self.engines[0] = dead;
        self.waiting = Some(Vec::new());
        self.run(gap);
        let next = Engine::new(Seeded::new(seed), Limits::default());
        self.engines[0] = next;
        self.engines[0].remember(true);
        let records = self.kept[0].values().map(|octets| {
            let record = Record::decode(octets);
            record.expect("a record")
        });
        let records = records.collect();
        let restored = self.engines[0].restore(self.now, records);
        for (arrived_at, outgoing) in self.waiting.take().into_iter().flatten() {
            self.receive(0, arrived_at, &outgoing);
        }
        restored
    }

    fn downs(&self, host: usize) -> u64 {
        let sessions = self.engines[host].views().filter_map(|view| view.session);
        sessions.map(|(_, session)| session.stats().downs).sum()
    }

    fn discriminator(&self) -> Discriminator {
        let mut views = self.engines[0].views();
        let view = views.next().and_then(|view| view.session);
        view.expect("a session").1.local_discriminator()
    }
}

// Promise (BGP): The neighbors do not notice that cambric-bfd is killed and started again.
#[test]
fn killed_process_is_not_noticed_by_the_neighbor() {
    let mut pair = Pair::kept();
    let id = pair.discriminator();
    for count in 0..100 {
        let restored = pair.kill(Duration::from_millis(7 * count % 301), count);
        assert_eq!((restored.sessions, restored.lost), (1, None));
        pair.run(Duration::from_millis(1 + 13 * count % 700));
    }
    assert_eq!((pair.discriminator(), pair.downs(1)), (id, 0));
    assert!(pair.on_wire.iter().all(|state| *state == State::Up));
    assert!(pair.on_wire.len() > 100);
    // No client has connected since the first kill.
    assert!(pair.state(0, "bgp").is_some());
    pair.attach(0, "bgp");
    pair.sent[0].clear();
    pair.set(0, "bgp", wanted(2)).expect("set");
    pair.run(Duration::from_secs(1));
    let last = pair.last(0);
    assert_eq!((last.liveness, last.failures), (Reported::Alive, 0));
}

#[test]
fn path_that_fails_in_between_is_found_at_the_stored_time() {
    let mut pair = Pair::kept();
    let deadline = |pair: &Pair| {
        let mut views = pair.engines[0].views();
        let view = views.next().and_then(|view| view.session);
        view.expect("a session").1.detection_deadline()
    };
    let expected = deadline(&pair).expect("a detection time");
    pair.cut = true;
    pair.kill(Duration::from_millis(400), 7);
    assert_eq!(deadline(&pair), Some(expected));
    while pair.state(0, "bgp") == Some(State::Up) {
        pair.run(Duration::from_millis(1));
    }
    assert_eq!(pair.now, expected);
    // A second kill before the client returns loses no failure.
    pair.kill(Duration::from_millis(50), 8);
    pair.attach(0, "bgp");
    pair.sent[0].clear();
    pair.set(0, "bgp", wanted(2)).expect("set");
    pair.run(Duration::from_millis(5));
    let last = pair.last(0);
    assert_eq!((last.liveness, last.failures), (Reported::Failed, 1));
}

#[test]
fn client_that_stays_away_after_a_kill_ends_in_admin_down() {
    let mut pair = Pair::kept();
    pair.kill(Duration::from_millis(50), 7);
    pair.run(Duration::from_secs(299));
    assert_eq!(pair.state(0, "bgp"), Some(State::Up));
    // Further restarts do not extend the grace.
    pair.kill(Duration::from_millis(50), 8);
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.state(0, "bgp"), None);
    let last = pair.last(1);
    let expected = (Reported::DisabledThere, 0);
    assert_eq!((last.liveness, last.failures), expected);
    assert!(!pair.on_wire.contains(&State::Down));
    // The memory of ended sessions is used again.
    pair.engines[0].resolve_again(pair.now, &LINKS[0]);
    pair.run(Duration::from_secs(30));
    pair.engines[0].resolve_again(pair.now, &LINKS[0]);
    pair.keep(0);
    assert!(pair.kept[0].is_empty(), "{:?}", pair.kept[0].keys());
}

#[test]
fn removed_session_sends_admin_down_after_a_kill() {
    let mut pair = Pair::kept();
    pair.engines[0].remove(pair.now, &client("bgp"), address(2));
    pair.keep(0);
    pair.kill(Duration::from_millis(50), 7);
    pair.run(Duration::from_secs(2));
    let last = pair.last(1);
    let expected = (Reported::DisabledThere, 0);
    assert_eq!((last.liveness, last.failures), expected);
}

#[test]
fn session_of_two_clients_keeps_both() {
    let mut pair = Pair::kept();
    pair.attach(0, "other");
    let slow = Wanted {
        interval_ms: 900,
        receive_ms: 900,
        ..wanted(2)
    };
    pair.set(0, "other", slow).expect("set");
    pair.run(Duration::from_secs(1));
    pair.kill(Duration::from_millis(50), 7);
    assert_eq!(pair.engines[0].views().count(), 2);
    pair.engines[0].remove(pair.now, &client("bgp"), address(2));
    pair.run(Duration::from_secs(5));
    assert_eq!(pair.state(0, "other"), Some(State::Up));
    let view = pair.engines[0].views().next().and_then(|view| view.session);
    let interval = view.expect("a session").1.config().desired_min_tx_us;
    assert_eq!((interval, pair.downs(1)), (900_000, 0));
}

#[test]
fn removed_session_takes_no_path_of_a_present_one() {
    let pair = Pair::kept();
    let id = pair.discriminator();
    let read = |octets: &Vec<u8>| Record::decode(octets).expect("a record");
    let sessions = |pair: &Pair, host: usize| {
        let mut records: Vec<Record> = pair.kept[host].values().map(read).collect();
        records.retain(|record| matches!(record, Record::Session(_)));
        records
    };
    let present: Vec<Record> = pair.kept[0].values().map(read).collect();
    let Some(Record::Session(way)) = sessions(&pair, 0).pop() else {
        panic!("no session");
    };
    // Another session, with the path of the present one.
    let mut removed = sessions(&pair, 1);
    for record in &mut removed {
        if let Record::Session(session) = record {
            session.way = way.way;
            session.is_leaving = true;
        }
    }
    let mut next = Engine::new(Seeded::new(3), Limits::default());
    let records = removed.into_iter().chain(present).collect();
    let restored = next.restore(pair.now, records);
    assert_eq!(restored.sessions, 1);
    let lost = restored.lost.expect("the removed session");
    assert!(lost.contains("path"), "{lost}");
    let view = next.views().next().and_then(|view| view.session);
    assert_eq!(view.expect("a session").1.local_discriminator(), id);
}
