//! Test tools for BGP speakers.
//!
//! * [`Network`]: speakers ([`bgp_speaker::Speaker`]) in one process and in virtual time, connected by
//!   streams with latency, loss and cuts. [`Node`] lets a program around a speaker take part.
//! * A scripted peer, in two verbs: `send` and `expect`. It sends anything that is [`Encode`], malformed
//!   [`Octets`] included, and expects the next message by its type, code or content
//!   ([`Expected`]); a failure prints the expected message, the received one octet by octet,
//!   and the ones before. It is part of a network ([`Network::dial`]) or at a TCP stream (`TcpPeer`,
//!   feature `tokio`).
//! * [`Update`]: UPDATEs attribute by attribute, also malformed ones.
//! * [`fixture`]: configurations and OPENs to start from.
//! * [`damaged`]: a text with one damage at each place, for tests of parsers.
//!
//! Two speakers converge, lose their link and connect again:
//!
//! ```
//! use std::time::Duration;
//!
//! use bgp_speaker::bgp_proto::Family;
//! use bgp_speaker::rib::Role;
//! use testkit::fixture::{address, neighbor, speaker_config};
//! use testkit::Network;
//!
//! let mut network = Network::new(7);
//! let [one, two] = [address(1).into(), address(2).into()];
//! for (us, them) in [(1, 2), (2, 1)] {
//!     let mut config = speaker_config(us);
//!     config.peers.push(neighbor(us, them, Role::Internal));
//!     network.start(us, address(us).into(), config);
//! }
//! network.announce(1, "10.65.0.0/26");
//! network.advance(Duration::from_secs(20));
//! assert_eq!(network.established(1), [two]);
//! assert_eq!(network.adj_rib_out(1, Family::IPV4_UNICAST, two), ["10.65.0.0/26"]);
//! assert_eq!(network.loc_rib(2, Family::IPV4_UNICAST), ["10.65.0.0/26"]);
//!
//! network.cut(one, two);
//! network.advance(Duration::from_secs(100));
//! assert!(network.loc_rib(2, Family::IPV4_UNICAST).is_empty(), "the hold timer has expired");
//! network.mend(one, two);
//! network.advance(Duration::from_secs(200));
//! assert_eq!(network.loc_rib(2, Family::IPV4_UNICAST), ["10.65.0.0/26"]);
//! ```
//!
//! A scripted peer sends an OPEN of BGP version 3, and expects the NOTIFICATION of RFC 4271 §6.2:
//!
//! ```
//! use bgp_speaker::bgp_proto::MessageKind;
//! use testkit::fixture::{address, clients, speaker_config};
//! use testkit::{Network, Raw, Received, notification};
//!
//! let mut network = Network::new(7);
//! let mut config = speaker_config(1);
//! config.ranges.push(clients(1, 10));
//! network.start(1, address(1).into(), config);
//!
//! let peer = network.dial(address(2).into(), address(1).into()).expect("accepted");
//! network.expect(peer, MessageKind::Open);
//! network.send(peer, Raw(1, &[3, 0xfc, 0, 0, 90, 10, 0, 0, 2, 0]));
//! let received = network.expect(peer, notification(2, 1));
//! let Received::Notification(notification) = received else { unreachable!() };
//! assert_eq!(notification.data[..], [0, 4], "the greatest version that it supports");
//! network.expect(peer, Received::Closed);
//! ```

mod damage;
mod expect;
pub mod fixture;
pub mod limits;
mod message;
mod network;
mod received;
#[cfg(feature = "tokio")]
mod tcp;
mod update;

pub use bgp_speaker;

pub use damage::damaged;
pub use expect::{Expected, matching, notification};
pub use message::{Encode, EndOfRib, Keepalive, Octets, Raw};
pub use network::{Host, Link, Network, Node, Scripted};
pub use received::{NoHeader, Received, message_octets, params};
#[cfg(feature = "tokio")]
pub use tcp::TcpPeer;
pub use update::{OPTIONAL, OPTIONAL_TRANSITIVE, Update, WELL_KNOWN, nlri};

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
