//! Two speakers that dial each other at the same time (RFC 4271 §6.8, RFC 6286), in every order in
//! which the network can deliver their messages.

mod support;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use bgp_fsm::{Conn, Input, SessionConfig, State};
use bgp_proto::Asn;
use support::pair::Pair;
use support::{config, id};

fn both(a: SessionConfig, b: SessionConfig) -> Pair {
    let mut pair = Pair::new([a, b].map(|config| config.with(|config| config.passive = false)));
    pair.handle(0, Input::Start);
    pair.handle(1, Input::Start);
    pair
}

fn speaker(last: u8, asn: u32) -> SessionConfig {
    config().with(|config| {
        config.local_id = id(last);
        config.local_asn = Asn(asn);
    })
}

/// Explores every order of delivery; returns the number of distinct final states and how many of
/// them have lost both connections.
fn explore(start: Pair) -> (usize, usize) {
    let (mut seen, mut stack) = (HashSet::new(), vec![start]);
    let (mut ends, mut lost) = (0, 0);
    while let Some(pair) = stack.pop() {
        let mut hasher = DefaultHasher::new();
        format!("{pair:?}").hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            continue;
        }
        let queues = pair.deliverable();
        if queues.is_empty() {
            ends += 1;
            lost += usize::from(!comes_up(pair));
            continue;
        }
        for queue in queues {
            let mut next = pair.clone();
            next.deliver(queue);
            next.sides.iter_mut().for_each(|side| side.outputs.clear());
            stack.push(next);
        }
    }
    (ends, lost)
}

/// Returns whether the session is established at once; later it must be in any case.
fn comes_up(mut pair: Pair) -> bool {
    let up = pair.is_up();
    pair.pass(30);
    assert!(pair.is_up(), "up in the end: {pair:#?}");
    up
}

// Promise (BGP): Of two connections of a pair exactly one survives, in every order of events.
#[test]
fn one_connection_survives_whatever_the_order() {
    // RFC 4271 §6.8: different identifiers; RFC 6286 §2.3: equal ones, different AS numbers.
    for (a, b) in [
        (speaker(1, 64512), speaker(2, 64512)),
        (speaker(2, 64512), speaker(1, 64513)),
        (speaker(7, 64512), speaker(7, 64513)),
    ] {
        let (ends, lost) = explore(both(a, b));
        println!("{ends} ends, {lost} lost");
        assert!(ends > 10, "{ends} ends are too few to mean anything");
        // Both can be lost only if one side is Established while the other still compares.
        assert!(lost * 4 <= ends, "{lost} of {ends}");
    }
}

#[test]
fn the_connection_of_the_higher_identifier_is_kept() {
    for (a, b, keeper) in [
        (speaker(1, 64512), speaker(2, 64512), 1),
        (speaker(2, 64512), speaker(1, 64513), 0),
        (speaker(7, 64512), speaker(7, 64513), 1),
    ] {
        let mut pair = both(a, b);
        // Both transports open, then all four OPENs are read before any other message.
        for queue in [
            (0, 1),
            (1, 1),
            (0, 0),
            (1, 0),
            (0, 1),
            (1, 1),
            (0, 0),
            (1, 0),
        ] {
            pair.deliver(queue);
        }
        pair.settle();
        assert!(pair.is_up());
        let kept = pair.sides[keeper].session.established().expect("up");
        assert_eq!(kept, Conn::Outbound);
        assert_eq!(
            pair.sides[keeper].session.stats().failures,
            0,
            "no error was made"
        );
        assert_eq!(
            pair.sides[1 - keeper].session.stats().failures,
            0,
            "no error was made"
        );
    }
}

#[test]
fn an_established_session_is_kept_against_a_new_connection() {
    let mut pair = both(
        speaker(1, 64512),
        speaker(2, 64512).with(|config| config.passive = true),
    );
    pair.settle();
    assert!(pair.is_up());
    pair.pass(60);
    // RFC 4271 §6.8: whichever side dials again, the new connection waits for its OPEN.
    for side in 0..2 {
        assert_eq!(pair.sides[side].session.admit(pair.now), Ok(Conn::Held));
        assert!(pair.is_up());
    }
    assert!(pair.is_up());
    assert_eq!(pair.sides[0].session.state(), State::Established);
}
