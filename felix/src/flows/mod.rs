//! The flow log: the first packets of connections, with the policy or profile that accepts or denies
//! them, aggregated by their ends.
//!
//! ```text
//! packet log (NFLOG)   → record ─┐
//! ends of connections  → ended  ─┴→ entry (names) → table → answer
//! ```

mod answer;
mod cause;
mod entry;
mod log;
mod open;
mod packet;
mod place;
mod record;
mod shares;
mod socket;
mod table;
mod unsent;

#[cfg(test)]
pub(crate) use entry::table_of;
pub(crate) use log::FlowLog;
pub(crate) use packet::Tuple;
pub(crate) use table::{Key, Table};
