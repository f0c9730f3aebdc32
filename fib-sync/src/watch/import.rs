//! Which routes of others are taken in.

use std::net::IpAddr;

use ipnet::IpNet;

use super::mirror::Mirror;
use super::pattern::NamePattern;
use crate::route::{Route, RouteKey, RouteKind, TABLE_MAIN};

/// Takes in the routes that fit all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportRule {
    /// `rtm_protocol` is one of these.
    pub protocols: Vec<u8>,
    /// The route stands in this table.
    pub table: u32,
    /// It leaves through an interface whose name fits one of these; empty: any, and none.
    pub interfaces: Vec<NamePattern>,
}

impl Default for ImportRule {
    /// What Felix puts into the kernel for workloads: protocols 3 (boot) and 80, the main table,
    /// interfaces `cali*` and `tap*`.
    fn default() -> Self {
        let interfaces = ["cali*", "tap*"]
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect();
        Self {
            protocols: vec![3, 80],
            table: TABLE_MAIN,
            interfaces,
        }
    }
}

impl ImportRule {
    /// Whether the rule takes in this route.
    pub(super) fn takes(&self, mirror: &Mirror, key: &RouteKey, route: &Route) -> bool {
        let kind = match route.kind {
            RouteKind::Unicast => true,
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => {
                self.interfaces.is_empty()
            }
            RouteKind::Local | RouteKind::Throw | RouteKind::Other(_) => false,
        };
        kind && key.table == self.table
            && key.tos == 0
            && self.protocols.contains(&route.protocol)
            && is_announceable(key.prefix)
            && self.fits_interface(mirror, route)
    }

    fn fits_interface(&self, mirror: &Mirror, route: &Route) -> bool {
        let fits = |index: u32| {
            let link = mirror.links.get(&index);
            link.is_some_and(|link| self.interfaces.iter().any(|p| p.matches(&link.name)))
        };
        self.interfaces.is_empty()
            || route
                .next_hops
                .iter()
                .any(|hop| hop.interface.is_some_and(fits))
    }
}

/// Prefixes that mean something on this host alone are never announced.
fn is_announceable(prefix: IpNet) -> bool {
    let own = match prefix.addr() {
        IpAddr::V4(address) => {
            address.is_loopback() || address.is_link_local() || address.is_multicast()
        }
        IpAddr::V6(address) => {
            (address.is_loopback() && prefix.prefix_len() == 128)
                || address.is_unicast_link_local()
                || address.is_multicast()
        }
    };
    !own
}
