//! Under any sequence of steps and faults, foreign routes are never changed; once the faults end,
//! the kernel holds the wanted routes.

use std::collections::BTreeSet;
use std::time::Duration;

use fib_sync::memory::Faults;
use fib_sync::nexthop::{Member, Nexthop, NexthopContent};
use fib_sync::watch::{Resolution, WatcherConfig};
use fib_sync::{FibStatus, Hop, NexthopObjects, Owner, Route, RouteKey};
use ipnet::IpNet;
use proptest::prelude::*;

use crate::world::{CALI, FELIX, STATIC, UP0, UP1, US, World, ip};

#[derive(Clone, Debug)]
enum Step {
    Want(RouteKey, Route),
    Unwant(RouteKey),
    /// Another program adds or replaces a route.
    Add(RouteKey, Route),
    Replace(RouteKey, Route),
    Delete(RouteKey),
    /// Another program creates a nexthop object.
    AddNexthop(Nexthop),
    /// Another program deletes the nexthop object at this place of the table.
    DeleteNexthop(usize),
    CompatMode(bool),
    /// A gateway fails.
    Fail(&'static str),
    Restore,
    LinkDown(u32),
    LinkUp(u32),
    Carrier(u32, bool),
    Faults(Faults),
    Refuse(IpNet, bool),
    Overrun,
    Crash,
    FinishGrace,
    /// Some events are handled.
    Pump(usize),
    Pass(u64),
}

const V4: &[&str] = &[
    "10.65.0.1/32",
    "10.65.0.2/32",
    "10.65.0.0/24",
    "10.0.0.0/25",
];
const V6: &[&str] = &["fd65::1/128", "fd65::2/128", "fd65::/64", "fd00::/80"];
const GATEWAYS_V4: &[&str] = &["10.0.0.12", "10.0.0.13", "10.1.0.12"];
const GATEWAYS_V6: &[&str] = &["fd00::12", "fd00::13", "fd01::12"];

fn keys() -> impl Strategy<Value = RouteKey> {
    let prefix = prop_oneof![prop::sample::select(V4), prop::sample::select(V6)];
    let metric = prop_oneof![4 => Just(1024), 1 => Just(256)];
    (prefix, metric)
        .prop_map(|(prefix, metric)| RouteKey::new(254, prefix.parse().unwrap(), metric, 0))
}

fn routes(ipv6: bool, owner: Owner) -> impl Strategy<Value = Route> {
    let gateways = if ipv6 { GATEWAYS_V6 } else { GATEWAYS_V4 };
    let hops = prop::collection::vec((prop::sample::select(gateways), 1..3_u16), 1..4);
    let hops = (hops, any::<bool>());
    prop_oneof![
        6 => hops.prop_map(move |(hops, has_interface)| {
            let hops = hops.into_iter().map(|(text, weight)| {
                let hop = Hop::via(ip(text)).weighted(weight);
                if has_interface { hop.on(link_of(text)) } else { hop }
            });
            Route::unicast(owner, hops.collect())
        }),
        2 => Just(Route::device(owner, CALI)),
        1 => Just(Route::blackhole(owner)),
    ]
}

/// Returns the interface to a gateway.
fn link_of(gateway: &str) -> u32 {
    match gateway.starts_with("10.0") || gateway.starts_with("fd00") {
        true => UP0,
        false => UP1,
    }
}

/// Objects of other programs: some have numbers of this one, some its protocol.
fn nexthops() -> impl Strategy<Value = Nexthop> {
    let id = prop_oneof![1..5_u32, 0x7700_0001..0x7700_0009_u32];
    let hop = prop::sample::select(GATEWAYS_V4)
        .prop_map(|text| NexthopContent::Hop(Hop::via(ip(text)).on(link_of(text))));
    let group = (1..5_u32).prop_map(|id| NexthopContent::Group(vec![Member::new(id, 1)]));
    let owner = prop::sample::select(&[STATIC, FELIX, US]);
    (id, owner, prop_oneof![hop, group])
        .prop_map(|(id, owner, content)| Nexthop::new(id, owner, content))
}

fn entry(owner: Owner) -> impl Strategy<Value = (RouteKey, Route)> {
    keys().prop_flat_map(move |key| (Just(key), routes(key.is_ipv6(), owner)))
}

fn foreign() -> impl Strategy<Value = (RouteKey, Route)> {
    prop_oneof![Just(STATIC), Just(FELIX), Just(US)].prop_flat_map(entry)
}

fn steps() -> impl Strategy<Value = Step> {
    let links = || prop::sample::select(&[UP0, UP1, CALI]);
    prop_oneof![
        8 => entry(US).prop_map(|(key, route)| Step::Want(key, route)),
        4 => keys().prop_map(Step::Unwant),
        3 => foreign().prop_map(|(key, route)| Step::Add(key, route)),
        2 => foreign().prop_map(|(key, route)| Step::Replace(key, route)),
        3 => keys().prop_map(Step::Delete),
        2 => nexthops().prop_map(Step::AddNexthop),
        2 => (0..8_usize).prop_map(Step::DeleteNexthop),
        1 => any::<bool>().prop_map(Step::CompatMode),
        2 => prop::sample::select(GATEWAYS_V4).prop_map(Step::Fail),
        1 => prop::sample::select(GATEWAYS_V6).prop_map(Step::Fail),
        2 => Just(Step::Restore),
        1 => links().prop_map(Step::LinkDown),
        2 => links().prop_map(Step::LinkUp),
        1 => (links(), any::<bool>()).prop_map(|(link, on)| Step::Carrier(link, on)),
        2 => (0..300_u16).prop_map(|chance| Step::Faults(Faults::all(chance))),
        1 => (0..300_u16).prop_map(|lose_notification| {
            let mut faults = Faults::all(50);
            faults.lose_notification = lose_notification;
            Step::Faults(faults)
        }),
        1 => (keys(), any::<bool>()).prop_map(|(key, refuse)| Step::Refuse(key.prefix, refuse)),
        1 => Just(Step::Overrun),
        1 => Just(Step::Crash),
        1 => Just(Step::FinishGrace),
        8 => (0..40_usize).prop_map(Step::Pump),
        3 => (0..20_000_u64).prop_map(Step::Pass),
    ]
}

fn apply(world: &mut World, step: Step) {
    match step {
        Step::Want(key, route) => world.want(key, route),
        Step::Unwant(key) => world.unwant(&key),
        // The kernel may refuse these, which only concerns the other program.
        Step::Add(key, route) => drop(world.kernel.add_route(key, route)),
        Step::Replace(key, route) => drop(world.kernel.replace_route(key, route)),
        Step::Delete(key) => drop(world.kernel.delete_route(&key)),
        Step::AddNexthop(nexthop) => drop(world.kernel.add_nexthop(nexthop)),
        Step::DeleteNexthop(at) => {
            let id = world.kernel.nexthops().nth(at).map(|nexthop| nexthop.id);
            id.map(|id| world.kernel.delete_nexthop(id));
        }
        Step::CompatMode(on) => world.kernel.set_nexthop_compat_mode(on),
        Step::Fail(gateway) => world.reconciler.fail_gateway(ip(gateway)),
        Step::Restore => world.reconciler.restore_gateways(),
        Step::LinkDown(index) => world.kernel.set_link_up(index, false),
        Step::LinkUp(index) => world.kernel.set_link_up(index, true),
        Step::Carrier(index, on) => world.kernel.set_carrier(index, on),
        Step::Faults(faults) => {
            world.silent_loss |= faults.lose_notification > 0;
            world.kernel.set_faults(faults);
        }
        Step::Refuse(prefix, refuse) => {
            world.kernel.refuse(prefix, refuse.then_some(libc::ENOMEM));
        }
        Step::Overrun => world.kernel.overrun(world.attachment),
        Step::Crash => world.crash(),
        Step::FinishGrace => world.reconciler.finish_grace(),
        Step::Pump(events) => world.pump(events),
        Step::Pass(millis) => world.run(Duration::from_millis(millis)),
    }
}

/// No more faults, all links up, and time enough for every back-off and two periodic checks.
fn calm(world: &mut World) {
    world.kernel.set_faults(Faults::default());
    for prefix in V4.iter().chain(V6) {
        world.kernel.refuse(prefix.parse().unwrap(), None);
    }
    world.repair_links();
    world.reconciler.restore_gateways();
    world.run(Duration::from_secs(200));
}

/// Checks that each wanted route is in the kernel, unless a foreign one holds its key, which is
/// then reported.
fn check_kernel(world: &World) {
    let foreign = world.foreign();
    for (key, want) in &world.wanted {
        let found = world.kernel.route(key);
        if let Some(theirs) = foreign.get(key) {
            let status = world.status(key);
            assert!(
                matches!(status, Some(FibStatus::Conflict { owner: Some(o), .. }) if o == theirs.owner()),
                "{key}: {status:?}"
            );
            continue;
        }
        let found = found.unwrap_or_else(|| panic!("{key} is missing: {:?}", world.status(key)));
        let mut want = want.clone().canonical();
        want.protocol = US.0;
        // An object is used where it can be.
        let is_whole = |hop: &Hop| hop.gateway.is_some() && hop.interface.is_some();
        let fits = !want.next_hops.is_empty() && want.next_hops.iter().all(is_whole);
        let is_shared = fits && world.nexthop_objects == NexthopObjects::Auto;
        assert_eq!(found.nexthop.is_some(), is_shared, "{key}: {found:?}");
        want.nexthop = found.nexthop;
        assert!(
            want.satisfied_by(key, found),
            "{key}: want {want:?}, found {found:?}"
        );
        assert_eq!(world.status(key), Some(FibStatus::Acked), "{key}");
    }
    for key in world.ours().keys() {
        assert!(world.wanted.contains_key(key), "{key} has no owner");
    }
}

/// Checks that exactly the own objects exist that routes use, with their members.
fn check_nexthops(world: &World) {
    let ours = |one: &&Nexthop| one.owner == US && one.id >> 24 == u32::from(US.0);
    let routes = world.kernel.routes();
    let mut needed: BTreeSet<u32> = routes.filter_map(|(_, route)| route.nexthop).collect();
    for one in world.kernel.nexthops().filter(ours) {
        if let (true, NexthopContent::Group(members)) = (needed.contains(&one.id), &one.content) {
            needed.extend(members.iter().map(|member| member.id));
        }
    }
    let own = world.kernel.nexthops().filter(ours);
    assert_eq!(own.map(|one| one.id).collect::<BTreeSet<u32>>(), needed);
}

/// Returns the objects of other programs.
fn foreign_nexthops(world: &World) -> Vec<Nexthop> {
    let ours = |one: &Nexthop| one.owner == US && one.id >> 24 == u32::from(US.0);
    let all = world.kernel.nexthops().cloned();
    all.filter(|one| !ours(one)).collect()
}

/// Checks that the watcher's report equals the result computed from the kernel's whole table.
fn check_watcher(world: &World) {
    let rule = |route: &Route| {
        [3, 80].contains(&route.protocol)
            && route.next_hops.iter().any(|h| h.interface == Some(CALI))
    };
    let naive: BTreeSet<IpNet> = world
        .kernel
        .routes()
        .filter(|(_, r)| rule(r))
        .map(|(key, _)| key.prefix)
        .collect();
    assert_eq!(world.watcher.imported().collect::<BTreeSet<_>>(), naive);
    let foreign = world.foreign();
    for (address, resolution) in world.watcher.resolutions() {
        let covers = |key: &RouteKey| key.prefix.contains(&address);
        let best = foreign
            .iter()
            .filter(|(key, _)| covers(key))
            .min_by_key(|(key, _)| (std::cmp::Reverse(key.prefix.prefix_len()), key.metric));
        let own = world
            .kernel
            .addresses()
            .any(|a| a.address.addr() == address);
        let reach = best.is_some_and(|(_, route)| route.kind.forwards()) && !own;
        assert_eq!(
            resolution.is_reachable(),
            reach,
            "{address}: {resolution:?}, {best:?}"
        );
        if let (Resolution::Reachable { hops, .. }, Some((_, route))) = (resolution, best) {
            let links = |hops: &[Hop]| hops.iter().map(|h| h.interface).collect::<Vec<_>>();
            assert_eq!(links(hops), links(&route.next_hops));
        }
    }
}

fn track(world: &mut World) {
    for text in [
        "10.0.0.12",
        "10.0.0.11",
        "10.65.0.1",
        "10.1.0.12",
        "192.0.2.1",
        "fd00::12",
    ] {
        world.watcher.track(ip(text));
    }
}

/// Checks that a daemon started now with the same wanted routes finds nothing to do.
fn check_second(world: &mut World) {
    let foreign = world.foreign();
    let wanted = world.wanted.clone();
    world.crash();
    world.commands.clear();
    let wanted = wanted
        .into_iter()
        .filter(|(key, _)| !foreign.contains_key(key));
    for (key, route) in wanted {
        world.want(key, route);
    }
    world.run(Duration::from_secs(100));
    assert_eq!(world.writes(), 0, "{:?}", world.commands);
}

proptest! {
    #![proptest_config(ProptestConfig { verbose: 0, ..ProptestConfig::with_cases(400) })]

    // Promise: as fib-sync foreign_route_of_another_metric_is_kept
    #[test]
    fn reconciler_converges_without_a_change_of_foreign_routes(seed: u64, steps in prop::collection::vec(steps(), 1..80)) {
        let mut world = World::new(seed);
        track(&mut world);
        for step in steps {
            let crash = matches!(step, Step::Crash);
            apply(&mut world, step);
            if crash {
                track(&mut world);
            }
        }
        calm(&mut world);
        check_kernel(&world);
        check_watcher(&world);
        check_second(&mut world);
    }

    /// The same where routes share nexthop objects.
    #[test]
    fn shared_objects_converge_without_a_change_of_foreign_ones(
        seed: u64,
        mode in prop::sample::select(&[NexthopObjects::Auto, NexthopObjects::Auto, NexthopObjects::Off]),
        steps in prop::collection::vec(steps(), 1..80),
    ) {
        let mut world = World::with(seed, mode);
        track(&mut world);
        for step in steps {
            let crash = matches!(step, Step::Crash);
            apply(&mut world, step);
            if crash {
                track(&mut world);
            }
            let foreign = foreign_nexthops(&world);
            world.pump(usize::MAX);
            prop_assert_eq!(foreign_nexthops(&world), foreign);
        }
        calm(&mut world);
        check_kernel(&world);
        check_nexthops(&world);
        check_watcher(&world);
        check_second(&mut world);
        check_nexthops(&world);
    }

    /// Without faults the writes are exactly the difference of two maps.
    #[test]
    fn writes_are_the_difference(
        before in prop::collection::btree_map(keys(), routes(false, US), 0..8),
        after in prop::collection::btree_map(keys(), routes(false, US), 0..8),
        seed: u64,
    ) {
        let fits = |(key, _): &(&RouteKey, &Route)| !key.is_ipv6();
        let mut world = World::new(seed);
        for (key, route) in before.iter().filter(fits) {
            world.want(*key, route.clone());
        }
        world.run(Duration::from_millis(1));
        prop_assert!(world.reconciler.in_sync());
        let there = world.ours();
        world.crash();
        world.commands.clear();
        for (key, route) in after.iter().filter(fits) {
            world.want(*key, route.clone());
        }
        world.run(Duration::from_secs(40));
        let gone = there.keys().filter(|key| !after.contains_key(key)).count();
        let changed = after
            .iter()
            .filter(fits)
            .filter(|(key, want)| {
                let want = want.to_owned().clone().canonical();
                there.get(key).is_none_or(|found| !want.satisfied_by(key, found))
            })
            .count();
        prop_assert_eq!(world.writes(), gone + changed);
        prop_assert!(world.reconciler.in_sync());
    }
}

#[test]
fn watcher_lists_the_tables_it_reads() {
    assert_eq!(WatcherConfig::new(US).tables(), BTreeSet::from([254]));
}
