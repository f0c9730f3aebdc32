//! The interface between the pure half of this crate and a kernel: an object-safe trait without
//! async.

use core::task::{Context, Poll};

use crate::error::OpError;
use crate::nexthop::{NexthopCommand, NexthopEvent};
use crate::owner::Owner;
use crate::route::{InterfaceAddress, Link, Route, RouteKey};

/// A kernel's forwarding table, real or simulated.
///
/// Requirements on an implementation:
///
/// * Commands take effect in the order they were submitted, and are answered in that order.
/// * Changes by the caller's own `Put` and `Delete` are reported by [`Event::Applied`] alone; the
///   notifications they caused are left out.
/// * A change that another program made before a command took effect is reported before that
///   command's answer; a change made before a row of a dump was read is reported before that row.
/// * A `Put` that replaces is answered with `ECANCELED` instead of being carried out if, between
///   the last event the caller received before submitting it and the moment it would take effect,
///   another program changed its key or notifications were lost (as far as the kernel makes this
///   visible).
/// * When notifications were lost, [`Event::Overrun`] is reported.
/// * After opening, and again after an overrun, every link and address is reported without a
///   request.
///
/// Callers keep the number of unanswered commands bounded; [`crate::Reconciler`] does.
pub trait Fib {
    /// Submits a command. Its outcome arrives as an event.
    fn submit(&mut self, command: Command);

    /// Returns the next event, if there is one; otherwise the task of `cx` is woken when one may be
    /// available.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event>;
}

/// The behavior when a route of the same key already exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// Refuse with `EEXIST` (`NLM_F_CREATE | NLM_F_EXCL`): for a key not known to hold an own
    /// route.
    Create,
    /// Replace it (`NLM_F_REPLACE`), refuse with `ENOENT` if it does not exist. Only for a key
    /// known to hold an own route, since the kernel would also replace a foreign one.
    Replace,
}

/// A request to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read a table, both address families: [`Event::DumpStart`], rows, [`Event::DumpDone`].
    Dump {
        /// The table.
        table: u32,
        /// Only routes of this owner, filtered by the kernel; `None`: all routes.
        owner: Option<Owner>,
    },
    /// Install a route.
    Put(RouteKey, Route, PutMode),
    /// Remove a route, but only one of this owner.
    Delete(RouteKey, Owner),
    /// Read, create or delete nexthop objects.
    Nexthop(NexthopCommand),
}

/// A report from a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A dump begins; rows follow.
    DumpStart {
        /// The table read.
        table: u32,
        /// The owner whose routes alone are read, if any.
        owner: Option<Owner>,
    },
    /// A route found by a dump.
    DumpRoute(RouteKey, Route),
    /// A dump ended.
    DumpDone {
        /// The table read.
        table: u32,
        /// The owner whose routes alone were read, if any.
        owner: Option<Owner>,
        /// False when the table changed during the read, or a part was lost: a route that was not
        /// seen may still exist.
        complete: bool,
    },
    /// Another program added or changed a route.
    Changed {
        /// Its identity.
        key: RouteKey,
        /// The route after the change.
        route: Route,
        /// It replaced another route of the same key, whatever the owner of that route.
        replaced: bool,
    },
    /// Another program, or the kernel itself, removed a route or some hops of it.
    Removed(RouteKey, Route),
    /// The outcome of a `Put` or `Delete`.
    Applied(RouteKey, Result<(), OpError>),
    /// A report about nexthop objects.
    Nexthop(NexthopEvent),
    /// A link appeared or changed.
    Link(Link),
    /// The link of this index was removed, and with it its routes and addresses.
    LinkRemoved(u32),
    /// An address appeared.
    Address(InterfaceAddress),
    /// An address was removed.
    AddressRemoved(InterfaceAddress),
    /// Notifications were lost: the believed state of the kernel is no longer certain.
    Overrun,
    /// The connection to the kernel is permanently broken; open a new one.
    Closed(OpError),
}

impl Event {
    /// Returns the key of the route that another program changed, if the event reports such a
    /// change.
    pub(crate) fn changed_key(&self) -> Option<&RouteKey> {
        match self {
            Self::Changed { key, .. } | Self::Removed(key, _) => Some(key),
            _ => None,
        }
    }
}

impl Command {
    /// Returns the key of the route that this command replaces, if it is a replace.
    pub(crate) fn replaced_key(&self) -> Option<&RouteKey> {
        match self {
            Self::Put(key, _, PutMode::Replace) => Some(key),
            _ => None,
        }
    }
}
