//! Addresses of services from the datastore.

use std::collections::BTreeMap;

use bgp_io::bgp_proto::{Community, Family};
use calico_bgp::{Duties, Programming, ServiceAttributes};

use super::*;

const SERVICE: &str = "192.0.2.7/32";

/// Returns the duties of a node that announces the service with this MED.
fn serving(med: Option<u32>) -> Duties {
    let attributes = ServiceAttributes {
        communities: vec![Community(64512 << 16 | 300)],
        med,
        ..ServiceAttributes::default()
    };
    Duties {
        service_routes: BTreeMap::from([(SERVICE.parse().unwrap(), attributes)]),
        ..idle()
    }
}

/// Returns the duties of a node without endpoints of the service.
fn idle() -> Duties {
    Duties {
        programming: Programming {
            services: vec!["192.0.2.0/24".parse().unwrap()],
            ..Programming::default()
        },
        ..Duties::default()
    }
}

impl Host {
    /// Returns the attributes with which the neighbor has received the service.
    fn service(&self) -> Option<Attributes> {
        let (_, net) = net_of(SERVICE.parse().unwrap());
        let view = self.speakers[1].rib().lookup(Family::IPV4_UNICAST, net)?;
        let mut paths = view.paths.into_iter();
        let path = paths.find(|path| path.peer != PeerId::LOCAL)?;
        Some(path.received)
    }

    /// Returns the number of kernel routes to the service.
    fn service_routes(&self) -> usize {
        let kernel = self.kernel.borrow();
        let service: IpNet = SERVICE.parse().unwrap();
        let routes = kernel.routes();
        routes.filter(|(key, _)| key.prefix == service).count()
    }
}

// Promise (Kubernetes): A node announces the addresses of services in its key with their attributes,
// and no kernel route leads from one node that announces an address to the other.
#[test]
fn service_is_announced_while_it_is_listed() {
    let mut host = Host::begun();
    host.takes(&idle());
    assert_eq!(host.service(), None);
    host.takes(&serving(Some(5)));
    let received = host.service().expect("announced");
    assert_eq!(received.med, Some(5));
    assert_eq!(received.communities, [Community(64512 << 16 | 300)]);
    host.takes(&serving(None));
    assert_eq!(host.service().expect("announced").med, None);
    // Another node announces it, too.
    let (family, net) = net_of(SERVICE.parse().unwrap());
    let local = |attributes| Input::Local {
        family,
        net,
        attributes,
        interface: None,
    };
    host.speakers[1].handle(NOW, local(Some(Attributes::default())));
    host.settle();
    assert_eq!(host.service_routes(), 0);
    host.takes(&idle());
    assert_eq!(host.service(), None, "withdrawn");
    assert_eq!(host.service_routes(), 0);
}
