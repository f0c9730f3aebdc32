//! Conversion between metrics and degrees of preference.

use bgp_io::bgp_proto::Family;
use calico_bgp::{Duties, Priorities, Programming, degree_of};

use super::*;

const OTHERS: u32 = 1024;

/// Returns the duties of a datastore without settings of metrics.
fn stored() -> Duties {
    let priorities = Some(Priorities { v4: 1024, v6: 1024 });
    Duties {
        programming: Programming {
            priorities,
            ..Programming::default()
        },
        ..Duties::default()
    }
}

impl Host {
    pub(super) fn takes(&mut self, duties: &Duties) {
        self.node.take_duties(duties);
        self.settle();
    }

    /// Has the neighbor announce the workload's address with this LOCAL_PREF.
    fn receive(&mut self, degree: u32) {
        let (family, net) = net_of(WORKLOAD.parse().unwrap());
        let attributes = Attributes {
            local_pref: Some(degree),
            ..Attributes::default()
        };
        let local = Input::Local {
            family,
            net,
            attributes: Some(attributes),
            interface: None,
        };
        self.speakers[1].handle(NOW, local);
        self.settle();
    }

    /// Has Felix add a route to the workload with this metric, beside existing ones.
    fn felix_adds(&mut self, metric: u32) {
        let mut kernel = self.kernel.borrow_mut();
        let link = kernel.add_link(&format!("cali{metric}"));
        let key = RouteKey::new(TABLE_MAIN, WORKLOAD.parse().unwrap(), metric, 0);
        let route = Route::device(Owner(3), link);
        kernel.add_route(key, route).unwrap();
        drop(kernel);
        self.settle();
    }

    fn felix_deletes(&mut self, metric: u32) {
        let key = RouteKey::new(TABLE_MAIN, WORKLOAD.parse().unwrap(), metric, 0);
        assert!(self.kernel.borrow_mut().delete_route(&key));
        self.settle();
    }

    /// Returns the LOCAL_PREF of the workload's route that was advertised to the neighbor.
    fn local_pref(&self) -> Option<u32> {
        let (_, net) = net_of(WORKLOAD.parse().unwrap());
        let view = self.speakers[1].rib().lookup(Family::IPV4_UNICAST, net)?;
        let mut paths = view.paths.iter();
        let path = paths.find(|path| path.peer != PeerId::LOCAL)?;
        path.received.local_pref
    }

    /// Returns the metrics of the daemon's routes to the workload.
    fn metrics(&self) -> Vec<u32> {
        let kernel = self.kernel.borrow();
        let ours = kernel.routes().filter(|(_, route)| route.protocol == 119);
        ours.map(|(key, _)| key.metric).collect()
    }
}

#[test]
fn workload_is_advertised_with_degree_of_its_metric() {
    let mut host = Host::begun();
    host.felix_adds(1024);
    assert_eq!(host.local_pref(), Some(100), "metrics are not reported");
    host.takes(&stored());
    assert_eq!(host.local_pref(), Some(degree_of(1024)));
    host.felix_adds(512);
    assert_eq!(
        host.local_pref(),
        Some(degree_of(512)),
        "the kernel uses this"
    );
    host.felix_deletes(512);
    assert_eq!(host.local_pref(), Some(degree_of(1024)));
    host.felix_deletes(1024);
    assert_eq!(host.local_pref(), None);
    // Cambric's Felix, and earlier versions of Calico's: the policy sets the normal degree.
    for metric in [256, 0] {
        host.felix_adds(metric);
        assert_eq!(host.local_pref(), Some(100), "{metric}");
        host.felix_deletes(metric);
    }
    host.felix_adds(512);
    host.takes(&Duties::default());
    assert_eq!(host.local_pref(), Some(100));
}

#[test]
fn a_learned_degree_is_a_metric_of_the_kernel() {
    let mut host = Host::begun();
    host.receive(degree_of(512));
    assert_eq!(host.metrics(), [OTHERS], "metrics are not reported");
    host.takes(&stored());
    assert_eq!(host.metrics(), [512]);
    for (degree, metric) in [
        (degree_of(1024), 1024),
        (degree_of(4096), 4096),
        (100, OTHERS),
        (0, OTHERS),
        (u32::MAX, OTHERS),
        (degree_of(1), 1),
    ] {
        host.receive(degree);
        assert_eq!(host.metrics(), [metric], "{degree}");
    }
    host.neighbor_has(false);
    assert!(host.metrics().is_empty());
    host.receive(degree_of(512));
    host.takes(&Duties::default());
    assert_eq!(host.metrics(), [OTHERS]);
}

/// A workload moves away: its former host receives the new route before its Felix removes the old
/// one.
#[test]
fn moved_workload_is_preferred_to_its_old_route() {
    for left in [256, 1024] {
        let mut host = Host::begun();
        host.takes(&stored());
        host.felix_adds(left);
        host.receive(degree_of(512));
        let before = 512.min(left - 1);
        assert_eq!(host.metrics(), [before], "before Felix' route of {left}");
        host.felix_deletes(left);
        assert_eq!(host.metrics(), [512]);
        // It returns with its former metric.
        host.felix_adds(left);
        assert_eq!(host.metrics(), [before]);
        host.receive(degree_of(2000));
        assert_eq!(host.metrics(), [2000], "ours is the better one");
    }
    // Both workload routes are temporary: the local one has precedence.
    let mut host = Host::begun();
    host.takes(&stored());
    host.felix_adds(300);
    host.receive(degree_of(512));
    assert_eq!(host.metrics(), [512]);
    // No route has precedence over one without a metric.
    host.felix_adds(0);
    assert_eq!(host.metrics(), [512]);
}
