//! Events of kernel routes, for each daemon that writes such routes: converts the notices of a
//! [`fib_sync::Reconciler`] and the answers of the kernel to events of the table of
//! [`daemon_common::events`].
//!
//! The module [`marker`] has the route by which Felix and the BGP client meet.
//!
//! The route reflector writes no routes. For this reason this crate is not a part of `daemon-common`,
//! which all daemons have.

pub mod limits;
mod log;
pub mod marker;

pub use log::{Log, answered, notice, noticed, offer, opened, route_event};
