//! Links and addresses, and the routes that appear and disappear with them as in the real kernel.

use ipnet::IpNet;

use super::kernel::Kernel;
use crate::owner::Owner;
use crate::port::Event;
use crate::route::{Hop, InterfaceAddress, Link, Route, RouteKey, TABLE_MAIN, Tunnel};

/// `RTPROT_KERNEL`: routes the kernel itself makes.
const KERNEL: Owner = Owner(2);

/// Metric of the kernel's own IPv6 routes.
const KERNEL_METRIC_IPV6: u32 = 256;

impl Kernel {
    /// Adds an interface, up and with carrier; returns its index.
    pub fn add_link(&mut self, name: &str) -> u32 {
        let index = self.next_index;
        self.next_index += 1;
        let link = Link {
            index,
            name: name.to_owned(),
            up: true,
            running: true,
            tunnel: None,
        };
        self.links.insert(index, link.clone());
        self.notify(None, &Event::Link(link));
        index
    }

    /// Returns the interface of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.name == name)
    }

    /// Returns the interface of this index.
    pub fn link_by_index(&self, index: u32) -> Option<&Link> {
        self.links.get(&index)
    }

    /// Makes an interface a tunnel device, or another one.
    pub fn set_tunnel(&mut self, index: u32, tunnel: Option<Tunnel>) {
        if let Some(link) = self.links.get_mut(&index) {
            link.tunnel = tunnel;
            let event = Event::Link(link.clone());
            self.notify(None, &event);
        }
    }

    /// Gives an interface another name.
    pub fn rename_link(&mut self, index: u32, name: &str) {
        if let Some(link) = self.links.get_mut(&index) {
            name.clone_into(&mut link.name);
            let event = Event::Link(link.clone());
            self.notify(None, &event);
        }
    }

    /// Sets an interface administratively up or down. Down removes its routes: the IPv4 ones
    /// without a notification, the IPv6 ones with one each, and its IPv6 addresses. Routes that
    /// have a hop over another interface stay.
    pub fn set_link_up(&mut self, index: u32, up: bool) {
        let Some(link) = self.links.get_mut(&index) else {
            return;
        };
        if link.up == up {
            return;
        }
        link.up = up;
        link.running = up;
        let event = Event::Link(link.clone());
        self.notify(None, &event);
        if up {
            self.connect(index);
        } else {
            self.drop_nexthops_over(index);
            self.drop_dead_routes();
            self.drop_addresses(index, false);
        }
    }

    /// Removes or restores the carrier of an interface. Routes stay, except those over nexthop objects:
    /// the kernel deletes the objects of a link without carrier.
    pub fn set_carrier(&mut self, index: u32, running: bool) {
        let Some(link) = self.links.get_mut(&index) else {
            return;
        };
        link.running = link.up && running;
        let event = Event::Link(link.clone());
        self.notify(None, &event);
        if !running {
            self.drop_nexthops_over(index);
        }
    }

    /// Removes an interface with its addresses and routes.
    pub fn remove_link(&mut self, index: u32) {
        self.set_link_up(index, false);
        self.drop_addresses(index, true);
        if self.links.remove(&index).is_some() {
            self.shorten_routes(index);
            self.notify(None, &Event::LinkRemoved(index));
        }
    }

    /// Adds an address to an interface; the kernel adds the route to its subnet.
    pub fn add_address(&mut self, interface: u32, address: IpNet) {
        let address = InterfaceAddress { interface, address };
        if self.addresses.insert(address) {
            self.notify(None, &Event::Address(address));
            self.connect(interface);
        }
    }

    /// Removes an address, and the kernel's route to its subnet. Routes over gateways of that
    /// subnet stay, as they do in Linux unless the address was their source.
    pub fn remove_address(&mut self, interface: u32, address: IpNet) {
        let gone = InterfaceAddress { interface, address };
        if self.addresses.remove(&gone) {
            self.notify(None, &Event::AddressRemoved(gone));
            self.disconnect(gone);
        }
    }

    /// Returns the addresses of this host.
    pub fn addresses(&self) -> impl Iterator<Item = &InterfaceAddress> {
        self.addresses.iter()
    }

    fn is_up(&self, index: u32) -> bool {
        self.links.get(&index).is_some_and(|link| link.up)
    }

    /// Adds the kernel's routes to the subnets of an interface that is up.
    fn connect(&mut self, index: u32) {
        if !self.is_up(index) {
            return;
        }
        let subnets: Vec<InterfaceAddress> = self
            .addresses
            .iter()
            .filter(|a| a.interface == index)
            .copied()
            .collect();
        for subnet in subnets {
            let (key, route) = connected(subnet);
            if subnet.address.prefix_len() < subnet.address.max_prefix_len()
                && !self.routes.contains_key(&key)
            {
                self.routes.insert(key, route.clone());
                self.notify(
                    None,
                    &Event::Changed {
                        key,
                        route,
                        replaced: false,
                    },
                );
            }
        }
    }

    fn disconnect(&mut self, gone: InterfaceAddress) {
        let (key, route) = connected(gone);
        let others = self
            .addresses
            .iter()
            .filter(|a| a.interface == gone.interface);
        let shared = others
            .into_iter()
            .any(|a| a.address.trunc() == gone.address.trunc());
        if !shared && self.routes.get(&key) == Some(&route) {
            self.routes.remove(&key);
            self.notify(None, &Event::Removed(key, route));
        }
    }

    fn drop_addresses(&mut self, index: u32, ipv4: bool) {
        let of = |a: &InterfaceAddress| {
            a.interface == index && (ipv4 || matches!(a.address, IpNet::V6(_)))
        };
        let gone: Vec<InterfaceAddress> =
            self.addresses.iter().filter(|a| of(a)).copied().collect();
        for address in gone {
            self.remove_address(address.interface, address.address);
        }
    }

    /// Removes the routes of which all hops leave through links that are down.
    fn drop_dead_routes(&mut self) {
        let dead = |hop: &Hop| hop.interface.is_some_and(|index| !self.is_up(index));
        let routes = self
            .routes
            .iter()
            .filter(|(_, route)| !route.next_hops.is_empty() && route.next_hops.iter().all(dead));
        let keys: Vec<RouteKey> = routes.map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(route) = self.routes.remove(&key)
                && key.is_ipv6()
            {
                self.notify(None, &Event::Removed(key, route));
            }
        }
    }

    /// Removes the hops over a deleted link from their routes. IPv4 removes such routes whole.
    fn shorten_routes(&mut self, index: u32) {
        let routes = self.routes.iter().filter(|(_, route)| route.uses(index));
        let keys: Vec<RouteKey> = routes.map(|(key, _)| *key).collect();
        for key in keys {
            let Some(mut route) = self.routes.remove(&key) else {
                continue;
            };
            if !key.is_ipv6() {
                continue;
            }
            let (gone, left) = route
                .next_hops
                .iter()
                .partition(|hop| hop.interface == Some(index));
            let gone: Vec<Hop> = gone;
            route.next_hops = left;
            let reported = Route {
                next_hops: gone,
                ..route.clone()
            };
            if !route.next_hops.is_empty() {
                self.routes.insert(key, route);
            }
            self.notify(None, &Event::Removed(key, reported));
        }
    }
}

/// Returns the kernel's route to the subnet of an address.
fn connected(address: InterfaceAddress) -> (RouteKey, Route) {
    let ipv6 = matches!(address.address, IpNet::V6(_));
    let metric = if ipv6 { KERNEL_METRIC_IPV6 } else { 0 };
    let key = RouteKey::new(TABLE_MAIN, address.address, metric, 0);
    let mut route = Route::device(KERNEL, address.interface);
    if ipv6 {
        route.scope = crate::route::Scope::Universe;
    } else {
        route.source = Some(address.address.addr());
    }
    (key, route)
}
