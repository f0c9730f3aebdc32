//! The device for IP in IP: `tunl0` of the kernel, with its MTU and its address.

use std::collections::BTreeSet;
use std::net::IpAddr;

use daemon_common::events::{Event, Text, emit};
use fib_sync::{Instant, Tunnel};
use ipnet::IpNet;

use super::host::{Configured, Failed, HostCommand, Orders};
use super::links::Links;
use super::retry::Retry;
use crate::calc::{IpipDevice, IpipState};
use crate::limits::TUNNEL_CHECK;
use crate::render::IPIP_DEVICE;

/// The device, as far as it is set up.
#[derive(Clone, Debug, Default)]
pub(super) struct IpipSync {
    /// The device that the commands are about.
    device: Option<IpipDevice>,
    configured: Retry,
    /// When it was configured or compared last.
    checked: Option<Instant>,
    released: Retry,
    /// The addresses that this run has given it.
    former: BTreeSet<IpNet>,
    /// Why the kernel rejected its MTU.
    mtu: Option<String>,
    /// Its interface index, once it is configured.
    index: Option<u32>,
    /// The index that routes use: the device can carry traffic.
    used: Option<u32>,
}

/// The state of the agent that one turn needs.
#[derive(Clone, Copy)]
pub(super) struct IpipAround<'a> {
    pub(super) links: &'a Links,
    /// The packet filter in effect accepts IP in IP from nodes only.
    pub(super) is_guarded: bool,
}

impl IpipSync {
    /// Compares the device again.
    pub(super) const fn doubt(&mut self) {
        self.configured.again();
        self.released.again();
    }

    /// Returns the index of the device that routes may use.
    pub(super) const fn used(&self) -> Option<u32> {
        self.used
    }

    /// Releases the device if this host needs none, or has no address for it. It must be called before the
    /// packet filter changes: without its rule, the device would decapsulate packets of any sender. Objects
    /// of an earlier run are released only once the datastore was read in full (`is_in_sync`).
    pub(super) fn leave(
        &mut self,
        now: Instant,
        wanted: &IpipState,
        links: &Links,
        is_in_sync: bool,
        orders: &mut Orders,
    ) {
        let (IpipState::Unused { pools } | IpipState::Lacks { pools, .. }) = wanted else {
            return;
        };
        self.forget();
        if is_in_sync {
            self.release(now, pools, links, orders);
        }
    }

    /// Issues the command that is due. Returns whether routes may use another device now.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        wanted: &IpipState,
        around: IpipAround<'_>,
        orders: &mut Orders,
    ) -> bool {
        if let IpipState::Wanted(device) = wanted {
            self.put(now, device, around.is_guarded, orders);
        }
        let is_up = |index: &u32| around.links.up(IPIP_DEVICE) == Some(*index);
        let used = self.index.filter(is_up);
        std::mem::replace(&mut self.used, used) != used
    }

    fn put(&mut self, now: Instant, device: &IpipDevice, is_guarded: bool, orders: &mut Orders) {
        self.released = Retry::default();
        if self.device.as_ref() != Some(device) {
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
        let may = is_guarded || self.configured.is_done();
        if may && self.configured.is_due(now) {
            self.former = [IpAddr::from(device.address).into()].into();
            let command = HostCommand::ConfigureIpip(device.clone());
            self.configured.order(orders.push(command));
        }
    }

    /// Removes the addresses of this run, and those of an earlier run, which are in pools. Other addresses
    /// are those of other programs; without one, the device is set down.
    fn release(
        &mut self,
        now: Instant,
        pools: &BTreeSet<IpNet>,
        links: &Links,
        orders: &mut Orders,
    ) {
        let is_own = |address: &IpAddr| {
            let mut all = pools.iter().chain(&self.former);
            all.any(|net| net.contains(address))
        };
        let is_ipip = links
            .named(IPIP_DEVICE)
            .is_some_and(|link| link.tunnel == Some(Tunnel::Ipip));
        let held = links.addresses(IPIP_DEVICE).unwrap_or_default();
        let held = held
            .into_iter()
            .filter(|address| is_ipip && is_own(address));
        // The kernel may not have reported an address of this run yet.
        let former = self.former.iter().map(IpNet::addr);
        let own: BTreeSet<IpAddr> = held.chain(former).collect();
        if !own.is_empty() && self.released.is_due(now) {
            self.released
                .order(orders.push(HostCommand::ReleaseIpip(own)));
        }
    }

    /// Forgets the device: its commands are void.
    fn forget(&mut self) {
        if self.device.take().is_some() {
            self.configured = Retry::default();
            (self.checked, self.mtu, self.index) = (None, None, None);
        }
    }

    /// Handles the answer to a configuration.
    pub(super) fn configured(
        &mut self,
        now: Instant,
        command: u64,
        outcome: Result<Configured, Failed>,
    ) {
        if !self.configured.awaits(command) {
            return;
        }
        self.checked = Some(now);
        if let Ok(done) = &outcome {
            self.index = Some(done.index);
            let rejected = done.mtu.as_ref().err().map(ToString::to_string);
            if let Some(reason) = &rejected
                && self.mtu != rejected
            {
                report(reason);
            }
            self.mtu = rejected;
        }
        if let Some(reason) = self.configured.note(now, outcome.map(drop)) {
            report(reason);
        }
    }

    /// Handles the answer to a removal of addresses.
    pub(super) fn released(&mut self, now: Instant, command: u64, outcome: Result<(), Failed>) {
        if !self.released.awaits(command) {
            return;
        }
        if outcome.is_ok() {
            self.former.clear();
        }
        if let Some(reason) = self.released.note(now, outcome) {
            report(reason);
        }
    }

    /// Returns when the next action is due without an event.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let check = self.checked.filter(|_| self.configured.is_settled());
        let check = check.map(|checked| checked + TUNNEL_CHECK);
        let retries = [self.configured.timeout(), self.released.timeout()];
        check.into_iter().chain(retries.into_iter().flatten()).min()
    }

    /// Returns why the device is missing, or not as it should be.
    pub(super) fn problem(&self) -> Option<String> {
        let is_down = self.device.is_some() && self.used.is_none();
        let down = || is_down.then(|| "the device is not up yet".to_owned());
        self.refused().or_else(down).or_else(|| self.mtu.clone())
    }

    /// Returns what the kernel refuses.
    pub(super) fn refused(&self) -> Option<String> {
        self.configured.reason().map(str::to_owned)
    }
}

fn report(reason: &str) {
    emit(Event::InterfaceFailed {
        interface: Text::new(IPIP_DEVICE),
        reason: Text::new(reason),
    });
}
