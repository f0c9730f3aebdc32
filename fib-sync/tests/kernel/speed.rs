//! The cost of a route, among many and among few. The benchmark measures how that compares with the
//! fastest possible loop, and how many routes per second it makes.

use std::time::Duration;

use fib_sync::RouteKey;
use nix::time::{ClockId, clock_gettime};

use crate::host::{Host, in_namespace, ip, via};

const FEW: u32 = 8_000;
const MANY: u32 = 64_000;

/// Rounds, of which the best counts: other load on the machine only makes a round slower.
const ROUNDS: usize = 3;

/// Highest ratio of the cost of a route among many to that of a route among few: trees grow deeper,
/// and caches do not grow.
const RATIO_MAX: f64 = 4.0;

/// Returns the time that this thread has had on a CPU so far.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}

fn keys(routes: u32) -> impl Iterator<Item = RouteKey> {
    (0..routes).map(|i| {
        let address = std::net::Ipv4Addr::from(0x0a41_0000 + i);
        RouteKey::new(254, ipnet::IpNet::new(address.into(), 32).unwrap(), 1024, 0)
    })
}

/// Adds all routes, finds them with a second reconciler, and deletes them; returns the time of each
/// phase per route.
async fn costs(routes: u32) -> [f64; 3] {
    let mut host = Host::new();
    host.until_in_sync().await;
    let begun = cpu();
    for key in keys(routes) {
        host.reconciler.want(key, via(&["10.0.0.12"]));
    }
    host.until_in_sync().await;
    let add = cpu() - begun;

    // A restart finds them all, and has nothing to do.
    let mut second = Host::new();
    for key in keys(routes) {
        second.reconciler.want(key, via(&["10.0.0.12"]));
    }
    let begun = cpu();
    second.until_in_sync().await;
    let adopt = cpu() - begun;
    assert_eq!(second.reconciler.summary().puts, 0);
    drop(second);

    let begun = cpu();
    for key in keys(routes) {
        host.reconciler.unwant(&key);
    }
    host.until_in_sync().await;
    let delete = cpu() - begun;
    assert_eq!(ip("route show proto 119"), "");
    [add, adopt, delete].map(|time| time.as_secs_f64() / f64::from(routes))
}

#[test]
fn a_route_among_many_costs_what_one_among_few_does() {
    in_namespace(async || {
        let mut best = [f64::INFINITY; 3];
        for _ in 0..ROUNDS {
            let (few, many) = (costs(FEW).await, costs(MANY).await);
            println!("to add, adopt and delete one, s: {few:?} among few, {many:?} among many");
            for (best, (few, many)) in best.iter_mut().zip(few.into_iter().zip(many)) {
                *best = best.min(many / few);
            }
        }
        assert!(best.iter().all(|ratio| *ratio < RATIO_MAX), "{best:?}");
    });
}
