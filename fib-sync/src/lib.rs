//! Keeps a kernel's routes equal to a wanted set, and follows the routes of other programs.
//!
//! The pure half has no clock, socket or task: a [`Reconciler`] turns wanted routes and [`Event`]s
//! into [`Command`]s; a [`watch::Watcher`] turns the same events into routes to announce and into
//! the reachability of next hops. Both run against [`memory::Kernel`], a simulated kernel that can
//! refuse writes, lose messages and overrun, as well as against `netlink::NetlinkFib`, the driver
//! for Linux.
//!
//! ```
//! use fib_sync::memory::Kernel;
//! use fib_sync::{
//!     Instant, Owner, Reconciler, ReconcilerConfig, Route, RouteKey, TABLE_MAIN,
//! };
//!
//! let mut kernel = Kernel::new(7);
//! let interface = kernel.add_link("tap0");
//! kernel.set_link_up(interface, true);
//! let program = kernel.attach();
//!
//! let (now, owner) = (Instant(0), Owner(80));
//! let mut routes = Reconciler::new(now, ReconcilerConfig::new(owner));
//! let key = RouteKey::new(TABLE_MAIN, "198.51.100.7/32".parse()?, 256, 0);
//! routes.want(key, Route::device(owner, interface));
//!
//! // The loop of a driver; with `NetlinkFib` it waits for events, and for `poll_timeout`.
//! loop {
//!     while let Some(command) = routes.poll_command(now) {
//!         kernel.submit(program, command);
//!     }
//!     let Some(event) = kernel.poll(program) else { break };
//!     routes.handle(now, &event);
//! }
//! assert!(routes.in_sync());
//! assert!(kernel.route(&key).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `rtm_protocol` identifies the owner of a route ([`Owner`]). Routes of other owners are read,
//! reported when they occupy a wanted key, and never changed: the first write of a key is
//! exclusive, only a route known to be the owner's is replaced, and a delete names the protocol.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

#[cfg(feature = "netlink")]
pub mod claim;
mod error;
pub mod limits;
pub mod memory;
#[cfg(all(feature = "netlink", target_os = "linux"))]
pub mod netlink;
pub mod nexthop;
mod owner;
mod port;
mod reconcile;
mod route;
pub mod watch;
pub mod writer;

pub use self::error::OpError;
pub use self::owner::Owner;
pub use self::port::{Command, Event, Fib, PutMode};
pub use self::reconcile::{
    DeleteCause, FibStatus, FibSummary, FibView, NexthopObjects, Notice, PendingWrite, Reconciler,
    ReconcilerConfig,
};
pub use self::route::{
    Hop, InterfaceAddress, Link, METRIC_LEAVING, Route, RouteKey, RouteKind, Scope, TABLE_MAIN,
    Tunnel,
};
pub use instant::Instant;

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
