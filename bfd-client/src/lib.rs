//! Sessions of BFD for other daemons: the protocol between `cambric-bfd` and its clients.
//!
//! Both ends are on one host. A message is one packet of a local socket that keeps the borders of
//! messages, and is a JSON object ([`Request`], [`Notice`]). A client names the sessions that it wants by the
//! address of the remote system, and gets a [`SessionState`] whenever one has changed. Nothing waits in a
//! queue: each end has the set of sessions that it has still to report.
//!
//! * [`Client`]: the end of a daemon that uses sessions. It connects again by itself.
//! * [`Listener`] and [`Socket`]: the end of `cambric-bfd`.
//!
//! docs/design/bfd.md has the protocol and its reasons.

mod client;
pub mod limits;
mod message;
mod socket;

pub use client::{Client, Event};
pub use message::{
    Auth, AuthKey, Hops, Liveness, MessageError, Notice, Request, SessionState, State, Wanted,
    Welcome, decode, encode,
};
pub use socket::{Credentials, Listener, Socket, now, register};
