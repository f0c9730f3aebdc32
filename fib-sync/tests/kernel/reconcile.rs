//! Wanted routes against the real kernel.

use std::collections::BTreeSet;
use std::time::Duration;

use fib_sync::{FibStatus, Hop, Owner, Route, RouteKey};

use crate::host::{Host, US, address, in_namespace, ip, key, via};

#[test]
fn ecmp_with_weights_in_both_families_and_blackholes() {
    in_namespace(async || {
        let mut host = Host::new();
        let hops = |a: &str, b: &str| {
            vec![
                Hop::via(address(a)).weighted(3),
                Hop::via(address(b)).weighted(1),
            ]
        };
        host.reconciler.want(
            key("10.65.0.0/26"),
            Route::unicast(US, hops("10.0.0.12", "10.1.0.12")),
        );
        host.reconciler.want(
            key("fd65::/122"),
            Route::unicast(US, hops("fd00::12", "fd01::12")),
        );
        host.reconciler
            .want(key("10.66.0.0/16"), Route::blackhole(US));
        host.reconciler.want(key("fd66::/64"), Route::blackhole(US));
        host.reconciler.want(
            key("10.67.0.0/24"),
            Route::unicast(
                US,
                vec![Hop::via(address("fd00::13")).on(link_index("up0"))],
            ),
        );
        host.until_in_sync().await;
        let v4 = ip("route show proto 119");
        assert!(v4.contains("10.65.0.0/26 metric 1024"), "{v4}");
        assert!(
            v4.contains("nexthop via 10.0.0.12 dev up0 weight 3"),
            "{v4}"
        );
        assert!(
            v4.contains("nexthop via 10.1.0.12 dev up1 weight 1"),
            "{v4}"
        );
        assert!(v4.contains("blackhole 10.66.0.0/16 metric 1024"), "{v4}");
        assert!(
            v4.contains("10.67.0.0/24 via inet6 fd00::13 dev up0 metric 1024"),
            "{v4}"
        );
        let v6 = ip("-6 route show proto 119");
        assert!(v6.contains("fd65::/122 metric 1024"), "{v6}");
        assert!(v6.contains("nexthop via fd00::12 dev up0 weight 3"), "{v6}");
        assert!(v6.contains("nexthop via fd01::12 dev up1 weight 1"), "{v6}");
        assert!(
            v6.contains("blackhole fd66::/64 dev lo metric 1024"),
            "{v6}"
        );

        // From two hops to others, to one and back: no stray hop is left.
        for (v4, v6) in [
            (
                &["10.0.0.13", "10.1.0.12"][..],
                &["fd00::13", "fd01::12"][..],
            ),
            (&["10.0.0.14"], &["fd00::14"]),
            (&["10.0.0.12", "10.1.0.12"], &["fd00::12", "fd01::12"]),
        ] {
            host.reconciler.want(key("10.65.0.0/26"), via(v4));
            host.reconciler.want(key("fd65::/122"), via(v6));
            host.until_in_sync().await;
            for (family, prefix, hops) in [("-4", "10.65.0.0/26", v4), ("-6", "fd65::/122", v6)] {
                let shown = ip(&format!("{family} route show {prefix}"));
                assert_eq!(shown.matches("via").count(), hops.len(), "{shown}");
                assert!(hops.iter().all(|hop| shown.contains(hop)), "{shown}");
            }
        }
        second_look_is_quiet(&mut host).await;

        for prefix in [
            "10.65.0.0/26",
            "fd65::/122",
            "10.66.0.0/16",
            "fd66::/64",
            "10.67.0.0/24",
        ] {
            host.reconciler.unwant(&key(prefix));
        }
        host.until_in_sync().await;
        assert_eq!(
            ip("route show proto 119") + &ip("-6 route show proto 119"),
            ""
        );
        assert_eq!(host.seen.others, 0, "own notifications are filtered");
    });
}

/// A new reconciler with the same wanted routes finds nothing to do.
async fn second_look_is_quiet(host: &mut Host) {
    let mut second = Host::new();
    let wanted: Vec<(RouteKey, Route)> = host
        .reconciler
        .routes()
        .filter_map(|v| Some((v.key, v.want?.clone())))
        .collect();
    for (key, route) in wanted {
        second.reconciler.want(key, route);
    }
    second.until_in_sync().await;
    let sum = second.reconciler.summary();
    assert_eq!((sum.puts, sum.deletes), (0, 0), "{sum:?}");
}

// Promise (Kernel routes): A restart deletes no correct route: it adopts correct routes and
// deletes strays later.
#[test]
fn a_restart_adopts_and_deletes_strays_after_the_grace_period() {
    in_namespace(async || {
        ip("route add 10.65.0.1/32 via 10.0.0.12 metric 1024 proto 119");
        ip("-6 route add fd65::1/128 via fd00::12 metric 1024 proto 119");
        ip("route add 10.65.0.2/32 via 10.0.0.12 metric 1024 proto 119");
        ip("-6 route add fd65::2/128 via fd00::12 metric 1024 proto 119");
        ip("route add 10.65.0.3/32 via 10.0.0.12 metric 1024 proto static");
        let mut host = Host::with(|config| config.grace = Duration::from_secs(3600), |_| {});
        host.reconciler
            .want(key("10.65.0.1/32"), via(&["10.0.0.12"]));
        host.reconciler.want(key("fd65::1/128"), via(&["fd00::12"]));
        host.until("adopted", |host| {
            host.status(key("10.65.0.1/32")) == Some(FibStatus::Acked)
                && host.status(key("fd65::1/128")) == Some(FibStatus::Acked)
        })
        .await;
        assert_eq!(host.status(key("10.65.0.2/32")), Some(FibStatus::Stray));
        assert_eq!(host.reconciler.summary().puts, 0, "nothing was written");
        assert_eq!(
            ip("route show proto 119").lines().count(),
            2,
            "nothing was deleted"
        );
        host.reconciler.finish_grace();
        host.until_in_sync().await;
        assert_eq!(host.reconciler.summary().deletes, 2);
        assert_eq!(ip("route show proto 119").lines().count(), 1);
        assert_eq!(ip("-6 route show proto 119").lines().count(), 1);
        assert_eq!(ip("route show proto static").lines().count(), 1);
    });
}

/// An IPv4 delete with metric 0 matches any metric: it deletes the first route, which is the one
/// without a metric.
#[test]
fn stray_without_metric_is_removed_after_its_successor() {
    in_namespace(async || {
        ip("route add 10.65.0.1/32 via 10.0.0.12 proto 119");
        ip("route add 10.65.0.2/32 via 10.0.0.12 proto 119");
        let mut host = Host::with(|config| config.grace = Duration::from_secs(3600), |_| {});
        let bare = |prefix: &str| {
            let mut key = key(prefix);
            key.metric = 0;
            key
        };
        host.reconciler
            .want(key("10.65.0.1/32"), via(&["10.0.0.13"]));
        host.until("replaced", |host| {
            host.status(key("10.65.0.1/32")) == Some(FibStatus::Acked)
                && host.status(bare("10.65.0.1/32")).is_none()
        })
        .await;
        let shown = ip("route show 10.65.0.1");
        assert!(
            shown.lines().count() == 1 && shown.contains("10.0.0.13") && shown.contains("1024"),
            "{shown}"
        );
        assert_eq!(host.status(bare("10.65.0.2/32")), Some(FibStatus::Stray));
        assert_eq!(host.reconciler.summary().deletes, 1);
    });
}

// Promise (Kernel routes): Foreign routes are not changed, and the route of an endpoint and a
// BGP route for the same prefix can both be installed, even with a misbehaving kernel.
#[test]
fn foreign_route_of_another_metric_is_kept() {
    in_namespace(async || {
        ip("route add 10.65.0.1/32 dev up0 metric 256 proto 80");
        ip("-6 route add fd65::1/128 dev up0 metric 256 proto 80");
        let mut host = Host::new();
        host.reconciler
            .want(key("10.65.0.1/32"), via(&["10.0.0.12"]));
        host.reconciler.want(key("fd65::1/128"), via(&["fd00::12"]));
        host.until_in_sync().await;
        for (family, prefix) in [("-4", "10.65.0.1"), ("-6", "fd65::1")] {
            let shown = ip(&format!("{family} route show {prefix}"));
            assert_eq!(shown.lines().count(), 2, "{shown}");
            assert!(
                shown.contains("metric 256") && shown.contains("metric 1024"),
                "{shown}"
            );
            // The kernel forwards by the lower metric.
            let used = ip(&format!("{family} route get {prefix}"));
            assert!(used.contains("dev up0") && !used.contains("via"), "{used}");
        }
        host.reconciler.unwant(&key("10.65.0.1/32"));
        host.reconciler.unwant(&key("fd65::1/128"));
        host.until_in_sync().await;
        assert_eq!(ip("route show proto 80").lines().count(), 1);
        assert_eq!(ip("-6 route show proto 80").lines().count(), 1);
    });
}

#[test]
fn a_foreign_route_of_the_same_key_is_a_named_conflict() {
    in_namespace(async || {
        for (family, prefix, gateway, theirs) in [
            ("-4", "10.65.0.1/32", "10.0.0.12", "10.0.0.99"),
            ("-6", "fd65::1/128", "fd00::12", "fd00::99"),
        ] {
            ip(&format!(
                "{family} route add {prefix} via {theirs} metric 1024 proto static"
            ));
            let mut host = Host::new();
            host.until_in_sync().await;
            host.reconciler.want(key(prefix), via(&[gateway]));
            host.until("a conflict with its owner's name", |host| {
                let status = host.status(key(prefix));
                matches!(
                    status,
                    Some(FibStatus::Conflict {
                        owner: Some(Owner(4)),
                        ..
                    })
                )
            })
            .await;
            let shown = ip(&format!("{family} route show {prefix}"));
            assert!(
                shown.contains(theirs) && !shown.contains("proto 119"),
                "{shown}"
            );
            // When it is removed, the own route takes its place at once, not after the back-off.
            ip(&format!("{family} route del {prefix} proto static"));
            host.until_in_sync().await;
            // Taken over by a replace of another program: reported, and not replaced back.
            ip(&format!(
                "{family} route replace {prefix} via {theirs} metric 1024 proto static"
            ));
            host.until("the take-over is named", |host| {
                let status = host.status(key(prefix));
                matches!(
                    status,
                    Some(FibStatus::Conflict {
                        owner: Some(Owner(4)),
                        ..
                    })
                )
            })
            .await;
            let shown = ip(&format!("{family} route show {prefix}"));
            assert!(
                shown.contains(theirs) && !shown.contains("proto 119"),
                "{shown}"
            );
        }
    });
}

#[test]
fn a_delete_is_noticed_at_once() {
    in_namespace(async || {
        let mut host = Host::new();
        host.reconciler
            .want(key("10.65.0.1/32"), via(&["10.0.0.12"]));
        host.reconciler
            .want(key("fd65::1/128"), via(&["fd00::12", "fd01::12"]));
        host.until_in_sync().await;
        let dumps = host.reconciler.summary().dumps;
        ip("route del 10.65.0.1/32");
        ip("-6 route del fd65::1/128 via fd01::12");
        host.until("both repaired", |host| {
            host.reconciler.summary().drift == 2 && host.reconciler.in_sync()
        })
        .await;
        assert!(ip("route show 10.65.0.1").contains("10.0.0.12"));
        assert_eq!(ip("-6 route show fd65::1").matches("via").count(), 2);
        assert_eq!(host.reconciler.summary().dumps, dumps, "no scan was needed");
    });
}

#[test]
fn rejected_route_has_its_error_and_delays_no_other() {
    in_namespace(async || {
        let mut host = Host::new();
        host.reconciler
            .want(key("10.65.0.1/32"), via(&["192.0.2.1"]));
        host.reconciler
            .want(key("10.65.0.2/32"), Route::device(US, 4242));
        host.reconciler
            .want(key("fd65::1/128"), via(&["2001:db8::1"]));
        host.reconciler
            .want(key("10.65.0.9/32"), via(&["10.0.0.12"]));
        host.until("three refused, one installed", |host| {
            let sum = host.reconciler.summary();
            sum.failed == 3 && sum.acked == 1
        })
        .await;
        let failure = |prefix| match host.status(key(prefix)) {
            Some(FibStatus::Failed { error, .. }) => error,
            other => panic!("{prefix}: {other:?}"),
        };
        let error = failure("10.65.0.1/32");
        assert_eq!(error.name(), Some("ENETUNREACH"));
        assert!(
            error.to_string().contains("Nexthop has invalid gateway"),
            "{error}"
        );
        assert_eq!(failure("10.65.0.2/32").name(), Some("ENODEV"));
        assert_eq!(failure("fd65::1/128").name(), Some("EHOSTUNREACH"));
        // As soon as an address makes the gateway reachable, it is tried again.
        ip("addr add 192.0.2.11/24 dev up1");
        host.until("the first is installed", |host| {
            host.status(key("10.65.0.1/32")) == Some(FibStatus::Acked)
        })
        .await;
    });
}

#[test]
fn routes_come_back_with_their_link() {
    in_namespace(async || {
        let mut host = Host::new();
        host.reconciler
            .want(key("10.65.0.1/32"), via(&["10.1.0.12"]));
        host.until_in_sync().await;
        ip("link set up1 down");
        host.until("the silent removal is found", |host| {
            matches!(
                host.status(key("10.65.0.1/32")),
                Some(FibStatus::Failed { .. })
            )
        })
        .await;
        ip("link set up1 up");
        host.until_in_sync().await;
        assert!(ip("route show 10.65.0.1").contains("10.1.0.12"));
    });
}

#[test]
fn an_overrun_costs_a_dump_and_no_route() {
    in_namespace(async || {
        let mut host = Host::with(|_| {}, |netlink| netlink.monitor_octets = 4096);
        let wanted: Vec<String> = (0..200).map(|i| format!("10.65.{i}.0/24")).collect();
        for prefix in &wanted {
            host.reconciler.want(key(prefix), via(&["10.0.0.12"]));
        }
        host.until_in_sync().await;
        let dumps = host.reconciler.summary().dumps;
        // Far more changes than fit into 4 KiB, before the first one is read.
        ip("route flush proto 119");
        for i in 0..200 {
            ip(&format!(
                "route add 10.66.{i}.0/24 via 10.0.0.99 proto static"
            ));
        }
        host.until("overrun", |host| host.seen.overruns > 0).await;
        host.until_in_sync().await;
        assert!(host.reconciler.summary().dumps > dumps);
        let shown = ip("route show proto 119");
        let there: BTreeSet<&str> = shown.lines().filter_map(|l| l.split(' ').next()).collect();
        assert_eq!(there.len(), 200);
        assert!(wanted.iter().all(|prefix| there.contains(prefix.as_str())));
        assert_eq!(ip("route show proto static").lines().count(), 200);
    });
}

#[test]
fn tables_beyond_255_work_and_absent_ones_are_empty() {
    in_namespace(async || {
        let mut host = Host::with(|config| config.tables = vec![254, 1000], |_| {});
        let far = |prefix: &str| RouteKey::new(1000, prefix.parse().unwrap(), 1024, 0);
        host.until_in_sync().await;
        host.reconciler
            .want(far("10.65.0.0/24"), via(&["10.0.0.12"]));
        host.reconciler.want(far("fd65::/64"), via(&["fd00::12"]));
        host.until_in_sync().await;
        assert!(ip("route show table 1000").contains("10.65.0.0/24"));
        assert!(ip("-6 route show table 1000").contains("fd65::/64"));
        second_look(&host).await;
        host.reconciler.unwant(&far("10.65.0.0/24"));
        host.reconciler.unwant(&far("fd65::/64"));
        host.until_in_sync().await;
        assert_eq!(ip("route show table 1000"), "");
    });
}

async fn second_look(host: &Host) {
    let mut second = Host::with(|config| config.tables = vec![254, 1000], |_| {});
    for view in host.reconciler.routes() {
        second.reconciler.want(view.key, view.want.unwrap().clone());
    }
    second.until_in_sync().await;
    assert_eq!(second.reconciler.summary().puts, 0);
}

#[test]
fn a_shadow_run_compares_and_writes_nothing() {
    in_namespace(async || {
        ip("route add 10.65.0.1/32 via 10.0.0.12 metric 1024 proto 119");
        ip("route add 10.65.0.9/32 via 10.0.0.12 metric 1024 proto 119");
        let mut host = Host::with(|config| config.install = false, |_| {});
        host.reconciler
            .want(key("10.65.0.1/32"), via(&["10.0.0.12"]));
        host.reconciler
            .want(key("10.65.0.2/32"), via(&["10.0.0.12"]));
        host.until("compared", |host| {
            let sum = host.reconciler.summary();
            (sum.acked, sum.strays) == (1, 1)
        })
        .await;
        assert_eq!(host.status(key("10.65.0.2/32")), Some(FibStatus::Wanted));
        assert_eq!(host.status(key("10.65.0.9/32")), Some(FibStatus::Stray));
        host.reconciler.finish_grace();
        ip("route del 10.65.0.1/32");
        host.until("the difference shows", |host| {
            host.reconciler.summary().acked == 0
        })
        .await;
        assert_eq!(ip("route show proto 119").lines().count(), 1);
    });
}

pub(crate) fn link_index(name: &str) -> u32 {
    let shown = ip(&format!("-o link show {name}"));
    shown.split(':').next().unwrap().trim().parse().unwrap()
}
