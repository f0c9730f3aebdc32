//! The main property: after any sequence of events, every peer holds exactly the routes of a naive
//! exporter that handles each peer and prefix separately.
//!
//! `PROPTEST_CASES=100000 cargo test --release -p cambric-rib --test prop_export` runs more cases.

#![allow(unreachable_pub)]

mod check;
mod doubts;
mod ear;
mod events;
mod model;
#[path = "../naive/mod.rs"]
mod naive;
mod parts;
mod readers;
mod regressions;
mod world;

use bgp_proto::Family;
use proptest::prelude::*;
use rib::SendPaths;

use events::Event;
use world::{Setup, World};

fn family() -> impl Strategy<Value = Family> {
    prop_oneof![
        6 => Just(Family::IPV4_UNICAST),
        1 => Just(Family::IPV6_UNICAST),
        2 => Just(Family::IPV4_LABELED_UNICAST),
    ]
}

/// Generates the paths that each peer is sent: half of the peers get one per prefix.
fn sends() -> impl Strategy<Value = [Option<SendPaths>; 9]> {
    let send = prop::option::of(events::send());
    let each = prop::collection::vec(send, 9);
    each.prop_map(|each| each.try_into().expect("nine"))
}

prop_compose! {
    fn setup()(
        family in family(),
        track in any::<bool>(),
        multipath_max in prop_oneof![3 => Just(1u16), 1 => 2..4u16],
        always_compare_med in prop::bool::weighted(0.3),
        link_bandwidth in prop::option::of(1..4_000_u32),
        tight in prop::bool::weighted(0.4),
        sends in sends(),
        import in naive::rules(),
        export in naive::rules(),
    ) -> Setup {
        let (import, export) = (import.into(), export.into());
        Setup {
            family, track, multipath_max, always_compare_med, link_bandwidth, tight, sends, import, export,
        }
    }
}

fn run(setup: &Setup, events: &[Event], seed: u64) -> World {
    let mut world = World::new(setup.clone(), seed);
    for event in events {
        world.apply(event);
    }
    world.quiesce();
    world.check();
    world
}

proptest! {
    // Promise (BGP): Every peer receives exactly the routes that a separate exporter for this peer
    // would send. This is also true if the best path moves between clients, and if some peers receive
    // one path of a prefix and others several.
    #[test]
    fn every_peer_holds_what_a_naive_exporter_gives_it(
        setup in setup(),
        events in prop::collection::vec(events::event(), 1..120),
    ) {
        let mut world = run(&setup, &events, 1);
        world.tear_down();
    }

    #[test]
    fn the_seed_of_the_hashers_changes_nothing(
        setup in setup(),
        events in prop::collection::vec(events::event(), 1..60),
        seed in any::<u64>(),
    ) {
        let one = run(&setup, &events, 0);
        let two = run(&setup, &events, seed);
        prop_assert_eq!(one.transcript, two.transcript);
    }

    #[test]
    fn comparing_with_the_best_is_as_good_as_comparing_all(
        mut setup in setup(),
        events in prop::collection::vec(events::alike(), 1..24),
    ) {
        setup.track = false;
        run(&setup, &events, 1);
    }

    #[test]
    fn tables_do_not_depend_on_earlier_events(
        setup in setup(),
        (straight, crooked) in events::two_ways(),
    ) {
        let resolve = |next_hop| Event::Resolve { next_hop, cost: Some(1) };
        let calm: Vec<Event> = (0..events::NEXT_HOPS).map(resolve).chain(straight).collect();
        let one = run(&setup, &calm, 1);
        let two = run(&setup, &crooked, 1);
        prop_assert_eq!(one.held(), two.held());
    }
}
