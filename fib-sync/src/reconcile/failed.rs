//! Gateways that have failed, until the wanted routes take them into account.

use core::net::IpAddr;

use super::delta::{Entry, Found};
use super::nexthops::is_failed;
use super::reconciler::Reconciler;
use crate::limits::FAILED_GATEWAYS_MAX;
use crate::nexthop::NexthopCommand;
use crate::port::Command;
use crate::route::Route;

impl Reconciler {
    /// Takes a gateway out of all routes before the wanted routes change: one message for each
    /// interface takes it out of all nexthop objects. Routes that have only failed gateways are deleted.
    ///
    /// The wanted routes are expected to follow. Until [`restore_gateways`](Self::restore_gateways),
    /// no route over a failed gateway is written. It has no effect beyond [`FAILED_GATEWAYS_MAX`].
    pub fn fail_gateway(&mut self, gateway: IpAddr) {
        let has_room = self.failed.len() < FAILED_GATEWAYS_MAX && self.config.install;
        if !has_room || !self.failed.insert(gateway.to_canonical()) {
            return;
        }
        for command in self.nexthops.fail(&self.failed) {
            if let NexthopCommand::Delete(id) = command {
                self.urgent.insert(id);
            }
            self.outbox.push_back(Command::Nexthop(command));
        }
        self.has_new_failed = true;
    }

    /// Accepts the failed gateways again: wanted routes over them are written.
    pub fn restore_gateways(&mut self) {
        if self.failed.is_empty() {
            return;
        }
        let failed = core::mem::take(&mut self.failed);
        self.has_new_failed = false;
        for (key, entry) in &mut self.entries {
            let hops = entry.want.iter().flat_map(|want| &want.next_hops);
            if hops.into_iter().any(|hop| is_failed(hop, &failed)) {
                if entry.found == Found::AsWanted
                    && let Some(want) = entry.want.clone()
                {
                    let route = entry.installed(want, &self.nexthops);
                    entry.observe(key, Some(route));
                }
                self.dirty.insert(*key);
            }
        }
    }

    /// Returns whether gateways count as failed.
    pub fn has_failed_gateways(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Processes the routes that have only failed gateways.
    pub(super) fn process_failed(&mut self) {
        if !core::mem::take(&mut self.has_new_failed) {
            return;
        }
        let lost = self.entries.iter().filter(|(_, entry)| {
            let present = entry.present();
            present.is_some_and(|route| self.has_only_failed(route))
        });
        let lost: Vec<_> = lost.map(|(key, _)| *key).collect();
        lost.into_iter().for_each(|key| self.dirty.insert(key));
    }

    /// Returns whether a route over a failed gateway is wanted.
    pub(super) fn is_held(&self, entry: &Entry) -> bool {
        let hops = entry.want.iter().flat_map(|want| &want.next_hops);
        !self.failed.is_empty() && hops.into_iter().any(|hop| is_failed(hop, &self.failed))
    }

    /// Returns whether a route has next hops, and all have failed.
    pub(super) fn has_only_failed(&self, route: &Route) -> bool {
        let hops = &route.next_hops;
        !hops.is_empty() && hops.iter().all(|hop| is_failed(hop, &self.failed))
    }
}
