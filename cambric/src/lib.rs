#![no_std]
#![doc = include_str!("../README.md")]
//!
//! The module `guide` leads from an empty directory to six small programs.
//!
//! # The crates
//!
//! | module | crate | content |
//! |---|---|---|
//! | [`proto`] | `cambric-bgp-proto` | the codec |
//! | `fsm` | `cambric-bgp-fsm` | one session |
//! | `rib` | `cambric-rib` | the tables |
//! | `speaker` | `cambric-bgp-speaker` | sessions and tables as one speaker |
//! | `io` | `cambric-bgp-io` | its tokio driver, and single sessions without a speaker |
//! | `bfd` | `cambric-bfd` | sessions of BFD |
//! | `mrt` | `cambric-mrt` | MRT files |
//! | `fib` | `cambric-fib-sync` | routes of a kernel |
//! | `netlink` | `cambric-netlink` | netlink requests |
//! | `testkit` | `cambric-testkit` | test tools |

#[cfg(feature = "speaker")]
pub mod guide;

pub use bgp_proto as proto;

#[cfg(feature = "speaker")]
pub use {bgp_fsm as fsm, bgp_speaker as speaker, rib};

#[cfg(feature = "io")]
pub use bgp_io as io;

#[cfg(feature = "bfd")]
pub use bfd;

#[cfg(feature = "mrt")]
pub use mrt;

#[cfg(feature = "fib")]
pub use fib_sync as fib;

#[cfg(feature = "netlink")]
pub use netlink;

#[cfg(feature = "testkit")]
pub use testkit;
