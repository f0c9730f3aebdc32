//! A gateway of many routes that share nexthop objects fails.

use std::net::{IpAddr, Ipv4Addr};

use fib_sync::memory::{Attachment, Kernel};
use fib_sync::{Hop, Instant, NexthopObjects, Reconciler, Route, RouteKey};
use ipnet::{IpNet, Ipv4Net};

use crate::world::{UP0, US, config, ip};

const ROUTES: u32 = 100_000;
const FAILS: &str = "10.0.0.12";
const STAYS: &str = "10.0.0.13";

/// A daemon and its kernel. Unlike [`World`](crate::world::World), it compares nothing after an event.
struct Side {
    kernel: Kernel,
    attachment: Attachment,
    reconciler: Reconciler,
}

impl Side {
    fn new() -> Self {
        let mut kernel = Kernel::new(1);
        assert_eq!(kernel.add_link("up0"), UP0);
        kernel.add_address(UP0, "10.0.0.11/16".parse().unwrap());
        Self {
            attachment: kernel.attach(),
            kernel,
            reconciler: Reconciler::new(Instant(0), config(NexthopObjects::Auto)),
        }
    }

    /// Wants all routes over these gateways, and returns how many commands that takes.
    fn want(&mut self, gateways: &[&str]) -> usize {
        let hops = gateways.iter().map(|text| Hop::via(ip(text)).on(UP0));
        let route = Route::unicast(US, hops.collect());
        for number in 0..ROUTES {
            self.reconciler.want(key(number), route.clone());
        }
        self.run()
    }

    /// Handles everything that happens, and returns the number of commands.
    fn run(&mut self) -> usize {
        let mut commands = 0;
        loop {
            let command = self.reconciler.poll_command(Instant(0));
            let was_idle = command.is_none();
            if let Some(command) = command {
                commands += 1;
                self.kernel.submit(self.attachment, command);
            }
            match self.kernel.poll(self.attachment) {
                Some(event) => self.reconciler.handle(Instant(0), &event),
                None if was_idle => return commands,
                None => {}
            }
        }
    }

    /// Returns how many routes have exactly these gateways.
    fn count(&self, gateways: &[&str]) -> usize {
        let gateways: Vec<Option<IpAddr>> = gateways.iter().map(|text| Some(ip(text))).collect();
        let has = |route: &Route| {
            route
                .next_hops
                .iter()
                .map(|hop| hop.gateway)
                .eq(gateways.clone())
        };
        self.kernel.routes().filter(|(_, route)| has(route)).count()
    }
}

fn key(number: u32) -> RouteKey {
    let net = Ipv4Net::new(Ipv4Addr::from_bits(0x1400_0000 + (number << 8)), 24).unwrap();
    RouteKey::new(254, IpNet::V4(net), 1024, 0)
}

#[test]
fn all_routes_leave_a_gateway_with_one_message() {
    let mut side = Side::new();
    // The first read shows that the kernel has nexthop objects.
    side.run();
    side.want(&[FAILS, STAYS]);
    let all = usize::try_from(ROUTES).unwrap();
    assert_eq!(side.count(&[FAILS, STAYS]), all);
    side.reconciler.fail_gateway(ip(FAILS));
    assert_eq!(side.run(), 1, "messages");
    assert_eq!(side.count(&[STAYS]), all);
    // BGP follows: nothing is left to write.
    assert_eq!(side.want(&[STAYS]), 0);
    side.reconciler.restore_gateways();
    assert_eq!(side.run(), 0);
    assert!(side.reconciler.in_sync());
}
