//! Routes with the kernel's identity and with this crate's comparison; links and addresses.

use core::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::limits::HOPS_MAX;
use crate::owner::Owner;

/// The main routing table.
pub const TABLE_MAIN: u32 = 254;

/// The metric of a workload's route that its program is about to remove: worse than that of any route
/// with a use, so another route to the prefix has precedence. A [`crate::watch::Watcher`] does not import
/// it.
pub const METRIC_LEAVING: u32 = 0xf000_0000;

/// The metric the kernel gives an IPv6 route that was added with metric 0.
const IPV6_METRIC_DEFAULT: u32 = 1024;

/// The kernel's identity of a route. The kernel cannot distinguish two routes that have all of
/// these fields equal: a replace of one replaces the other, whatever the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct RouteKey {
    /// Routing table (`RTA_TABLE`), 254 is the main one.
    pub table: u32,
    /// Destination, host bits clear.
    pub prefix: IpNet,
    /// `RTA_PRIORITY`; the lowest wins. Never 0 for IPv6.
    pub metric: u32,
    /// Type of service; always 0 for IPv6.
    pub tos: u8,
}

impl RouteKey {
    /// Returns a key in canonical form, as the kernel would store it: host bits of `prefix`
    /// cleared; an IPv6 metric of 0 becomes 1024 and an IPv6 type of service becomes 0.
    pub fn new(table: u32, prefix: IpNet, metric: u32, tos: u8) -> Self {
        let ipv6 = matches!(prefix, IpNet::V6(_));
        Self {
            table,
            prefix: prefix.trunc(),
            metric: if ipv6 && metric == 0 {
                IPV6_METRIC_DEFAULT
            } else {
                metric
            },
            tos: if ipv6 { 0 } else { tos },
        }
    }

    /// Returns the same key in canonical form.
    pub fn canonical(self) -> Self {
        Self::new(self.table, self.prefix, self.metric, self.tos)
    }

    /// Returns whether the destination is an IPv6 prefix.
    pub fn is_ipv6(&self) -> bool {
        matches!(self.prefix, IpNet::V6(_))
    }
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} table {} metric {}",
            self.prefix, self.table, self.metric
        )?;
        if self.tos != 0 {
            write!(f, " tos {:#x}", self.tos)?;
        }
        Ok(())
    }
}

/// The kernel's action for a packet that matches the route (`rtm_type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKind {
    /// Forward it to a next hop.
    #[default]
    Unicast,
    /// Deliver it to this host.
    Local,
    /// Drop it silently.
    Blackhole,
    /// Drop it and send the ICMP error "host unreachable".
    Unreachable,
    /// Drop it and send the ICMP error "administratively prohibited".
    Prohibit,
    /// Continue the lookup in the next table.
    Throw,
    /// Another `rtm_type`; read only.
    Other(u8),
}

impl RouteKind {
    /// Returns whether routes of this kind have next hops that matter.
    pub fn forwards(self) -> bool {
        self == Self::Unicast
    }
}

impl fmt::Display for RouteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unicast => f.write_str("unicast"),
            Self::Local => f.write_str("local"),
            Self::Blackhole => f.write_str("blackhole"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::Prohibit => f.write_str("prohibit"),
            Self::Throw => f.write_str("throw"),
            Self::Other(kind) => write!(f, "type {kind}"),
        }
    }
}

/// The distance to the destination (`rtm_scope`); IPv4 only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Anywhere: reached over a gateway.
    #[default]
    Universe,
    /// On a link of this host.
    Link,
    /// This host itself.
    Host,
    /// Another value of the kernel.
    Other(u8),
}

/// One next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Hop {
    /// The router to forward packets to; `None` when the destination is on the link. An IPv6
    /// gateway of an IPv4 prefix is allowed (`RTA_VIA`, RFC 8950 forwarding).
    pub gateway: Option<IpAddr>,
    /// Interface index. When a wanted hop omits it, the kernel chooses by its own routes and any
    /// choice satisfies the hop.
    pub interface: Option<u32>,
    /// Share among the hops of a route, 1..=256.
    pub weight: u16,
    /// Treat the gateway as on the link even without a route to it.
    pub onlink: bool,
}

impl Hop {
    /// Returns a hop to a router, over the interface that the kernel chooses.
    pub fn via(gateway: IpAddr) -> Self {
        Self {
            gateway: Some(gateway),
            interface: None,
            weight: 1,
            onlink: false,
        }
    }

    /// Returns a hop to a destination on the link itself.
    pub fn device(interface: u32) -> Self {
        Self {
            gateway: None,
            interface: Some(interface),
            weight: 1,
            onlink: false,
        }
    }

    /// Returns the same hop over this interface.
    pub fn on(self, interface: u32) -> Self {
        Self {
            interface: Some(interface),
            ..self
        }
    }

    /// Returns the same hop with its gateway on the link, whatever the routes to it.
    pub fn onlink(self) -> Self {
        Self {
            onlink: true,
            ..self
        }
    }

    /// Returns the same hop with this weight, brought into 1..=256.
    pub fn weighted(self, weight: u16) -> Self {
        Self {
            weight: weight.clamp(1, 256),
            ..self
        }
    }

    /// Returns whether `found` matches this hop in every field that this hop sets.
    fn is(&self, found: &Self, weigh: bool) -> bool {
        self.gateway == found.gateway
            && self
                .interface
                .is_none_or(|index| found.interface == Some(index))
            && (!self.onlink || found.onlink)
            && (!weigh || self.weight == found.weight)
    }
}

/// Everything about a route except its identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Route {
    /// The action for packets.
    pub kind: RouteKind,
    /// Next hops; empty unless `kind` is unicast. Order has no meaning.
    pub next_hops: Vec<Hop>,
    /// IPv4 scope.
    pub scope: Scope,
    /// Source address for packets that this host itself sends (`RTA_PREFSRC`).
    pub source: Option<IpAddr>,
    /// The owner of the route (`rtm_protocol`).
    pub protocol: u8,
    /// The nexthop object that has its next hops (`RTA_NH_ID`); `None` if the route has them itself.
    /// In a wanted route of a [`crate::Reconciler`] any number stands for any object with these next
    /// hops.
    pub nexthop: Option<u32>,
}

impl Route {
    /// Returns the gateways of its next hops as text, separated by spaces.
    pub fn gateways(&self) -> String {
        let gateways = self.next_hops.iter().filter_map(|hop| hop.gateway);
        let gateways: Vec<String> = gateways.map(|gateway| gateway.to_string()).collect();
        gateways.join(" ")
    }

    /// Returns a route over these next hops; scope link if one of them has no gateway.
    pub fn unicast(owner: Owner, next_hops: Vec<Hop>) -> Self {
        let on_link = next_hops.iter().any(|hop| hop.gateway.is_none());
        Self {
            kind: RouteKind::Unicast,
            next_hops,
            scope: if on_link {
                Scope::Link
            } else {
                Scope::Universe
            },
            source: None,
            protocol: owner.0,
            nexthop: None,
        }
    }

    /// Returns a route to a destination on the link of this interface.
    pub fn device(owner: Owner, interface: u32) -> Self {
        Self::unicast(owner, vec![Hop::device(interface)])
    }

    /// Returns a route that drops matching packets.
    pub fn blackhole(owner: Owner) -> Self {
        Self {
            kind: RouteKind::Blackhole,
            ..Self::unicast(owner, Vec::new())
        }
    }

    /// Returns the same route over this nexthop object.
    #[must_use]
    pub fn over(self, nexthop: u32) -> Self {
        Self {
            nexthop: Some(nexthop),
            ..self
        }
    }

    /// Returns the owner of the route.
    pub fn owner(&self) -> Owner {
        Owner(self.protocol)
    }

    /// Returns the route in canonical form: next hops sorted, without duplicates (the kernel
    /// refuses them for IPv6) and at most as many as the kernel accepts; no hops for a kind that
    /// does not forward.
    pub fn canonical(mut self) -> Self {
        if self.kind.forwards() {
            self.next_hops.sort_unstable();
            self.next_hops
                .dedup_by_key(|hop| (hop.gateway, hop.interface));
            self.next_hops.truncate(HOPS_MAX);
        } else {
            self.next_hops.clear();
        }
        self
    }

    /// Returns whether the kernel's route `found` satisfies this wanted route (canonical, for
    /// `key`).
    pub fn satisfied_by(&self, key: &RouteKey, found: &Self) -> bool {
        let plain = self.kind == found.kind
            && self.protocol == found.protocol
            && self.source == found.source
            && self.nexthop.is_some() == found.nexthop.is_some()
            && (key.is_ipv6() || self.scope == found.scope);
        if !plain || !self.kind.forwards() {
            return plain;
        }
        let hops = self.next_hops.len();
        if hops != found.next_hops.len() {
            return false;
        }
        // Hops with an interface choose first, so that a hop without one cannot take their match.
        let named = self.next_hops.iter().filter(|hop| hop.interface.is_some());
        let open = self.next_hops.iter().filter(|hop| hop.interface.is_none());
        let mut taken = vec![false; hops];
        named.chain(open).all(|hop| {
            let mut found = found.next_hops.iter().zip(&mut taken);
            let free = found.find(|(f, taken)| !**taken && hop.is(f, hops > 1));
            free.map(|(_, taken)| *taken = true).is_some()
        })
    }

    /// Returns the remainder when the kernel reports the hops of `gone` as removed: IPv6 reports
    /// the hops of one route one by one. `Some(None)`: nothing is left. `None`: `gone` is not part
    /// of this route.
    pub fn without(&self, gone: &Self) -> Option<Option<Self>> {
        if !self.kind.forwards() || gone.next_hops.is_empty() {
            return Some(None);
        }
        let removed = |hop: &Hop| gone.next_hops.iter().any(|g| hop.is(g, false));
        let left: Vec<Hop> = self
            .next_hops
            .iter()
            .filter(|hop| !removed(hop))
            .copied()
            .collect();
        match left.len() {
            n if n == self.next_hops.len() => None,
            0 => Some(None),
            _ => Some(Some(Self {
                next_hops: left,
                ..self.clone()
            })),
        }
    }

    /// Returns whether a next hop leaves through this interface.
    pub fn uses(&self, interface: u32) -> bool {
        self.next_hops
            .iter()
            .any(|hop| hop.interface == Some(interface))
    }
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Interface name; may change while the index stays.
    pub name: String,
    /// Administratively up (`IFF_UP`). When the link goes down the kernel removes its routes.
    pub up: bool,
    /// Up and with carrier (`IFF_RUNNING`). Without carrier routes stay but forward nothing.
    pub running: bool,
    /// Its encapsulation, if it is a tunnel device.
    pub tunnel: Option<Tunnel>,
}

impl Link {
    /// Returns an interface that is down.
    pub fn new(index: u32, name: impl Into<String>) -> Self {
        Self {
            index,
            name: name.into(),
            up: false,
            running: false,
            tunnel: None,
        }
    }
}

/// The encapsulation of a tunnel device. Other encapsulations are not distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tunnel {
    /// IP in IP over IPv4 (RFC 2003).
    Ipip,
    /// VXLAN (RFC 7348).
    Vxlan {
        /// The UDP port on which the host receives its packets.
        port: u16,
    },
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct InterfaceAddress {
    /// Index of the interface that holds it.
    pub interface: u32,
    /// The address with the length of its subnet; host bits kept.
    pub address: IpNet,
}

impl InterfaceAddress {
    /// Returns an address of the interface with this index.
    pub fn new(interface: u32, address: IpNet) -> Self {
        Self { interface, address }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const US: Owner = Owner(119);

    #[test]
    fn keys_are_canonical() {
        let key = RouteKey::new(254, net("fd00::1/64"), 0, 4);
        assert_eq!(
            key,
            RouteKey {
                table: 254,
                prefix: net("fd00::/64"),
                metric: 1024,
                tos: 0
            }
        );
        let key = RouteKey::new(254, net("10.0.0.1/24"), 0, 4);
        assert_eq!(
            (key.prefix, key.metric, key.tos),
            (net("10.0.0.0/24"), 0, 4)
        );
    }

    #[test]
    fn order_and_kernels_choice_of_interface_do_not_matter() {
        let key = RouteKey::new(254, net("10.65.0.0/16"), 1024, 0);
        let want = Route::unicast(US, vec![Hop::via(ip("10.0.0.2")), Hop::via(ip("10.0.0.1"))]);
        let found = Route::unicast(
            US,
            vec![
                Hop::via(ip("10.0.0.1")).on(3),
                Hop::via(ip("10.0.0.2")).on(4),
            ],
        );
        assert!(want.clone().canonical().satisfied_by(&key, &found));
        let weighted = Route::unicast(
            US,
            vec![
                Hop::via(ip("10.0.0.1")).on(3).weighted(2),
                Hop::via(ip("10.0.0.2")).on(4),
            ],
        );
        assert!(!want.satisfied_by(&key, &weighted));
    }

    #[test]
    fn a_single_hop_has_no_weight_to_compare() {
        let key = RouteKey::new(254, net("10.65.0.0/16"), 1024, 0);
        let want = Route::unicast(US, vec![Hop::via(ip("10.0.0.2")).weighted(7)]);
        let found = Route::unicast(US, vec![Hop::via(ip("10.0.0.2")).on(2)]);
        assert!(want.satisfied_by(&key, &found));
    }

    #[test]
    fn scope_counts_for_ipv4_only() {
        let want = Route::device(US, 3);
        let found = Route {
            scope: Scope::Universe,
            ..want.clone()
        };
        assert!(want.satisfied_by(&RouteKey::new(254, net("fd00::1/128"), 256, 0), &found));
        assert!(!want.satisfied_by(&RouteKey::new(254, net("10.0.0.1/32"), 256, 0), &found));
    }

    #[test]
    fn hops_are_taken_away_one_by_one() {
        let a = Hop::via(ip("fd00::1")).on(3);
        let b = Hop::via(ip("fd00::2")).on(4);
        let both = Route::unicast(US, vec![a, b]);
        let only = |hop| Route::unicast(US, vec![hop]);
        assert_eq!(both.without(&only(a)), Some(Some(only(b))));
        assert_eq!(only(b).without(&only(b)), Some(None));
        assert_eq!(both.without(&both), Some(None));
        assert_eq!(only(a).without(&only(b)), None);
    }
}
