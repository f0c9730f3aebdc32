//! Origin validation: whether the datastore confirms a received route.
//!
//! [`OriginIndex`] holds the records of the datastore: the addresses and blocks of every node. It
//! is pure and incremental: [`OriginIndex::take`] returns which routes a change concerns. The
//! rules and their reasons are in `docs/design/origin-validation.md`.

mod announced;
mod endpoints;
mod index;
mod input;
mod nodes;
mod ranges;
mod route;
mod sorted;
#[cfg(test)]
mod tests;
mod work;

pub use index::OriginIndex;
pub use input::GRANTS_ANNOTATION;
pub use route::{Affected, Neighbor, Origin, Owner, ReceivedRoute};
