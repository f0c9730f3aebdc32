#![no_std]
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]
//! A whole BGP speaker as one value: sessions ([`bgp_fsm`]), tables ([`rib`]) and export, without a
//! clock, a socket or a thread.
//!
//! The same [`Speaker`] runs in the daemon of every host, in the route reflector, in the simulator
//! and in the fuzzer. A driver passes inputs with their instant, performs the outputs, and
//! transfers octets; crate `bgp-io` is such a driver for Tokio.
//!
//! * [`config`]: the configuration by the operator, and [`keys`]: its written form.
//! * [`Speaker`]: the value itself.
//! * [`Input`], [`Output`], [`Event`]: its inputs and outputs.
//!
//! ```
//! use bgp_speaker::bgp_fsm::Instant;
//! use bgp_speaker::bgp_proto::{Asn, Attributes, Family, Net, RouterId};
//! use bgp_speaker::rib::{Budget, Progress, Role};
//! use bgp_speaker::{Input, Output, Speaker, SpeakerConfig};
//!
//! let mut config = SpeakerConfig::new(Asn(64512), RouterId("192.0.2.1".parse()?));
//! config.peers.push(config.neighbor("192.0.2.2".parse()?, Role::Internal));
//! let mut speaker = Speaker::new(config, 7);
//! let now = Instant::ZERO;
//! speaker.start(now);
//!
//! // Inputs are passed to the speaker, here a local route; work is done in bounded steps.
//! let (family, net) = (Family::IPV4_UNICAST, Net::V4("198.51.100.7/32".parse()?));
//! let attributes = Some(Attributes::default());
//! speaker.handle(now, Input::Local { family, net, attributes, interface: None });
//! while speaker.run(now, Budget(1000)) == Progress::More {}
//! assert!(speaker.rib().lookup(family, net).is_some_and(|route| route.best().is_some()));
//!
//! // Outputs are polled. Once connected, the driver reports it and transfers octets with
//! // Speaker::poll_writable, fill and sent, and in the other direction bgp_fsm::Input::Received.
//! let outputs: Vec<Output> = std::iter::from_fn(|| speaker.poll_output()).collect();
//! assert!(outputs.iter().any(|output| {
//!     matches!(output, Output::Dial { remote, .. } if remote.to_string() == "192.0.2.2:179")
//! }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The repository's README has an example of two speakers connected in memory.

extern crate alloc;

mod addresses;
pub mod config;
mod defer;
mod encode;
mod event;
mod feed;
mod give_way;
mod handshake;
mod ingest;
pub mod keys;
mod limited;
pub mod limits;
mod member;
mod memory;
mod monitor;
mod octets;
mod outgroup;
mod outlet;
mod path_failure;
mod path_history;
mod path_state;
mod peer;
mod prefix_limit;
mod read_tables;
mod readers;
mod reconfigure;
mod refresh;
mod rejected;
mod restart;
mod roster;
mod segment;
mod sent_limit;
mod speaker;
mod targets;
mod usage;

pub use bgp_fsm;
pub use bgp_proto;
pub use rib;

pub use addresses::InterfaceAddress;
pub use config::{
    Bfd, BfdAuth, BfdGraceful, BfdKeysError, BfdMode, LimitAction, Password, PrefixLimit,
    PrefixLimitOut, PrefixLimits, PrefixLimitsOut, RangeConfig, SpeakerConfig, no_policy,
};
pub use defer::Restart;
pub use event::{Event, Input, Malformed, NoRefresh, Output, Refusal};
pub use handshake::{HandshakeFailure, HandshakeFailures};
pub use keys::{Effect, Given, PEER_KEYS, PeerConfig, PeerKey, changes};
pub use limited::SentPaths;
pub use memory::MemoryAction;
pub use monitor::{Monitor, Neighbor, Record};
pub use octets::{Octets, PeerOctets};
pub use path_state::{PathConsequence, PathState};
pub use peer::PeerView;
pub use prefix_limit::LimitLevel;
pub use readers::ReaderId;
pub use reconfigure::{NeedsRestart, Reconfigured};
pub use speaker::Speaker;
pub use usage::{Level, MemoryUsage, RangeUsage, Usage};

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// The example of the repository's README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct RepositoryReadme;
