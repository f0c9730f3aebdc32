//! The kernel's rules, as `nft --json list ruleset` prints them, as programs.
//!
//! The kernel lists what it has, so this reads back what another program has written. An expression
//! that is not known here makes the outcome unknown, never equal.

mod budgets;
mod elements;
mod expressions;
mod listing;
mod matches;
#[cfg(test)]
mod tests;
mod unit;

pub use listing::{Base, Chain, Listing, ListingError, Rule, Table};
pub use unit::{Compiler, View};
