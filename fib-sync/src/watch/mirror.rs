//! Foreign routes, links and addresses, as reported by events.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::nexthop::Table;
use crate::owner::Owner;
use crate::port::Event;
use crate::route::{InterfaceAddress, Link, Route, RouteKey};

/// The known state. Two routes of one key may coexist if their owners differ (IPv4 allows one to be
/// appended to the other).
#[derive(Debug)]
pub(super) struct Mirror {
    /// The owner of which the routes are left out: this program.
    own: Owner,
    tables: BTreeSet<u32>,
    pub(super) routes: BTreeMap<(RouteKey, u8), Route>,
    pub(super) links: BTreeMap<u32, Link>,
    pub(super) addresses: BTreeSet<InterfaceAddress>,
    nexthops: Table,
    /// Number of routes of each prefix length, IPv4 and IPv6.
    lengths: [[usize; 129]; 2],
    /// Dumps in progress, by table.
    dumps: BTreeMap<u32, Seen>,
    /// Tables read completely at least once, with nothing lost since.
    certain: BTreeSet<u32>,
}

/// State of one dump and the events since its start.
#[derive(Debug, Default)]
struct Seen {
    /// Keys reported by rows and changes: these exist.
    keys: BTreeSet<(RouteKey, u8)>,
    /// Changed by an event: rows about them are older, or the same.
    touched: BTreeSet<(RouteKey, u8)>,
    /// Something was lost during the dump: a route that was not seen may still exist.
    spoilt: bool,
}

/// The changes caused by an event.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Prefixes whose routes changed.
    pub(super) prefixes: BTreeSet<IpNet>,
    /// Every prefix may be affected: a link or an address changed.
    pub(super) all: bool,
}

impl Mirror {
    pub(super) fn new(own: Owner, tables: BTreeSet<u32>) -> Self {
        Self {
            own,
            tables,
            routes: BTreeMap::new(),
            links: BTreeMap::new(),
            addresses: BTreeSet::new(),
            nexthops: Table::default(),
            lengths: [[0; 129]; 2],
            dumps: BTreeMap::new(),
            certain: BTreeSet::new(),
        }
    }

    /// Returns whether every table was read and nothing was lost since.
    pub(super) fn is_certain(&self) -> bool {
        self.tables.is_subset(&self.certain)
    }

    /// Returns whether this table is followed.
    pub(super) fn reads(&self, table: u32) -> bool {
        self.tables.contains(&table)
    }

    pub(super) fn handle(&mut self, event: &Event) -> Touched {
        let mut touched = Touched::default();
        match event {
            Event::DumpStart { table, owner: None } if self.tables.contains(table) => {
                self.dumps.insert(*table, Seen::default());
            }
            Event::DumpRoute(key, route) => self.row(*key, route, &mut touched),
            Event::DumpDone {
                table,
                owner: None,
                complete,
            } => {
                self.done(*table, *complete, &mut touched);
            }
            Event::Changed {
                key,
                route,
                replaced,
            } => {
                self.changed(*key, route, *replaced, &mut touched);
            }
            Event::Removed(key, route) => self.gone(*key, route, &mut touched),
            Event::Nexthop(event) => self.nexthops.handle(event),
            Event::Link(link) => self.link(link, &mut touched),
            Event::LinkRemoved(index) => {
                self.links.remove(index);
                self.drop_routes_over(*index, &mut touched);
            }
            Event::Address(address) => touched.all = self.addresses.insert(*address),
            Event::AddressRemoved(address) => touched.all = self.addresses.remove(address),
            Event::Overrun => {
                self.certain.clear();
                self.dumps.values_mut().for_each(|seen| seen.spoilt = true);
            }
            Event::DumpStart { .. }
            | Event::DumpDone { .. }
            | Event::Applied(..)
            | Event::Closed(_) => {}
        }
        touched
    }

    /// Returns the route of the longest prefix, then lowest metric, that covers `address` in
    /// `table`.
    pub(super) fn route_to(&self, table: u32, address: IpAddr) -> Option<(&RouteKey, &Route)> {
        let host = IpNet::from(address);
        let counts = self.lengths.get(usize::from(address.is_ipv6()))?;
        (0..=host.prefix_len())
            .rev()
            .filter(|len| counts.get(usize::from(*len)) > Some(&0))
            .find_map(|len| {
                let prefix = IpNet::new(address, len).ok()?.trunc();
                self.of_prefix(table, prefix).find(|(key, _)| key.tos == 0)
            })
    }

    /// Returns the routes of a prefix in one table, lowest metric first.
    pub(super) fn of_prefix(
        &self,
        table: u32,
        prefix: IpNet,
    ) -> impl Iterator<Item = (&RouteKey, &Route)> {
        let from = (
            RouteKey {
                table,
                prefix,
                metric: 0,
                tos: 0,
            },
            0,
        );
        let to = (
            RouteKey {
                table,
                prefix,
                metric: u32::MAX,
                tos: u8::MAX,
            },
            u8::MAX,
        );
        self.routes
            .range(from..=to)
            .map(|((key, _), route)| (key, route))
    }

    fn concerns(&self, key: &RouteKey, route: &Route) -> bool {
        self.tables.contains(&key.table) && route.owner() != self.own
    }

    fn count(&mut self, key: &RouteKey) -> Option<&mut usize> {
        let counts = self.lengths.get_mut(usize::from(key.is_ipv6()))?;
        counts.get_mut(usize::from(key.prefix.prefix_len()))
    }

    fn insert(&mut self, key: RouteKey, route: &Route, touched: &mut Touched) {
        let mut route = route.clone();
        self.nexthops.complete(&mut route);
        let before = self.routes.insert((key, route.protocol), route.clone());
        if before.is_none()
            && let Some(count) = self.count(&key)
        {
            *count += 1;
        }
        if before.as_ref() != Some(&route) {
            touched.prefixes.insert(key.prefix);
        }
    }

    fn remove(&mut self, at: &(RouteKey, u8), touched: &mut Touched) {
        if self.routes.remove(at).is_some() {
            if let Some(count) = self.count(&at.0) {
                *count = count.saturating_sub(1);
            }
            touched.prefixes.insert(at.0.prefix);
        }
    }

    fn row(&mut self, key: RouteKey, route: &Route, touched: &mut Touched) {
        if !self.concerns(&key, route) {
            return;
        }
        let at = (key, route.protocol);
        let Some(seen) = self.dumps.get_mut(&key.table) else {
            return;
        };
        if !seen.touched.contains(&at) {
            seen.keys.insert(at);
            self.insert(key, route, touched);
        }
    }

    fn done(&mut self, table: u32, complete: bool, touched: &mut Touched) {
        let Some(seen) = self.dumps.remove(&table) else {
            return;
        };
        if !complete || seen.spoilt {
            return;
        }
        let stale: Vec<(RouteKey, u8)> = self
            .routes
            .keys()
            .filter(|at| at.0.table == table && !seen.keys.contains(at))
            .filter(|at| !seen.touched.contains(at))
            .copied()
            .collect();
        for at in stale {
            self.remove(&at, touched);
        }
        self.certain.insert(table);
    }

    fn changed(&mut self, key: RouteKey, route: &Route, replaced: bool, touched: &mut Touched) {
        if replaced && self.tables.contains(&key.table) {
            let from = (key, 0);
            let others: Vec<(RouteKey, u8)> = self
                .routes
                .range(from..=(key, u8::MAX))
                .map(|(at, _)| *at)
                .filter(|at| at.1 != route.protocol)
                .collect();
            for at in others {
                self.touch(at);
                self.remove(&at, touched);
            }
        }
        if self.concerns(&key, route) {
            self.touch((key, route.protocol));
            self.insert(key, route, touched);
        }
    }

    fn gone(&mut self, key: RouteKey, route: &Route, touched: &mut Touched) {
        let at = (key, route.protocol);
        if !self.concerns(&key, route) {
            return;
        }
        self.touch(at);
        let left = self.routes.get(&at).and_then(|there| there.without(route));
        match left {
            Some(Some(left)) => self.insert(key, &left, touched),
            // The removal matches no known route: the route is removed, or is about to be reported
            // again.
            Some(None) | None => self.remove(&at, touched),
        }
    }

    fn touch(&mut self, at: (RouteKey, u8)) {
        if let Some(seen) = self.dumps.get_mut(&at.0.table) {
            seen.touched.insert(at);
        }
    }

    fn link(&mut self, link: &Link, touched: &mut Touched) {
        let before = self.links.insert(link.index, link.clone());
        touched.all = before.as_ref() != Some(link);
        if !link.up {
            self.drop_routes_over(link.index, touched);
        }
    }

    /// Removes the routes of which all hops leave through a link that went down: the kernel removes
    /// them too, the IPv4 ones without a notification.
    fn drop_routes_over(&mut self, index: u32, touched: &mut Touched) {
        touched.all = true;
        let up = |index: u32| self.links.get(&index).is_some_and(|link| link.up);
        let dead = self.routes.iter().filter(|(_, route)| {
            route.uses(index)
                && !route
                    .next_hops
                    .iter()
                    .any(|hop| hop.interface.is_some_and(up))
        });
        let dead: Vec<(RouteKey, u8)> = dead.map(|(at, _)| *at).collect();
        for at in dead {
            self.touch(at);
            self.remove(&at, touched);
        }
    }
}
