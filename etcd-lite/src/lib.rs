//! An embedded store: etcd's data model and API in one process.
//!
//! - [`Core`] is a small MVCC store with a history, a plain value without I/O or clock; [`Local`]
//!   gives it an owner task and the port of [`calico_store`].
//! - [`serve`] serves a core over the etcd v3 API, in memory or kept in a file.

pub mod core;
mod kept;
pub mod limits;
mod local;
pub mod serve;
mod wire;

pub use crate::core::{Core, CoreConfig, Faults};
pub use kept::KeptError;
pub use local::Local;
