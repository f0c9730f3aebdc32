//! Address management (IPAM) over a datastore, in Calico's keys and values.
//!
//! Pools are divided into blocks. A block has affinity to a host, which assigns addresses from it
//! without coordination; without strict affinity, other hosts borrow addresses by the same writes.
//! There is no server. Every change is one transaction over all the keys that it concerns (block,
//! affinity, handle), and succeeds only if none of them has been written since it was read: a crash
//! leaves all of the change or nothing. Calico's own writers change one key at a time; their
//! partial changes (affinities that are `pending`, or without their block) are completed or
//! reverted here.
//!
//! Operations, each safe from many hosts at once:
//!
//! - [`Ipam::pools`] reads the pools and reservations: [`Pools`] selects the pools for a workload
//!   or by name.
//! - [`Ipam::assign`] assigns addresses from given pools, [`Ipam::assign_address`] a specific one.
//! - [`Ipam::release_handle`] releases all addresses of a handle, [`Ipam::release`] specific ones,
//!   [`Ipam::holders`] returns their allocations.
//! - [`Ipam::release_affinity`], [`Ipam::remove_host`] and [`Ipam::release_range`] release the
//!   blocks of hosts.
//! - [`Ipam::inventory`] reads everything, [`findings`] returns everything that needs repair, a
//!   [`Collector`] the findings that have persisted through the grace period, and [`Ipam::mend`]
//!   repairs one finding. [`misfits`] returns endpoints that do not fit their node.
//! - [`Ipam::of_virtual_owner`] makes requests for an owner that is no host, such as load balancers.
//! - [`Block`] is one block as a plain value; [`Pool`] is a range divided into blocks.
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
//! **Deadlines and crashes.** Every future here can be dropped at any time, so a caller can put one
//! deadline around any number of them. Only whole transactions have been carried out at that time.
//! After a lost answer, or an expired deadline, it is unknown whether addresses were assigned. They
//! are allocated to their handle in any case: a caller without an answer releases the handle,
//! within a separate deadline, before it fails. If the caller dies first, the next caller with that
//! handle, or garbage collection, finds the addresses. Releasing a handle without addresses is not
//! an error.
//!
//! **Requests.** For a host that has a block with a free address, [`Ipam::assign`] takes two reads
//! and a write, and [`Ipam::assign_after`] a read and a write; [`Ipam::assign_address`] and
//! [`Ipam::release_handle`] take the same number as `assign` or one request less.

mod address;
mod assign;
mod block;
mod catalog;
mod collect;
mod error;
mod inventory;
pub mod limits;
mod mend;
mod misfit;
mod pools;
mod read;
mod release;
mod store;
mod stored;
mod time;

pub use address::AddressRequest;
pub use assign::{HostBlocks, Request};
pub use block::{Block, BlockFault, Given, Holder, Release, Released, Taker};
pub use catalog::{NamedPool, Pools};
pub use collect::{Collector, Finding, NotReady, findings};
pub use error::IpamError;
pub use inventory::{Inventory, NODE, OTHER_PLUGIN, TYPE, Use};
pub use misfit::{Misfit, Why, misfits};
pub use pools::{Pool, blocks_of};
pub use store::Ipam;
pub use time::Time;
