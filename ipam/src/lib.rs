//! Address management over a store, key for key as Calico has it.
//!
//! Addresses come out of pools by blocks. A block belongs to a host, which takes addresses from it
//! without asking anybody; where others may borrow, they do so by the same writes. There is no
//! server. Every change is one transaction over all the keys that it concerns (block, affinity,
//! handle), done only if none of them has been written since it was read: a crash leaves all of it
//! or nothing. Calico's own writers take one key at a time; what they leave behind half done
//! (affinities that are `pending`, or without their block) is finished or undone here.
//!
//! - [`Block`] is what can be done to one block, a plain value.
//! - [`Ipam`] does it to a store: [`Ipam::assign`], [`Ipam::holders`], [`Ipam::release`], [`Ipam::release_handle`],
//!   [`Ipam::release_affinity`], [`Ipam::remove_host`], [`Ipam::release_range`].
//! - [`Pool`] is what blocks are cut out of.
//!
//! An answer that is lost leaves open whether addresses were taken. They are found by their
//! handle: give back what the handle has, or ask again under it and give back later.

mod assign;
mod block;
mod error;
pub mod limits;
mod pools;
mod release;
mod store;

pub use assign::Request;
pub use block::{Block, BlockFault, Given, Holder, Release, Released, Taker};
pub use error::IpamError;
pub use pools::{Pool, blocks_of};
pub use store::{Ipam, Time};
