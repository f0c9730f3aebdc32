//! The state that Felix sets on its host beside routes; it survives Felix.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use cambric_felix::agent::{Failed, HostCommand, HostEvent, Neighbor, TunnelEntry};
use cambric_felix::render::Change;

use crate::chance::Chance;
use crate::filter::Filter;
use crate::plants::RulesPlant;
use crate::views::Views;

/// A host that executes commands in order, each after some time, or fails with this probability.
pub(crate) struct SimHost {
    pub(crate) filter: Filter,
    /// The contents of the datastore that the packet filter may have.
    pub(crate) views: Views,
    /// A change of every transaction, with the name of the machine.
    pub(crate) plant: Option<(String, RulesPlant)>,
    /// A killed Felix may have passed some of its commands to the kernel, and answers may be lost.
    pub(crate) is_abrupt: bool,
    /// A transaction was carried out since the last look.
    has_committed: bool,
    neighbors: BTreeMap<(u32, IpAddr), Neighbor>,
    tunnel_entries: BTreeSet<TunnelEntry>,
    /// Commands that are not executed yet.
    queue: VecDeque<(u64, HostCommand)>,
    /// Addresses whose conntrack entries are deleted once these commands have ended.
    forgetting: BTreeSet<IpAddr>,
    /// Probability of a failed command in thousandths.
    pub(crate) fails: u64,
    chance: Chance,
}

impl SimHost {
    pub(crate) fn new(chance: Chance) -> Self {
        Self {
            filter: Filter::default(),
            views: Views::default(),
            plant: None,
            is_abrupt: false,
            has_committed: false,
            neighbors: BTreeMap::new(),
            tunnel_entries: BTreeSet::new(),
            queue: VecDeque::new(),
            forgetting: BTreeSet::new(),
            fails: 0,
            chance,
        }
    }

    /// Resets the host as a reboot does.
    pub(crate) fn wipe(&mut self) {
        self.filter.wipe();
        self.views.clear();
        self.neighbors.clear();
        self.tunnel_entries.clear();
    }

    /// Drops the commands that a stopped Felix has not passed to the kernel: all, or the last ones.
    pub(crate) fn abandon(&mut self, now: u64) {
        if self.is_abrupt {
            let passed = self.chance.below(self.queue.len() + 1);
            for (_, command) in self.queue.drain(..passed).collect::<Vec<_>>() {
                self.carry_out(now, command);
            }
        }
        self.queue.clear();
        self.forgetting.clear();
    }

    /// Returns whether an answer to Felix is pending.
    pub(crate) fn is_busy(&self) -> bool {
        !self.queue.is_empty() || !self.forgetting.is_empty()
    }

    /// Carries out all commands of a Felix that is stopped by a signal, and records the packet filter.
    pub(crate) fn finish(&mut self, now: u64) {
        if self.is_abrupt {
            for (_, command) in std::mem::take(&mut self.queue) {
                self.carry_out(now, command);
            }
            self.filter.finish_run();
        }
    }

    /// Begins a run of Felix.
    pub(crate) fn begin_run(&mut self) {
        self.filter.begin_run();
        self.views.clear();
    }

    /// Returns whether a transaction was carried out since the last call.
    pub(crate) fn take_commit(&mut self) -> bool {
        std::mem::take(&mut self.has_committed)
    }

    /// Queues a command.
    pub(crate) fn submit(&mut self, number: u64, command: HostCommand) {
        match command {
            HostCommand::Forget(addresses) => self.forgetting.extend(addresses),
            command => self.queue.push_back((number, command)),
        }
    }

    /// Executes some commands, rarely all of them.
    pub(crate) fn poll(&mut self, now: u64) -> Vec<(u64, HostEvent)> {
        let most = self.chance.within(1..=2 * self.queue.len() as u64 + 1) as usize;
        let taken = self.queue.drain(..most.min(self.queue.len()));
        let taken: Vec<(u64, HostCommand)> = taken.collect();
        let events = taken.into_iter();
        let mut events: Vec<(u64, HostEvent)> = events
            .map(|(number, command)| (number, self.carry_out(now, command)))
            .collect();
        if self.queue.is_empty() && !self.forgetting.is_empty() {
            let forgotten = std::mem::take(&mut self.forgetting);
            events.push((0, HostEvent::Forgotten(forgotten)));
        }
        events
    }

    /// Writes the packet filter, unless the host refuses.
    fn write(&mut self, now: u64, mut steps: Vec<Change>) -> Result<(), Failed> {
        let refused = self.luck();
        let loses_answer = refused.is_err() && self.is_abrupt && self.chance.strikes(500);
        if !loses_answer {
            refused?;
        }
        if let Some((name, plant)) = &self.plant {
            plant(name, &mut steps);
        }
        self.has_committed = true;
        self.filter.write(now, &steps, loses_answer)
    }

    fn carry_out(&mut self, now: u64, command: HostCommand) -> HostEvent {
        match command {
            HostCommand::FindRules => HostEvent::RulesFound(Ok(self.filter.table.is_some())),
            HostCommand::WriteRules(steps) => HostEvent::RulesWritten(self.write(now, steps)),
            HostCommand::CheckRules => {
                let outcome = self.luck();
                HostEvent::RulesChecked(outcome.map(|()| self.filter.check()))
            }
            HostCommand::ConfigureHost { .. } => HostEvent::HostConfigured(self.luck()),
            HostCommand::ConfigureInterface { link, .. } => {
                HostEvent::InterfaceConfigured(link.index, self.luck())
            }
            HostCommand::LimitBandwidth { interface, .. } => {
                HostEvent::BandwidthLimited(interface, self.luck())
            }
            HostCommand::ListNeighbors => {
                let listed = self.luck();
                let listed = listed.map(|()| self.neighbors.values().copied().collect());
                HostEvent::NeighborsListed(listed)
            }
            HostCommand::PutNeighbor(entry) => {
                let outcome = self.luck();
                if outcome.is_ok() {
                    self.neighbors
                        .insert((entry.interface, entry.address), entry);
                }
                HostEvent::NeighborPut(entry, outcome)
            }
            HostCommand::DeleteNeighbor(entry) => {
                let outcome = self.luck();
                if outcome.is_ok() {
                    self.neighbors.remove(&(entry.interface, entry.address));
                }
                HostEvent::NeighborDeleted(entry, outcome)
            }
            // The simulated kernel has neither VXLAN nor IP in IP.
            HostCommand::ConfigureTunnel(device) => {
                let refused = Failed("the kernel has no VXLAN".to_owned());
                HostEvent::TunnelConfigured(device.name, Err(refused))
            }
            HostCommand::ConfigureIpip(_) => {
                let refused = Failed("the kernel has no IP in IP".to_owned());
                HostEvent::IpipConfigured(Err(refused))
            }
            HostCommand::ReleaseIpip(_) => HostEvent::IpipReleased(self.luck()),
            HostCommand::RemoveTunnel { name, .. } => HostEvent::TunnelRemoved(name, self.luck()),
            HostCommand::ListTunnelEntries(index) => {
                let entries = self.tunnel_entries.iter().copied();
                let on = entries.filter(|entry| entry.interface() == index).collect();
                HostEvent::TunnelEntriesListed(index, self.luck().map(|()| on))
            }
            HostCommand::PutTunnelEntry(entry) => {
                let outcome = self.luck();
                if outcome.is_ok() {
                    self.tunnel_entries.insert(entry);
                }
                HostEvent::TunnelEntryPut(entry, outcome)
            }
            HostCommand::DeleteTunnelEntry(entry) => {
                let outcome = self.luck();
                if outcome.is_ok() {
                    self.tunnel_entries.remove(&entry);
                }
                HostEvent::TunnelEntryDeleted(entry, outcome)
            }
            // The simulated kernel tracks no connection.
            HostCommand::ListConnections { .. } => {
                HostEvent::ConnectionsListed(Ok(Vec::new()), Duration::ZERO)
            }
            // Its packets pass no packet filter.
            HostCommand::Offload(interfaces) => {
                let outcome = self.luck();
                let may_exist = outcome.is_err() || !interfaces.is_empty();
                HostEvent::Offloaded(outcome, may_exist)
            }
            HostCommand::CutConnections { .. } => HostEvent::ConnectionsCut(0, Ok(())),
            HostCommand::Forget(addresses) => HostEvent::Forgotten(addresses),
        }
    }

    fn luck(&mut self) -> Result<(), Failed> {
        match self.chance.strikes(self.fails) {
            true => Err(Failed("the host refuses".to_owned())),
            false => Ok(()),
        }
    }
}
