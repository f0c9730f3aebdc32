//! The port between the pure half of this crate and a kernel: an object-safe trait without async.

use core::fmt;
use core::task::{Context, Poll};

use crate::owner::Owner;
use crate::route::{InterfaceAddress, Link, Route, RouteKey};

/// A kernel's forwarding table, real or simulated.
///
/// What an implementation owes its callers:
/// * Commands take effect in the order they were submitted, and are answered in that order.
/// * What the caller's own `Put` and `Delete` changed is answered by [`Event::Applied`] alone;
///   the notifications they caused are left out.
/// * Whatever others changed before a command took effect is told before that command's answer;
///   what they changed before a row of a dump was read is told before that row.
/// * A `Put` that replaces is not carried out, but answered with `ECANCELED`, if somebody else
///   changed its key, or notifications were lost, between the last event the caller saw before
///   submitting it and the moment it would take effect (as far as the kernel allows to tell).
/// * When notifications were lost, [`Event::Overrun`] says so.
/// * After opening, and again after an overrun, every link and address is told without being asked
///   for.
///
/// Callers keep the number of unanswered commands bounded; [`crate::Reconciler`] does.
pub trait Fib {
    /// Hands over a command. Its outcome comes as an event.
    fn submit(&mut self, command: Command);

    /// The next event, if there is one; otherwise the task of `cx` is woken when there may be.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event>;
}

/// What to do when a route of the same key is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// Refuse with `EEXIST` (`NLM_F_CREATE | NLM_F_EXCL`): for a key not known to be ours.
    Create,
    /// Replace it (`NLM_F_REPLACE`), refuse with `ENOENT` if there is none: only for a route known
    /// to be ours, since the kernel would as well replace somebody else's.
    Replace,
}

/// A request to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read a table, both address families: [`Event::DumpStart`], rows, [`Event::DumpDone`].
    Dump {
        /// The table.
        table: u32,
        /// Only routes of this owner, filtered by the kernel; none: all of them.
        owner: Option<Owner>,
    },
    /// Install a route.
    Put(RouteKey, Route, PutMode),
    /// Remove a route, but only one of this owner.
    Delete(RouteKey, Owner),
}

/// What a kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        /// False when the table changed while it was read, or a part was lost: what was not seen
        /// may exist all the same.
        complete: bool,
    },
    /// Somebody added or changed a route.
    Changed {
        /// Its identity.
        key: RouteKey,
        /// What it is now.
        route: Route,
        /// It took the place of another route of the same key, whoever owned that.
        replaced: bool,
    },
    /// Somebody, or the kernel itself, removed a route or some hops of it.
    Gone(RouteKey, Route),
    /// The outcome of a `Put` or `Delete`.
    Applied(RouteKey, Result<(), OpError>),
    /// A link appeared or changed.
    Link(Link),
    /// The link of this index is gone, and with it its routes and addresses.
    LinkGone(u32),
    /// An address appeared.
    Address(InterfaceAddress),
    /// An address is gone.
    AddressGone(InterfaceAddress),
    /// Notifications were lost: nothing believed about the kernel is certain any more.
    Overrun,
    /// The connection to the kernel is broken for good; open a new one.
    Closed(OpError),
}

impl Event {
    /// Whether it tells what somebody else changed, or that such a thing may have been lost.
    pub(crate) fn tells(&self) -> bool {
        self.changed_key().is_some() || *self == Self::Overrun
    }

    /// The key whose route somebody else changed, if that is what this tells.
    pub(crate) fn changed_key(&self) -> Option<&RouteKey> {
        match self {
            Self::Changed { key, .. } | Self::Gone(key, _) => Some(key),
            _ => None,
        }
    }
}

impl Command {
    /// The key whose route this replaces, if that is what it does.
    pub(crate) fn replaced_key(&self) -> Option<&RouteKey> {
        match self {
            Self::Put(key, _, PutMode::Replace) => Some(key),
            _ => None,
        }
    }
}

/// Why the kernel refused a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpError {
    /// The error number of the operating system, positive.
    pub errno: i32,
    /// The kernel's own words (`NLMSGERR_ATTR_MSG`), if it gave any.
    pub text: Option<Box<str>>,
}

impl OpError {
    /// An error by its number alone.
    pub fn new(errno: i32) -> Self {
        Self { errno, text: None }
    }

    /// The error's name (`ENETUNREACH`), for the numbers that route requests meet.
    pub fn name(&self) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(errno, ..)| *errno == self.errno)
            .map(|(_, name, _)| *name)
    }

    /// Whether a replace was not carried out because its key changed under it.
    pub fn is_cancelled(&self) -> bool {
        self.errno == libc::ECANCELED
    }

    /// Whether a route of the same key was in the way.
    pub fn is_exists(&self) -> bool {
        self.errno == libc::EEXIST
    }

    /// Whether the route that was to be replaced or deleted is not there.
    pub fn is_absent(&self) -> bool {
        matches!(self.errno, libc::ESRCH | libc::ENOENT)
    }
}

/// Number, name and meaning of the errors that route requests meet.
const NAMES: &[(i32, &str, &str)] = &[
    (
        libc::EPERM,
        "EPERM",
        "not permitted: CAP_NET_ADMIN is needed",
    ),
    (libc::EACCES, "EACCES", "access denied"),
    (libc::ENOENT, "ENOENT", "no such route"),
    (libc::ESRCH, "ESRCH", "no such route"),
    (
        libc::EEXIST,
        "EEXIST",
        "another route has the same table, prefix, metric and tos",
    ),
    (libc::EINVAL, "EINVAL", "the kernel finds the route invalid"),
    (libc::ENODEV, "ENODEV", "no such interface"),
    (libc::ENETDOWN, "ENETDOWN", "the interface is down"),
    (
        libc::ENETUNREACH,
        "ENETUNREACH",
        "the next hop is not on a directly connected network",
    ),
    (
        libc::EHOSTUNREACH,
        "EHOSTUNREACH",
        "the next hop is unreachable",
    ),
    (
        libc::ENOBUFS,
        "ENOBUFS",
        "the kernel's answer was lost: receive buffer full",
    ),
    (
        libc::ENOMEM,
        "ENOMEM",
        "the kernel is out of memory for routes",
    ),
    (libc::EBUSY, "EBUSY", "the kernel is busy"),
    (
        libc::EOPNOTSUPP,
        "EOPNOTSUPP",
        "not supported by this kernel",
    ),
    (
        libc::EAFNOSUPPORT,
        "EAFNOSUPPORT",
        "the address family is switched off",
    ),
];

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(errno, ..)| *errno == self.errno) {
            Some((_, name, meaning)) => write!(f, "{name}: {meaning}")?,
            None => write!(f, "{}", std::io::Error::from_raw_os_error(self.errno))?,
        }
        match &self.text {
            Some(text) => write!(f, " (kernel: {text})"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for OpError {}
