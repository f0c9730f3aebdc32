//! The simulated kernel behaves like the real one in the aspects that matter; `tests/kernel` checks
//! the same against the real one.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use fib_sync::memory::{Kernel, MemoryFib};
use fib_sync::{Command, Event, Fib, Hop, PutMode, Route};

use crate::world::{CALI, STATIC, UP0, UP1, US, World, key, via};

fn drain(fib: &mut MemoryFib) -> Vec<Event> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut events = Vec::new();
    while let Poll::Ready(event) = fib.poll_event(&mut cx) {
        events.push(event);
    }
    events
}

#[test]
fn memory_kernel_keeps_routes_without_its_users() {
    let mut kernel = Kernel::new(1);
    let up = kernel.add_link("up0");
    let kernel = Rc::new(RefCell::new(kernel));
    let mut one = MemoryFib::new(&kernel);
    let mut two = MemoryFib::new(&kernel);
    assert_eq!(drain(&mut one).len(), 2, "both links are reported");
    drain(&mut two);
    one.submit(Command::Put(
        key("10.65.0.1/32"),
        Route::device(US, up),
        PutMode::Create,
    ));
    assert_eq!(
        drain(&mut one),
        [Event::Applied(key("10.65.0.1/32"), Ok(()))]
    );
    let [
        Event::Changed {
            route,
            replaced: false,
            ..
        },
    ] = &drain(&mut two)[..]
    else {
        panic!("the other one is reported");
    };
    assert_eq!(route.owner(), US);
    drop(one);
    assert_eq!(kernel.borrow().routes().count(), 1);
}

#[test]
fn refusals_are_those_of_the_real_kernel() {
    let mut world = World::new(2);
    let mut add = |prefix: &str, route| {
        let refused = world.kernel.add_route(key(prefix), route).err();
        refused.map_or(0, |error| error.errno)
    };
    assert_eq!(
        add("10.65.0.1/32", via(STATIC, &["192.0.2.1"])),
        libc::ENETUNREACH
    );
    assert_eq!(add("10.65.0.1/32", Route::device(STATIC, 99)), libc::ENODEV);
    assert_eq!(add("10.65.0.1/32", via(STATIC, &["10.0.0.12"])), 0);
    assert_eq!(
        add("10.65.0.1/32", via(STATIC, &["10.0.0.13"])),
        libc::EEXIST
    );
    let onlink = Hop::via("192.0.2.1".parse().unwrap()).on(UP0).onlink();
    assert_eq!(add("10.65.0.2/32", Route::unicast(STATIC, vec![onlink])), 0);
    world.kernel.set_link_up(CALI, false);
    let refused = world
        .kernel
        .add_route(key("10.65.0.3/32"), Route::device(STATIC, CALI));
    assert_eq!(refused.unwrap_err().errno, libc::ENETDOWN);
}

#[test]
fn link_that_is_set_down_loses_its_routes() {
    let mut world = World::new(3);
    world.run(std::time::Duration::from_millis(1));
    for (prefix, gateways) in [
        ("10.65.0.1/32", &["10.1.0.12"][..]),
        ("10.65.0.2/32", &["10.0.0.12", "10.1.0.12"]),
        ("fd65::1/128", &["fd01::12"]),
        ("fd65::2/128", &["fd00::12", "fd01::12"]),
    ] {
        world
            .kernel
            .add_route(key(prefix), via(STATIC, gateways))
            .unwrap();
    }
    while world.kernel.poll(world.attachment).is_some() {}
    world.kernel.set_link_up(UP1, false);
    let left: Vec<String> = world
        .kernel
        .routes()
        .filter(|(_, route)| route.owner() == STATIC)
        .map(|(key, _)| key.prefix.to_string())
        .collect();
    assert_eq!(left, ["10.65.0.2/32", "fd65::2/128"]);
    let mut reported = Vec::new();
    while let Some(event) = world.kernel.poll(world.attachment) {
        if let Event::Removed(key, route) = event
            && route.owner() == STATIC
        {
            reported.push(key.prefix.to_string());
        }
    }
    assert_eq!(reported, ["fd65::1/128"], "IPv4 has no event");
}
