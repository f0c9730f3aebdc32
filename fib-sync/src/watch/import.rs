//! Selects the foreign routes to import.

use std::net::IpAddr;

use ipnet::IpNet;

use super::mirror::Mirror;
use super::pattern::NamePattern;
use crate::route::{METRIC_LEAVING, Route, RouteKey, RouteKind, TABLE_MAIN};

/// Selects the routes that match all of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportRule {
    /// `rtm_protocol` is one of these.
    pub protocols: Vec<u8>,
    /// The route is in this table.
    pub table: u32,
    /// The interface of the route matches one of these; empty: any interface, or none.
    pub interfaces: Vec<NamePattern>,
}

impl Default for ImportRule {
    /// Returns the rule for the workload routes that Felix installs: protocols 3 (boot) and 80, the
    /// main table, interfaces `cali*` and `tap*`.
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
    /// Returns a rule for the routes of these protocols in a table, over these interfaces.
    pub fn new(protocols: Vec<u8>, table: u32, interfaces: Vec<NamePattern>) -> Self {
        Self {
            protocols,
            table,
            interfaces,
        }
    }

    /// Returns whether the rule selects this route, and its program is not about to remove it.
    pub(super) fn takes(&self, mirror: &Mirror, key: &RouteKey, route: &Route) -> bool {
        key.metric != METRIC_LEAVING && self.fits(mirror, key, route)
    }

    /// Returns whether the rule selects this route, except for its metric.
    pub(super) fn fits(&self, mirror: &Mirror, key: &RouteKey, route: &Route) -> bool {
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

/// Returns whether a prefix may be advertised: prefixes with a meaning on this host alone may not.
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
