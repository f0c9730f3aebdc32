//! Fuzz targets as plain functions over octets.
//!
//! Each one panics when an invariant breaks and otherwise takes any input. The tests replay the
//! corpora in `fuzz/corpus`; `make soak MINUTES=n` searches for more with libFuzzer.

mod bfd;
mod bfd_sessions;
mod codec;
mod kubernetes;
mod nexthop;
mod octets;
mod operations;
mod parent;
mod peering;
mod recorded;
mod stored;

pub use bfd::{bfd_packet, bfd_session};
pub use bfd_sessions::bfd_sessions;
pub use codec::{attributes, message};
pub use kubernetes::kubernetes;
pub use nexthop::nexthop;
pub use operations::session;
pub use parent::parent;
pub use peering::speaker;
pub use recorded::recorded;
pub use stored::stored;
