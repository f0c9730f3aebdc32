//! The Linux host of the current thread: carries out the agent's commands.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use daemon_common::events::{Event, Text, emit};
use fib_sync::{Instant, Link};
use netlink::nftables::NETLINK_NETFILTER;
use netlink::{Refused, Requests};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tracing::debug;

use super::conntrack;
use super::cutting::Cutter;
use super::filter::{Filter, Written};
use super::frames::Frames;
use super::neighbors::Neighbors;
use super::offload;
use super::rules::{Rules, RulesError};
use super::shaper::Shaper;
use super::sysctl::{
    FRAGMENT_MEMORY, Setting, Sysctl, UNCHECKED, Weight, host_settings, interface_settings,
};
use super::tunnels::Tunnels;
use crate::agent::{Failed, Forwarding, HostCommand, HostEvent};
use crate::limits::{
    FOREIGN_CHECK_GAP, FORGET_GAP, FRAGMENT_OCTETS, LISTING_GAP, LISTING_QUIET, LISTING_SHARE,
    LISTING_STEP, RULES_CHECK,
};
use crate::render::{Ruleset, creation};

/// This host, in the network namespace of the calling thread.
#[derive(Debug)]
pub struct LinuxHost {
    filter: Filter,
    /// Commands behind a transaction that a thread writes: they are carried out after it, in order.
    behind: VecDeque<(u64, HostCommand)>,
    /// Why the tables do not belong to Felix, although they should.
    unowned: Option<String>,
    /// `None` if another socket cannot be opened.
    frames: Option<Frames>,
    neighbors: Neighbors,
    tunnels: Tunnels,
    shaper: Shaper,
    /// Why devices of removed interfaces are left.
    shapers_left: Option<String>,
    sysctl: Sysctl,
    has_ipv6: bool,
    rp_filter: String,
    /// Addresses with connections still to be deleted.
    forgetting: BTreeSet<IpAddr>,
    /// Addresses of the round in progress.
    in_hand: BTreeSet<IpAddr>,
    /// Answers not yet taken, each with the number of its command.
    answers: VecDeque<(u64, HostEvent)>,
    forgetter: Option<JoinHandle<()>>,
    cutter: Cutter,
    /// When the packet filter is listed, unless another transaction precedes it.
    listing_at: Instant,
    /// The number of transactions at that time.
    listing_of: u64,
    /// When it may be listed at the earliest.
    listing_not_before: Instant,
    /// When it may be listed because notifications were lost.
    comparing_at: Instant,
    /// How long the listing in progress has taken so far.
    listing_took: Duration,
    /// How long the last complete one has taken.
    listing_takes: Duration,
    /// Readable when there are notifications of nftables, in the daemon's runtime.
    notified: Option<UnixDatagram>,
    /// When the next deletion of connections may start.
    forgetting_at: Instant,
}

/// Why a host is unusable.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The packet filter is unavailable.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// Neighbor entries are unavailable.
    #[error("no netlink socket for neighbor entries: {0}")]
    Neighbors(#[source] io::Error),
}

/// Returns why connections are not offloaded. The kernel reports a missing module as a missing object.
fn unsupported(cause: Refused) -> Failed {
    let missing = [libc::ENOENT, libc::EOPNOTSUPP].contains(&cause.errno);
    let hint = match missing {
        true => {
            "; the kernel needs CONFIG_NF_FLOW_TABLE, CONFIG_NF_FLOW_TABLE_INET and CONFIG_NFT_FLOW_OFFLOAD"
        }
        false => "",
    };
    Failed(format!("the kernel refuses the flowtable: {cause}{hint}"))
}

impl LinuxHost {
    /// Opens all parts of the host. `protocol` marks neighbor entries as Felix's.
    ///
    /// # Errors
    ///
    /// The kernel lacks a feature, or privileges are missing.
    pub fn open(protocol: u8) -> Result<Self, HostError> {
        let sysctl = Sysctl::default();
        Ok(Self {
            filter: Filter::new(Rules::open()?),
            behind: VecDeque::new(),
            unowned: None,
            frames: Frames::open().ok(),
            neighbors: Neighbors::open(protocol).map_err(HostError::Neighbors)?,
            tunnels: Tunnels::open().map_err(HostError::Neighbors)?,
            shaper: Shaper::open().map_err(HostError::Neighbors)?,
            shapers_left: None,
            has_ipv6: sysctl.has_ipv6(),
            rp_filter: sysctl.default_rp_filter(),
            sysctl,
            forgetting: BTreeSet::new(),
            in_hand: BTreeSet::new(),
            answers: VecDeque::new(),
            forgetter: None,
            cutter: Cutter::default(),
            listing_at: Instant(0),
            listing_of: 0,
            listing_not_before: Instant(0),
            comparing_at: Instant(0),
            listing_took: Duration::ZERO,
            listing_takes: Duration::ZERO,
            notified: None,
            forgetting_at: Instant(0),
        })
    }

    /// Makes the tables of the packet filter Felix's own, if the kernel supports it. Before the first
    /// command.
    pub fn own_tables(&mut self) {
        if let Some(Err(error)) = self.filter.rules_mut().map(Rules::own_tables) {
            let reason = error.to_string();
            emit(Event::RulesUnowned {
                reason: Text::new(&reason),
            });
            self.unowned = Some(reason);
        }
    }

    /// Returns why the tables of the packet filter are not Felix's own, although they should be.
    pub fn unowned(&self) -> Option<&str> {
        self.unowned.as_deref()
    }

    /// Returns the packets counted by each rule, chain by chain.
    ///
    /// # Errors
    ///
    /// The kernel did not answer, or a large transaction is in progress.
    pub fn packets(&mut self) -> Result<BTreeMap<String, Vec<Option<u64>>>, RulesError> {
        let rules = self.filter.rules_mut().ok_or(RulesError::Busy)?;
        rules.packets()
    }

    /// Returns the number of transactions of the packet filter carried out.
    pub fn transactions(&self) -> u64 {
        self.filter.transactions()
    }

    /// Returns whether a thread writes a transaction of the packet filter.
    pub(crate) const fn is_writing(&self) -> bool {
        self.filter.rules().is_none()
    }

    /// Performs the work that can wait until all other work is done.
    pub fn go_on(&mut self, now: Instant) {
        let made = self.transactions();
        if self.listing_of != made {
            self.listing_of = made;
            // A listing that this transaction has ended counts as well.
            let took = std::mem::take(&mut self.listing_took);
            self.listing_not_before = self.listing_not_before.max(now + took * LISTING_SHARE);
            let gap = LISTING_GAP.max(self.listing_takes * LISTING_QUIET);
            self.listing_at = self.listing_not_before.max(now + gap);
        }
        if self.list_at() <= now {
            self.list(now);
        }
        if !self.forgetting.is_empty() && self.forgetting_at <= now {
            self.forgetting_at = now + FORGET_GAP;
            self.forget_connections();
        }
    }

    /// Reads the notifications of nftables. Returns whether another program has changed the packet filter,
    /// or may have done so.
    pub fn follow(&mut self) -> bool {
        self.filter.rules_mut().is_some_and(Rules::follow)
    }

    /// Returns when the packet filter is listed, if it is to be.
    fn list_at(&self) -> Instant {
        match self.filter.rules().is_some_and(Rules::is_in_doubt) {
            true => self.comparing_at,
            false => self.listing_at,
        }
    }

    /// Lists the packet filter for one step, and records it at the end.
    fn list(&mut self, now: Instant) {
        let Some(rules) = self.filter.rules_mut() else {
            return;
        };
        let begun = std::time::Instant::now();
        let listed = rules.list_for(LISTING_STEP);
        self.listing_took += begun.elapsed();
        match listed {
            Ok(false) => return,
            Ok(true) => {
                self.listing_takes = self.listing_took;
                self.record(now);
            }
            Err(error) => {
                debug!(%error, "packet filter not listed");
                self.listing_at = now + RULES_CHECK;
                self.comparing_at = now + FOREIGN_CHECK_GAP;
            }
        }
        let took = std::mem::take(&mut self.listing_took);
        self.listing_not_before = now + took * LISTING_SHARE;
    }

    /// Records the packet filter for the next run.
    fn record(&mut self, now: Instant) {
        if let Some(Err(error)) = self.filter.rules_mut().map(Rules::record) {
            debug!(%error, "packet filter not recorded");
            self.listing_at = now + RULES_CHECK;
        }
    }

    /// Lists and records the packet filter, because the daemon ends. `held`: its known content.
    pub(crate) fn finish(&mut self, now: Instant, held: Option<&Ruleset>) {
        if let Some(Err(error)) = self.filter.rules_mut().map(Rules::list) {
            debug!(%error, "packet filter not listed");
        }
        let Some(held) = held else {
            return self.record(now);
        };
        let rules = self.filter.rules_mut();
        if let Some(Err(error)) = rules.map(|rules| rules.record_last(&creation(held))) {
            debug!(%error, "packet filter not recorded");
        }
    }

    /// Returns when to continue (`go_on`) without an event.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let rules = self.filter.rules();
        let waits = rules.is_some_and(|rules| rules.is_unlisted() || rules.is_unrecorded());
        let listing = waits.then(|| self.list_at());
        let forgetting = (!self.forgetting.is_empty()).then_some(self.forgetting_at);
        let answers = (!self.answers.is_empty()).then_some(Instant(0));
        let all = listing.into_iter().chain(forgetting).chain(answers);
        all.min()
    }

    /// Waits until a thread has written a transaction, a round of deleting connections ends, a command
    /// about connections is carried out, or notifications of nftables arrive.
    pub(crate) async fn has_work(&mut self) {
        if let (None, Some(rules)) = (&self.notified, self.filter.rules()) {
            // Without it they are read with the next event.
            self.notified = rules.descriptor().and_then(driven).ok();
        }
        let notified = async {
            match &self.notified {
                Some(notified) if notified.readable().await.is_ok() => {
                    // Later notifications are reported again.
                    let unread = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
                    let _ = notified.try_io(Interest::READABLE, unread);
                }
                _ => pending().await,
            }
        };
        let round_over = async {
            match &mut self.forgetter {
                // A round that was aborted has ended as well.
                Some(round) => drop(round.await),
                None => pending().await,
            }
        };
        let cutter = &mut self.cutter;
        tokio::select! {
            () = notified => {}
            () = round_over => self.end_round(),
            answer = cutter.next() => self.answers.push_back(answer),
            (number, written) = self.filter.written() => self.written(number, written),
        }
    }

    /// Waits until no thread writes a transaction, and all commands behind it are carried out.
    pub async fn settle(&mut self) {
        while self.is_writing() {
            let (number, written) = self.filter.written().await;
            self.written(number, written);
        }
    }

    /// Answers a transaction of a thread, and carries out the commands behind it, up to the next one.
    fn written(&mut self, number: u64, written: Written) {
        let event = HostEvent::RulesWritten(written.map_err(failed));
        self.answers.push_back((number, event));
        while self.filter.rules().is_some()
            && let Some((number, command)) = self.behind.pop_front()
        {
            self.carry_out(number, command);
        }
    }

    fn end_round(&mut self) {
        self.forgetter = None;
        let done = std::mem::take(&mut self.in_hand);
        // Some may have been added and removed again since.
        let done: BTreeSet<IpAddr> = done.difference(&self.forgetting).copied().collect();
        if !done.is_empty() {
            self.answers.push_back((0, HostEvent::Forgotten(done)));
        }
    }

    /// Starts to delete connections, unless the previous round is still in progress.
    fn forget_connections(&mut self) {
        match &self.forgetter {
            Some(round) if round.is_finished() => self.end_round(),
            Some(_) => return,
            None => {}
        }
        self.in_hand = std::mem::take(&mut self.forgetting);
        let addresses = self.in_hand.clone();
        let flush = move || match conntrack::flush(&addresses) {
            Ok(removed) => debug!(removed, ?addresses, "connections forgotten"),
            // A kernel without connection tracking has nothing to delete.
            Err(reason) => debug!(%reason, "connections not forgotten"),
        };
        // A table of many connections takes long to read.
        match Handle::try_current() {
            Ok(runtime) => self.forgetter = Some(runtime.spawn_blocking(flush)),
            Err(_) => {
                flush();
                self.end_round();
            }
        }
    }

    fn set(&self, settings: &[Setting]) -> Result<(), Failed> {
        for setting in settings {
            match (self.sysctl.set(setting), setting.weight) {
                (Ok(()), _) => {}
                (Err(error), Weight::Required) => return Err(Failed(error.to_string())),
                (Err(error), Weight::Desired) => debug!(%error, "left as it is"),
            }
        }
        Ok(())
    }
}

/// Returns a socket for the runtime, by the type that it has for one with messages.
fn driven(socket: OwnedFd) -> io::Result<UnixDatagram> {
    UnixDatagram::from_std(socket.into())
}

fn failed(error: impl ToString) -> Failed {
    Failed(error.to_string())
}

impl LinuxHost {
    /// Carries out a command, after a transaction that a thread writes.
    pub fn submit(&mut self, number: u64, command: HostCommand) {
        match self.filter.rules() {
            Some(_) => self.carry_out(number, command),
            None => self.behind.push_back((number, command)),
        }
    }

    fn carry_out(&mut self, number: u64, command: HostCommand) {
        let event = match command {
            HostCommand::FindRules => HostEvent::RulesFound(self.on_rules(Rules::present)),
            HostCommand::WriteRules(steps) => match self.filter.write(number, steps) {
                Some(written) => HostEvent::RulesWritten(written.map_err(failed)),
                None => return,
            },
            HostCommand::CheckRules => HostEvent::RulesChecked(self.on_rules(Rules::check)),
            HostCommand::ConfigureHost(wanted) => HostEvent::HostConfigured(self.configure(wanted)),
            HostCommand::ConfigureInterface { link, ipv6, spoofs } => {
                let outcome = self.configure_interface(&link, ipv6, spoofs);
                HostEvent::InterfaceConfigured(link.index, outcome)
            }
            HostCommand::LimitBandwidth {
                interface,
                bandwidth,
            } => {
                let outcome = self.shaper.limit(&interface, &bandwidth);
                HostEvent::BandwidthLimited(interface, outcome)
            }
            HostCommand::ListNeighbors => {
                HostEvent::NeighborsListed(self.neighbors.list().map_err(failed))
            }
            HostCommand::PutNeighbor(neighbor) => {
                let outcome = self.neighbors.put(&neighbor).map_err(failed);
                HostEvent::NeighborPut(neighbor, outcome)
            }
            HostCommand::DeleteNeighbor(neighbor) => {
                let (interface, address) = (neighbor.interface, neighbor.address);
                let outcome = self.neighbors.delete(interface, address).map_err(failed);
                HostEvent::NeighborDeleted(neighbor, outcome)
            }
            HostCommand::ConfigureTunnel(device) => {
                let outcome = self.tunnels.configure(&device).map_err(failed);
                HostEvent::TunnelConfigured(device.name, outcome)
            }
            HostCommand::RemoveTunnel { name, vni } => {
                HostEvent::TunnelRemoved(name, self.tunnels.remove(name, vni).map_err(failed))
            }
            HostCommand::ConfigureIpip(device) => {
                let outcome = self.tunnels.configure_ipip(&device).map_err(failed);
                HostEvent::IpipConfigured(outcome)
            }
            HostCommand::ReleaseIpip(own) => {
                HostEvent::IpipReleased(self.tunnels.release_ipip(&own).map_err(failed))
            }
            HostCommand::ListTunnelEntries(index) => {
                let listed = self.tunnels.list(index).map_err(failed);
                HostEvent::TunnelEntriesListed(index, listed)
            }
            HostCommand::PutTunnelEntry(entry) => {
                HostEvent::TunnelEntryPut(entry, self.tunnels.put(&entry).map_err(failed))
            }
            HostCommand::DeleteTunnelEntry(entry) => {
                let outcome = self.tunnels.delete_entry(&entry).map_err(failed);
                HostEvent::TunnelEntryDeleted(entry, outcome)
            }
            command
            @ (HostCommand::ListConnections { .. } | HostCommand::CutConnections { .. }) => {
                self.answers.extend(self.cutter.submit((number, command)));
                return;
            }
            HostCommand::Offload(interfaces) => {
                let outcome = Requests::open(NETLINK_NETFILTER).map_err(Refused::from);
                // Without a socket, a former table may exist.
                let (outcome, may_exist) = match outcome {
                    Ok(mut requests) => offload::replace(&mut requests, &interfaces),
                    Err(cause) => (Err(cause), true),
                };
                HostEvent::Offloaded(outcome.map_err(unsupported), may_exist)
            }
            HostCommand::Forget(addresses) => return self.forgetting.extend(addresses),
        };
        self.answers.push_back((number, event));
    }

    /// Sends requests about the packet filter.
    fn on_rules<T>(
        &mut self,
        send: impl FnOnce(&mut Rules) -> Result<T, RulesError>,
    ) -> Result<T, Failed> {
        let rules = self.filter.rules_mut().ok_or(RulesError::Busy);
        rules.and_then(send).map_err(failed)
    }

    /// Returns the next answer.
    pub fn poll_event(&mut self) -> Option<(u64, HostEvent)> {
        // All commands of a turn are carried out before the first answer is taken.
        self.shaper.end_round();
        self.answers.pop_front()
    }

    fn configure(&mut self, wanted: Forwarding) -> Result<(), Failed> {
        if wanted.ipv6 && !self.has_ipv6 {
            emit(Event::KernelIpv6Missing {});
        }
        let ipv6 = wanted.ipv6 && self.has_ipv6;
        self.set(&host_settings(Forwarding { ipv6, ..wanted }))?;
        for path in FRAGMENT_MEMORY {
            if !self.sysctl.raise(path, FRAGMENT_OCTETS) {
                debug!(path, "memory for fragments left as it is");
            }
        }
        if let Some(Err(error)) = self.frames.as_mut().map(Frames::clean) {
            debug!(%error, "chains of removed interfaces are left");
        }
        let left = self.shaper.clean().err().map(|Failed(reason)| reason);
        if left != self.shapers_left
            && let Some(reason) = &left
        {
            let reason = Text::new(reason);
            emit(Event::InterfaceShaperStays { reason });
        }
        self.shapers_left = left;
        if !self.sysctl.answers_arp_for_any_address() {
            // Then proxy ARP answers, given a route that covers the gateway's address.
            return Ok(());
        }
        let put = self.neighbors.put_gateway_ipv4();
        put.map_err(|cause| Failed(format!("address of the IPv4 gateway: {cause}")))
    }

    fn configure_interface(&mut self, link: &Link, ipv6: bool, spoofs: bool) -> Result<(), Failed> {
        if ipv6 && !self.has_ipv6 {
            return Err(Failed(
                "the endpoint has an IPv6 address and this kernel no IPv6".into(),
            ));
        }
        let common = self.sysctl.common_rp_filter();
        if spoofs && common != UNCHECKED {
            emit(Event::InterfaceFailed {
                interface: Text::new(&link.name),
                reason: Text::new(format!(
                    "net.ipv4.conf.all.rp_filter is {common}: the kernel drops IPv4 packets from \
                     allowSpoofedSourcePrefixes; set it to {UNCHECKED}"
                )),
            });
        }
        // The packet filter checks the sources.
        let rp_filter = match spoofs {
            true => UNCHECKED,
            false => &self.rp_filter,
        };
        self.set(&interface_settings(&link.name, rp_filter, self.has_ipv6))?;
        let frames = self.frames.as_mut();
        if let Some(Err(error)) = frames.map(|frames| frames.put(&link.name, link.index)) {
            debug!(interface = link.name, %error, "VLAN tags are dropped by the kernel alone");
        }
        if ipv6 {
            let put = self.neighbors.put_gateway_ipv6(link.index);
            put.map_err(|cause| Failed(format!("address of the IPv6 gateway: {cause}")))?;
        }
        Ok(())
    }
}
