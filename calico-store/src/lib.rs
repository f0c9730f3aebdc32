//! The datastore of a fabric: interface, etcd client and mirrors.
//!
//! - [`Store`] is the interface: reads at a revision, transactions, watches from a revision,
//!   leases; modeled on etcd v3.
//! - [`EtcdStore`] implements it over the network, with etcd or another server of its API.
//! - [`Mirror`] follows some ranges of a store and returns their changes, never going back in time;
//!   [`Follower`] runs it against a [`Store`].
//! - [`resources`] creates, replaces, reads and deletes resources as Calico's clients do.
//!
//! ```
//! use std::sync::Arc;
//! use calico_store::{Change, KeyRange, LeaseId, Status, Store, Update, follow};
//! use etcd_lite::Local;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A store within this process; EtcdStore::connect has the same port.
//! let store: Arc<dyn Store> = Arc::new(Local::empty());
//! store.put("/fabric/a".into(), "1".into(), LeaseId::NONE).await?;
//!
//! let mut follower = follow(Arc::clone(&store), [KeyRange::prefix("/fabric/")], 7);
//! let mut known = Vec::new();
//! loop {
//!     for update in follower.next().await {
//!         match update {
//!             Update::Change(Change::Put(item)) => known.push((item.key, item.value)),
//!             Update::Change(Change::Delete(key)) => known.retain(|(known, _)| *known != key),
//!             Update::Status(Status::InSync) => {
//!                 assert_eq!(known, [("/fabric/a".into(), "1".into())]);
//!                 return Ok(()); // a daemon acts now, and continues
//!             }
//!             Update::Status(_) => {}
//!         }
//!     }
//! }
//! # }
//! ```

mod atomic_file;
mod error;
mod etcd;
mod framing;
mod kv;
pub mod limits;
pub mod mirror;
mod port;
mod random;
pub mod resources;
pub mod roles;
pub mod shared;
mod status;
mod txn;
mod wire;

pub use error::Error;
pub use etcd::{CalicoEtcd, CalicoFault, EtcdOptions, EtcdStore, OptionFault, Password, TlsFiles};
pub use kv::{
    Batch, Event, EventKind, Header, KeyRange, KeyValue, Lease, LeaseId, LeaseState, Listing,
    Order, OrderBy, Query, RangeEnd, Revision, RevisionBounds,
};
pub use mirror::follow::{Follower, follow, follow_ready};
pub use mirror::keep::SnapshotOptions;
pub use mirror::{Change, Mirror, Status, Unready, Update};
pub use port::{Answer, Prober, Store, Watch, WatchRequest};
pub use txn::{Compare, CompareWith, Comparison, Delete, Op, OpReply, Put, Txn, TxnReply};
