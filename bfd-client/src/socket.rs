//! Local sockets that keep the borders of messages.

#![allow(unsafe_code)] // A socket is registered at the runtime.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use nix::sys::socket::{getsockopt, sockopt};
use socket2::{Domain, SockAddr, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::limits::{BACKLOG, MESSAGE_OCTETS_MAX};

/// The mode of the socket's file: every user may connect, and the daemon checks the user.
const MODE: u32 = 0o666;

/// One end of a connection.
#[derive(Debug)]
pub struct Socket(AsyncFd<socket2::Socket>);

/// The process at the other end, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its process id.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
}

/// Registers a socket at the tokio runtime.
///
/// # Errors
///
/// The runtime has no descriptor left.
pub fn register(socket: socket2::Socket) -> io::Result<AsyncFd<socket2::Socket>> {
    // SAFETY: a `Socket` has the same open descriptor until it is dropped, and is moved into the result.
    Ok(unsafe { AsyncFd::register(socket) }?)
}

/// Calls an operation on a registered socket that does not block, also if the runtime has not found the
/// socket ready yet. If it would block, the runtime waits again.
///
/// # Errors
///
/// The operation fails, or would block.
pub fn now<T>(
    socket: &AsyncFd<socket2::Socket>,
    interest: Interest,
    mut operation: impl FnMut(&socket2::Socket) -> io::Result<T>,
) -> io::Result<T> {
    match operation(socket.get_ref()) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => socket.try_io(interest, operation),
        done => done,
    }
}

fn new() -> io::Result<socket2::Socket> {
    let kind = Type::SEQPACKET.cloexec().nonblocking();
    socket2::Socket::new(Domain::UNIX, kind, None)
}

impl Socket {
    /// Connects to the socket with this path. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// Nothing listens there, or the user may not connect.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = new()?;
        socket.connect(&SockAddr::unix(path)?)?;
        Self::own(socket)
    }

    fn own(socket: socket2::Socket) -> io::Result<Self> {
        Ok(Self(register(socket)?))
    }

    /// Sends one message.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the other end has not read earlier ones; any other error ends the connection.
    pub fn send(&self, octets: &[u8]) -> io::Result<()> {
        let flags = nix::libc::MSG_NOSIGNAL;
        let send = |socket: &socket2::Socket| socket.send_with_flags(octets, flags);
        now(&self.0, Interest::WRITABLE, send).map(drop)
    }

    /// Receives one message; `None` if the other end is closed. A message that is too long has one octet
    /// more than it may have.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none has arrived; any other error ends the connection.
    pub fn receive<'b>(&self, buffer: &'b mut Vec<u8>) -> io::Result<Option<&'b [u8]>> {
        buffer.resize(MESSAGE_OCTETS_MAX + 1, 0);
        let receive = |socket: &socket2::Socket| {
            let mut socket = socket;
            socket.read(buffer)
        };
        let octets = now(&self.0, Interest::READABLE, receive)?;
        Ok(buffer.get(..octets).filter(|octets| !octets.is_empty()))
    }

    /// Waits until a message has arrived; with `writes`, also until one can be sent. Cancel-safe.
    pub async fn ready(&self, writes: bool) {
        let interest = match writes {
            true => Interest::READABLE | Interest::WRITABLE,
            false => Interest::READABLE,
        };
        // An error is found by the next call.
        let _ = self.0.ready(interest).await;
    }

    /// Wakes the task when a message has arrived, or the other end is closed.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_read_ready(cx).map(drop)
    }

    /// Wakes the task when a message can be sent, or the other end is closed.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_write_ready(cx).map(drop)
    }

    /// Returns the process that has connected.
    ///
    /// # Errors
    ///
    /// The kernel does not report it.
    pub fn credentials(&self) -> io::Result<Credentials> {
        let found = getsockopt(self.0.get_ref(), sockopt::PeerCredentials)?;
        Ok(Credentials {
            pid: found.pid(),
            uid: found.uid(),
        })
    }
}

/// The socket that clients connect to. Dropping it removes its file.
#[derive(Debug)]
pub struct Listener {
    socket: AsyncFd<socket2::Socket>,
    path: PathBuf,
}

impl Listener {
    /// Binds the socket, and makes its directory. It replaces a socket on which no daemon listens. Must be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// Another daemon listens there, the path has another file, or the user may not write there.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        remove_stale(path)?;
        let socket = new()?;
        socket.bind(&SockAddr::unix(path)?)?;
        fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
        socket.listen(BACKLOG)?;
        Ok(Self {
            socket: register(socket)?,
            path: path.to_owned(),
        })
    }

    /// Waits for the next client. Cancel-safe.
    ///
    /// # Errors
    ///
    /// The process or the system has no descriptor left.
    pub async fn accept(&self) -> io::Result<Socket> {
        let accept = |socket: &socket2::Socket| socket.accept();
        let (socket, _) = self.socket.async_io(Interest::READABLE, accept).await?;
        socket.set_nonblocking(true)?;
        Socket::own(socket)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may have been removed already.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the socket of a dead daemon; keeps a socket on which a daemon listens, and any other file.
fn remove_stale(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !kind.is_socket() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    match new()?.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Err(ErrorKind::AddrInUse.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_keep_their_borders_and_the_peer_is_known() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("clients.sock");
        let listener = Listener::bind(&path).expect("bound");
        let client = Socket::connect(&path).expect("connected");
        let server = listener.accept().await.expect("accepted");
        let found = server.credentials().expect("credentials");
        assert_eq!(found.pid, std::process::id() as i32);
        assert_eq!(found.uid, nix::unistd::geteuid().as_raw());
        client.send(b"one").expect("sent");
        client
            .send(&vec![b'x'; MESSAGE_OCTETS_MAX * 2])
            .expect("sent");
        drop(client);
        let mut buffer = Vec::new();
        let mut received = Vec::new();
        loop {
            match server.receive(&mut buffer) {
                Ok(Some(octets)) => received.push(octets.len()),
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => server.ready(false).await,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(received, [3, MESSAGE_OCTETS_MAX + 1]);
    }

    #[tokio::test]
    async fn socket_of_a_dead_daemon_alone_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("below").join("clients.sock");
        let bound = Listener::bind(&path).expect("bound");
        let error = Listener::bind(&path).expect_err("in use");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        drop(bound);
        assert!(!path.exists(), "its file is removed");
        // As after SIGKILL: the file is there, and nothing listens.
        let dead = new().expect("a socket");
        dead.bind(&SockAddr::unix(&path).expect("a path"))
            .expect("bound");
        drop(dead);
        drop(Listener::bind(&path).expect("replaced"));
        fs::write(&path, "").expect("written");
        let error = Listener::bind(&path).expect_err("a file");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    }
}
