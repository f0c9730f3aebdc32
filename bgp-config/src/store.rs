//! A speaker's configuration out of a store in Calico's data model.
//!
//! [`View`] holds the last good value of every key that matters to one node; [`derive()`] turns it
//! into what the node's daemon is to do. Both are pure: the same keys give the same answer, whatever
//! order they came in.

mod clients;
mod cluster;
mod derive;
mod duties;
mod explicit;
mod export;
mod fault;
mod fields;
mod filter;
mod fleet;
mod mesh;
mod own;
mod peer;
mod priority;
mod reflectors;
mod unheeded;
mod view;

#[cfg(test)]
mod tests;

pub use calico_model::SecretKeyRef;
pub use cluster::ClusterWish;
pub use derive::{Chosen, Derived, Placed, derive, derive_after};
pub use duties::{Duties, Programming, Way};
pub use export::IPIP_INTERFACE;
pub use fault::Fault;
pub use fleet::Fleet;
pub use own::{Host, Secrets};
pub use priority::{METRIC_MAX, Priorities, degree_of, metric_of};
pub use reflectors::{REFLECTORS_ANNOTATION, WEIGHT_LABEL, Wish, ZONE_LABEL};
pub use view::{Node, View};
