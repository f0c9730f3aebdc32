//! Policies: the objects that decide about packets, as operators and controllers change them.

use std::collections::BTreeMap;

use calico_store::{KeyRange, Query};
use serde_json::{Value, json};

use crate::agenda::{At, Daemon};
use crate::policies::{PREFIX, Style};
use crate::scenario::draw;
use crate::world::World;

/// The namespace of all workloads.
const NAMESPACE: &str = "sim";

/// Objects at the start.
const FIRST_OBJECTS: usize = 12;

/// Returns the stored resources.
pub(crate) fn stored(world: &World) -> BTreeMap<String, Vec<u8>> {
    let range = KeyRange::prefix(PREFIX);
    let listing = world.store.core.range(&Query::new(range));
    let items = listing.unwrap_or_default().items.into_iter();
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    items
        .map(|item| (text(&item.key), item.value.to_vec()))
        .collect()
}

impl World {
    /// Writes the first objects.
    pub(crate) fn populate_policies(&mut self) {
        let mut put = |key: &str, value: Value| {
            let key = format!("{PREFIX}{key}");
            self.policies
                .valid
                .insert(key, value.to_string().into_bytes());
        };
        let rules = json!([{"action": "Allow"}]);
        let profile = json!({"labelsToApply": {"pcns.env": "live"},
            "ingress": rules, "egress": rules});
        put(
            "profiles/kns.sim",
            json!({"metadata": {"name": "kns.sim"}, "spec": profile}),
        );
        for _ in 0..FIRST_OBJECTS {
            let key = self.draw_key();
            let value = draw::value(&mut self.policies.chance, &key);
            self.policies.valid.insert(key, value);
        }
        let put: Vec<(String, Vec<u8>)> = self.policies.valid.clone().into_iter().collect();
        self.store.change(&put, &[]);
    }

    fn draw_key(&mut self) -> String {
        let nodes = self.plan.nodes.iter().map(|node| node.name.as_str());
        let nodes: Vec<&str> = nodes.collect();
        let key = draw::key(&mut self.policies.chance, NAMESPACE, &nodes);
        format!("{PREFIX}{key}")
    }

    /// Adds, changes or deletes an object.
    pub(crate) fn change_policy(&mut self) {
        let key = self.draw_key();
        let deletes = self.policies.valid.contains_key(&key) && self.policies.chance.strikes(400);
        let (put, delete) = match deletes {
            true => (Vec::new(), vec![key.clone()]),
            false => {
                let value = draw::value(&mut self.policies.chance, &key);
                (vec![(key.clone(), value)], Vec::new())
            }
        };
        if !self.write(&put, &delete) {
            return;
        }
        let place = self.store.place;
        let name = key.strip_prefix(PREFIX).unwrap_or(&key);
        let what = if deletes { "deletes" } else { "has a new" };
        self.trace(place, &format!("{what} {name}"));
        self.policies.broken.remove(&key);
        self.policies.valid.remove(&key);
        self.policies.valid.extend(put);
    }

    /// Replaces the value of a policy by an invalid one.
    pub(crate) fn break_policy(&mut self) {
        let key = self.draw_key();
        if !draw::is_policy(&key) {
            return;
        }
        let value = draw::broken(&mut self.policies.chance, &key);
        if self.write(&[(key.clone(), value)], &[]) {
            let place = self.store.place;
            let name = key.strip_prefix(PREFIX).unwrap_or(&key);
            self.trace(place, &format!("has an invalid {name}"));
            self.policies.broken.insert(key);
        }
    }

    /// Gives every object a valid value again, or deletes it.
    pub(crate) fn mend_policies(&mut self) {
        for key in std::mem::take(&mut self.policies.broken) {
            match self.policies.valid.get(&key).cloned() {
                Some(value) => drop(self.write(&[(key, value)], &[])),
                None => drop(self.write(&[], &[key])),
            }
        }
    }

    /// Changes labels, profiles and ports of an endpoint.
    pub(crate) fn restyle_any(&mut self) {
        let placed = self.placed();
        let Some(workload) = self.policies.chance.pick(&placed).copied() else {
            return;
        };
        let style = Style::draw(&mut self.policies.chance);
        let Some(state) = self.workloads.get_mut(workload) else {
            return;
        };
        state.style = Some(style);
        let (at, name) = (state.place, state.plan.name.clone());
        if self.record(workload, at, None) {
            let place = self.store.place;
            self.trace(place, &format!("has other labels of {name}"));
        }
    }

    /// Lets another program change the packet filter of a node.
    pub(crate) fn tamper_any(&mut self) {
        let at: At = self.policies.chance.below(self.plan.nodes.len());
        let Some(node) = self.machines.get_mut(at).and_then(|m| m.node.as_mut()) else {
            return;
        };
        if let Some(change) = node.host.filter.tamper(&mut self.policies.chance) {
            self.trace(at, &format!("another program {change}"));
            self.wake(at, Daemon::Felix);
        }
    }

    fn write(&mut self, put: &[(String, Vec<u8>)], delete: &[String]) -> bool {
        let done = self.store.change(put, delete);
        if done {
            self.changed = true;
            self.stir_store();
        }
        done
    }
}
