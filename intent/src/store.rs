//! A speaker's configuration out of a store in Calico's data model.
//!
//! [`View`] holds the last good value of every key that matters to one node; [`derive()`] turns it
//! into what the node's daemon is to do. Both are pure: the same keys give the same answer, whatever
//! order they came in.

mod derive;
mod fault;
mod fleet;
mod mesh;
mod peer;
mod reflectors;
mod view;

#[cfg(test)]
mod tests;

pub use derive::{Chosen, Derived, Host, derive};
pub use fault::Fault;
pub use fleet::Fleet;
pub use reflectors::{ClusterWish, WEIGHT_LABEL, Wish, ZONE_LABEL};
pub use view::{Node, View};
