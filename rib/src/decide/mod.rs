//! The decision process (RFC 4271 §9.1, RFC 4456 §9): a pure function over the paths of a prefix
//! that reports why each loser lost, and the bookkeeping that calls it as rarely as possible.

mod decider;
mod pick;
mod select;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use decider::{Decider, Outcome};
pub(crate) use pick::pick;
pub use select::{Selection, select};
pub use steps::{Candidate, DecisionRules, Step};

pub(crate) use steps::compare;
