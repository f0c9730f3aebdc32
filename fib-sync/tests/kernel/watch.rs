//! Foreign routes, and next hops, in the real kernel.

use fib_sync::Hop;
use fib_sync::watch::{Resolution, Unreachable, WatchChange};

use crate::host::{Host, add_link, address, in_namespace, ip, key, via};

#[test]
fn workload_routes_are_imported_and_retracted_at_once() {
    in_namespace(async || {
        add_link("cali1");
        ip("route add 10.65.0.1/32 dev cali1 proto 80 metric 256");
        let mut host = Host::new();
        host.until("what was there is imported", |host| {
            host.changes == [WatchChange::Import("10.65.0.1/32".parse().unwrap())]
        })
        .await;
        host.changes.clear();
        ip("-6 route add fd65::1/128 dev cali1 proto boot metric 256");
        ip("route add 10.65.0.2/32 dev cali1 proto static");
        ip("route add 10.65.0.3/32 dev up0 proto 80");
        ip("route add 10.65.0.4/32 dev cali1 proto 119");
        ip("route add 10.65.0.5/32 dev cali1 proto 80 table 77");
        ip("route del 10.65.0.1/32");
        host.until("one in, one out, the others ignored", |host| {
            host.changes
                == [
                    WatchChange::Import("fd65::1/128".parse().unwrap()),
                    WatchChange::Retract("10.65.0.1/32".parse().unwrap()),
                ]
        })
        .await;
        host.changes.clear();
        // The kernel removes these without a notification (IPv4) or with one (IPv6).
        ip("route add 10.65.0.6/32 dev cali1 proto 80");
        ip("link del cali1");
        host.until("both are retracted", |host| {
            host.watcher.imported().count() == 0
                && host
                    .changes
                    .contains(&WatchChange::Retract("fd65::1/128".parse().unwrap()))
        })
        .await;
    });
}

#[test]
fn route_added_before_its_interface_is_known_is_imported() {
    in_namespace(async || {
        let mut host = Host::new();
        host.until_in_sync().await;
        add_link("dummy7");
        ip("route add 10.65.0.1/32 dev dummy7 proto 80");
        host.until("the link is known", |host| {
            link_named(host, "dummy7").is_some()
        })
        .await;
        assert_eq!(host.watcher.imported().count(), 0);
        // An interface may be renamed while its routes stay.
        ip("link set dummy7 name tap7");
        host.until("imported", |host| host.watcher.imported().count() == 1)
            .await;
        ip("link set tap7 name other7");
        host.until("retracted", |host| host.watcher.imported().count() == 0)
            .await;
    });
}

fn link_named<'a>(host: &'a Host, name: &str) -> Option<&'a str> {
    (1..100)
        .filter_map(|i| host.watcher.link(i))
        .map(|l| l.name.as_str())
        .find(|n| *n == name)
}

#[test]
fn next_hops_follow_the_kernels_routes() {
    in_namespace(async || {
        let mut host = Host::new();
        for text in [
            "10.0.0.12",
            "10.0.0.11",
            "192.0.2.1",
            "fd01::12",
            "10.65.0.1",
        ] {
            host.watcher.track(address(text));
        }
        host.reconciler
            .want(key("10.65.0.0/24"), via(&["10.0.0.12"]));
        host.until_in_sync().await;
        let (up0, up1) = (index(&host, "up0"), index(&host, "up1"));
        let reach = |cost, gateway: &str, link| Resolution::Reachable {
            cost,
            hops: vec![Hop::via(address(gateway)).on(link)],
        };
        let at = |host: &Host, text: &str| host.watcher.resolution(address(text)).cloned();
        let nowhere = Some(Resolution::Unreachable(Unreachable::NoRoute));
        let own = Some(Resolution::Unreachable(Unreachable::Own));
        host.until("the first picture", |host| {
            at(host, "10.0.0.12") == Some(reach(0, "10.0.0.12", up0))
                && at(host, "fd01::12") == Some(reach(0, "fd01::12", up1))
                && at(host, "10.0.0.11") == own
        })
        .await;
        assert_eq!(at(&host, "192.0.2.1"), nowhere);
        assert_eq!(
            at(&host, "10.65.0.1"),
            nowhere,
            "our own routes resolve nothing"
        );

        ip("route add 192.0.2.0/24 via 10.0.0.254 metric 50");
        host.until("reached over a gateway", |host| {
            at(host, "192.0.2.1") == Some(reach(50, "10.0.0.254", up0))
        })
        .await;
        ip("route add 192.0.2.0/28 via 10.1.0.254 metric 60");
        host.until("the longer prefix wins", |host| {
            at(host, "192.0.2.1") == Some(reach(60, "10.1.0.254", up1))
        })
        .await;
        ip("link set up1 down");
        host.until("back to the shorter, and one lost", |host| {
            at(host, "192.0.2.1") == Some(reach(50, "10.0.0.254", up0))
                && at(host, "fd01::12") == nowhere
        })
        .await;
        ip("route replace blackhole 192.0.2.0/24 metric 50");
        host.until("dropped", |host| {
            at(host, "192.0.2.1") == Some(Resolution::Unreachable(Unreachable::Dropped))
        })
        .await;
    });
}

fn index(host: &Host, name: &str) -> u32 {
    let links = (1..100).filter_map(|index| host.watcher.link(index));
    links
        .into_iter()
        .find(|link| link.name == name)
        .unwrap()
        .index
}
