//! Nexthop objects of the kernel (Linux 5.3): next hops and groups that routes share by a number.
//!
//! A route that refers to an object follows its changes. So one message moves all routes of a group
//! to the remaining members.

mod codec;
mod table;

#[cfg(all(feature = "netlink", target_os = "linux"))]
pub(crate) use self::codec::{RTM_DELNEXTHOP, RTM_NEWNEXTHOP};
pub use self::codec::{Request, parse, request};
pub(crate) use self::table::Table;

use crate::error::OpError;
use crate::owner::Owner;
use crate::route::Hop;

/// A nexthop object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nexthop {
    /// Its number (`NHA_ID`), never 0.
    pub id: u32,
    /// Its owner (`nh_protocol`).
    pub owner: Owner,
    /// The packets' way.
    pub content: NexthopContent,
}

impl Nexthop {
    /// Returns an object.
    #[must_use]
    pub const fn new(id: u32, owner: Owner, content: NexthopContent) -> Self {
        Self { id, owner, content }
    }
}

/// The content of a nexthop object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NexthopContent {
    /// One next hop; its weight has no meaning.
    Hop(Hop),
    /// A group of other objects (`NEXTHOP_GRP_TYPE_MPATH`).
    Group(Vec<Member>),
    /// Packets are dropped (`NHA_BLACKHOLE`).
    Blackhole,
    /// A form that this crate does not write, such as a resilient group or an encapsulation.
    Other,
}

/// A member of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Member {
    /// The number of the object.
    pub id: u32,
    /// Its share, 1..=256.
    pub weight: u16,
}

impl Member {
    /// Returns a member with a share.
    #[must_use]
    pub const fn new(id: u32, weight: u16) -> Self {
        Self { id, weight }
    }
}

/// A request about nexthop objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NexthopCommand {
    /// Read all: [`NexthopEvent::Row`]s, then [`NexthopEvent::DumpDone`].
    Dump,
    /// Create an object; refused with `EEXIST` if its number is taken.
    Create(Nexthop),
    /// Delete an object. The kernel also removes it from all groups, deletes groups that become
    /// empty, and deletes the routes of a deleted object.
    Delete(u32),
}

/// A report about nexthop objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NexthopEvent {
    /// An object found by a dump.
    Row(Nexthop),
    /// A dump ended.
    DumpDone {
        /// False if the objects changed during the read, or a part was lost.
        complete: bool,
        /// False if the kernel has no nexthop objects.
        supported: bool,
    },
    /// Another program created or changed an object.
    Changed(Nexthop),
    /// Another program deleted an object.
    Removed(u32),
    /// The outcome of a [`NexthopCommand::Create`] or [`NexthopCommand::Delete`].
    Applied(u32, Result<(), OpError>),
}
