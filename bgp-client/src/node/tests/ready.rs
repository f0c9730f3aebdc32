//! Readiness of a host between its kernel and a neighbor.

use bgp_daemon::Criterion;
use kernel_events::marker;

use super::*;
use crate::KernelConfig;

/// Returns the criteria that a host does not meet, each with its reason.
fn missing(host: &Host) -> Vec<(&'static str, String)> {
    let criteria = host.node.criteria(&host.speakers[0]);
    let missing = criteria.into_iter();
    missing
        .filter_map(|Criterion { name, missing }| Some((name, missing?)))
        .collect()
}

fn names(host: &Host) -> Vec<&'static str> {
    missing(host).into_iter().map(|(name, _)| name).collect()
}

/// Returns a host with a neighbor, on which Felix is expected.
pub(super) fn with_felix() -> Host {
    let mut host = Host::begun();
    let speaker = &mut host.speakers[0];
    let settings = KernelConfig {
        felix: Some(true),
        ..host.node.config().clone()
    };
    host.node = Node::new(fib_sync::Instant(0), settings, speaker);
    host.fib = MemoryFib::new(&host.kernel);
    host.settle();
    host
}

fn show_felix(host: &mut Host, programmed: bool) {
    let mut kernel = host.kernel.borrow_mut();
    match programmed {
        true => kernel
            .add_route(marker::key(), marker::route(Owner(80)))
            .unwrap(),
        false => assert!(kernel.delete_route(&marker::key())),
    }
    drop(kernel);
    host.settle();
}

// Promise (Daemons): A host is ready only when the kernel has its routes, its next hops are its
// own addresses, and Felix has programmed it.
#[test]
fn host_is_ready_when_felix_has_programmed_it() {
    let mut host = with_felix();
    let why = "Felix has not programmed this host: it has no route in table 80119".to_owned();
    assert_eq!(missing(&host), [("felix", why)]);
    show_felix(&mut host, true);
    assert_eq!(names(&host), [""; 0]);
    show_felix(&mut host, false);
    assert_eq!(names(&host), ["felix"]);
    // The route is neither advertised nor one of the imported ones.
    show_felix(&mut host, true);
    assert_eq!(host.node.watcher().imported().count(), 0);

    assert_eq!(names(&Host::begun()), [""; 0], "no Felix is expected");
}

// Promise: as bgp-client host_is_ready_when_felix_has_programmed_it
#[test]
fn host_without_its_next_hop_address_is_not_ready() {
    let mut host = Host::begun();
    let mut config = host.speakers[0].config().clone();
    config.own_next_hop_v4 = Some("10.0.0.77".parse().unwrap());
    host.speakers[0].reconfigure(NOW, config).expect("taken");
    host.settle();
    let [(name, why)] = &missing(&host)[..] else {
        panic!("{:?}", missing(&host));
    };
    assert_eq!(*name, "own-next-hops");
    assert!(why.contains("the address 10.0.0.77,"), "{why}");
    let link = host.kernel.borrow().link("eth0").unwrap().index;
    let address = "10.0.0.77/32".parse().unwrap();
    host.kernel.borrow_mut().add_address(link, address);
    host.settle();
    assert_eq!(names(&host), [""; 0]);
}

#[test]
fn host_without_a_reachable_next_hop_is_not_ready() {
    let mut host = Host::begun();
    host.announce("10.65.7.0/26", true);
    assert_eq!(names(&host), [""; 0]);
    let link = host.kernel.borrow().link("eth0").unwrap().index;
    let address = "10.0.0.11/24".parse().unwrap();
    host.kernel.borrow_mut().remove_address(link, address);
    host.settle();
    assert!(names(&host).contains(&"next-hops"), "{:?}", missing(&host));
}

#[test]
fn refused_route_makes_a_host_unready() {
    let mut host = Host::begun();
    assert_eq!(names(&host), [""; 0], "all routes were in the kernel once");
    let prefix: IpNet = "10.65.7.0/26".parse().unwrap();
    let key = RouteKey::new(TABLE_MAIN, prefix, 1024, 0);
    // Another program has a route of the same key.
    let route = Route::blackhole(Owner(99));
    host.kernel.borrow_mut().add_route(key, route).unwrap();
    host.settle();
    host.announce("10.65.7.0/26", true);
    assert_eq!(names(&host), ["kernel-routes"], "{:?}", missing(&host));
}

// Promise: as bgp-client host_is_ready_when_felix_has_programmed_it
#[test]
fn unconfirmed_route_of_the_former_run_makes_a_host_unready() {
    let mut host = Host::begun();
    let prefix: IpNet = "10.65.7.1/32".parse().unwrap();
    let settings = host.node.config().clone();
    let route = Route::blackhole(settings.owner);
    let key = RouteKey::new(TABLE_MAIN, prefix, 1024, 0);
    host.kernel.borrow_mut().add_route(key, route).unwrap();
    host.node = Node::new(fib_sync::Instant(0), settings, &mut host.speakers[0]);
    host.fib = MemoryFib::new(&host.kernel);
    host.settle();
    let why = "1 routes of the former run are not confirmed yet".to_owned();
    assert_eq!(missing(&host), [("kernel-routes", why)]);
    host.announce("10.65.7.1/32", true);
    assert_eq!(names(&host), [""; 0]);
}

#[test]
fn shadow_run_is_never_ready() {
    let mut host = Host::begun();
    let settings = KernelConfig {
        install: false,
        ..host.node.config().clone()
    };
    host.node = Node::new(fib_sync::Instant(0), settings, &mut host.speakers[0]);
    host.fib = MemoryFib::new(&host.kernel);
    host.settle();
    assert_eq!(names(&host), ["kernel-routes"]);
}
