//! Keeps a kernel's routes as they are wanted, and follows those of others.
//!
//! The pure half has no clock, socket or task: a [`Reconciler`] turns wishes and [`Event`]s into
//! [`Command`]s; a [`watch::Watcher`] turns the same events into routes to announce and into the
//! reachability of next hops. Both run as well against [`memory::Kernel`], a kernel in a value that
//! can refuse, lose and overrun, as against `netlink::NetlinkFib`, the driver for Linux.
//!
//! Whose route it is, `rtm_protocol` tells ([`Owner`]). Routes of other owners are read, named when
//! they are in the way, and never changed: the first write of a key is exclusive, only a route known
//! to be ours is replaced, and a delete names the protocol.

pub mod limits;
pub mod memory;
#[cfg(target_os = "linux")]
pub mod netlink;
mod owner;
mod port;
mod reconcile;
mod route;
mod time;
pub mod watch;

pub use self::owner::Owner;
pub use self::port::{Command, Event, Fib, OpError, PutMode};
pub use self::reconcile::{FibStatus, FibSummary, FibView, Reconciler, ReconcilerConfig};
pub use self::route::{Hop, InterfaceAddress, Link, Route, RouteKey, RouteKind, Scope, TABLE_MAIN};
pub use self::time::Instant;
