//! The parser's side: its commands to its parent.

use std::env;
use std::ffi::CString;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, PoisonError};

use bgp_io::Bind;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::MsgFlags;
use tokio::io::Interest;

use super::channel;
use super::command::{Answer, Command, ParentReport, Refusal};

/// The environment variable that makes a process the parser. Its parent is at standard input.
pub(super) const MARK: &str = "CAMBRIC_PARSER";

/// Returns whether this process is a parser.
pub(crate) fn is_parser() -> bool {
    env::var_os(MARK).is_some()
}

/// Makes this process a daemon's process like any other: its signals, and its name, which would be
/// that of the link by which it was executed.
pub(crate) fn settle(name: &str) {
    // The parent has blocked those that it forwards.
    let _ = SigSet::empty().thread_set_mask();
    // Without its parent it ends as a daemon that is killed: its neighbors retain its routes.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    if let Ok(name) = CString::new(name) {
        // The name is for people only.
        let _ = prctl::set_name(&name);
    }
}

/// The parent of this process.
#[derive(Clone, Debug)]
pub struct Parent(Arc<Mutex<OwnedFd>>);

impl Parent {
    /// Returns the parent at standard input.
    ///
    /// # Errors
    ///
    /// Standard input is not open.
    pub(crate) fn at_stdin() -> io::Result<Self> {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self::at(stdin))
    }

    /// Returns the parent at the other end of a socket.
    pub(super) fn at(socket: OwnedFd) -> Self {
        Self(Arc::new(Mutex::new(socket)))
    }

    /// Executes a command; waits for the answer, which takes a few system calls of the parent.
    fn call(&self, command: &Command) -> io::Result<(Answer, Vec<OwnedFd>)> {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        channel::send(&*socket, &command.encode(), &[], MsgFlags::empty())?;
        let received = channel::receive(&*socket)?;
        let (octets, descriptors) = received.ok_or(io::ErrorKind::BrokenPipe)?;
        match Answer::decode(&octets) {
            Some(Answer::Refused(refusal)) => Err(refusal.into()),
            Some(answer) => Ok((answer, descriptors)),
            None => Err(unexpected()),
        }
    }

    /// Executes a command of the host guard.
    pub(crate) fn guard(&self, command: &Command) -> Result<Answer, Refusal> {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let called = channel::send(&*socket, &command.encode(), &[], MsgFlags::empty())
            .and_then(|()| channel::receive(&*socket))
            .and_then(|received| received.ok_or_else(|| io::ErrorKind::BrokenPipe.into()))
            .and_then(|(octets, _)| Answer::decode(&octets).ok_or_else(unexpected));
        match called {
            Ok(Answer::Refused(refusal)) => Err(refusal),
            Ok(answer) => Ok(answer),
            Err(error) => Err(Refusal {
                why: format!("the parent process: {error}"),
                ..Refusal::default()
            }),
        }
    }

    /// Opens the program's own way to its parent, see [`super::Duty::open`].
    ///
    /// # Errors
    ///
    /// The parent refuses it, or is gone.
    pub fn open(&self) -> io::Result<(Vec<OwnedFd>, Vec<u8>)> {
        match self.call(&Command::Open)? {
            (Answer::Opened(note), descriptors) => Ok((descriptors, note)),
            _ => Err(unexpected()),
        }
    }

    /// Returns the parent as it reports itself; `None` if it is gone.
    pub(crate) fn report(&self) -> Option<ParentReport> {
        match self.call(&Command::Report) {
            Ok((Answer::Report(report), _)) => Some(report),
            _ => None,
        }
    }

    /// Lets the parent read the configuration file again, before this process does.
    ///
    /// # Errors
    ///
    /// The file has a mistake, or the parent is gone.
    pub(crate) fn read_file(&self) -> io::Result<()> {
        match self.call(&Command::ReadFile)? {
            (Answer::Done, _) => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Starts watching for the end of the parent. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// The process has no file descriptor left.
    pub(crate) fn watch(&self) -> io::Result<Watch> {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = UnixDatagram::from(socket.try_clone()?);
        watched.set_nonblocking(true)?;
        tokio::net::UnixDatagram::from_std(watched).map(Watch)
    }
}

/// A watch for the end of a parent. Its type is that of the runtime for a socket with messages.
#[derive(Debug)]
pub(crate) struct Watch(tokio::net::UnixDatagram);

impl Watch {
    /// Waits until the parent is gone. Cancel-safe.
    pub(crate) async fn gone(&self) {
        // Answers arrive while a command waits for them: without one, nothing but the end is to be
        // read.
        while self.0.readable().await.is_ok() {
            let looked = self
                .0
                .try_io(Interest::READABLE, || channel::found_closed(&self.0));
            if looked.is_ok() {
                return;
            }
        }
    }
}

impl Bind for Parent {
    fn bind(&self, address: SocketAddr) -> io::Result<OwnedFd> {
        let (_, mut descriptors) = self.call(&Command::Bind(address))?;
        descriptors.pop().ok_or_else(unexpected)
    }
}

fn unexpected() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "unexpected answer of the parent",
    )
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal.errno {
            0 => Self::other(refusal.why),
            errno => Self::from_raw_os_error(errno.into()),
        }
    }
}
