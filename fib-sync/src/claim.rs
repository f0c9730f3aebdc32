//! Which program of a network namespace writes routes under which `rtm_protocol`.
//!
//! Two programs that write under one protocol delete each other's routes: each takes those of the
//! other for strays of a former run. So a program claims its protocol before it writes, by listening
//! on a Unix socket with an abstract name. Such names belong to a network namespace, as routes do,
//! and the kernel frees them with the process, however that ends.
//!
//! Any user may bind an abstract name. A name that is held by a user who is neither root nor this
//! process's own counts as free, so that no unprivileged user keeps a daemon from its start.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Arc, Weak};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt,
};

use crate::limits::CLAIM_DRAIN_GAP;
use crate::owner::Owner;

/// A claim on a protocol. It ends when this is dropped.
#[derive(Debug)]
pub struct Claim {
    /// The name of the protocol, and that of the program within it.
    listeners: Arc<[UnixListener]>,
}

/// Another program holds the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "kernel routes of protocol {owner} belong to {holder}, which runs in this network namespace: two \
     programs with one protocol delete each other's routes"
)]
pub struct Taken {
    /// The protocol.
    pub owner: Owner,
    /// The process.
    pub holder: Holder,
}

/// A process that has claimed a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number, if the kernel tells.
    pub pid: Option<i32>,
    /// Its name, as `/proc` has it.
    pub name: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.pid) {
            (Some(name), Some(pid)) => write!(f, "{name} (process {pid})"),
            (None, Some(pid)) => write!(f, "process {pid}"),
            (_, None) => f.write_str("another process"),
        }
    }
}

impl Claim {
    /// Claims the protocol for this program. Within a Tokio runtime the sockets are kept usable for
    /// those who ask.
    ///
    /// # Errors
    ///
    /// Another process of root or of this user has claimed it.
    pub fn take(owner: Owner, program: &str) -> Result<Self, Taken> {
        let mut listeners = Vec::new();
        for name in [protocol_name(owner), program_name(owner, program)] {
            match bind(&name) {
                Ok(listener) => listeners.push(listener),
                Err(error) => {
                    if let Some(holder) = holder_of(&name) {
                        return Err(Taken { owner, holder });
                    }
                    tracing::warn!(
                        protocol = %owner,
                        %error,
                        "the protocol of kernel routes cannot be claimed: a second program with it \
                         would not be noticed"
                    );
                }
            }
        }
        let claim = Self {
            listeners: listeners.into(),
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(drain(Arc::downgrade(&claim.listeners)));
        }
        Ok(claim)
    }
}

/// The process of another program that has claimed this protocol.
pub fn holder(owner: Owner, program: &str) -> Option<Holder> {
    let holder = holder_of(&protocol_name(owner))?;
    holder_of(&program_name(owner, program))
        .is_none()
        .then_some(holder)
}

fn protocol_name(owner: Owner) -> String {
    format!("cambric/rtm_protocol/{}", owner.0)
}

fn program_name(owner: Owner, program: &str) -> String {
    format!("{}/{program}", protocol_name(owner))
}

fn bind(name: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Who listens under this name, if it is root or this user.
fn holder_of(name: &str) -> Option<Holder> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).ok()?;
    let address = UnixAddr::new_abstract(name.as_bytes()).ok()?;
    match connect(socket.as_raw_fd(), &address) {
        Ok(()) => trusted(&socket),
        // Its queue is full, which says nothing of who it is.
        Err(Errno::EAGAIN) => Some(Holder {
            pid: None,
            name: None,
        }),
        Err(_) => None,
    }
}

fn trusted(socket: &OwnedFd) -> Option<Holder> {
    let peer = getsockopt(&socket.as_fd(), sockopt::PeerCredentials).ok()?;
    let own = nix::unistd::geteuid().as_raw();
    (peer.uid() == 0 || peer.uid() == own).then(|| {
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", peer.pid())).ok();
        Holder {
            pid: Some(peer.pid()),
            name: comm.map(|name| name.trim().to_owned()),
        }
    })
}

/// Closes what others have opened to ask, until the claim ends.
async fn drain(listeners: Weak<[UnixListener]>) {
    loop {
        tokio::time::sleep(CLAIM_DRAIN_GAP).await;
        let Some(listeners) = listeners.upgrade() else {
            return;
        };
        for listener in &*listeners {
            while listener.accept().is_ok() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protocols that no program of this machine claims.
    const FREE: [Owner; 2] = [Owner(251), Owner(252)];

    #[test]
    fn second_program_with_a_protocol_is_refused() {
        let first = Claim::take(FREE[0], "one").unwrap();
        let taken = Claim::take(FREE[0], "two").unwrap_err();
        assert_eq!(taken.owner, FREE[0]);
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(taken.holder.pid, Some(own));
        assert!(taken.to_string().contains("delete each other"), "{taken}");
        assert!(holder(FREE[0], "two").is_some());
        assert!(holder(FREE[0], "one").is_none(), "it is the program itself");
        drop(first);
        assert!(holder(FREE[0], "two").is_none());
        Claim::take(FREE[0], "two").unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn questions_are_drained() {
        let _claim = Claim::take(FREE[1], "one").unwrap();
        for _ in 0..3 {
            assert!(holder(FREE[1], "two").is_some());
        }
        tokio::time::sleep(2 * CLAIM_DRAIN_GAP).await;
        assert!(holder(FREE[1], "two").is_some());
    }
}
