//! Services: their routes and members, and the plan of every key.

use calico_model::{DEFAULT_CONFIGURATION, Kind, ServiceName, ServiceRoutesKey, SliceKey};
use tokio::time::Instant;

use super::Controller;
use crate::limits::BEYOND_INTERVAL;
use crate::plan::{Change, is_empty_record, plan_slice};
use crate::target::Target;

impl Controller {
    /// Marks the record of a service without slices, and the routes of the service.
    pub(super) fn touch_service(&mut self, service: ServiceName) {
        self.unchecked.insert(Target::Slice(SliceKey {
            slice: service.name.clone(),
            service: service.clone(),
        }));
        self.balance(service.clone());
        self.routes.touch_service(service);
    }

    /// Passes Nodes and the ranges of services on to the computation of routes.
    pub(super) fn feed_routes(&mut self, key: &Target) {
        let Some(resource) = key.resource() else {
            return;
        };
        let value = self.stored.get(key).map(|value| &*value.octets);
        match resource.kind() {
            Kind::Node => self.routes.set_node(resource.name(), value),
            Kind::BgpConfiguration if resource.name() == DEFAULT_CONFIGURATION => {
                self.routes.set_ranges(value);
            }
            _ => {}
        }
    }

    /// Returns the change of a key.
    pub(super) fn plan(&self, key: &Target) -> Result<Change, String> {
        match key {
            Target::Resource(key) => self.plan_resource(key),
            Target::Slice(key) => Ok(plan_slice(key, &self.objects, &self.stored)),
            Target::Routes(of) => {
                let is_held = self.guard.held(true).is_some();
                let found = self.stored.get(key);
                Ok(self.routes.plan(of, found, &self.objects, is_held))
            }
        }
    }

    /// Returns whether the API server has the object of a key.
    pub(super) fn has_object(&self, key: &Target) -> bool {
        match key {
            Target::Routes(key) => self.routes.has_node(&key.node, &self.objects),
            Target::Slice(of) => {
                self.objects.owner(key).is_some() || is_empty_record(of, &self.objects)
            }
            Target::Resource(_) => self.objects.owner(key).is_some(),
        }
    }

    /// Computes routes of services, and marks the keys of the nodes concerned. Looks for those that are
    /// left out at most every [`BEYOND_INTERVAL`]: that concerns all nodes.
    pub(super) fn compute_routes(&mut self) {
        let touched = self.routes.compute(&self.objects, &self.stored);
        self.is_beyond_due |= !touched.is_empty();
        let keys = touched.into_iter().map(|node| ServiceRoutesKey { node });
        self.unchecked.extend(keys.map(Target::Routes));
        let now = Instant::now();
        if self.is_beyond_due && self.beyond_at <= now {
            self.is_beyond_due = false;
            self.beyond_at = now + BEYOND_INTERVAL;
            for service in self.routes.look_beyond() {
                self.balance(service);
            }
        }
    }
}
