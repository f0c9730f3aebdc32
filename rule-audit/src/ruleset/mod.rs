//! The kernel's rules, as `nft --json list ruleset` prints them, as programs.
//!
//! The kernel lists what it has, so this reads back what another program has written. An expression
//! that is not known here makes the outcome unknown, never equal.

mod budgets;
mod elements;
mod expressions;
mod listing;
mod matches;
mod reach;
#[cfg(test)]
mod tests;
mod touched;
mod translations;
mod unit;
mod uses;

pub(crate) use budgets::budget;
pub(crate) use expressions::clears_mark;
pub use listing::{Base, Chain, Expressions, Listing, ListingError, Rule, Table};
pub use touched::Touched;
pub(crate) use unit::single;
pub use unit::{Compiler, View};
pub(crate) use uses::Uses;
