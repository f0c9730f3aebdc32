//! The settings in effect, their status, and a second writer that the status reveals.

use std::time::Duration;

use calico_model::{DEFAULT_CONFIGURATION, Kind, ResourceKey};
use calico_store::Revision;
use daemon_common::events::{Event, Text, emit};
use serde_json::Value as Json;
use tokio::time::Instant;

use super::Controller;
use crate::hosts;
use crate::kinds::Watched;
use crate::limits::REPAIRS_MAX;
use crate::plan::{Change, patched, plan};
use crate::settings::{Ignored, Settings, is_own_status};
use crate::target::Target;
use crate::write::Job;

/// Why this program stands down beside Calico's controllers.
const CALICO_RUNS: &str = "calico-kube-controllers are running: they have replaced the status of \
                           KubeControllersConfiguration default";

impl Controller {
    /// Returns the change of a resource, as far as its controller is enabled.
    pub(super) fn plan_resource(&self, key: &ResourceKey) -> Result<Change, String> {
        let watched = match key.kind() {
            Kind::KubeControllersConfiguration => return Ok(self.status_change(key)),
            Kind::HostEndpoint => {
                return hosts::plan(key, &self.settings, &self.stored)
                    .map_err(|error| error.to_string());
            }
            Kind::Node if !self.settings.sync_labels => return Ok(Change::Nothing),
            Kind::Node => Some(Watched::Node),
            Kind::WorkloadEndpoint => Some(Watched::Pod),
            Kind::Tier => Some(Watched::ClusterNetworkPolicy),
            _ => Watched::owner_of(&key.clone().into()),
        };
        match watched {
            Some(watched) if !self.settings.applies_to(watched) => Ok(Change::Nothing),
            _ => plan(key, &self.objects, &self.stored),
        }
    }

    fn status_change(&self, key: &ResourceKey) -> Change {
        let (Some(found), DEFAULT_CONFIGURATION) =
            (self.stored.get(&key.clone().into()), key.name())
        else {
            return Change::Nothing;
        };
        let status = self.settings.status(&self.variables);
        let value: Json = serde_json::from_slice(&found.octets).unwrap_or_default();
        match value["status"] == status {
            true => Change::Nothing,
            false => patched(found, |value| value["status"] = status),
        }
    }

    /// Applies the settings after a change of the resource. An unreadable one keeps the settings.
    fn take_settings(&mut self, key: &Target) {
        let found = self.stored.get(key).cloned();
        let value = match &found {
            None => None,
            Some(found) => match serde_json::from_slice::<Json>(&found.octets) {
                Ok(value @ Json::Object(_)) => Some(value),
                _ => {
                    let reason = "the resource is unreadable; the last settings stay, and no Service gets an address".to_owned();
                    let setting = "KubeControllersConfiguration default".to_owned();
                    self.ignore(vec![Ignored { setting, reason }]);
                    // An assigned address cannot be taken back.
                    return self.apply(Settings {
                        load_balancer: false,
                        ..self.settings.clone()
                    });
                }
            },
        };
        if let Some(value) = &value {
            self.look_at_status(&value["status"]);
        }
        let spec = value.as_ref().map(|value| &value["spec"]);
        let read = Settings::read(spec, &self.variables);
        self.ignore(read.ignored);
        self.apply(read.settings);
    }

    /// Applies settings, and compares everything with them.
    pub(super) fn apply(&mut self, settings: Settings) {
        if settings == self.settings {
            return;
        }
        self.settings = settings;
        let grace = match self.settings.node {
            true => self.settings.leak_grace,
            false => Duration::ZERO,
        };
        self.collection.set(self.settings.reconciler_period, grace);
        let keys: Vec<_> = self
            .stored
            .keys()
            .chain(self.objects.keys())
            .cloned()
            .collect();
        self.unchecked.extend(keys);
        self.check_tiers();
        self.check_hosts();
        self.balance_all();
    }

    fn ignore(&mut self, ignored: Vec<Ignored>) {
        for one in ignored.iter().filter(|one| !self.ignored.contains(one)) {
            emit(Event::KubernetesSettingIgnored {
                setting: Text::new(&one.setting),
                reason: Text::new(&one.reason),
            });
        }
        self.ignored = ignored;
    }

    /// Compares the automatic host endpoints of all Nodes.
    pub(super) fn check_hosts(&mut self) {
        let nodes = self.stored.of_kind(Kind::Node);
        let keys: Vec<_> = nodes.filter_map(|node| hosts::key(node.name())).collect();
        self.unchecked.extend(keys);
    }

    /// Marks what a change of a key in the datastore concerns.
    pub(super) fn take_target(&mut self, key: Target) {
        self.feed_routes(&key);
        let revision = self.stored.get(&key).map(|found| found.revision);
        if Watched::owner_of(&key).is_some() {
            self.rivals.changed(&key, revision);
        }
        match key.resource().map(|key| (key.kind(), key.name())) {
            Some((Kind::KubeControllersConfiguration, DEFAULT_CONFIGURATION)) => {
                self.take_settings(&key);
            }
            Some((Kind::Node, name)) => self.unchecked.extend(hosts::key(name)),
            _ => {}
        }
        self.unchecked.insert(key);
    }

    /// Records an own write of a key; no octets delete it.
    pub(super) fn wrote(&mut self, job: &Job, revision: Revision) {
        match job.key.resource().map(|key| (key.kind(), key.name())) {
            Some((Kind::KubeControllersConfiguration, _)) => self.rivals.has_own_status = true,
            Some((Kind::Node, name)) => self.unchecked.extend(hosts::key(name)),
            _ => {}
        }
        if Watched::owner_of(&job.key).is_some() {
            let written = job.octets.as_ref().map(|_| revision);
            self.rivals.wrote(&job.key, written);
            // A later change may have been delivered before the answer to the write.
            if let Some(found) = self.stored.get(&job.key) {
                self.rivals.changed(&job.key, Some(found.revision));
            }
        }
    }

    /// Calico's controllers write their status after each change of it. If this program has written
    /// its own and finds another one, they run.
    fn look_at_status(&mut self, status: &Json) {
        if is_own_status(status) {
            self.rivals.has_own_status = true;
        } else if self.rivals.has_own_status && status.is_object() {
            self.writer.lead.stand_down(CALICO_RUNS);
        }
    }

    /// Stands down if another program changes a resource back again and again.
    pub(super) fn look_at_rivals(&mut self, key: &Target) {
        if self.rivals.repairs(key, Instant::now()) {
            let key = key.name();
            let reason = format!("another program has changed {key} {REPAIRS_MAX} times");
            self.writer.lead.stand_down(&reason);
        }
    }
}
