//! The route by which other programs of the host see that it is programmed.

use kernel_events::marker;

use super::*;

fn is_shown(world: &World) -> bool {
    let kernel = world.kernel.borrow();
    let route = kernel.route(&marker::key());
    route.is_some_and(|route| route.protocol == 80)
}

// Promise (Felix): Felix shows other programs of its host that the host is programmed only when the
// kernel has acknowledged all rules and routes.
#[test]
fn host_is_shown_as_programmed_after_its_rules_and_routes() {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.settle();
    assert!(!is_shown(&world), "the datastore was not read in full");
    world.in_sync();
    assert!(is_shown(&world));
    assert_eq!(world.agent.waiting_for(), []);
    // Later changes on their way to the kernel do not count.
    world.link("cali2");
    world.endpoint("b", "cali2", &["10.65.0.2/32"]);
    assert!(is_shown(&world));
    world.settle();
    assert!(is_shown(&world));
}

#[test]
fn restarted_agent_adopts_the_route() {
    let mut world = World::new();
    world.in_sync();
    assert!(is_shown(&world));
    let puts = world.agent.route_summary().puts;
    assert_eq!(puts, 1);
    world.restart();
    world.settle();
    assert!(is_shown(&world));
    world.in_sync();
    assert!(is_shown(&world));
    assert_eq!(world.agent.route_summary().puts, 0);
}
