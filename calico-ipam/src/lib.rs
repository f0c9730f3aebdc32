//! Address management over a store, key for key as Calico has it.
//!
//! Addresses come out of pools by blocks. A block belongs to a host, which takes addresses from it
//! without asking anybody; where others may borrow, they do so by the same writes. There is no
//! server. Every change is one transaction over all the keys that it concerns (block, affinity,
//! handle), done only if none of them has been written since it was read: a crash leaves all of it
//! or nothing. Calico's own writers take one key at a time; what they leave behind half done
//! (affinities that are `pending`, or without their block) is finished or undone here.
//!
//! What can be done, each also from many hosts at once:
//!
//! - [`Ipam::pools`] reads what there is to take from: [`Pools`] tells which pools are for a workload,
//!   which one was named, and what is reserved.
//! - [`Ipam::assign`] takes addresses of any of some pools, [`Ipam::assign_address`] one by name.
//! - [`Ipam::release_handle`] gives back all that a handle has, [`Ipam::release`] addresses by name,
//!   [`Ipam::holders`] tells who has them.
//! - [`Ipam::release_affinity`], [`Ipam::remove_host`] and [`Ipam::release_range`] take blocks from
//!   hosts.
//! - [`Ipam::picture`] reads everything, [`findings`] tells what is not as it should be, a [`Collector`]
//!   what has not been for long enough to be sure, and [`Ipam::mend`] sets one of those right.
//! - [`Block`] is what can be done to one block, a plain value; [`Pool`] is what blocks are cut out of.
//!
//! ```
//! use etcd_lite::Local;
//! use calico_ipam::{Ipam, Pool, Request, Taker};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Local::empty();
//! let ipam = Ipam::new(&store);
//! let pools = [Pool { cidr: "10.65.0.0/16".parse()?, block_size: 26 }];
//! let taker = Taker { handle: "net.web-0".to_owned(), attributes: Default::default() };
//! let request = Request {
//!     host: "node1",
//!     taker: &taker,
//!     count: 1,
//!     pools: &pools,
//!     reserved: &[],
//!     blocks_max: None,
//! };
//! let given = ipam.assign(&request).await?;
//! assert!(pools[0].cidr.contains(&given[0].address));
//! assert_eq!(ipam.release_handle("net.web-0").await?, [given[0].address]);
//! # Ok(())
//! # }
//! ```
//!
//! **Deadlines and crashes.** Every future here can be dropped at any time, so a caller puts one
//! deadline around as many of them as it likes. What has been done by then is whole transactions. An
//! answer that is lost, like a deadline that passes, leaves open whether addresses were taken. They
//! are under their handle in any case: whoever has no answer gives the handle back, with time of
//! its own for that, before it fails; and if it dies first, it is the next one with that handle, or
//! collection, that finds them. Releasing a handle that has nothing is no error.
//!
//! **Requests.** Of a host that has a block with a free address, [`Ipam::assign`] is two reads and a
//! write; [`Ipam::assign_address`] and [`Ipam::release_handle`] are as much or one less.

mod address;
mod assign;
mod block;
mod catalogue;
mod collect;
mod error;
pub mod limits;
mod mend;
mod picture;
mod pools;
mod read;
mod release;
mod store;
mod stored;
mod time;

pub use address::AddressRequest;
pub use assign::Request;
pub use block::{Block, BlockFault, Given, Holder, Release, Released, Taker};
pub use catalogue::{NamedPool, Pools};
pub use collect::{Collector, Finding, NotReady, findings};
pub use error::IpamError;
pub use picture::{NODE, OTHER_PLUGIN, Picture, TYPE, Use};
pub use pools::{Pool, blocks_of};
pub use store::Ipam;
pub use time::Time;
