//! Routes that Felix is about to remove.

use fib_sync::METRIC_LEAVING;
use kernel_events::marker;

use super::ready::with_felix;
use super::*;
use crate::limits::WITHDRAWN_AFTER;

fn prefix() -> IpNet {
    WORKLOAD.parse().unwrap()
}

impl Host {
    /// Has Felix mark the workload's route.
    fn mark(&mut self) {
        let mut kernel = self.kernel.borrow_mut();
        let link = kernel.link("cali1").unwrap().index;
        let marked = RouteKey::new(TABLE_MAIN, prefix(), METRIC_LEAVING, 0);
        kernel
            .add_route(marked, Route::device(Owner(80), link))
            .unwrap();
        drop(kernel);
        self.workload_here(false);
    }

    /// Has Felix remove the marked route.
    fn remove_marked(&mut self) {
        let marked = RouteKey::new(TABLE_MAIN, prefix(), METRIC_LEAVING, 0);
        assert!(self.kernel.borrow_mut().delete_route(&marked));
        self.settle();
    }

    /// Lets the node look at its departures after a time.
    fn look_after(&mut self, time: Duration) {
        self.settle();
        let now = fib_sync::Instant(NOW.0) + time;
        assert_eq!(self.node.read(now, &mut self.speakers[0]), Progress::Done);
        while let Some(command) = self.node.poll_command(now) {
            self.fib.submit(command);
        }
        self.kernel_events();
    }

    fn is_answered(&self) -> bool {
        let kernel = self.kernel.borrow();
        let answer = kernel.route(&marker::answer_key(prefix()));
        answer.is_some_and(|route| route.protocol == 119)
    }

    fn neighbor_received(&self) -> bool {
        let (family, net) = net_of(prefix());
        self.speakers[1].rib().lookup(family, net).is_some()
    }
}

// Promise: as felix deleted_endpoint_is_reachable_until_it_is_withdrawn
#[test]
fn marked_route_is_withdrawn_and_then_answered() {
    let mut host = with_felix();
    host.workload_here(true);
    assert!(host.neighbor_received());
    host.mark();
    assert!(!host.neighbor_received());
    host.look_after(Duration::ZERO);
    assert!(!host.is_answered(), "the withdrawal is on its way");
    host.look_after(WITHDRAWN_AFTER);
    assert!(host.is_answered());
    host.remove_marked();
    assert!(!host.is_answered());
    let wanted = host.node.summary();
    assert_eq!((wanted.wanted, wanted.acked), (0, 0));
}

#[test]
fn route_that_returns_is_advertised_and_not_answered() {
    let mut host = with_felix();
    host.workload_here(true);
    host.mark();
    host.workload_here(true);
    assert!(host.neighbor_received());
    host.look_after(WITHDRAWN_AFTER);
    assert!(!host.is_answered());
}

#[test]
fn client_without_felix_gives_no_answer() {
    let mut host = Host::begun();
    let answerer = |host: &Host| {
        let kernel = host.kernel.borrow();
        kernel.route(&marker::answerer_key()).is_some()
    };
    host.workload_here(true);
    host.mark();
    assert!(!host.neighbor_received(), "it is withdrawn nevertheless");
    host.look_after(WITHDRAWN_AFTER);
    assert!(!host.is_answered() && !answerer(&host));
    assert!(answerer(&with_felix()));
}

/// A learned route to the same address is preferred to the marked one.
#[test]
fn moved_workload_is_reached_at_its_new_host() {
    let mut host = with_felix();
    host.workload_here(true);
    host.neighbor_has(true);
    host.mark();
    let kernel = host.kernel.borrow();
    let address = prefix().addr();
    let (key, route) = kernel.route_to(TABLE_MAIN, address).unwrap();
    assert_eq!((key.metric, route.protocol), (1024, 119));
}
