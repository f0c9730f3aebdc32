//! The host guard: an nftables table that protects a host's BGP sessions from other users of the
//! host.
//!
//! A BGP neighbor is identified by its address alone, and every user of a host can send from the
//! host's address. The table drops, in the output hook, each TCP segment to or from a BGP port if
//! its socket belongs to a user that is not allowed, and each UDP packet to a port of BFD. `docs/design/host-guard.md` explains the
//! design.
//!
//! [`Guard`] loads, reads and removes the table; [`record`] is a file that a load writes for a
//! daemon without permission to read the table.

mod cover;
mod guard;
pub mod limits;
pub mod record;
mod rules;
mod table;

pub use cover::{Cover, Holder, UnknownUser, user_id};
pub use guard::{Guard, GuardError, Loaded};
pub use table::TABLE;
