//! Two processes of one daemon: the parser of BGP holds no capability, and its parent does the few
//! operations that need one.
//!
//! The process that systemd or a shell starts becomes the parent (`serve`). It starts the same
//! program again as the parser, and they are connected by a pair of sockets. The parser sends
//! commands, a closed enum, and the parent compares each with its own reading of the configuration
//! file. The parent reads no octet of a neighbor or of the datastore. docs/design/privileges.md has
//! the reasons.

mod bounds;
mod channel;
pub mod command;
mod former;
mod handle;
mod octets;
mod restarts;
mod serve;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

pub use self::bounds::Bounds;
pub(crate) use self::bounds::holder;
pub use self::handle::Parent;
pub(crate) use self::handle::{Watch, is_parser, settle};
pub(crate) use self::serve::serve;
use crate::{Config, Settings};

/// The operations of a program's parent process beyond those of every BGP daemon.
pub trait Duty<S: Settings>: Sized {
    /// Prepares for a parser with this configuration.
    fn new(config: &Config<S>) -> Self;

    /// Prepares for the next parser, after the end of one.
    fn renew(&mut self, config: &Config<S>);

    /// Opens the parser's way to these operations: returns descriptors and a note for it.
    ///
    /// # Errors
    ///
    /// The kernel refuses it.
    fn open(&mut self) -> io::Result<(Vec<OwnedFd>, Vec<u8>)>;

    /// Returns the descriptors that [`serve`](Self::serve) reads.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Does what its descriptors are ready for. Never blocks for a parser.
    fn serve(&mut self);
}

/// Nothing more.
impl<S: Settings> Duty<S> for () {
    fn new(_: &Config<S>) -> Self {}

    fn renew(&mut self, _: &Config<S>) {}

    fn open(&mut self) -> io::Result<(Vec<OwnedFd>, Vec<u8>)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn serve(&mut self) {}
}
