//! Computes the changes of the desired state from recorded changes: the cost grows with the change,
//! not with the total size.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::calculator::Calculator;
use super::desired::{Placement, Settled};
use super::members;
use super::place::{Order, Place};
use super::policy::Touched;
use super::read::local_id;
use super::types::{Endpoint, EndpointId, Problem};
use crate::render::{self, Encapsulation, Family, Frame};
use crate::work;

impl Calculator {
    /// Updates `desired` with all recorded changes. The result equals that of a
    /// new calculator with the same values.
    pub fn settle(&mut self) -> Settled {
        let news = std::mem::take(&mut self.news);
        let touched = self.index.take_touched();
        let mut settled = Settled {
            settings: news.settings && self.take_settings(),
            ..Settled::default()
        };
        if news.pools {
            self.desired.rules.set_pools(&self.pools.ranges());
            self.put_frame();
        }
        self.put_tunnels(news.tunnels);
        let was_added = self.settled_control.take().is_some();
        if news.fabric || news.local || was_added || settled.settings {
            let sources = self.desired.settings.tunnel_sources.clone();
            self.desired.control = self.fabric.control(sources);
            self.desired.rules.set_control(&self.desired.control);
        }
        let mut due: BTreeSet<Order> = BTreeSet::new();
        for key in &news.endpoints {
            due.extend(self.places.claim(key, self.endpoints.get(key)));
        }
        due.extend(self.places.orders(touched.endpoints.iter()));
        if settled.settings || news.tiers {
            due.extend(self.places.orders(self.endpoints.keys()));
        }
        let replaced = self.replace(due);
        self.apply(replaced, &mut settled);
        self.exchange_members(touched);
        for [before, now] in news.unsupported {
            let problems = &mut self.desired.problems;
            self.places.count_problems(&before, &now, problems);
            settled.unsupported.extend(now);
        }
        for key in news.refused {
            settled.endpoints.extend(self.refuse(key));
        }
        self.desired.refused = self.refused.len();
        for id in &settled.endpoints {
            match self.placement(id) {
                Some(placement) => self.desired.endpoints.insert(id.clone(), placement),
                None => self.desired.endpoints.remove(id),
            };
        }
        self.desired.rules.close();
        settled.rules = self.desired.rules.take_touched();
        settled
    }

    /// Adds to `desired` what this host itself has learned of the fabric, if that has changed, while
    /// the stored values may be incomplete. No port or address of the last full settlement is
    /// removed. Returns the changed parts of the packet filter.
    pub(crate) fn settle_local(&mut self) -> Option<render::Touched> {
        let has_tunnels = std::mem::take(&mut self.news.tunnels);
        let has_fabric = std::mem::take(&mut self.news.local);
        self.put_tunnels(has_tunnels);
        if has_fabric {
            self.add_local_control();
        }
        (has_tunnels || has_fabric).then(|| self.desired.rules.take_touched())
    }

    fn put_tunnels(&mut self, changed: bool) {
        if changed {
            self.desired.rules.set_tunnels(self.tunnels.clone());
        }
    }

    fn add_local_control(&mut self) {
        let desired = &mut self.desired;
        let settled = self.settled_control.take();
        let settled = settled.unwrap_or_else(|| desired.control.clone());
        desired.control = settled.clone();
        self.settled_control = Some(settled);
        self.fabric.close_local(&mut desired.control);
        desired.rules.set_control(&desired.control);
    }

    /// Returns whether the settings have changed.
    fn take_settings(&mut self) -> bool {
        let settings = self.settings();
        let changed = self.desired.settings != settings;
        self.desired.settings = settings;
        self.put_frame();
        changed
    }

    /// Updates the common part of the packet filter with settings and pools.
    fn put_frame(&mut self) {
        let settings = &self.desired.settings;
        let encapsulation = settings.encapsulation;
        let frame = Frame {
            interface_prefixes: settings.interface_prefixes.clone(),
            to_host: settings.to_host,
            police_host: self.police_host,
            metadata: settings.metadata,
            outgoing: settings.outgoing,
            encapsulation: Encapsulation {
                ipip: self.pools.use_ipip(),
                vxlan: encapsulation.vxlan || self.pools.use_vxlan(),
                ..encapsulation
            },
        };
        self.desired.rules.set_frame(frame);
    }

    /// Computes the places of endpoints again, and of later ones that want what these have taken or
    /// released: of two that want the same thing, the lower one gets it. Returns the previous
    /// places.
    fn replace(&mut self, mut due: BTreeSet<Order>) -> BTreeMap<Order, Option<Place>> {
        let mut replaced = BTreeMap::new();
        while let Some(order) = due.pop_first() {
            let endpoint = self.endpoints.get(&order.key);
            let new = endpoint
                .filter(|endpoint| endpoint.id == order.id)
                .map(|endpoint| self.place(&order, endpoint));
            let old = self.places.exchange(&order, new);
            let new = self.places.get(&order);
            work::count(1 + new.map_or(0, |place| place.part.chains.len()));
            let takes = |place: Option<&Place>| place.map(Place::takes).unwrap_or_default();
            let (before, after) = (takes(old.as_ref()), takes(new));
            if before != after {
                due.extend(self.places.after(&order, before.iter().chain(&after)));
            }
            replaced.insert(order, old);
        }
        replaced
    }

    /// Removes the old places from the desired state, and then adds the new ones.
    fn apply(&mut self, replaced: BTreeMap<Order, Option<Place>>, settled: &mut Settled) {
        let desired = &mut self.desired;
        let old = || replaced.values().flatten();
        for place in old() {
            let Some(endpoint) = place.holder() else {
                continue;
            };
            desired.rules.remove(&place.part);
            desired.interfaces.remove(&endpoint.interface);
            for address in endpoint.routes() {
                desired.routes.remove(&address);
            }
        }
        for place in replaced.keys().filter_map(|order| self.places.get(order)) {
            let Some(endpoint) = place.holder() else {
                continue;
            };
            let name = &endpoint.interface;
            desired.rules.add(&place.part);
            desired.interfaces.insert(name.clone(), endpoint.clone());
            for address in endpoint.routes() {
                desired.routes.insert(address, name.clone());
            }
            settled.interfaces.insert(name.clone());
        }
        for endpoint in old().filter_map(Place::holder) {
            settled.interfaces.insert(endpoint.interface.clone());
            let routes = &desired.routes;
            let left = endpoint.routes();
            let left = left.filter(|address| routes.get(address) != Some(&endpoint.interface));
            settled.left.extend(left);
        }
        for (order, old) in replaced {
            let problems = |place: Option<&Place>| match place {
                Some(place) => place.problems.clone(),
                None => BTreeSet::new(),
            };
            let (gone, come) = (problems(old.as_ref()), problems(self.places.get(&order)));
            self.places
                .count_problems(&gone, &come, &mut self.desired.problems);
            settled.endpoints.insert(order.id);
        }
    }

    /// Adds members to the sets of selectors, and removes them.
    fn exchange_members(&mut self, touched: Touched) {
        for (id, changed) in touched.sets {
            let members = self.index.addresses(&id);
            work::count(changed.len());
            for family in Family::ALL {
                let name = id.set_name(family);
                members::exchange(&mut self.desired.rules, &name, family, members, &changed);
            }
        }
    }

    /// Records that a value is rejected, or no longer rejected. Returns the endpoint of this host
    /// that it concerns.
    fn refuse(&mut self, key: String) -> Option<EndpointId> {
        let new = self.refused.get(&key);
        let old = match new {
            Some(problem) => self.places.refused.insert(key.clone(), problem.clone()),
            None => self.places.refused.remove(&key),
        };
        let set = |problem: Option<&Problem>| problem.into_iter().cloned().collect();
        let (gone, come) = (set(old.as_ref()), set(new));
        let is_refused = new.is_some();
        self.places
            .count_problems(&gone, &come, &mut self.desired.problems);
        let (id, resource) = local_id(&key, &self.hostname)?;
        let order = Order {
            id: id.clone(),
            key,
        };
        match is_refused {
            true => self.places.refused_here.insert(order, resource),
            false => self.places.refused_here.remove(&order),
        };
        Some(id)
    }

    /// Returns the placement of an endpoint. An endpoint with an unparsable value counts as
    /// rejected, too.
    fn placement(&self, id: &EndpointId) -> Option<Placement> {
        let from = Order {
            id: id.clone(),
            key: String::new(),
        };
        let from = (Bound::Included(&from), Bound::Unbounded);
        let mut placement = self
            .places
            .last(id, from)
            .map(|place| place.placement.clone());
        let refused = self.places.refused_here.range::<Order, _>(from);
        for (order, resource) in refused.take_while(|(order, _)| order.id == *id) {
            let problem = self.places.refused.get(&order.key);
            let what = problem.map(Problem::what).unwrap_or_default();
            match &mut placement {
                Some(placement) => {
                    placement.denied =
                        Some(format!("{what}; the last valid value stays in effect"));
                }
                None => {
                    let endpoint = Endpoint {
                        id: id.clone(),
                        resource: resource.clone(),
                        ..Endpoint::default()
                    };
                    let denied = Some(what);
                    placement = Some(Placement {
                        endpoint,
                        denied,
                        missing: None,
                    });
                }
            }
        }
        placement
    }
}
