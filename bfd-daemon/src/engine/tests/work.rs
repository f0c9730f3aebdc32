//! The work of a request, counted.

use super::*;

fn remote(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    [10, 1, high, low].into()
}

fn wish(number: u16) -> Wanted {
    Wanted {
        remote: remote(number),
        ..wanted(1)
    }
}

/// Returns the entries that `work` looks at.
fn visits(engine: &mut Engine<Seeded>, work: impl FnOnce(&mut Engine<Seeded>)) -> u64 {
    let before = engine.visits.get();
    work(engine);
    engine.visits.get() - before
}

/// An engine with so many sessions of one client, and with a client of another user.
fn busy(sessions: u16) -> (Engine<Seeded>, Identity) {
    let mut engine = Engine::new(Seeded::new(1), Limits::default());
    let now = Instant::from_secs(1);
    let other = Identity {
        uid: 8,
        ..client("other")
    };
    for identity in [&client("bgp"), &other] {
        engine.attach(now, identity).expect("accepted");
    }
    for number in 0..sessions {
        let set = engine.set(now, &client("bgp"), &wish(number), &LINKS[0]);
        set.expect("within the limits");
    }
    (engine, other)
}

#[test]
fn work_of_a_request_does_not_grow_with_the_sessions() {
    let now = Instant::from_secs(2);
    let counts = |sessions| {
        let (mut engine, other) = busy(sessions);
        let engine = &mut engine;
        let bgp = client("bgp");
        let mut counts = Vec::new();
        for identity in [&bgp, &other] {
            let number = 5_000;
            counts.push(visits(engine, |engine| {
                let set = engine.set(now, identity, &wish(number), &LINKS[0]);
                set.expect("a further one");
            }));
            counts.push(visits(engine, |engine| {
                let faster = Wanted {
                    interval_ms: 200,
                    ..wish(number)
                };
                let set = engine.set(now, identity, &faster, &LINKS[0]);
                set.expect("a change");
            }));
            counts.push(visits(engine, |engine| {
                engine.remove(now, identity, remote(number));
            }));
        }
        counts.push(visits(engine, |engine| {
            engine.detach(now, &other);
            engine.attach(now, &other).expect("accepted");
        }));
        counts
    };
    let few = counts(10);
    assert!(
        few[..6].iter().all(|count| (1..=32).contains(count)),
        "{few:?}"
    );
    assert_eq!(few, counts(4_000));
}

/// Many sessions that end at once are no work for each pair of them.
#[test]
fn work_of_expiries_grows_with_their_number_only() {
    let (mut engine, _) = busy(4_000);
    let now = Instant::from_secs(2);
    let count = visits(&mut engine, |engine| {
        engine.detach(now, &client("bgp"));
        let end = now + Limits::default().grace();
        while engine.step(end).is_some() {}
    });
    assert_eq!((engine.views().count(), engine.clients()), (0, 1));
    assert_eq!(engine.loads().count(), 0);
    assert!(count <= 8 * 4_000, "{count}");
}
