//! From what is wanted to a typed ruleset, its text form, and the difference of two rulesets.
//!
//! All of it is pure: the kernel sees a [`Ruleset`] only through `apply::rules`.

mod build;
mod diff;
mod ruleset;
#[cfg(test)]
mod tests;
mod text;

pub use build::{
    EndpointRules, NEIGHBOUR_DISCOVERY, Passage, RuleInputs, TABLE, ToHostAction, render,
};
pub use diff::{Change, changes, creation};
pub use ruleset::{
    Action, Chain, ConnectionStates, Hook, Key, Match, Rule, Ruleset, Set, SetKind, Side, Verdict,
};
pub use text::{rule_text, table_text};
