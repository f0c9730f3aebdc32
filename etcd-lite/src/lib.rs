//! An embedded store: etcd's data model and API in one process.
//!
//! - [`Core`] is a small MVCC store, a plain value without I/O or clock; [`Local`] runs it in a
//!   task and implements the store interface of [`calico_store`].
//! - [`serve`] serves a core over the etcd v3 API, in memory or with a file.

pub mod core;
mod kept;
pub mod limits;
mod local;
pub mod serve;
mod wire;

pub use crate::core::{Core, CoreConfig, Faults};
pub use kept::KeptError;
pub use local::Local;
