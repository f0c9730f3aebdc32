//! The journal's native protocol: each line is a datagram with its priority, its text and its
//! fields.
//!
//! systemd connects standard error with a stream of the journal, which has none of these. If
//! `JOURNAL_STREAM` names the stream that standard error is, lines go to the journal's socket
//! instead. A line that the socket rejects goes to the stream.

pub(super) mod entry;
#[cfg(test)]
mod tests;

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use tracing::Level;

use crate::limits::JOURNAL_BUFFER_OCTETS;

/// Device and inode of the stream that systemd connected with the journal (systemd.exec(5)).
const STREAM_VARIABLE: &str = "JOURNAL_STREAM";

/// Names another socket of the journal.
const SOCKET_VARIABLE: &str = "CAMBRIC_JOURNAL_SOCKET";

/// Where the journal takes datagrams.
const SOCKET: &str = "/run/systemd/journal/socket";

/// The journal's socket.
#[derive(Debug)]
pub(super) struct Journal {
    socket: UnixDatagram,
    /// It is named in each call: a journal that was started again is found again.
    path: PathBuf,
    identifier: String,
    buffer: Vec<u8>,
}

impl Journal {
    /// Returns the journal where standard error, which is `stream`, is connected with it.
    pub(super) fn of(stream: &File) -> Option<Self> {
        let named = env::var(STREAM_VARIABLE).ok()?;
        if !is_named(&named, stream) {
            return None;
        }
        let path = env::var_os(SOCKET_VARIABLE).unwrap_or_else(|| SOCKET.into());
        let program = env::args_os().next().unwrap_or_default();
        Self::open(path.into(), &program).ok()
    }

    /// Opens a journal with its socket at a path, for the lines of a program.
    pub(super) fn open(path: PathBuf, program: &OsStr) -> io::Result<Self> {
        let name = Path::new(program).file_name().unwrap_or_default();
        let is_plain = |c: &char| !c.is_control();
        Ok(Self {
            socket: UnixDatagram::unbound()?,
            path,
            identifier: name.to_string_lossy().chars().filter(is_plain).collect(),
            buffer: Vec::new(),
        })
    }

    /// Sends a queued line. Waits as long as the journal accepts none.
    ///
    /// # Errors
    ///
    /// The socket rejects it.
    pub(super) fn send(&mut self, level: Level, line: &[u8]) -> io::Result<()> {
        self.buffer.clear();
        entry::encode(&mut self.buffer, &self.identifier, level, line);
        let sent = retried(|| self.socket.send_to(&self.buffer, &self.path));
        let sent = match sent {
            Err(error) if is_too_long(&error) => self.send_file(),
            sent => sent,
        };
        self.buffer.shrink_to(JOURNAL_BUFFER_OCTETS);
        sent.map(drop)
    }

    /// Sends the line as a sealed file: it is longer than a datagram can be.
    fn send_file(&self) -> io::Result<usize> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let mut file = File::from(memfd_create("cambric-log", flags)?);
        file.write_all(&self.buffer)?;
        let seals = SealFlag::F_SEAL_SEAL
            | SealFlag::F_SEAL_SHRINK
            | SealFlag::F_SEAL_GROW
            | SealFlag::F_SEAL_WRITE;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let to = UnixAddr::new(&self.path)?;
        let files = [file.as_raw_fd()];
        retried(|| {
            let control = [ControlMessage::ScmRights(&files)];
            let socket = self.socket.as_raw_fd();
            let sent = sendmsg(socket, &[], &control, MsgFlags::MSG_NOSIGNAL, Some(&to));
            sent.map_err(io::Error::from)
        })
    }
}

/// Whether the value of `JOURNAL_STREAM` names this file.
fn is_named(value: &str, file: &File) -> bool {
    let Some((device, inode)) = value.split_once(':') else {
        return false;
    };
    let found = file.metadata().map(|file| (file.dev(), file.ino()));
    let named = (device.parse().ok(), inode.parse().ok());
    found.is_ok_and(|(device, inode)| named == (Some(device), Some(inode)))
}

fn is_too_long(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMSGSIZE | Errno::ENOBUFS))
}

fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
