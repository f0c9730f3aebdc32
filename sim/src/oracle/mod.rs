//! The conditions that must hold, one file each.
//!
//! [`closed`], [`dead`], [`foreign`], [`guarded`], [`kept`] and [`lies`] always hold, and [`arrival`] without faults.
//! The others hold in a stable state: when there are no more faults and
//! the effects of earlier ones have ended.

pub mod arrival;
pub mod closed;
pub mod dead;
pub mod empty;
pub mod events;
pub mod fib;
pub mod foreign;
pub mod forwarding;
pub mod guarded;
pub mod idle;
pub mod kept;
pub mod lies;
pub mod rules;
pub mod sent;
pub mod sessions;
pub mod withdrawn;
