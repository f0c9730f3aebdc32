//! BGP messages out of packet captures.
//!
//! A [`Reader`] returns the packets of a pcap or pcapng file. [`Sessions`] puts the TCP segments of
//! one port in order and returns the messages in them, each with the [`Encoding`] that the OPENs of
//! its connection have negotiated. Where a capture lacks segments, the loss is reported, and
//! messages are read again from the next marker on.
//!
//! Packets come from a wire: each length in them is checked, and what is kept of them is bounded by
//! [`limits`].
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod cursor;
mod encoding;
mod file;
mod headers;
pub mod limits;
mod sessions;
mod stream;
#[cfg(test)]
mod tests;

pub use encoding::Encoding;
pub use file::{Packet, ReadError, Reader};
pub use sessions::{Content, Item, Sessions};
