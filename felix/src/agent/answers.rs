//! The answers of the host to commands of the agent.

use std::collections::BTreeSet;
use std::net::IpAddr;

use daemon_common::events::{Event as Reported, Text, emit};
use fib_sync::Instant;

use super::core::Agent;
use super::host::HostEvent;
use crate::render::Ruleset;

impl Agent {
    /// Handles the answers that are left, because the agent ends, and returns the packet filter as the
    /// kernel has it; `None` if unknown.
    pub(crate) fn end(
        &mut self,
        now: Instant,
        mut answers: impl FnMut() -> Option<(u64, HostEvent)>,
    ) -> Option<&Ruleset> {
        while let Some((number, event)) = answers() {
            self.handle_host(now, number, event);
        }
        self.rules.held()
    }

    /// Handles the outcome of a command for the host.
    pub fn handle_host(&mut self, now: Instant, command: u64, event: HostEvent) {
        if !event.is_late() {
            self.orders.answered();
        }
        match event {
            HostEvent::Forgotten(addresses) => self.release(&addresses),
            HostEvent::ConnectionsListed(found, took) => {
                self.connections_listed(now, command, found, took);
            }
            HostEvent::ConnectionsCut(count, outcome) => {
                self.connections_cut(command, count, outcome);
            }
            HostEvent::HostConfigured(outcome) => self.router.answer(now, command, outcome),
            HostEvent::InterfaceConfigured(index, outcome) => {
                if let Some(link) = self.links.at(index) {
                    let endpoint = self.calculator.desired().interfaces.get(&link.name);
                    let id = endpoint.map(|endpoint| &endpoint.id);
                    if outcome.is_ok() {
                        self.bandwidth.check(now, &link.name);
                    }
                    self.interfaces.answer(now, command, link, id, outcome);
                    self.agenda.add(&link.name);
                }
            }
            HostEvent::BandwidthLimited(interface, outcome) => {
                if self.bandwidth.answer(now, command, &interface, outcome) {
                    self.agenda.add(interface);
                }
            }
            HostEvent::NeighborsListed(found) => {
                let listed = self.neighbors.listed(now, command, found);
                let names = listed
                    .into_iter()
                    .filter_map(|index| self.links.name(index));
                self.agenda.extend(names);
                self.agenda.extend(self.interfaces.names());
            }
            HostEvent::NeighborPut(neighbor, outcome) => {
                let name = self.links.name(neighbor.interface).unwrap_or_default();
                let neighbors = &mut self.neighbors;
                if neighbors.answer(now, command, &neighbor, name, outcome) {
                    self.agenda.add(name);
                }
            }
            HostEvent::NeighborDeleted(neighbor, outcome) => {
                if self.neighbors.removed(now, command, &neighbor, outcome) {
                    let name = self.links.name(neighbor.interface);
                    self.agenda.extend(name);
                }
            }
            HostEvent::Offloaded(outcome, may_exist) => {
                self.offload.answer(now, command, outcome, may_exist);
            }
            HostEvent::TunnelConfigured(name, outcome) => {
                self.overlay.configured(now, command, name, outcome);
            }
            HostEvent::TunnelRemoved(name, outcome) => {
                self.overlay.removed(now, command, name, outcome);
            }
            HostEvent::IpipConfigured(outcome) => {
                self.overlay.ipip.configured(now, command, outcome);
            }
            HostEvent::IpipReleased(outcome) => self.overlay.ipip.released(now, command, outcome),
            HostEvent::TunnelEntriesListed(index, found) => {
                self.overlay.listed(now, command, index, found);
            }
            HostEvent::TunnelEntryPut(entry, outcome) => {
                self.overlay.answer(now, command, &entry, outcome);
            }
            HostEvent::TunnelEntryDeleted(entry, outcome) => {
                if let Err(reason) = outcome {
                    let (address, reason) = (entry.address(), Text::new(reason));
                    emit(Reported::InterfaceNeighborStays { address, reason });
                }
            }
            event => {
                let waited = self.rules.answer(now, command, event, &mut self.orders);
                self.agenda.extend(waited);
            }
        }
    }

    /// Assigns addresses, after their connections were deleted, to their new holders.
    fn release(&mut self, addresses: &BTreeSet<IpAddr>) {
        for address in addresses {
            self.resting.remove(address);
            let holder = self.calculator.desired().routes.get(address);
            self.agenda.extend(holder);
        }
    }
}
