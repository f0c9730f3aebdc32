//! Labs in network namespaces against other BGP implementations.
//!
//! A [`Ground`] is a switch with hosts on it. On a host runs a [`Speaker`]: one of Cambric's
//! daemons or a foreign one from Debian's packages, each with the configuration a [`Setup`]
//! describes. Its routes are read back as a [`Table`] of [`Route`]s, for every program in the same
//! form, so that both ends of every exchange are compared route by route and attribute by
//! attribute.
//!
//! The tests run as root with `CAMBRIC_LAB=1`; otherwise each prints one line that it was skipped.

mod arrange;
mod bfd;
mod bird;
pub mod calico;
mod cambric;
mod certificates;
mod etcd;
mod frr;
mod frr_bfd;
mod gobgp;
mod ground;
mod kind;
mod kube;
mod limits;
mod openbgpd;
mod programs;
pub mod received;
pub mod sender;
mod setup;
mod site;
mod speaker;
mod store;
mod table;

pub use self::bfd::Bfd;
pub use arrange::{as_received, in_ground, shown_external, table};
pub use certificates::Certificates;
pub use etcd::Etcd;
pub use frr_bfd::{FrrBfd, FrrSession};
pub use ground::Ground;
pub use kind::Kind;
pub use kube::ApiServer;
pub use limits::PATIENCE;
pub use programs::{example, foreign, own};
pub use setup::{Families, Neighbor, Own, Range, Setup};
pub use site::Site;
pub use speaker::Speaker;
pub use store::{READY, Store};
pub use table::{Route, Table, differences};
