//! What a route costs, among many and among few. How that compares with the fastest loop there is, and
//! how many routes a second it makes, the benchmark tells.

use std::time::Duration;

use fib_sync::RouteKey;
use nix::time::{ClockId, clock_gettime};

use crate::host::{Host, in_namespace, ip, via};

const FEW: u32 = 8_000;
const MANY: u32 = 64_000;

/// One of these counts, the best: what the machine does beside it makes none of them better.
const ROUNDS: usize = 3;

/// What a route among many costs to what one among few does, at most: trees grow deeper, and caches do
/// not grow.
const RATIO_MAX: f64 = 4.0;

/// The time that this thread has had on a CPU so far.
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

/// All are added, found by a second reconciler, and deleted; how long each of these takes for one.
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
