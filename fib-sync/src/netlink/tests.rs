//! Messages built and parsed back, and malformed octets.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::apply::Batch;
use super::queue::Queue;
use super::raw::{self, Reply};
use super::{dump, parse};
use crate::error::OpError;
use crate::owner::Owner;
use crate::port::{Command, Event, PutMode};
use crate::route::{Hop, Route, RouteKey, Scope};

fn key(table: u32, prefix: &str, metric: u32) -> RouteKey {
    RouteKey::new(table, prefix.parse().unwrap(), metric, 0)
}

fn via(text: &str) -> Hop {
    Hop::via(text.parse().unwrap()).on(7)
}

fn batch(commands: Vec<Command>, first: u32) -> Batch {
    let mut queue = Queue::default();
    for command in commands {
        queue.push(command, [].iter());
    }
    Batch::take(&mut queue, first, 100)
}

#[test]
fn written_route_reads_the_same() {
    let us = Owner(119);
    let onlink = Hop {
        onlink: true,
        ..via("10.9.0.1")
    };
    let routes = [
        (
            key(254, "10.65.0.0/26", 1024),
            Route::unicast(us, vec![via("10.0.0.1")]),
        ),
        (key(254, "0.0.0.0/0", 0), Route::unicast(us, vec![onlink])),
        (
            key(1000, "fd65::/64", 1024),
            Route::unicast(us, vec![via("fd00::1")]),
        ),
        (key(254, "10.65.0.1/32", 256), Route::device(us, 9)),
        (key(254, "10.66.0.0/16", 1024), Route::blackhole(us)),
        (
            key(254, "10.67.0.0/16", 1024),
            Route::unicast(us, vec![via("fd00::1")]),
        ),
        (
            key(254, "fd66::/64", 1024),
            Route::unicast(
                us,
                vec![via("fd00::1").weighted(256), via("fd00::2").weighted(3)],
            ),
        ),
        (
            key(254, "10.68.0.0/16", 1024),
            Route {
                source: Some("10.0.0.11".parse().unwrap()),
                ..Route::unicast(us, vec![via("10.0.0.1"), via("fe80::1")])
            },
        ),
    ];
    let put = |(key, route): &(RouteKey, Route)| Command::Put(*key, route.clone(), PutMode::Create);
    let batch = batch(routes.iter().map(put).collect(), 40);
    let messages: Vec<_> = raw::messages(&batch.octets).collect();
    assert_eq!(messages.len(), routes.len());
    for (position, (message, (key, route))) in messages.iter().zip(&routes).enumerate() {
        assert_eq!(message.sequence, 40 + position as u32);
        let (read_key, read) = parse::route(message.payload).unwrap();
        assert_eq!(read_key, *key);
        let scope = if key.is_ipv6() {
            Scope::Universe
        } else {
            route.scope
        };
        assert_eq!(
            read,
            Route {
                scope,
                ..route.clone().canonical()
            }
        );
        let last = position + 1 == routes.len();
        assert_eq!(
            message.flags & 4 != 0,
            last,
            "only the last is acknowledged"
        );
    }
}

#[test]
fn refusals_are_found_by_their_numbers() {
    let route = Route::blackhole(Owner(1));
    let keys = ["10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"].map(|text| key(254, text, 1));
    let put = |key: &RouteKey| Command::Put(*key, route.clone(), PutMode::Create);
    let mut batch = batch(keys.iter().map(put).collect(), u32::MAX);
    assert!(
        !batch.answer(0, Err(OpError::new(libc::EEXIST))),
        "the second; numbers wrap"
    );
    assert!(
        !batch.answer(77, Err(OpError::new(libc::EPERM))),
        "nobody's"
    );
    assert!(batch.answer(1, Ok(())), "the last one is the barrier");
    let outcomes: Vec<Event> = batch.finish().collect();
    assert_eq!(
        outcomes,
        [
            Event::Applied(keys[0], Ok(())),
            Event::Applied(keys[1], Err(OpError::new(libc::EEXIST))),
            Event::Applied(keys[2], Ok(())),
        ]
    );
}

#[test]
fn an_overtaken_replace_is_not_sent() {
    let route = Route::blackhole(Owner(1));
    let (a, b) = (key(254, "10.0.0.0/24", 1), key(254, "10.0.1.0/24", 1));
    let mut queue = Queue::default();
    let unreported = VecDeque::from([Event::Removed(b, route.clone())]);
    queue.push(
        Command::Put(a, route.clone(), PutMode::Replace),
        unreported.iter(),
    );
    queue.push(
        Command::Put(b, route.clone(), PutMode::Replace),
        unreported.iter(),
    );
    let mut batch = Batch::take(&mut queue, 5, 100);
    assert_eq!(raw::messages(&batch.octets).count(), 1);
    assert!(batch.answer(5, Ok(())));
    let cancelled = Event::Applied(b, Err(OpError::new(libc::ECANCELED)));
    assert_eq!(batch.finish().last(), Some(cancelled));
}

#[test]
fn batches_stay_below_what_the_kernel_takes() {
    let route = Route::unicast(Owner(1), (1..=200).map(|i| via("fd00::1").on(i)).collect());
    let mut queue = Queue::default();
    for i in 0..100 {
        let put = Command::Put(key(254, "fd65::/64", i), route.clone(), PutMode::Create);
        queue.push(put, [].iter());
    }
    let mut sent = 0;
    while queue.front().is_some() {
        let batch = Batch::take(&mut queue, 1, 1000);
        assert!(batch.octets.len() <= crate::limits::BATCH_OCTETS_MAX);
        sent += raw::messages(&batch.octets).count();
    }
    assert_eq!(sent, 100);
}

#[test]
fn the_kernels_words_are_kept() {
    // An answer with `NLM_F_CAPPED | NLM_F_ACK_TLVS`: code, header of the request, one attribute.
    let text = b"Nexthop has invalid gateway\0";
    let mut octets = Vec::new();
    let length = 16 + 4 + 16 + 4 + text.len();
    octets.extend((length as u32).to_ne_bytes());
    octets.extend([2_u16.to_ne_bytes(), 0x300_u16.to_ne_bytes()].concat());
    octets.extend([5_u32.to_ne_bytes(), 0_u32.to_ne_bytes()].concat());
    octets.extend((-libc::ENETUNREACH).to_ne_bytes());
    octets.extend([0; 16]);
    octets.extend([(4 + text.len() as u16).to_ne_bytes(), 1_u16.to_ne_bytes()].concat());
    octets.extend(text);
    let message = raw::messages(&octets).next().unwrap();
    let Reply::End(Err(error)) = message.reply() else {
        panic!("an error")
    };
    assert_eq!(
        error.to_string(),
        "ENETUNREACH: the next hop is not on a directly connected network \
         (kernel: Nexthop has invalid gateway)"
    );
}

#[test]
fn an_absent_table_is_an_empty_one() {
    let what = dump::What::Routes {
        table: 1000,
        owner: None,
        ipv6: false,
    };
    let mut reading = dump::Reading::new(what, 1);
    reading.end(&Err(OpError::new(libc::ENOENT)));
    assert!(reading.complete);
    reading.end(&Err(OpError::new(libc::EBUSY)));
    assert!(!reading.complete);
}

proptest! {
    #[test]
    fn no_octets_panic(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        for message in raw::messages(&octets) {
            let _ = message.reply();
            let _ = message.is_interrupted();
        }
        let _ = parse::route(&octets);
        let _ = parse::link(&octets);
        let _ = parse::interface_address(&octets);
    }

    /// The same with something that looks like a route message.
    #[test]
    fn no_attributes_panic(
        family in prop::sample::select(vec![2_u8, 10]),
        attributes in prop::collection::vec(
            (0..32_u16, prop::collection::vec(any::<u8>(), 0..24)),
            0..6,
        ),
    ) {
        let mut octets = vec![family, 24, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
        for (kind, value) in attributes {
            octets.extend((value.len() as u16 + 4).to_ne_bytes());
            octets.extend(kind.to_ne_bytes());
            octets.extend(&value);
            octets.resize(octets.len().next_multiple_of(4), 0);
        }
        let _ = parse::route(&octets);
    }
}
