//! A guide from an empty directory to six programs: two collectors, an injector, a reflector, a decoder,
//! and a test peer.
//!
//! The programs are in the directory `examples` of the repository. Each is shown here in full. The
//! tests of the repository build them from the packages of these crates and run them beside BIRD.
//!
//! 1. [Begin a program](#begin-a-program)
//! 2. [Four terms](#four-terms)
//! 3. [Receive routes: a collector](#receive-routes-a-collector)
//! 4. [Receive from one peer: a session](#receive-from-one-peer-a-session)
//! 5. [Advertise routes: an injector](#advertise-routes-an-injector)
//! 6. [Pass routes on: a reflector](#pass-routes-on-a-reflector)
//! 7. [Read messages: a decoder](#read-messages-a-decoder)
//! 8. [Test a speaker: a scripted peer](#test-a-speaker-a-scripted-peer)
//! 9. [Further steps](#further-steps)
//!
//! # Begin a program
//!
//! ```console
//! $ cargo new collector
//! $ cd collector
//! $ cargo add cambric --features io,serde
//! $ cargo add serde_json
//! $ cargo add tokio --features macros,net,rt,time
//! ```
//!
//! The feature `io` adds the driver, which needs Linux and tokio. With the default features the crate has
//! no I/O, no clock and no `std`: such a program reads and writes the octets of its connections itself.
//!
//! Port 179 needs root or the capability `CAP_NET_BIND_SERVICE`. For first steps take another port, for
//! example `127.0.0.1:1179`.
//!
//! # Four terms
//!
//! A **configuration** is a [`SpeakerConfig`](crate::speaker::SpeakerConfig): the AS, the router ID, and
//! the peers. `neighbor` returns a peer with defaults; its fields are public. The role of a peer is
//! one of `Internal`, `Client` (of a route reflector, RFC 4456), `External`.
//!
//! **Policy**: routes from and to external peers are rejected by default (RFC 8212). Without `import`
//! nothing is accepted, without `export` nothing is advertised.
//!
//! ```
//! use cambric::fsm::PeerAs;
//! use cambric::proto::{Asn, RouterId};
//! use cambric::rib::{Policy, Role};
//! use cambric::speaker::SpeakerConfig;
//!
//! let config = SpeakerConfig::new(Asn(64512), RouterId("192.0.2.1".parse()?));
//! let mut peer = config.neighbor("192.0.2.2".parse()?, Role::External);
//! assert_eq!(peer.import, Policy::RejectAll);
//! peer.import = Policy::AcceptAll;
//! peer.session.peer_asn = PeerAs::Exactly(Asn(64513));
//! let config = config.with_peer(peer);
//! assert_eq!(config.peers.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A **speaker** is a [`Speaker`](crate::speaker::Speaker): the sessions and the tables of that
//! configuration. It does no I/O. It takes inputs, such as a received message or the time, and returns
//! outputs, such as an address to connect to; `fill` returns the octets to send. The second argument is
//! a seed: the same seed and the same inputs give the same outputs.
//!
//! ```
//! use cambric::fsm::Instant;
//! use cambric::proto::{Asn, RouterId};
//! use cambric::rib::Role;
//! use cambric::speaker::{Output, Speaker, SpeakerConfig};
//!
//! let config = SpeakerConfig::new(Asn(64512), RouterId("192.0.2.1".parse()?));
//! let peer = config.neighbor("192.0.2.2".parse()?, Role::Internal);
//! let mut speaker = Speaker::new(config.with_peer(peer), 7);
//! speaker.start(Instant::ZERO);
//! let mut outputs = std::iter::from_fn(|| speaker.poll_output());
//! assert!(outputs.any(|output| matches!(output, Output::Dial { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A **driver** (`cambric::io::Io`) carries out these outputs with sockets and a clock. The program awaits
//! `Io::next` in a loop. After each return it may read the tables and give the speaker inputs.
//!
//! # Receive routes: a collector
//!
//! The collector has one passive peer, which connects to it. `start_monitor` begins a bounded queue of
//! records before the first session: routes as they pass a stage, sessions that begin and end, and
//! End-of-RIB markers, in their order. The stage here is `AdjRibInPrePolicy`, so the peer needs no import
//! policy; `AdjRibOutPostPolicy` would be the routes that are sent. `Io::next` returns each record as
//! `Event::Monitor`.
//!
//! With the feature `serde`, prefixes and attributes become JSON. A route without attributes is withdrawn.
//! A record `Down` withdraws the routes of a session, except families that it lists as retained. A record
//! `Lost` is at the place of records that the program took too late: `Speaker::request_refresh` requests the
//! routes again.
//!
//! `collector 192.0.2.1:179 64512 192.0.2.1 192.0.2.2 64513`
//!
#![cfg_attr(feature = "io", doc = "```no_run")]
#![cfg_attr(not(feature = "io"), doc = "```ignore")]
#![doc = include_str!("../guide/collector.rs")]
//! ```
//!
//! # Receive from one peer: a session
//!
//! A program with one peer needs no speaker and no tables. A `Connector` dials, a `Listener` accepts; both
//! return a `SessionStream` for one session. Its method `next` returns the decoded messages of the peer, and
//! does all work of the session, such as KEEPALIVE messages. After `Down` the session is over; the program
//! decides whether it dials again.
//!
//! `updates 64512 192.0.2.1 192.0.2.2:179 64513`
//!
#![cfg_attr(feature = "io", doc = "```no_run")]
#![cfg_attr(not(feature = "io"), doc = "```ignore")]
#![doc = include_str!("../guide/updates.rs")]
//! ```
//!
//! # Advertise routes: an injector
//!
//! The injector announces local routes with `Input::Local`; `attributes: None` would withdraw one. It may
//! do so before the session is up. The export policy of the peer is `AcceptAll`.
//!
//! `Io::all_sent` returns whether the kernel has taken everything that there is to send. A peer whose
//! session is not up does not count, so the program also asks for the sessions. The kernel may
//! still have to transmit the octets: a program that ends right away should close its sessions with
//! `Io::shutdown`.
//!
//! `injector 64512 192.0.2.1 192.0.2.2 179 64513 10000`
//!
#![cfg_attr(feature = "io", doc = "```no_run")]
#![cfg_attr(not(feature = "io"), doc = "```ignore")]
#![doc = include_str!("../guide/injector.rs")]
//! ```
//!
//! # Pass routes on: a reflector
//!
//! The reflector accepts every peer of a prefix as its client, up to a limit. No session needs a
//! configuration of its own: a range has a template for them. Best paths, ORIGINATOR_ID, CLUSTER_LIST and
//! the initial table transfer are the speaker's.
//!
//! `reflector 192.0.2.1:179 64512 192.0.2.1 192.0.2.0/24`
//!
#![cfg_attr(feature = "io", doc = "```no_run")]
#![cfg_attr(not(feature = "io"), doc = "```ignore")]
#![doc = include_str!("../guide/reflector.rs")]
//! ```
//!
//! # Read messages: a decoder
//!
//! `decode_message` reads one message of any type. Its parameters are what the session has negotiated: the
//! octets of an UPDATE mean something else with ADD-PATH (RFC 7911) or with four-octet AS numbers. `None`
//! means that the message is not complete yet.
//!
//! ```
//! use cambric::proto::{Message, SessionParams, decode_message};
//!
//! let mut octets = vec![0xff; 16];
//! octets.extend([0, 19, 4]);
//! let params = SessionParams::default();
//! let (message, length) = decode_message(&octets, &params)?.expect("in full");
//! assert!(matches!(message, Message::Keepalive));
//! assert_eq!(length, 19);
//! assert!(decode_message(&octets[..18], &params)?.is_none());
//! # Ok::<(), cambric::proto::Notification>(())
//! ```
//!
//! An error is the NOTIFICATION that would end the session. Malformed attributes that RFC 7606 tolerates
//! are `faults` of an UPDATE. The decoder reads MRT files (RFC 6396), with the feature `mrt`; they may be
//! compressed with gzip or bzip2:
//!
//! `decoder updates.20150301.0000.gz`
//!
#![cfg_attr(feature = "io", doc = "```no_run")]
#![cfg_attr(not(feature = "io"), doc = "```ignore")]
#![doc = include_str!("../guide/decoder.rs")]
//! ```
//!
//! # Test a speaker: a scripted peer
//!
//! The module `testkit` has a peer in two verbs, `send` and `expect`. It sends anything, malformed messages
//! included. What it expects is a type of message, a NOTIFICATION by code and subcode, or a function; a
//! failure prints the received message. This one works over TCP, with the feature `testkit-tokio`. The
//! tested speaker must accept this host as a peer:
//!
//! `bad-open 192.0.2.2:179`
//!
#![cfg_attr(feature = "io", doc = "```no_run")]
#![cfg_attr(not(feature = "io"), doc = "```ignore")]
#![doc = include_str!("../guide/bad-open.rs")]
//! ```
//!
//! With the feature `testkit` alone, the same peer talks to speakers in memory and in virtual time. A
//! program that embeds a speaker can be tested in this way, without sockets and without waiting:
//!
#![cfg_attr(feature = "io", doc = "```")]
#![cfg_attr(not(feature = "io"), doc = "```ignore")]
//! use std::time::Duration;
//!
//! use cambric::proto::Family;
//! use cambric::rib::Role;
//! use cambric::testkit::Network;
//! use cambric::testkit::fixture::{address, neighbor, speaker_config};
//!
//! let mut network = Network::new(7);
//! for (us, them) in [(1, 2), (2, 1)] {
//!     let config = speaker_config(us).with_peer(neighbor(us, them, Role::Internal));
//!     network.start(us, address(us).into(), config);
//! }
//! network.announce(1, "10.65.0.0/26");
//! network.advance(Duration::from_secs(20));
//! assert_eq!(network.loc_rib(2, Family::IPV4_UNICAST), ["10.65.0.0/26"]);
//! ```
//!
//! # Further steps
//!
//! * Several tasks of a program command one driver: `io::Driver` and its `io::Handle`, which any task may
//!   clone. A handle announces and withdraws sets of prefixes, adds and removes peers, and waits until all
//!   is sent.
//! * Kernel routes: the module `fib` compares wanted routes with those of a kernel, and `netlink` writes
//!   the difference.
//! * TCP-MD5, GTSM, ADD-PATH, graceful restart, prefix limits and policies are fields of a peer:
//!   [`PeerConfig`](crate::speaker::PeerConfig).
//! * Limits are constants in the module `limits` of each crate. They bound the memory for each peer.
