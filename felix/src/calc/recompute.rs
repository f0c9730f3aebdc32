//! Computes the changes of the desired state from recorded changes: the cost grows with the change,
//! not with the total size.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::assignments::{Assignment, Order};
use super::calculator::Calculator;
use super::desired::{Placement, Recomputed};
use super::members;
use super::overlay::{Around, OverlayTouched};
use super::policy::Touched;
use super::read::local_id;
use super::types::{Endpoint, EndpointId, Problem};
use crate::limits::INHERITANCE_STEPS_PER_TURN;
use crate::render::{self, Encapsulation, Family, Frame};
use crate::work;

impl Calculator {
    /// Does a part of the work of the next [recomputation](Self::recompute) that may be too much for
    /// one turn. Returns whether the rest is not.
    pub(crate) fn advance(&mut self) -> bool {
        self.index.inherit(INHERITANCE_STEPS_PER_TURN)
    }

    /// Returns whether there is more of this work.
    pub(crate) fn is_advancing(&self) -> bool {
        self.index.inherits()
    }

    /// Updates `desired` with all recorded changes. The result equals that of a
    /// new calculator with the same values.
    pub fn recompute(&mut self) -> Recomputed {
        let news = std::mem::take(&mut self.news);
        let before = self.context();
        let mut recomputed = Recomputed {
            settings: news.settings && self.take_settings(),
            ..Recomputed::default()
        };
        if news.settings {
            self.exchange_conflicts();
        }
        match before == self.context() {
            true => self.recompile_users_of(&news.services),
            false => self.recompile_all(),
        }
        let touched = self.index.take_touched();
        if news.pools {
            self.desired.rules.set_pools(&self.pools.ranges());
            self.put_frame();
        }
        self.put_tunnels(news.tunnels);
        let was_added = self.recomputed_control.take().is_some();
        if news.fabric || news.local || was_added || recomputed.settings {
            let sources = self.desired.settings.tunnel_sources.clone();
            self.desired.control = self.fabric.control(sources);
            let listening = &self.desired.settings.listening;
            listening.close(&mut self.desired.control);
            self.desired.rules.set_control(&self.desired.control);
            let services = self.fabric.service_ranges();
            self.desired.rules.set_service_ranges(&services);
        }
        recomputed.overlay = self.take_overlay(news.pools || recomputed.settings);
        let mut due: BTreeSet<Order> = BTreeSet::new();
        for key in &news.endpoints {
            due.extend(self.assignments.claim(key, self.endpoints.get(key)));
        }
        due.extend(self.assignments.orders(touched.endpoints.iter()));
        if recomputed.settings || news.tiers {
            due.extend(self.assignments.orders(self.endpoints.keys()));
        }
        let replaced = self.replace(due);
        self.apply(replaced, &mut recomputed);
        let hosts = news.hosts || news.tiers || news.pools || recomputed.settings;
        if hosts || self.hosts.have_any(&touched.endpoints) {
            self.put_hosts();
        }
        self.exchange_members(touched);
        for [before, now] in news.unsupported {
            let problems = &mut self.desired.problems;
            self.assignments.count_problems(&before, &now, problems);
            recomputed.unsupported.extend(now);
        }
        for key in news.refused {
            recomputed.endpoints.extend(self.refuse(key));
        }
        self.desired.refused = self.refused.len();
        for id in &recomputed.endpoints {
            match self.placement(id) {
                Some(placement) => self.desired.endpoints.insert(id.clone(), placement),
                None => self.desired.endpoints.remove(id),
            };
        }
        self.desired.rules.close();
        recomputed.rules = self.desired.rules.take_touched();
        recomputed
    }

    /// Adds to `desired` what this host itself has learned of the fabric, if that has changed, while
    /// the stored values may be incomplete. No port or address of the last full recomputation is
    /// removed. Returns the changed parts of the packet filter.
    pub(crate) fn recompute_local(&mut self) -> Option<render::Touched> {
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
        let recomputed = self.recomputed_control.take();
        let recomputed = recomputed.unwrap_or_else(|| desired.control.clone());
        desired.control = recomputed.clone();
        self.recomputed_control = Some(recomputed);
        self.fabric.close_local(&mut desired.control);
        desired.rules.set_control(&desired.control);
    }

    /// Updates the overlay, all of it if its settings or pools have changed.
    fn take_overlay(&mut self, all: bool) -> OverlayTouched {
        if !all && !self.overlay.has_news() {
            return OverlayTouched::default();
        }
        let settings = &self.desired.settings;
        let around = Around {
            hostname: &self.hostname,
            pools: &self.pools,
            index: &self.index,
            settings: settings.overlay,
            port: settings.encapsulation.vxlan_port,
            uplinks: settings.uplinks.as_ref(),
            no_encap: self.overlay.no_encap(settings.overlay.cluster_routes),
            ipip: self.overlay.ipip_routes(settings.overlay.cluster_routes),
            ipv6: settings.ipv6,
        };
        let overlay = &mut self.desired.overlay;
        let (touched, problems) = self.overlay.recompute(around, all, overlay);
        for [before, now] in problems {
            let problems = &mut self.desired.problems;
            self.assignments.count_problems(&before, &now, problems);
        }
        touched
    }

    /// Returns whether the settings have changed.
    fn take_settings(&mut self) -> bool {
        let settings = self.settings();
        let changed = self.desired.settings != settings || self.desired.flows != self.flows;
        (self.desired.settings, self.desired.flows) = (settings, self.flows);
        self.put_frame();
        changed
    }

    /// Updates the common part of the packet filter with settings and pools.
    fn put_frame(&mut self) {
        self.desired.rules.set_frame(self.frame());
    }

    /// Returns the common part of the packet filter.
    pub(super) fn frame(&self) -> Frame {
        let settings = &self.desired.settings;
        let encapsulation = settings.encapsulation;
        let vxlan = |family| self.pools.use_vxlan_of(family);
        let vxlan_ipv4 = settings
            .overlay
            .enabled
            .unwrap_or_else(|| vxlan(Family::V4));
        Frame {
            interface_prefixes: settings.interface_prefixes.clone(),
            to_host: settings.to_host,
            police_host: self.police_host,
            metadata: settings.metadata,
            outgoing: settings.outgoing.clone(),
            encapsulation: Encapsulation {
                ipip: settings
                    .overlay
                    .ipip
                    .unwrap_or_else(|| self.pools.use_ipip()),
                vxlan: vxlan_ipv4 || vxlan(Family::V6),
                ..encapsulation
            },
            budgets: self.budgets,
            service_loops: settings.service_loops,
            cut_mark: self.cut_mark,
            records_per_second: self.desired.flows.map_or(0, |log| log.records_per_second),
        }
    }

    /// Computes the assignments of endpoints again, and of later ones that want what these have taken or
    /// released: of two that want the same thing, the lower one gets it. Returns the previous
    /// assignments.
    fn replace(&mut self, mut due: BTreeSet<Order>) -> BTreeMap<Order, Option<Assignment>> {
        let mut replaced = BTreeMap::new();
        while let Some(order) = due.pop_first() {
            let endpoint = self.endpoints.get(&order.key);
            let new = endpoint
                .filter(|endpoint| endpoint.id == order.id)
                .map(|endpoint| self.assign(&order, endpoint));
            let old = self.assignments.exchange(&order, new);
            let new = self.assignments.get(&order);
            work::count(1 + new.map_or(0, |assignment| assignment.part.chains.len()));
            let takes = |assignment: Option<&Assignment>| {
                assignment.map(Assignment::takes).unwrap_or_default()
            };
            let (before, after) = (takes(old.as_ref()), takes(new));
            if before != after {
                due.extend(self.assignments.after(&order, before.iter().chain(&after)));
            }
            replaced.insert(order, old);
        }
        replaced
    }

    /// Removes the old assignments from the desired state, and then adds the new ones.
    fn apply(
        &mut self,
        replaced: BTreeMap<Order, Option<Assignment>>,
        recomputed: &mut Recomputed,
    ) {
        let desired = &mut self.desired;
        let old = || replaced.values().flatten();
        for assignment in old() {
            let Some(endpoint) = assignment.holder() else {
                continue;
            };
            desired.rules.remove(&assignment.part);
            desired.interfaces.remove(&endpoint.interface);
            for address in endpoint.routes() {
                desired.routes.remove(&address);
            }
        }
        for assignment in replaced
            .keys()
            .filter_map(|order| self.assignments.get(order))
        {
            let Some(endpoint) = assignment.holder() else {
                continue;
            };
            let name = &endpoint.interface;
            desired.rules.add(&assignment.part);
            desired.interfaces.insert(name.clone(), endpoint.clone());
            for address in endpoint.routes() {
                desired.routes.insert(address, name.clone());
            }
            recomputed.interfaces.insert(name.clone());
        }
        for endpoint in old().filter_map(Assignment::holder) {
            recomputed.interfaces.insert(endpoint.interface.clone());
            let routes = &desired.routes;
            let left = endpoint.routes();
            let left = left.filter(|address| routes.get(address) != Some(&endpoint.interface));
            recomputed.left.extend(left);
        }
        for (order, old) in replaced {
            let problems = |assignment: Option<&Assignment>| match assignment {
                Some(assignment) => assignment.problems.clone(),
                None => BTreeSet::new(),
            };
            let (gone, come) = (
                problems(old.as_ref()),
                problems(self.assignments.get(&order)),
            );
            self.assignments
                .count_problems(&gone, &come, &mut self.desired.problems);
            recomputed.endpoints.insert(order.id);
        }
    }

    /// Adds members to the sets of selectors, and removes them.
    fn exchange_members(&mut self, touched: Touched) {
        for (id, changed) in touched.sets {
            let members = self.index.items(&id);
            work::count(changed.items.len());
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
            Some(problem) => self
                .assignments
                .refused
                .insert(key.clone(), problem.clone()),
            None => self.assignments.refused.remove(&key),
        };
        let set = |problem: Option<&Problem>| problem.into_iter().cloned().collect();
        let (gone, come) = (set(old.as_ref()), set(new));
        let is_refused = new.is_some();
        self.assignments
            .count_problems(&gone, &come, &mut self.desired.problems);
        let (id, resource) = local_id(&key, &self.hostname)?;
        let order = Order {
            id: id.clone(),
            key,
        };
        match is_refused {
            true => self.assignments.refused_here.insert(order, resource),
            false => self.assignments.refused_here.remove(&order),
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
            .assignments
            .last(id, from)
            .map(|assignment| assignment.placement.clone());
        let refused = self.assignments.refused_here.range::<Order, _>(from);
        for (order, resource) in refused.take_while(|(order, _)| order.id == *id) {
            let problem = self.assignments.refused.get(&order.key);
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
