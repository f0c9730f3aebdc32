#![no_std]
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
//! A whole BGP speaker as one value: sessions ([`bgp_fsm`]), tables ([`rib`]) and export, without
//! a clock, a socket or a thread.
//!
//! The same [`Speaker`] runs in the daemon of every host, in the route reflector, in the
//! simulator and in the fuzzer. A driver hands it what happened together with the instant, does
//! what its outputs say, and moves octets; crate `bgp-io` is such a driver for Tokio.
//!
//! * [`config`]: what an operator decides.
//! * [`Speaker`]: the value itself.
//! * [`Input`], [`Output`], [`Event`]: what goes in and what comes out.

extern crate alloc;

mod changes;
pub mod config;
mod defer;
mod encode;
mod event;
mod feed;
mod ingest;
pub mod limits;
mod outgroup;
mod peer;
mod prefix_limit;
mod reconfigure;
mod refresh;
mod restart;
mod roster;
mod segment;
mod speaker;
mod usage;

#[cfg(test)]
mod tests;

pub use bgp_fsm;
pub use bgp_proto;
pub use rib;

pub use changes::{Change, Effect, PEER_CHANGES, SESSION_CHANGES, changes};
pub use config::{LimitAction, Password, PeerConfig, PrefixLimit, RangeConfig, SpeakerConfig};
pub use defer::Restart;
pub use event::{Event, Input, Malformed, Output, Refusal};
pub use peer::PeerView;
pub use prefix_limit::LimitLevel;
pub use reconfigure::{NeedsRestart, Reconfigured};
pub use refresh::NoRefresh;
pub use speaker::{ReaderId, Speaker};
pub use usage::{Level, RangeUsage, Usage};
