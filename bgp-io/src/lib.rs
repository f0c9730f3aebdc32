//! BGP over Tokio: the driver of a whole speaker, and single sessions without a speaker.
//!
//! # A whole speaker
//!
//! The driver owns the sockets and the clock, and does not interpret messages.
//!
//! [`Io`] holds a [`Speaker`] and everything the speaker needs from the machine: listening sockets,
//! connections, one timer. A program gives it a turn by awaiting [`Io::next`] in its own `select!`
//! loop and reads the speaker's tables between turns. Nothing is shared with another thread and no
//! route waits in a channel. A program with other tasks that announce routes or add peers runs a
//! [`Driver`] and gives them its [`Handle`].
//!
//! ```no_run
//! use bgp_io::{Io, IoConfig, bgp_speaker::{Speaker, SpeakerConfig}};
//!
//! # async fn program(config: SpeakerConfig) -> Result<(), bgp_io::IoError> {
//! let listen = ["0.0.0.0:179".parse().expect("an address")];
//! let mut io = Io::new(Speaker::new(config, 1), IoConfig::new(listen))?;
//! loop {
//!     for event in io.next().await {
//!         println!("{event:?}");
//!     }
//!     // Here the speaker's tables may have changed: see Speaker::read.
//! }
//! # }
//! ```
//!
//! # One session
//!
//! A program without tables of its own, such as a collector of what one peer sends or a test, runs a
//! [`SessionStream`]. [`Connector`] and [`Listener`] open the TCP connections, with the same code, TCP-MD5
//! and GTSM as the driver's. The session runs over any other [`Transport`], too: [`Memory`] needs no
//! network. The example `updates` prints what a peer sends as lines of JSON.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod accept;
mod bind;
mod clock;
mod closing;
mod connector;
mod dial_keys;
mod error;
mod event;
mod filter;
mod gtsm;
mod handle;
mod io;
mod keys;
pub mod limits;
mod linger;
mod link;
mod listen_socket;
mod listener;
mod listeners;
mod liveness;
mod memory;
mod outputs;
mod probe;
mod ready;
mod rekey;
mod scope;
mod security;
mod session;
mod sockets;
mod sockopt;
mod strangers;
mod trace;
mod traced;
mod transfer;
mod transport;

pub use bgp_speaker::{self, bgp_fsm, bgp_proto, rib};

pub use bgp_speaker::{Input, Speaker};
pub use bind::{Bind, bind};
pub use clock::Clock;
pub use connector::Connector;
pub use error::{IoError, ReconfigureError};
pub use event::{Event, TracedMessage};
pub use gtsm::Distance;
pub use handle::{Closed, Driver, Handle};
pub use io::{Io, IoConfig, StopMode};
pub use listener::{AcceptError, Listener, Neighbor};
pub use memory::Memory;
pub use scope::PeerScope;
pub use security::Security;
pub use session::{ReceivedUpdate, Routes, SendError, SessionEvent, SessionStream};
pub use sockopt::set_md5_key;
pub use transport::Transport;

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
