//! Changes of a route's metric: to the kernel, another metric is another route of the same prefix.

use std::time::Duration;

use fib_sync::{FibStatus, Route, RouteKey};
use proptest::prelude::*;

use crate::world::{STATIC, US, World, key, via};

const MOMENT: Duration = Duration::from_millis(1);
const NET: &str = "10.65.0.1/32";
const METRICS: [u32; 3] = [512, 1024, 2048];

fn at(metric: u32) -> RouteKey {
    let mut key = key(NET);
    key.metric = metric;
    key
}

fn metrics(world: &World) -> Vec<u32> {
    world.ours().keys().map(|key| key.metric).collect()
}

/// Wants the route at this metric only.
fn moves(world: &mut World, metric: u32, route: Route) {
    world.want(at(metric), route);
    for other in METRICS {
        if other != metric {
            world.unwant(&at(other));
        }
    }
}

#[test]
fn a_route_that_cannot_come_holds_the_old_one_no_longer() {
    let mut world = World::new(1);
    moves(&mut world, 512, via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    let theirs = via(STATIC, &["10.0.0.99"]);
    world.kernel.add_route(at(1024), theirs).unwrap();
    moves(&mut world, 1024, via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    assert!(
        matches!(world.status(&at(1024)), Some(FibStatus::Conflict { .. })),
        "{:?}",
        world.status(&at(1024))
    );
    assert_eq!(metrics(&world), Vec::<u32>::new());
    // Neither does a route that is no longer wanted.
    world.kernel.delete_route(&at(1024));
    moves(&mut world, 512, via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    world.want(at(2048), via(US, &["10.0.0.12"]));
    world.unwant(&at(512));
    world.unwant(&at(2048));
    world.run(MOMENT);
    assert_eq!(metrics(&world), Vec::<u32>::new());
    assert!(world.reconciler.in_sync());
}

#[test]
fn stray_of_another_metric_is_removed_after_its_successor() {
    for (before, after) in [(512, 1024), (1024, 512)] {
        let mut world = World::new(2);
        world.want(at(before), via(US, &["10.0.0.12"]));
        world.want(key("10.65.0.2/32"), via(US, &["10.0.0.12"]));
        world.run(MOMENT);
        world.crash();
        world.run(MOMENT);
        assert_eq!(metrics(&world).len(), 2, "both are kept");
        world.want(at(after), via(US, &["10.0.0.13"]));
        world.run(MOMENT);
        assert_eq!(metrics(&world), [after, 1024], "the other one is kept");
    }
}

#[test]
fn stray_is_removed_if_its_successor_predates_the_start() {
    let mut world = World::new(3);
    for metric in METRICS {
        let route = via(US, &["10.0.0.12"]);
        world.kernel.add_route(at(metric), route).unwrap();
    }
    world.run(MOMENT);
    assert_eq!(metrics(&world), METRICS, "nothing is known yet");
    world.want(at(1024), via(US, &["10.0.0.12"]));
    world.run(MOMENT);
    assert_eq!(metrics(&world), [1024]);
}

proptest! {
    #![proptest_config(ProptestConfig { verbose: 0, ..ProptestConfig::with_cases(200) })]

    // Promise (Kernel routes): A route with a changed metric is installed before the old one is
    // deleted.
    #[test]
    fn a_route_that_changes_its_metric_is_never_missed(
        seed: u64,
        steps in prop::collection::vec(
            (prop::sample::select(&METRICS), prop::sample::select(&["10.0.0.12", "10.1.0.12"]), 0..8),
            1..40,
        ),
    ) {
        let mut world = World::new(seed);
        moves(&mut world, 1024, via(US, &["10.0.0.12"]));
        world.run(MOMENT);
        let mut last = 1024;
        for (metric, gateway, events) in steps {
            moves(&mut world, metric, via(US, &[gateway]));
            last = metric;
            for _ in 0..events {
                world.pump(1);
                prop_assert!(!world.ours().is_empty());
            }
        }
        world.run(MOMENT);
        prop_assert_eq!(metrics(&world), [last]);
        prop_assert!(world.reconciler.in_sync());
    }
}
