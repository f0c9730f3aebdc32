//! Requests to the kernel over netlink: sockets, batches, attributes, and the common parts of
//! nftables messages.
//!
//! Tables and rules belong to the crates that write them.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod attributes;
pub mod expression;
pub mod limits;
pub mod listing;
pub mod message;
pub mod nftables;
mod notifications;
mod requests;
mod row;

pub use notifications::{Notification, Notifications};
pub use requests::{Batch, Dump, Refused, Requests};
pub use row::Row;

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
