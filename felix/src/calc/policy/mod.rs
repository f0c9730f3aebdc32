//! Policies: parses them, matches them with endpoints, and sorts them.

mod anchors;
mod counts;
mod index;
mod inherit;
mod locate;
mod located;
mod member;
mod order;
mod pool;
mod read;
mod salvage;
mod services;

pub(super) use index::{Index, List, Touched};
pub(super) use member::{Member, Role};
pub(super) use order::Tiers;
pub(super) use read::{Policy, Stage, policy};
pub(super) use salvage::broken;
pub(super) use services::{News, Slice};
