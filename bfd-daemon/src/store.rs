//! Descriptors that outlive the process: they are stored by the service manager, or by the keeper.

#![allow(unsafe_code)] // A passed descriptor is a number, and becomes an owned one.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::{getpid, getppid};

use crate::limits::DESCRIPTORS_KEPT_MAX;

/// The variable with the size of the store. systemd sets it from version 254 on, the unit before.
pub(crate) const SIZE: &str = "FDSTORE";

/// The variable with the process number of the keeper.
pub(crate) const KEEPER: &str = "CAMBRIC_BFD_KEEPER";

/// The name of the memory with the state.
const MEMORY: &str = "memory";

/// The name of the receiving sockets.
const SOCKETS: &str = "sockets";

/// The first number of passed descriptors.
pub(crate) const PASSED_FIRST: RawFd = 3;

/// The store, and the descriptors that it has passed to this process.
#[derive(Debug)]
pub(crate) struct Store {
    exists: bool,
    passed: Vec<(String, OwnedFd)>,
}

impl Store {
    /// Returns the store that the environment names. Only the first call returns passed descriptors.
    pub(crate) fn take() -> Self {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let size = number(SIZE).unwrap_or(0);
        let mut store = Self {
            exists: size > 0 && std::env::var_os("NOTIFY_SOCKET").is_some(),
            passed: Vec::new(),
        };
        let is_for_this = number("LISTEN_PID") == Some(getpid().as_raw())
            || number(KEEPER) == Some(getppid().as_raw());
        if !store.exists || !is_for_this || TAKEN.swap(true, Ordering::Relaxed) {
            return store;
        }
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let count = number("LISTEN_FDS").and_then(|count| usize::try_from(count).ok());
        let count = count.unwrap_or(0).min(DESCRIPTORS_KEPT_MAX);
        for (number, name) in (PASSED_FIRST..).zip(names.split(':')).take(count) {
            // SAFETY: the descriptor is only borrowed for the call, which fails if it is not open.
            let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
            if fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).is_ok() {
                // SAFETY: the service manager has passed it to this process, and it is taken only once.
                let owned = unsafe { OwnedFd::from_raw_fd(number) };
                store.passed.push((name.to_owned(), owned));
            }
        }
        store
    }

    /// Returns whether descriptors can be stored.
    pub(crate) const fn exists(&self) -> bool {
        self.exists
    }

    /// Returns the memory of an earlier process.
    pub(crate) fn memory(&mut self) -> Option<OwnedFd> {
        let at = self.passed.iter().position(|(name, _)| name == MEMORY)?;
        Some(self.passed.swap_remove(at).1)
    }

    /// Returns the receiving socket of an earlier process with this address.
    pub(crate) fn socket(&mut self, address: SocketAddr) -> Option<socket2::Socket> {
        let at = self
            .passed
            .iter()
            .position(|(name, descriptor)| name == SOCKETS && local(descriptor) == Some(address))?;
        Some(self.passed.swap_remove(at).1.into())
    }

    /// Closes the receiving sockets of an earlier process with other addresses, and removes them from the
    /// store. Returns whether there were any.
    ///
    /// The service manager and the keeper close theirs later. Until then, their ports are in use.
    pub(crate) fn remove_other_sockets(&mut self, wanted: &[SocketAddr]) -> io::Result<bool> {
        let before = self.passed.len();
        self.passed.retain(|(name, descriptor)| {
            let is_wanted = || local(descriptor).is_some_and(|at| wanted.contains(&at));
            name != SOCKETS || is_wanted()
        });
        if self.passed.len() == before {
            return Ok(false);
        }
        self.forget_sockets()?;
        // All of them have one name, so that the wanted ones are stored again.
        for (_, socket) in self.passed.iter().filter(|(name, _)| name == SOCKETS) {
            self.keep(SOCKETS, socket.as_fd())?;
        }
        Ok(true)
    }

    /// Stores the memory instead of an earlier one.
    pub(crate) fn keep_memory(&self, memory: &impl AsFd) -> io::Result<()> {
        self.forget_memory()?;
        self.keep(MEMORY, memory.as_fd())
    }

    /// Removes the memory from the store.
    pub(crate) fn forget_memory(&self) -> io::Result<()> {
        self.notify(&format!("FDSTOREREMOVE=1\nFDNAME={MEMORY}\n"), &[])
    }

    /// Stores the receiving sockets instead of earlier ones. Unused passed ones are closed.
    pub(crate) fn keep_sockets<'s>(
        &mut self,
        sockets: impl Iterator<Item = BorrowedFd<'s>>,
    ) -> io::Result<()> {
        self.passed.retain(|(name, _)| name != SOCKETS);
        self.forget_sockets()?;
        for socket in sockets {
            self.keep(SOCKETS, socket)?;
        }
        Ok(())
    }

    fn forget_sockets(&self) -> io::Result<()> {
        self.notify(&format!("FDSTOREREMOVE=1\nFDNAME={SOCKETS}\n"), &[])
    }

    fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        // Otherwise systemd removes a socket with an error, such as that of an unreachable neighbor.
        let message = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0\n");
        self.notify(&message, &[descriptor.as_raw_fd()])
    }

    fn notify(&self, message: &str, descriptors: &[RawFd]) -> io::Result<()> {
        let path = std::env::var_os("NOTIFY_SOCKET").filter(|_| self.exists);
        let Some(path) = path else {
            return Ok(());
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        let slices = [IoSlice::new(message.as_bytes())];
        let attached = [ControlMessage::ScmRights(descriptors)];
        let attached = attached.get(..descriptors.len()).unwrap_or_default();
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<()>(socket.as_raw_fd(), &slices, attached, flags, None)?;
        Ok(())
    }
}

/// Returns the local address of a datagram socket.
fn local(descriptor: &OwnedFd) -> Option<SocketAddr> {
    let socket = socket2::SockRef::from(descriptor);
    let is_datagram = socket.r#type().ok()? == socket2::Type::DGRAM;
    socket
        .local_addr()
        .ok()?
        .as_socket()
        .filter(|_| is_datagram)
}

fn number(variable: &str) -> Option<i32> {
    std::env::var(variable).ok()?.parse().ok()
}
