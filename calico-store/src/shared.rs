//! Functions shared with `etcd-lite`, which serves the store interface, and with the confinement of the
//! BGP daemons; they are not part of the interface.

pub use crate::atomic_file::{replace as replace_file, target as target_of_file};
pub use crate::framing::{Taker, put_field, put_item, put_number};
pub use crate::random::octets as random_octets;
pub use crate::status::status_out as grpc_status;
