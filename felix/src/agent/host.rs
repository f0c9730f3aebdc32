//! The port between the agent and its host, besides routes: commands out, events in.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calico_model::Mac;
use fib_sync::Link;

use crate::limits::HOST_COMMANDS_MAX;
use crate::render::Change;

/// Every workload's IPv4 gateway.
pub const GATEWAY_IPV4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// Every workload's IPv6 gateway: a link-local address that the host's end of the link holds.
pub const GATEWAY_IPV6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// A permanent neighbor entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Neighbour {
    /// Interface index.
    pub interface: u32,
    /// The workload's address.
    pub address: IpAddr,
    /// The workload's Ethernet address.
    pub mac: Mac,
}

/// How the table compares with what was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// It is as it was left.
    Intact,
    /// Somebody else has changed it.
    Changed,
    /// Somebody wrote to some table before it was known what the last transaction had made of ours.
    Doubtful,
    /// Nothing was written yet.
    Nothing,
}

/// A command for the host.
///
/// A host carries commands out in their order and answers each with one [`HostEvent`] and the
/// command's number, in the same order. [`Forget`](Self::Forget) is answered later, without a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostCommand {
    /// Look whether an earlier run has left a packet filter: [`HostEvent::RulesFound`].
    FindRules,
    /// Change the packet filter in one transaction: [`HostEvent::RulesWritten`]. Steps that begin with
    /// [`Change::AddTable`] replace whatever is there; all others are refused if somebody else has
    /// changed the table.
    WriteRules(Vec<Change>),
    /// Look whether the packet filter is as it was left: [`HostEvent::RulesChecked`].
    CheckRules,
    /// Make the host a router, for IPv6 too or not: [`HostEvent::HostConfigured`].
    ConfigureHost {
        /// Whether for IPv6 too.
        ipv6: bool,
    },
    /// Make a workload's interface answer for the world: [`HostEvent::InterfaceConfigured`]. Settings
    /// that are as they should be are left alone.
    ConfigureInterface {
        /// The interface.
        link: Link,
        /// Whether it needs the IPv6 gateway's address.
        ipv6: bool,
    },
    /// List the neighbor entries that an earlier run or this one made:
    /// [`HostEvent::NeighborsListed`].
    ListNeighbors,
    /// Make or change a permanent neighbor entry: [`HostEvent::NeighborPut`].
    PutNeighbor(Neighbour),
    /// Remove a neighbor entry: [`HostEvent::NeighborDeleted`].
    DeleteNeighbor(Neighbour),
    /// Forget the tracked connections of addresses once all other commands at hand are carried out, at
    /// best effort: [`HostEvent::Forgotten`].
    Forget(BTreeSet<IpAddr>),
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// Whether an earlier run has left a packet filter.
    RulesFound(Result<bool, Failed>),
    /// The packet filter is written, or nothing of it was changed.
    RulesWritten(Result<(), Failed>),
    /// How the packet filter compares with what was left.
    RulesChecked(Result<Checked, Failed>),
    /// The host is a router, or a needed setting could not be made.
    HostConfigured(Result<(), Failed>),
    /// The interface of this index is configured, or a needed setting could not be made.
    InterfaceConfigured(u32, Result<(), Failed>),
    /// The neighbor entries.
    NeighborsListed(Result<Vec<Neighbour>, Failed>),
    /// An entry was made, or refused.
    NeighborPut(Neighbour, Result<(), Failed>),
    /// An entry was removed, or its removal refused.
    NeighborDeleted(Neighbour, Result<(), Failed>),
    /// The connections of these addresses are forgotten. An address that was ordered again since comes
    /// with the later order alone.
    Forgotten(BTreeSet<IpAddr>),
}

/// Why something could not be done, in a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed(pub String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// Commands on their way to the host.
#[derive(Debug, Default)]
pub(super) struct Orders {
    last: u64,
    queue: VecDeque<(u64, HostCommand)>,
    /// Commands that are to be answered.
    unanswered: usize,
}

impl Orders {
    /// Queues a command. Returns its number.
    pub(super) fn push(&mut self, command: HostCommand) -> u64 {
        self.last += 1;
        if !matches!(command, HostCommand::Forget(_)) {
            self.unanswered += 1;
        }
        self.queue.push_back((self.last, command));
        self.last
    }

    /// Takes the next command.
    pub(super) fn pop(&mut self) -> Option<(u64, HostCommand)> {
        self.queue.pop_front()
    }

    /// Notes an answer.
    pub(super) const fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Whether so many commands are unanswered that interfaces have to wait.
    pub(super) const fn is_full(&self) -> bool {
        self.unanswered >= HOST_COMMANDS_MAX
    }
}
