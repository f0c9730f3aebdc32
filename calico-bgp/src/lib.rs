//! A speaker's configuration from Calico's resources.
//!
//! [`View`] holds the last valid value of every key that is relevant to one node; [`derive()`]
//! turns it into the configuration of the node's BGP daemon. Both are pure: the same keys give the
//! same configuration, in any order of their arrival. [`placement`] chooses the route reflectors of
//! a client, and [`validation`] evaluates received routes by the records of the datastore.

mod bfd;
mod bfd_timers;
mod clients;
mod cluster;
mod derive;
mod duties;
mod explicit;
mod export;
mod fabric_bfd;
mod farewell;
mod fault;
mod fields;
mod filter;
mod fleet;
pub mod limits;
mod mesh;
mod own;
mod peer;
pub mod placement;
mod priority;
mod reflectors;
mod unsupported;
pub mod validation;
mod view;

#[cfg(test)]
mod tests;

pub use bfd_timers::BfdTimers;
pub use bgp_config::Host;
pub use calico_model::SecretKeyRef;
pub use cluster::ClusterWish;
pub use derive::{Chosen, Derived, Placed, derive, derive_after};
pub use duties::{Duties, Programming, ServiceAttributes, Way};
pub use export::IPIP_INTERFACE;
pub use farewell::Farewell;
pub use fault::Fault;
pub use fleet::Fleet;
pub use own::Secrets;
pub use priority::{METRIC_MAX, Priorities, degree_of, metric_of};
pub use reflectors::{REFLECTORS_ANNOTATION, WEIGHT_LABEL, Wish, ZONE_LABEL};
pub use view::{FABRIC_BFD_ANNOTATION, Node, View};
