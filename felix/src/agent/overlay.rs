//! The overlay: VXLAN devices, entries of tunnel ends, the device for IP in IP, and routes through them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;
use ipnet::IpNet;

use super::host::{Configured, Failed, HostCommand, Neighbor, Orders, TunnelEntry};
use super::ipip::{IpipAround, IpipSync};
use super::links::Links;
use super::retry::Retry;
use super::routes::RouteSync;
use crate::calc::{Desired, DeviceState, OverlayTouched, TunnelDevice, TunnelEnd, Way};
use crate::limits::TUNNEL_CHECK;
use crate::render::{Family, IPIP_DEVICE, VXLAN_DEVICES};

/// The overlay, as far as it is set up.
#[derive(Clone, Debug, Default)]
pub(super) struct OverlaySync {
    tunnels: [Tunnel; 2],
    pub(super) ipip: IpipSync,
    /// Routes that may differ from the wanted ones.
    routes: BTreeSet<IpNet>,
}

/// The device of a family, and its entries.
#[derive(Clone, Debug, Default)]
struct Tunnel {
    /// The device that the commands are about.
    device: Option<TunnelDevice>,
    configured: Retry,
    /// When it was configured or compared last.
    checked: Option<Instant>,
    removed: Retry,
    /// Why the kernel rejected its MTU.
    mtu: Option<String>,
    /// Its interface index, once it is configured.
    index: Option<u32>,
    /// The index that routes and entries use: the device can carry traffic.
    used: Option<u32>,
    listed: Retry,
    /// The entries of the kernel that were not compared with the wanted ones yet.
    found: Option<BTreeSet<TunnelEntry>>,
    /// The entries that were issued or found for each tunnel end.
    ends: BTreeMap<IpAddr, [TunnelEntry; 2]>,
    /// How many tunnel ends have each of these entries: while a node changes its tunnel address, its
    /// old end and its new one have the same forwarding entry.
    holders: BTreeMap<TunnelEntry, usize>,
    entries: BTreeMap<TunnelEntry, Retry>,
    /// The rejected ones of them.
    failed: BTreeSet<TunnelEntry>,
    /// Tunnel ends of which the entries may differ from the wanted ones.
    due: BTreeSet<IpAddr>,
}

/// The state of the agent that one turn needs.
pub(super) struct Around<'a> {
    pub(super) desired: &'a Desired,
    pub(super) links: &'a Links,
    /// The packet filter in effect accepts tunnel packets from nodes only.
    pub(super) is_guarded: bool,
    /// The same for IP in IP.
    pub(super) ipip_is_guarded: bool,
    /// The datastore was read in full, so that objects of an earlier run may be removed.
    pub(super) is_in_sync: bool,
}

impl OverlaySync {
    /// Records changed parts of the desired overlay.
    pub(super) fn touch(&mut self, touched: OverlayTouched) {
        for address in touched.ends {
            self.tunnel(Family::of(address)).due.insert(address);
        }
        self.routes.extend(touched.routes);
    }

    /// Records prefixes whose routes are added again.
    pub(super) fn add_again(&mut self, prefixes: BTreeSet<IpNet>) {
        self.routes.extend(prefixes);
    }

    /// Records addresses that endpoints have released: they may be reached through the overlay now.
    pub(super) fn released(&mut self, addresses: &BTreeSet<IpAddr>) {
        self.routes
            .extend(addresses.iter().copied().map(IpNet::from));
    }

    /// Compares everything again, because events were lost.
    pub(super) const fn doubt(&mut self) {
        let [v4, v6] = &mut self.tunnels;
        v4.doubt();
        v6.doubt();
        self.ipip.doubt();
    }

    /// Handles a change of the device with this name.
    pub(super) fn link(&mut self, name: &str) {
        if name == IPIP_DEVICE {
            self.ipip.doubt();
        }
        for (family, device) in Family::ALL.into_iter().zip(VXLAN_DEVICES) {
            if device == name {
                self.tunnel(family).doubt();
            }
        }
    }

    /// Issues all commands that are due.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        around: &Around<'_>,
        routes: &mut RouteSync,
        orders: &mut Orders,
    ) {
        for (family, name) in Family::ALL.into_iter().zip(VXLAN_DEVICES) {
            let [v4, v6] = &mut self.tunnels;
            let tunnel = match family {
                Family::V4 => v4,
                Family::V6 => v6,
            };
            if tunnel.configure(now, around, (family, name), orders) {
                let nets = around.desired.overlay.routes.keys();
                let of_family = nets.filter(|net| Family::of(net.addr()) == family);
                self.routes.extend(of_family);
            }
            tunnel.exchange(now, around, orders);
        }
        self.turn_ipip(now, around, orders);
        for net in std::mem::take(&mut self.routes) {
            let device = match around.desired.overlay.routes.get(&net) {
                Some(Way::Ipip(_)) => self.ipip.used(),
                _ => self.tunnel(Family::of(net.addr())).used,
            };
            let is_host = net.prefix_len() == net.max_prefix_len();
            let is_local = is_host && around.desired.routes.contains_key(&net.addr());
            match around.desired.overlay.routes.get(&net) {
                Some(way) if !is_local => routes.want_prefix(net, *way, device),
                _ => routes.unwant_prefix(net),
            }
        }
    }

    /// Issues the commands for the device for IP in IP.
    fn turn_ipip(&mut self, now: Instant, around: &Around<'_>, orders: &mut Orders) {
        let overlay = &around.desired.overlay;
        let of_ipip = IpipAround {
            links: around.links,
            is_guarded: around.ipip_is_guarded,
        };
        if self.ipip.turn(now, &overlay.ipip, of_ipip, orders) {
            let through = overlay.routes.iter();
            let through = through.filter(|(_, way)| matches!(way, Way::Ipip(_)));
            self.routes.extend(through.map(|(net, _)| *net));
        }
    }

    /// Handles the answer to a configuration.
    pub(super) fn configured(
        &mut self,
        now: Instant,
        command: u64,
        name: &str,
        outcome: Result<Configured, Failed>,
    ) {
        let Some(tunnel) = self.named(name) else {
            return;
        };
        if !tunnel.configured.awaits(command) {
            return;
        }
        tunnel.checked = Some(now);
        // After a failed comparison the device may still be in order.
        if let Ok(done) = &outcome {
            tunnel.index = Some(done.index);
            if done.readdressed {
                tunnel.listed.doubt();
            }
            let rejected = done.mtu.as_ref().err().map(ToString::to_string);
            if let Some(reason) = &rejected
                && tunnel.mtu != rejected
            {
                emit(Event::InterfaceFailed {
                    interface: Text::new(name),
                    reason: Text::new(reason),
                });
            }
            tunnel.mtu = rejected;
        }
        if let Some(reason) = tunnel.configured.note(now, outcome.map(|_| ())) {
            emit(Event::InterfaceFailed {
                interface: Text::new(name),
                reason: Text::new(reason),
            });
        }
    }

    /// Handles the answer to a removal.
    pub(super) fn removed(
        &mut self,
        now: Instant,
        command: u64,
        name: &str,
        outcome: Result<(), Failed>,
    ) {
        let Some(tunnel) = self.named(name) else {
            return;
        };
        if tunnel.removed.awaits(command)
            && let Some(reason) = tunnel.removed.note(now, outcome)
        {
            emit(Event::InterfaceFailed {
                interface: Text::new(name),
                reason: Text::new(reason),
            });
        }
    }

    /// Handles a list of entries.
    pub(super) fn listed(
        &mut self,
        now: Instant,
        command: u64,
        index: u32,
        found: Result<Vec<TunnelEntry>, Failed>,
    ) {
        let tunnel = self.tunnels.iter_mut().find(|one| one.used == Some(index));
        let Some(tunnel) = tunnel.filter(|tunnel| tunnel.listed.awaits(command)) else {
            return;
        };
        let outcome = found.map(|found| tunnel.found = Some(found.into_iter().collect()));
        if let Some(reason) = tunnel.listed.note(now, outcome) {
            let reason = Text::new(reason);
            emit(Event::KernelNeighborsFailed { reason });
        }
    }

    /// Handles the answer to a write of an entry.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        command: u64,
        entry: &TunnelEntry,
        outcome: Result<(), Failed>,
    ) {
        for (tunnel, name) in self.tunnels.iter_mut().zip(VXLAN_DEVICES) {
            let put = tunnel.entries.get_mut(entry);
            let Some(put) = put.filter(|put| put.awaits(command)) else {
                continue;
            };
            match outcome.is_ok() {
                true => tunnel.failed.remove(entry),
                false => tunnel.failed.insert(*entry),
            };
            if let Some(reason) = put.note(now, outcome.clone()) {
                emit(Event::InterfaceNeighborFailed {
                    interface: Text::new(name),
                    address: entry.address(),
                    reason: Text::new(reason),
                });
            }
        }
    }

    /// Returns when the next action is due without an event.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let tunnels = self.tunnels.iter().filter_map(Tunnel::timeout);
        tunnels.chain(self.ipip.timeout()).min()
    }

    /// Returns why a device is missing, or some of its entries.
    pub(super) fn problem(&self) -> Option<String> {
        let mut tunnels = self.tunnels.iter().zip(VXLAN_DEVICES);
        tunnels
            .find_map(|(tunnel, name)| {
                let reason = tunnel.problem()?;
                Some(format!("{name}: {reason}"))
            })
            .or_else(|| Some(format!("{IPIP_DEVICE}: {}", self.ipip.problem()?)))
    }

    /// Returns what the kernel refuses of the first device with a refusal.
    pub(super) fn refused(&self) -> Option<String> {
        let mut tunnels = self.tunnels.iter().zip(VXLAN_DEVICES);
        tunnels
            .find_map(|(tunnel, name)| Some(format!("{name}: {}", tunnel.refused()?)))
            .or_else(|| Some(format!("{IPIP_DEVICE}: {}", self.ipip.refused()?)))
    }

    fn tunnel(&mut self, family: Family) -> &mut Tunnel {
        let [v4, v6] = &mut self.tunnels;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    fn named(&mut self, name: &str) -> Option<&mut Tunnel> {
        let mut all = self.tunnels.iter_mut().zip(VXLAN_DEVICES);
        all.find(|(_, device)| *device == name)
            .map(|(tunnel, _)| tunnel)
    }
}

impl Tunnel {
    const fn doubt(&mut self) {
        self.configured.again();
        self.removed.again();
        self.listed.again();
    }

    /// Configures the device, or removes it. Returns whether routes may use another device now.
    fn configure(
        &mut self,
        now: Instant,
        around: &Around<'_>,
        (family, name): (Family, &'static str),
        orders: &mut Orders,
    ) -> bool {
        match around.desired.overlay.devices.get(&family) {
            Some(DeviceState::Wanted(device)) => self.put(now, around, device, orders),
            Some(DeviceState::Unused { vni }) => {
                self.forget();
                let exists = around
                    .links
                    .named(name)
                    .is_some_and(|link| link.tunnel.is_some());
                if exists && around.is_in_sync && self.removed.is_due(now) {
                    let command = HostCommand::RemoveTunnel { name, vni: *vni };
                    self.removed.order(orders.push(command));
                }
            }
            Some(DeviceState::Idle | DeviceState::Lacks(_)) | None => self.forget(),
        }
        let is_up = |index: &u32| around.links.up(name) == Some(*index);
        let used = self.index.filter(is_up);
        let changed = self.used != used;
        if changed {
            self.used = used;
            self.listed = Retry::default();
            self.found = None;
            self.ends.clear();
            self.holders.clear();
            self.entries.clear();
            self.failed.clear();
        }
        changed
    }

    fn put(
        &mut self,
        now: Instant,
        around: &Around<'_>,
        device: &TunnelDevice,
        orders: &mut Orders,
    ) {
        self.removed = Retry::default();
        if self.device.as_ref() != Some(device) {
            // The present one is used until its link is removed.
            self.device = Some(device.clone());
            self.configured = Retry::default();
        }
        let is_old = self
            .checked
            .is_none_or(|checked| checked + TUNNEL_CHECK <= now);
        if is_old && self.configured.is_done() {
            self.doubt();
        }
        // Before, packets of any sender would be decapsulated.
        let may = around.is_guarded || self.configured.is_done();
        if may && self.configured.is_due(now) {
            let command = HostCommand::ConfigureTunnel(device.clone());
            self.configured.order(orders.push(command));
        }
    }

    /// Forgets the device: its commands are void.
    fn forget(&mut self) {
        if self.device.take().is_some() {
            self.configured = Retry::default();
            self.checked = None;
            self.mtu = None;
            self.index = None;
        }
    }

    /// Issues the commands for the entries that are due.
    fn exchange(&mut self, now: Instant, around: &Around<'_>, orders: &mut Orders) {
        let Some(index) = self.used else {
            return;
        };
        if self.listed.is_due(now) {
            self.listed
                .order(orders.push(HostCommand::ListTunnelEntries(index)));
        }
        // A list contains every entry that was written before it was made.
        if !self.listed.is_done() || self.listed.is_under_way() {
            return;
        }
        if let Some(found) = self.found.take() {
            self.compare(index, around, &found, orders);
        }
        // New ends are first, so that an entry that an old one also has is not removed between.
        let ends = &around.desired.overlay.ends;
        let due = std::mem::take(&mut self.due).into_iter();
        let (new, old): (Vec<_>, Vec<_>) = due.partition(|address| ends.contains_key(address));
        for address in new.into_iter().chain(old) {
            if orders.is_full() {
                self.due.insert(address);
                continue;
            }
            let wanted = ends.get(&address);
            let wanted = wanted.map(|end| entries(index, address, end));
            self.replace(address, wanted, orders);
            for entry in wanted.into_iter().flatten() {
                self.write(now, entry, orders);
            }
        }
        for entry in self.failed.clone() {
            if orders.is_full() {
                return;
            }
            self.write(now, entry, orders);
        }
    }

    /// Compares the entries of the kernel with the wanted ones.
    fn compare(
        &mut self,
        index: u32,
        around: &Around<'_>,
        found: &BTreeSet<TunnelEntry>,
        orders: &mut Orders,
    ) {
        let family = self.device.as_ref().map(|device| Family::of(device.local));
        let ends = around.desired.overlay.ends.iter();
        let ends = ends.filter(|(address, _)| family == Some(Family::of(**address)));
        let ends = ends.map(|(address, end)| (*address, entries(index, *address, end)));
        self.ends = ends.collect();
        self.holders.clear();
        for entry in self.ends.values().flatten() {
            *self.holders.entry(*entry).or_default() += 1;
        }
        let wanted: BTreeSet<TunnelEntry> = self.ends.values().flatten().copied().collect();
        // Objects of an earlier run are not removed before the datastore has been read.
        let leftover = found.difference(&wanted).filter(|_| around.is_in_sync);
        for entry in leftover {
            match orders.is_full() {
                true => self.listed.doubt(),
                false => drop(orders.push(HostCommand::DeleteTunnelEntry(*entry))),
            }
        }
        self.entries.retain(|entry, _| wanted.contains(entry));
        self.failed.retain(|entry| wanted.contains(entry));
        for (address, both) in &self.ends {
            for entry in both {
                let put = self.entries.entry(*entry).or_default();
                match found.contains(entry) {
                    true => put.take_as_done(),
                    // Another program has removed it, or it is new.
                    false => put.again(),
                }
                if !found.contains(entry) {
                    self.due.insert(*address);
                }
            }
        }
    }

    /// Removes the entries of a tunnel end that are not wanted any more.
    fn replace(&mut self, address: IpAddr, wanted: Option<[TunnelEntry; 2]>, orders: &mut Orders) {
        let old = match wanted {
            Some(wanted) => self.ends.insert(address, wanted),
            None => self.ends.remove(&address),
        };
        for entry in wanted.into_iter().flatten() {
            *self.holders.entry(entry).or_default() += 1;
        }
        for entry in old.into_iter().flatten() {
            if self.is_held_after_drop(&entry) {
                continue;
            }
            self.failed.remove(&entry);
            if self.entries.remove(&entry).is_some() {
                orders.push(HostCommand::DeleteTunnelEntry(entry));
            }
        }
    }

    /// Records that a tunnel end has no longer an entry. Returns whether another one has it.
    fn is_held_after_drop(&mut self, entry: &TunnelEntry) -> bool {
        let Some(count) = self.holders.get_mut(entry) else {
            return false;
        };
        *count = count.saturating_sub(1);
        let is_held = *count > 0;
        if !is_held {
            self.holders.remove(entry);
        }
        is_held
    }

    /// Writes an entry, if it is due.
    fn write(&mut self, now: Instant, entry: TunnelEntry, orders: &mut Orders) {
        let put = self.entries.entry(entry).or_default();
        if put.is_due(now) {
            put.order(orders.push(HostCommand::PutTunnelEntry(entry)));
        }
    }

    fn timeout(&self) -> Option<Instant> {
        let check = self.checked.filter(|_| self.configured.is_settled());
        let check = check.map(|checked| checked + TUNNEL_CHECK);
        let failed = self
            .failed
            .iter()
            .filter_map(|entry| self.entries.get(entry)?.timeout());
        let retries = [
            self.configured.timeout(),
            self.removed.timeout(),
            self.listed.timeout(),
        ];
        let retries = retries.into_iter().flatten().chain(failed);
        check.into_iter().chain(retries).min()
    }

    fn problem(&self) -> Option<String> {
        let is_down = self.device.is_some() && self.used.is_none();
        let down = is_down.then(|| "the device is not up yet".to_owned());
        match self.configured.reason() {
            None => down.or_else(|| self.refused()).or_else(|| self.mtu.clone()),
            Some(_) => self.refused(),
        }
    }

    /// Returns the refusal of the device, or of one of its entries.
    fn refused(&self) -> Option<String> {
        if let Some(reason) = self.configured.reason() {
            return Some(reason.to_owned());
        }
        let entry = self.failed.first()?;
        let reason = self.entries.get(entry)?.reason()?;
        Some(format!("entry for {}: {reason}", entry.address()))
    }
}

/// Returns the entries of a tunnel end.
const fn entries(interface: u32, address: IpAddr, end: &TunnelEnd) -> [TunnelEntry; 2] {
    let (mac, node) = (end.mac, end.node);
    [
        TunnelEntry::Neighbor(Neighbor {
            interface,
            address,
            mac,
        }),
        TunnelEntry::Forwarding {
            interface,
            mac,
            node,
        },
    ]
}
