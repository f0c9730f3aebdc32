//! Reader for MRT dumps of BGP messages and tables (RFC 6396, RFC 8050).
//!
//! [`open`] detects whether a file is plain, gzip or bzip2. A [`Reader`] returns the [`Record`]s
//! one after the other, each with its octet offset; [`Record::entry`] parses the content of a
//! record. A file truncated within a record ends with an error that names the offset; all earlier
//! records have been returned by then.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! for record in mrt::open("updates.gz".as_ref())? {
//!     let record = record?;
//!     if let mrt::Entry::Message(message) = record.entry()? {
//!         println!("{} from AS {}", message.octets.len(), message.session.peer_asn);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod bgp;
mod bgp4mp;
mod cursor;
mod entry;
mod file;
pub mod limits;
mod reader;
mod record_type;
mod table;
mod table_v2;

pub use bgp::BgpStateChange;
pub use bgp4mp::{Bgp4mpMessage, Session, StateChange, TableEntry};
pub use entry::{Entry, EntryError};
pub use file::{Source, open};
pub use reader::{ReadError, Reader, Record};
pub use table::{TableDump, table_attributes};
pub use table_v2::{Peer, PeerIndex, Rib, RibEntry};

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
