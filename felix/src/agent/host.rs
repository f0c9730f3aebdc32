//! The interface between the agent and its host, except for routes: commands out, events in.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use calico_model::Mac;
use fib_sync::Link;

use crate::calc::{Bandwidth, IpipDevice, TunnelDevice};
use crate::explain::{Connection, Wanted};
use crate::limits::HOST_COMMANDS_MAX;
use crate::render::Change;

/// The IPv4 gateway of every workload.
pub const GATEWAY_IPV4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// The IPv6 gateway of every workload: a link-local address of the host's end of the link.
pub const GATEWAY_IPV6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// A permanent neighbor entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Neighbor {
    /// Interface index.
    pub interface: u32,
    /// The workload's address.
    pub address: IpAddr,
    /// The workload's Ethernet address.
    pub mac: Mac,
}

/// An entry of a VXLAN device for the tunnel end of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TunnelEntry {
    /// The Ethernet address of a tunnel address.
    Neighbor(Neighbor),
    /// The node with an Ethernet address.
    Forwarding {
        /// Interface index of the VXLAN device.
        interface: u32,
        /// The Ethernet address of the tunnel end.
        mac: Mac,
        /// The address of its node.
        node: IpAddr,
    },
}

impl TunnelEntry {
    /// Returns the interface index of the VXLAN device.
    pub const fn interface(&self) -> u32 {
        match self {
            Self::Neighbor(neighbor) => neighbor.interface,
            Self::Forwarding { interface, .. } => *interface,
        }
    }

    /// Returns the tunnel address, or the address of the node.
    pub const fn address(&self) -> IpAddr {
        match self {
            Self::Neighbor(neighbor) => neighbor.address,
            Self::Forwarding { node, .. } => *node,
        }
    }
}

/// The result of comparing the table with the one that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// It is unchanged.
    Intact,
    /// The table of an earlier run was listed for the first time. It has no record with which it can
    /// be compared, so only changes from now on are detected.
    Unrecorded,
    /// Another program has changed it.
    Changed,
    /// Another program wrote to some table before the result of the last own transaction, or the
    /// table of an earlier run, was known.
    Doubtful,
    /// No table was written yet, and there is none of an earlier run.
    Nothing,
}

/// Whether a host forwards packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// Felix makes the host a router; otherwise, it leaves that as it is.
    pub enabled: bool,
    /// Workloads have IPv6.
    pub ipv6: bool,
}

/// A command for the host.
///
/// A host carries commands out in order and answers each with one [`HostEvent`] and the command's
/// number, in the same order. [`Forget`](Self::Forget) is answered later, without a number; the commands
/// about connections are answered later, in their own order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostCommand {
    /// Check whether an earlier run has left a packet filter: [`HostEvent::RulesFound`].
    FindRules,
    /// Change the packet filter in one transaction: [`HostEvent::RulesWritten`]. Steps that begin
    /// with [`Change::AddTable`] replace any present table; all others are rejected if another
    /// program has changed the table.
    WriteRules(Vec<Change>),
    /// Compare the packet filter with the one that was written: [`HostEvent::RulesChecked`]. Before
    /// this run writes one, the filter of an earlier run is compared with the record of that run, and
    /// with itself at the first such command.
    CheckRules,
    /// Set the host's own settings: [`HostEvent::HostConfigured`].
    ConfigureHost(Forwarding),
    /// Set up a workload's interface, so that it answers for all destinations:
    /// [`HostEvent::InterfaceConfigured`]. Settings with the wanted value are not written.
    ConfigureInterface {
        /// The interface.
        link: Link,
        /// Whether it needs the IPv6 gateway's address.
        ipv6: bool,
        /// Whether it may send IPv4 packets from addresses that are not routed to it.
        spoofs: bool,
    },
    /// Limit the bandwidth of a workload's interface, and remove other limits of Felix there, also of an
    /// interface that does not exist any more: [`HostEvent::BandwidthLimited`]. Queueing disciplines of
    /// other programs stay, and the limit is rejected. Limits in effect are not written again.
    LimitBandwidth {
        /// The interface.
        interface: String,
        /// The limits.
        bandwidth: Bandwidth,
    },
    /// List the neighbor entries of this or an earlier run: [`HostEvent::NeighborsListed`].
    ListNeighbors,
    /// Create or change a permanent neighbor entry: [`HostEvent::NeighborPut`].
    PutNeighbor(Neighbor),
    /// Remove a neighbor entry: [`HostEvent::NeighborDeleted`].
    DeleteNeighbor(Neighbor),
    /// Create a VXLAN device with its address, or compare it with the present one of its name, and
    /// replace that one or change it if it differs: [`HostEvent::TunnelConfigured`].
    ConfigureTunnel(TunnelDevice),
    /// Remove a VXLAN device if it has this name and this identifier:
    /// [`HostEvent::TunnelRemoved`].
    RemoveTunnel {
        /// Its name.
        name: &'static str,
        /// Its VXLAN network identifier.
        vni: u32,
    },
    /// Set up the device for IP in IP, with its address and no other one: [`HostEvent::IpipConfigured`].
    ConfigureIpip(IpipDevice),
    /// Remove addresses of this device: [`HostEvent::IpipReleased`].
    ReleaseIpip(BTreeSet<IpAddr>),
    /// List the permanent entries of a VXLAN device: [`HostEvent::TunnelEntriesListed`].
    ListTunnelEntries(u32),
    /// Create or change an entry of a VXLAN device: [`HostEvent::TunnelEntryPut`].
    PutTunnelEntry(TunnelEntry),
    /// Remove an entry of a VXLAN device: [`HostEvent::TunnelEntryDeleted`].
    DeleteTunnelEntry(TunnelEntry),
    /// List the wanted tracked connections without this bit in their mark:
    /// [`HostEvent::ConnectionsListed`].
    ListConnections {
        /// The wanted ones.
        wanted: Wanted,
        /// The bit.
        mark: u32,
    },
    /// Set this bit in the marks of connections: [`HostEvent::ConnectionsCut`].
    CutConnections {
        /// Connections through this host.
        connections: Vec<Connection>,
        /// Connections of which an end is this host. Their TCP sockets are destroyed.
        of_host: Vec<Connection>,
        /// The bit.
        mark: u32,
    },
    /// Replace the table of offloaded connections by one for connections between these interfaces, or
    /// remove it: [`HostEvent::Offloaded`].
    Offload(BTreeSet<String>),
    /// Delete the tracked connections of addresses after all other pending commands, at best
    /// effort: [`HostEvent::Forgotten`].
    Forget(BTreeSet<IpAddr>),
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// Whether an earlier run has left a packet filter.
    RulesFound(Result<bool, Failed>),
    /// The packet filter was written, or is unchanged.
    RulesWritten(Result<(), Failed>),
    /// The result of comparing the packet filter with the one that was written.
    RulesChecked(Result<Checked, Failed>),
    /// The host is a router, or a required setting failed.
    HostConfigured(Result<(), Failed>),
    /// The interface of this index is configured, or a required setting failed.
    InterfaceConfigured(u32, Result<(), Failed>),
    /// The bandwidth of this interface is limited, or the limits were rejected.
    BandwidthLimited(String, Result<(), Failed>),
    /// The neighbor entries.
    NeighborsListed(Result<Vec<Neighbor>, Failed>),
    /// An entry was written, or rejected.
    NeighborPut(Neighbor, Result<(), Failed>),
    /// An entry was removed, or its removal failed.
    NeighborDeleted(Neighbor, Result<(), Failed>),
    /// The VXLAN device of this name has this interface index, or was rejected.
    TunnelConfigured(&'static str, Result<Configured, Failed>),
    /// The VXLAN device of this name was removed, or is of another program.
    TunnelRemoved(&'static str, Result<(), Failed>),
    /// The device for IP in IP has this interface index, or was rejected.
    IpipConfigured(Result<Configured, Failed>),
    /// The addresses of this device were removed, or one of them could not be.
    IpipReleased(Result<(), Failed>),
    /// The entries of the VXLAN device with this interface index.
    TunnelEntriesListed(u32, Result<Vec<TunnelEntry>, Failed>),
    /// An entry of a VXLAN device was written, or rejected.
    TunnelEntryPut(TunnelEntry, Result<(), Failed>),
    /// An entry of a VXLAN device was removed, or its removal failed.
    TunnelEntryDeleted(TunnelEntry, Result<(), Failed>),
    /// The tracked connections, and the time to list them.
    ConnectionsListed(Result<Vec<Connection>, Failed>, Duration),
    /// The number of connections that got the mark, and the first failure; others had ended.
    ConnectionsCut(u64, Result<(), Failed>),
    /// The table of offloaded connections was replaced, or the kernel rejected it; and whether a table may
    /// exist, also a former one.
    Offloaded(Result<(), Failed>, bool),
    /// The connections of these addresses were deleted. An address that was requested again since
    /// is reported for the later request only.
    Forgotten(BTreeSet<IpAddr>),
}

impl HostEvent {
    /// Returns whether it answers a command that does not wait for its answer.
    pub(super) const fn is_late(&self) -> bool {
        matches!(
            self,
            Self::Forgotten(_) | Self::ConnectionsListed(..) | Self::ConnectionsCut(..)
        )
    }
}

impl HostCommand {
    /// Returns whether other commands do not wait for its answer.
    const fn is_late(&self) -> bool {
        matches!(
            self,
            Self::Forget(_) | Self::ListConnections { .. } | Self::CutConnections { .. }
        )
    }
}

/// Why a command failed, as a line for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed(pub String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// Queued commands for the host.
#[derive(Debug, Default)]
pub(super) struct Orders {
    last: u64,
    queue: VecDeque<(u64, HostCommand)>,
    /// Number of commands without an answer.
    unanswered: usize,
}

impl Orders {
    /// Queues a command. Returns its number.
    pub(super) fn push(&mut self, command: HostCommand) -> u64 {
        self.last += 1;
        if !command.is_late() {
            self.unanswered += 1;
        }
        self.queue.push_back((self.last, command));
        self.last
    }

    /// Takes the next command.
    pub(super) fn pop(&mut self) -> Option<(u64, HostCommand)> {
        self.queue.pop_front()
    }

    /// Records an answer.
    pub(super) const fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Returns whether so many commands are unanswered that interfaces have to wait.
    pub(super) const fn is_full(&self) -> bool {
        self.unanswered >= HOST_COMMANDS_MAX
    }
}

/// A VXLAN device that is as wanted, except perhaps for its MTU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// Its interface index.
    pub index: u32,
    /// One of its addresses was added or removed. Without an address, the kernel removes routes and
    /// entries.
    pub readdressed: bool,
    /// Why the kernel rejected the MTU.
    pub mtu: Result<(), Failed>,
}
