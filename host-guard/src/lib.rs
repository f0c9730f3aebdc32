//! The host guard: an nftables table that keeps other users of a host away from its BGP sessions.
//!
//! A BGP neighbor is known by its address alone, and every user of a host can send from the host's
//! address. The table drops, in the output hook, each TCP segment to or from a BGP port whose socket
//! belongs to a user that is not allowed. `docs/design/host-guard.md` says why it is built so.
//!
//! [`Guard`] loads, reads and removes the table; [`record`] is what a load leaves for a daemon that
//! may not read it.

mod cover;
mod guard;
pub mod limits;
pub mod record;
mod rules;
mod table;

pub use cover::{Cover, Holder, UnknownUser, user_id};
pub use guard::{Guard, GuardError, Loaded};
pub use table::TABLE;
