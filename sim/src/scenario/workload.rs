//! Workloads: the actions of the orchestrator and the CNI plugin, in either order.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calico_model::{
    DEFAULT_ALLOW_PROFILE, EndpointName, Mac, Network, Resource, WorkloadEndpointSpec,
};
use fib_sync::{Hop, Owner, Route, RouteKey, TABLE_MAIN};
use ipnet::IpNet;

use crate::agenda::{At, Event};
use crate::policies::Style;
use crate::scenario::Act;
use crate::world::World;

/// One workload: its name and addresses stay the same wherever it moves.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadPlan {
    /// `w1`, `w2`, …
    pub(crate) name: String,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    mac: [u8; 6],
}

impl WorkloadPlan {
    /// Makes the `number`th workload, counted from 1.
    fn new(number: usize) -> Self {
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        let [high, low] = number.to_be_bytes();
        Self {
            name: format!("w{number}"),
            v4: Ipv4Addr::new(10, 65, high, low),
            v6: Ipv6Addr::new(0xfd65, 0, 0, 0, 0, 0, 0, number),
            mac: [0x02, 0x65, 0, 0, high, low],
        }
    }

    /// Returns the name of the host's end of its link: one that Felix treats as a workload's.
    pub(crate) fn host_link(&self) -> String {
        format!("cali{}", self.name)
    }

    /// Returns its addresses as host prefixes, IPv4 first.
    pub(crate) fn nets(&self) -> [IpNet; 2] {
        [IpAddr::V4(self.v4), IpAddr::V6(self.v6)].map(IpNet::from)
    }
}

/// The state of a workload in the scenario.
#[derive(Clone, Debug)]
pub struct Workload {
    pub(crate) plan: WorkloadPlan,
    /// Its current or next node.
    pub(crate) place: Option<At>,
    /// The nodes that have ever had it.
    pub(crate) had_by: BTreeSet<At>,
    /// The end of its last change.
    pub(crate) busy_until: u64,
    /// The parts of its endpoint that policies look at; `None` without policies.
    pub(crate) style: Option<Style>,
}

/// A node's announcement of a workload that it does not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lie {
    pub(crate) workload: usize,
    pub(crate) liar: At,
    /// The address of the workload.
    pub(crate) net: IpNet,
}

/// `rtm_protocol` "static".
const STATIC: Owner = Owner(4);

impl World {
    /// Makes the workloads, each at an initial node, and the foreign routes.
    pub(crate) fn populate(&mut self) {
        for at in 0..self.plan.nodes.len() {
            self.furnish(at);
        }
        if self.options.lies > 0 {
            self.record_nodes();
        }
        let has_policies = self.options.has_policies();
        if has_policies {
            self.populate_policies();
        }
        for number in 1..=self.options.workloads {
            let style = has_policies.then(|| Style::draw(&mut self.policies.chance));
            self.workloads.push(Workload {
                plan: WorkloadPlan::new(number),
                place: None,
                had_by: BTreeSet::new(),
                busy_until: 0,
                style,
            });
            let at = (number - 1) % self.plan.nodes.len().max(1);
            self.place(number - 1, at, (0, 0));
        }
    }

    /// Makes the parts of a node that its daemons do not manage: foreign routes, and its workloads'
    /// links.
    pub(crate) fn furnish(&mut self, at: At) {
        let Some(store) = self.plan.store_address().ip().into() else {
            return;
        };
        let mut routes = vec![
            ("0.0.0.0/0", 0),
            ("192.168.0.0/16", 100),
            ("10.65.0.0/16", 4096),
        ];
        if self.options.conflicts && at.is_multiple_of(3) {
            routes.push(("10.65.0.2/32", 1024));
        }
        let mine: Vec<String> = self
            .workloads
            .iter()
            .filter(|workload| workload.place == Some(at))
            .map(|workload| workload.plan.host_link())
            .collect();
        let index = self.underlay(at).unwrap_or(0);
        let Some(node) = self
            .machines
            .get(at)
            .and_then(|machine| machine.node.as_ref())
        else {
            return;
        };
        let mut kernel = node.kernel.borrow_mut();
        for (prefix, metric) in routes {
            if let Ok(prefix) = prefix.parse::<IpNet>() {
                let key = RouteKey::new(TABLE_MAIN, prefix, metric, 0);
                let route = Route::unicast(STATIC, vec![Hop::via(store).on(index)]);
                let _ = kernel.add_route(key, route);
            }
        }
        for name in mine {
            kernel.add_link(&name);
        }
        let foreign = kernel.routes().filter(|(_, route)| route.owner() == STATIC);
        let foreign = foreign.map(|(key, route)| (*key, route.clone())).collect();
        drop(kernel);
        if let Some(place) = self.foreign.get_mut(at) {
            *place = foreign;
        }
        self.changed = true;
    }

    /// Moves a workload to a node: its link and its endpoint, after so many nanoseconds each. It is
    /// removed from its former node.
    pub(crate) fn place(&mut self, workload: usize, to: At, (link, endpoint): (u64, u64)) {
        let Some(state) = self.workloads.get_mut(workload) else {
            return;
        };
        let from = state.place.replace(to);
        state.had_by.insert(to);
        state.busy_until = self.now + link.max(endpoint) + 1;
        let name = state.plan.name.clone();
        self.trace(to, &format!("gets {name}"));
        if from == Some(to) {
            return;
        }
        self.later(link, Act::Plug { workload, at: to });
        if let Some(from) = from {
            self.later(link, Act::Unplug { workload, at: from });
        }
        self.later(
            endpoint,
            Act::Record {
                workload,
                put: Some(to),
                delete: from,
            },
        );
    }

    /// Removes a workload.
    pub(crate) fn remove(&mut self, workload: usize, (link, endpoint): (u64, u64)) -> Option<()> {
        let state = self.workloads.get_mut(workload)?;
        let from = state.place.take()?;
        state.busy_until = self.now + link.max(endpoint) + 1;
        let name = state.plan.name.clone();
        self.trace(from, &format!("loses {name}"));
        self.later(link, Act::Unplug { workload, at: from });
        self.later(
            endpoint,
            Act::Record {
                workload,
                put: None,
                delete: Some(from),
            },
        );
        Some(())
    }

    /// Deletes a random workload from the datastore; its link stays. Returns its prefixes.
    pub(crate) fn withdraw_any(&mut self) -> Vec<IpNet> {
        let placed = self.placed();
        let workload = self.chance.pick(&placed).copied();
        workload.map_or_else(Vec::new, |workload| self.withdraw(workload))
    }

    /// Deletes a workload from the datastore; its link stays. Returns its prefixes.
    pub(crate) fn withdraw(&mut self, workload: usize) -> Vec<IpNet> {
        let Some(state) = self.workloads.get_mut(workload) else {
            return Vec::new();
        };
        let nets = state.plan.nets().to_vec();
        let from = state.place.take();
        self.later(
            0,
            Act::Record {
                workload,
                put: None,
                delete: from,
            },
        );
        nets
    }

    /// Moves a workload to another node.
    pub(crate) fn move_any(&mut self) {
        let placed = self.placed();
        let Some(workload) = self.chance.pick(&placed).copied() else {
            return;
        };
        let to = self.chance.below(self.plan.nodes.len());
        self.place(workload, to, (0, 0));
    }

    /// Returns the workloads that are at a node without a change in progress.
    pub(crate) fn placed(&self) -> Vec<usize> {
        let workloads = self.workloads.iter().enumerate();
        let rest = workloads.filter(|(_, w)| w.place.is_some() && w.busy_until <= self.now);
        rest.map(|(number, _)| number).collect()
    }

    /// Schedules an act after so many nanoseconds.
    pub(crate) fn later(&mut self, after: u64, act: Act) {
        self.agenda.push(self.now + after, Event::Act(act));
    }

    pub(crate) fn record(&mut self, workload: usize, put: Option<At>, delete: Option<At>) -> bool {
        let Some(Workload { plan, style, .. }) = self.workloads.get(workload).cloned() else {
            return true;
        };
        let name = |at: At| self.machines.get(at).map(|machine| machine.name.clone());
        let put = put.and_then(name).and_then(|node| endpoint(&plan, &node));
        let put = put.and_then(|(key, value)| match &style {
            Some(style) => Some((key, style.applied(&value)?)),
            None => Some((key, value)),
        });
        let delete = delete
            .and_then(name)
            .and_then(|node| endpoint(&plan, &node));
        let delete: Vec<String> = delete.into_iter().map(|(key, _)| key).collect();
        let put: Vec<(String, Vec<u8>)> = put.into_iter().collect();
        let done = self.store.change(&put, &delete);
        if done {
            self.changed = true;
            self.stir_store();
        }
        done
    }
}

/// Returns the endpoint of a workload at a node: key and value.
fn endpoint(workload: &WorkloadPlan, node: &str) -> Option<(String, Vec<u8>)> {
    let name = EndpointName::new(node, "k8s", &workload.name, "eth0").ok()?;
    let spec = WorkloadEndpointSpec {
        orchestrator: "k8s".to_owned(),
        node: node.to_owned(),
        pod: workload.name.clone(),
        endpoint: "eth0".to_owned(),
        ip_networks: workload.nets().map(Network).to_vec(),
        profiles: vec![DEFAULT_ALLOW_PROFILE.to_owned()],
        interface_name: workload.host_link(),
        mac: Some(Mac(workload.mac)),
        ..WorkloadEndpointSpec::default()
    };
    let resource = Resource::namespaced("sim", &name.to_string(), spec);
    Some((resource.key().ok()?.to_string(), resource.encode().ok()?))
}
