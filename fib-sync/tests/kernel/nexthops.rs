//! Nexthop objects of the real kernel.

use std::net::IpAddr;

use fib_sync::{Hop, NexthopObjects, Route, RouteKey};

use crate::host::{Host, US, address, in_namespace, ip, key};
use crate::reconcile::link_index;
use crate::writer::Served;

/// Routes of each family that one message moves.
const MANY: u16 = 200;

/// Returns a host whose routes share objects.
fn sharing() -> Host {
    Host::with(
        |config| config.nexthop_objects = NexthopObjects::Auto,
        |_| {},
    )
}

/// Returns a route over gateways, each with its weight and interface.
fn over(hops: &[(&str, &str, u16)]) -> Route {
    let hop = |(gateway, link, weight): &(&str, &str, u16)| {
        Hop::via(address(gateway))
            .on(link_index(link))
            .weighted(*weight)
    };
    Route::unicast(US, hops.iter().map(hop).collect())
}

fn both() -> Route {
    over(&[("10.0.0.12", "up0", 3), ("10.1.0.12", "up1", 1)])
}

fn both_ipv6() -> Route {
    over(&[("fd00::12", "up0", 1), ("fd01::12", "up1", 1)])
}

/// Returns keys of IPv4 and IPv6 routes.
fn keys(count: u16) -> (Vec<RouteKey>, Vec<RouteKey>) {
    let of = |form: &dyn Fn(u16) -> String| (0..count).map(|i| key(&form(i))).collect();
    (
        of(&|i| format!("10.{}.{}.0/24", 65 + (i >> 8), i & 255)),
        of(&|i| format!("fd65:{i:x}::/64")),
    )
}

async fn want_all(host: &mut Host, count: u16) {
    let (v4, v6) = keys(count);
    for (v4, v6) in v4.into_iter().zip(v6) {
        host.reconciler.want(v4, both());
        host.reconciler.want(v6, both_ipv6());
    }
    host.until_in_sync().await;
}

/// Returns the numbers of the objects in the kernel, with their text.
fn objects() -> String {
    ip("nexthop show proto 119")
}

fn shown(family: &str) -> String {
    ip(&format!("{family} route show proto 119"))
}

#[test]
fn routes_with_the_same_next_hops_share_one_object() {
    in_namespace(async || {
        let mut host = sharing();
        want_all(&mut host, 20).await;
        // Two groups, with two members each.
        assert_eq!(objects().lines().count(), 6, "{}", objects());
        assert_eq!(objects().matches(" group ").count(), 2, "{}", objects());
        for family in ["-4", "-6"] {
            assert_eq!(shown(family).matches("nhid").count(), 20);
        }
        assert!(
            shown("-4").contains("nexthop via 10.0.0.12 dev up0 weight 3"),
            "{}",
            shown("-4")
        );

        // A daemon that was killed finds its routes and objects, and writes nothing.
        let before = objects();
        drop(host);
        let mut host = sharing();
        want_all(&mut host, 20).await;
        assert_eq!(objects(), before);
        let summary = host.reconciler.summary();
        assert_eq!((summary.puts, summary.deletes), (0, 0));
        assert_eq!(
            (summary.nexthops, summary.nexthops_supported),
            (6, Some(true))
        );

        // Without routes, the objects go with the next read of the tables.
        let (v4, v6) = keys(20);
        v4.iter()
            .chain(&v6)
            .for_each(|key| host.reconciler.unwant(key));
        host.until_in_sync().await;
        drop(host);
        let mut host = sharing();
        host.until_in_sync().await;
        assert_eq!(objects(), "");
    });
}

#[test]
fn gateway_that_fails_leaves_all_routes_with_one_message() {
    in_namespace(async || {
        let mut host = sharing();
        want_all(&mut host, MANY).await;
        let lone = key("10.64.0.0/24");
        host.reconciler.want(lone, over(&[("10.0.0.12", "up0", 1)]));
        host.until_in_sync().await;
        let before = host.reconciler.summary();
        let failed: [IpAddr; 2] = [address("10.0.0.12"), address("fd00::12")];
        for gateway in failed {
            host.reconciler.fail_gateway(gateway);
        }
        host.until("the lone route is deleted", |host| {
            host.reconciler.summary().deletes > before.deletes && host.reconciler.is_answered()
        })
        .await;
        for (family, left, gone) in [
            ("-4", "10.1.0.12", "10.0.0.12"),
            ("-6", "fd01::12", "fd00::12"),
        ] {
            assert_eq!(shown(family).matches(left).count(), usize::from(MANY));
            assert!(!shown(family).contains(gone), "{}", shown(family));
        }
        // BGP follows: nothing is left to write.
        let (v4, v6) = keys(MANY);
        for (v4, v6) in v4.into_iter().zip(v6) {
            host.reconciler.want(v4, over(&[("10.1.0.12", "up1", 1)]));
            host.reconciler.want(v6, over(&[("fd01::12", "up1", 1)]));
        }
        host.reconciler.unwant(&lone);
        host.reconciler.restore_gateways();
        host.until_in_sync().await;
        let after = host.reconciler.summary();
        assert_eq!(
            (after.puts, after.deletes),
            (before.puts, before.deletes + 1)
        );

        // The gateways return.
        want_all(&mut host, MANY).await;
        assert_eq!(
            shown("-4").matches("via 10.0.0.12 dev up0").count(),
            usize::from(MANY)
        );
    });
}

#[test]
fn gateway_that_returns_unchanged_is_written_again() {
    in_namespace(async || {
        let mut host = sharing();
        want_all(&mut host, 3).await;
        host.reconciler.fail_gateway(address("10.0.0.12"));
        host.until("the group is shorter", |host| {
            host.reconciler.is_answered() && !shown("-4").contains("10.0.0.12")
        })
        .await;
        host.reconciler.restore_gateways();
        host.until_in_sync().await;
        assert_eq!(
            shown("-4")
                .matches("via 10.0.0.12 dev up0 weight 3")
                .count(),
            3
        );
    });
}

#[test]
fn link_down_and_up_restores_objects_and_routes() {
    in_namespace(async || {
        let mut host = sharing();
        want_all(&mut host, 5).await;
        let lone = key("10.66.0.0/24");
        host.reconciler.want(lone, over(&[("10.0.0.12", "up0", 1)]));
        host.until_in_sync().await;
        for (down, up) in [
            ("link set up0 down", "link set up0 up"),
            // Without carrier.
            ("link set xup0 down", "link set xup0 up"),
        ] {
            ip(down);
            host.until("the lone route is missing", |host| {
                host.reconciler.summary().failed > 0
            })
            .await;
            assert!(!shown("-4").contains("10.0.0.12"), "{}", shown("-4"));
            assert!(!objects().contains("up0"), "{}", objects());
            ip(up);
            if down.contains(" up0 ") {
                ip("addr add fd00::11/64 dev up0 nodad");
            }
            host.until_in_sync().await;
            assert_eq!(shown("-4").matches("via 10.0.0.12 dev up0").count(), 6);
            assert_eq!(shown("-6").matches("via fd00::12 dev up0").count(), 5);
        }
    });
}

#[test]
fn foreign_objects_are_kept_and_their_numbers_left_alone() {
    in_namespace(async || {
        // One in this program's range, and one with its protocol.
        ip("nexthop add id 1996488706 via 10.0.0.13 dev up0 proto 4");
        ip("nexthop add id 7 via 10.0.0.14 dev up0 proto 119");
        let mut host = sharing();
        want_all(&mut host, 2).await;
        let foreign = || {
            [
                "id 1996488706 via 10.0.0.13 dev up0",
                "id 7 via 10.0.0.14 dev up0",
            ]
        };
        for text in foreign() {
            assert!(ip("nexthop show").contains(text), "{}", ip("nexthop show"));
        }
        // Another program deletes all objects of this one, and with them its routes.
        ip("nexthop flush proto 119");
        host.until("all is written again", |host| {
            host.reconciler.in_sync() && shown("-4").matches("nhid").count() == 2
        })
        .await;
        assert!(ip("nexthop show").contains(foreign()[0]));
        assert_eq!(shown("-6").matches("nhid").count(), 2);
    });
}

#[test]
fn objects_that_change_during_an_overrun_are_found() {
    in_namespace(async || {
        let mut host = Host::with(
            |config| config.nexthop_objects = NexthopObjects::Auto,
            |netlink| netlink.monitor_octets = 4096,
        );
        want_all(&mut host, 2).await;
        ip("nexthop flush proto 119");
        for i in 0..200 {
            ip(&format!("route add 10.99.{i}.0/24 dev up0 proto 4"));
        }
        host.until("an overrun", |host| host.seen.overruns > 0)
            .await;
        host.until("all is written again", |host| {
            host.reconciler.in_sync() && shown("-4").matches("nhid").count() == 2
        })
        .await;
        assert_eq!(shown("-6").matches("nhid").count(), 2);
    });
}

#[test]
fn objects_without_compatibility_are_resolved() {
    in_namespace(async || {
        std::fs::write("/proc/sys/net/ipv4/nexthop_compat_mode", "0").unwrap();
        let mut host = sharing();
        want_all(&mut host, 2).await;
        // A route of another program resolves a next hop over its object.
        ip("nexthop add id 5 via 10.0.0.13 dev up0 proto 4");
        ip("route add 192.0.2.0/24 nhid 5 proto 4");
        host.watcher.track(address("192.0.2.1"));
        host.until("the next hop is resolved", |host| {
            let resolution = host.watcher.resolution(address("192.0.2.1"));
            resolution.is_some_and(fib_sync::watch::Resolution::is_reachable)
        })
        .await;
        drop(host);
        let mut host = sharing();
        want_all(&mut host, 2).await;
        let summary = host.reconciler.summary();
        assert_eq!((summary.puts, summary.deletes), (0, 0));
    });
}

#[test]
fn objects_are_removed_when_they_are_switched_off() {
    in_namespace(async || {
        let mut host = sharing();
        want_all(&mut host, 2).await;
        drop(host);
        let mut host = Host::with(
            |config| config.nexthop_objects = NexthopObjects::Off,
            |_| {},
        );
        want_all(&mut host, 2).await;
        assert!(!shown("-4").contains("nhid"), "{}", shown("-4"));
        drop(host);
        let mut host = Host::with(
            |config| config.nexthop_objects = NexthopObjects::Off,
            |_| {},
        );
        want_all(&mut host, 2).await;
        assert_eq!(objects(), "");
        assert_eq!(shown("-6").matches("via fd00::12").count(), 2);
    });
}

#[test]
fn objects_of_another_process_are_written() {
    in_namespace(async || {
        let writer = Served::start();
        let mut host = Host::delegated(writer.connect());
        want_all(&mut host, 20).await;
        assert_eq!(objects().lines().count(), 6, "{}", objects());
        host.reconciler.fail_gateway(address("10.0.0.12"));
        host.until("the group is shorter", |host| {
            host.reconciler.is_answered() && !objects().contains("10.0.0.12")
        })
        .await;
        assert_eq!(shown("-4").matches("10.1.0.12").count(), 20);
        assert_eq!(host.reconciler.summary().refused, 0);
    });
}
