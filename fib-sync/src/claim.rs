//! Claims an `rtm_protocol` for one program within a network namespace.
//!
//! Two programs that write under one protocol delete each other's routes, because each takes the
//! other's routes for strays of a former run. So a program claims its protocol before it writes, by
//! listening on a Unix socket with an abstract name. Such names belong to a network namespace, as
//! routes do, and the kernel frees them when the process ends, however it ends.
//!
//! Any user may bind an abstract name. So a name counts as claimed only if the kernel reports that
//! its holder is root or this process's own user. An unprivileged user cannot prevent the start of
//! a daemon, whether that user listens at the name, fills the queue of the socket, or binds without
//! listening.

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

/// Octets of a process's name in `/proc`: `TASK_COMM_LEN` less the terminator.
const COMM_OCTETS: usize = 15;

/// A claim on a protocol. It ends when this is dropped.
#[derive(Debug)]
pub struct Claim {
    /// The name of the protocol, and that of the program within it.
    listeners: Arc<[UnixListener]>,
    /// Why a second program would not be noticed.
    doubts: Vec<String>,
}

/// Another program holds the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "kernel routes of protocol {owner} belong to {holder}, which runs in this network namespace: two \
     programs with one protocol delete each other's routes"
)]
#[non_exhaustive]
pub struct Taken {
    /// The protocol.
    pub owner: Owner,
    /// The process.
    pub holder: Holder,
}

/// A process that has claimed a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its process ID, if the kernel reports one.
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
    /// programs that query the claim.
    ///
    /// # Errors
    ///
    /// Another process of root or of this user has claimed it.
    pub fn take(owner: Owner, program: &str) -> Result<Self, Taken> {
        let (mut listeners, mut doubts) = (Vec::new(), Vec::new());
        for name in [protocol_name(owner), program_name(owner, program)] {
            match bind(&name) {
                Ok(listener) => listeners.push(listener),
                Err(error) => match Occupant::of(&name) {
                    Occupant::Trusted(holder) => return Err(Taken { owner, holder }),
                    Occupant::None | Occupant::Unknown => doubts.push(doubt(&error)),
                },
            }
        }
        let claim = Self {
            listeners: listeners.into(),
            doubts,
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(drain(Arc::downgrade(&claim.listeners)));
        }
        Ok(claim)
    }

    /// Returns why a second program with the protocol would not be noticed; nothing where it would be.
    pub fn doubts(&self) -> &[String] {
        &self.doubts
    }
}

fn doubt(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "a local process, which is not verified to be of root or of this user, occupies the \
             claim"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// Returns the process of another program that has claimed this protocol. `None` if the kernel does
/// not prove that there is one.
pub fn holder(owner: Owner, program: &str) -> Option<Holder> {
    // In this order: a process that ends closes the name of the protocol first, so a former process of
    // this program is not taken for another program while it ends.
    if Occupant::of(&program_name(owner, program)) != Occupant::None {
        return None;
    }
    let Occupant::Trusted(holder) = Occupant::of(&protocol_name(owner)) else {
        return None;
    };
    (!holder.is_named(program)).then_some(holder)
}

impl Holder {
    /// Returns whether the process has this name, of which `/proc` holds only the first octets. Any
    /// user can bind the name of a claim, which keeps the program itself from claiming it. A
    /// process of root cannot be imitated that way.
    fn is_named(&self, program: &str) -> bool {
        let comm = program.get(..COMM_OCTETS).unwrap_or(program);
        self.name.as_deref() == Some(comm)
    }
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

/// The process at an abstract name.
#[derive(Debug, PartialEq, Eq)]
enum Occupant {
    /// No socket listens.
    None,
    /// A process of root or of this user listens.
    Trusted(Holder),
    /// A process of another user listens, or the kernel does not report the user.
    Unknown,
}

impl Occupant {
    fn of(name: &str) -> Self {
        match ask(name) {
            Ok(Some(holder)) => Self::Trusted(holder),
            Err(Errno::ECONNREFUSED) => Self::None,
            // EAGAIN: the queue is full. Any user can fill it, so it proves nothing about the
            // holder.
            Ok(None) | Err(_) => Self::Unknown,
        }
    }
}

/// Connects to a name, and returns the listening process if it belongs to root or this user.
fn ask(name: &str) -> nix::Result<Option<Holder>> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let address = UnixAddr::new_abstract(name.as_bytes())?;
    connect(socket.as_raw_fd(), &address)?;
    Ok(trusted(&socket))
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

/// Closes the connections that other programs have opened to query the claim, until it ends.
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
    use nix::sys::socket::Backlog;

    /// Protocols that no program of this machine claims.
    const FREE: [Owner; 4] = [Owner(251), Owner(252), Owner(253), Owner(254)];
    const FREE_TO_END: Owner = Owner(250);

    /// Returns a socket at a name with a queue of one connection, which is taken.
    fn full(name: &str) -> [OwnedFd; 2] {
        let stream = || {
            let flags = SockFlag::SOCK_NONBLOCK;
            socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap()
        };
        let address = UnixAddr::new_abstract(name.as_bytes()).unwrap();
        let (listener, first) = (stream(), stream());
        nix::sys::socket::bind(listener.as_raw_fd(), &address).unwrap();
        nix::sys::socket::listen(&listener, Backlog::new(0).unwrap()).unwrap();
        connect(first.as_raw_fd(), &address).unwrap();
        assert_eq!(
            connect(stream().as_raw_fd(), &address),
            Err(Errno::EAGAIN),
            "the queue is full"
        );
        [listener, first]
    }

    #[test]
    fn name_with_a_full_queue_keeps_no_program_from_its_start() {
        let occupied = full(&protocol_name(FREE[2]));
        assert_eq!(holder(FREE[2], "one"), None);
        let claim = Claim::take(FREE[2], "one").unwrap();
        assert_eq!(claim.listeners.len(), 1, "that of the program");
        let doubts = claim.doubts();
        assert!(
            doubts.len() == 1 && doubts[0].contains("occupies"),
            "{doubts:?}"
        );
        drop((claim, occupied));
        let occupied = full(&program_name(FREE[2], "one"));
        let claim = Claim::take(FREE[2], "one").unwrap();
        assert_eq!(claim.listeners.len(), 1, "that of the protocol");
        assert_eq!(holder(FREE[2], "one"), None, "it may be the program itself");
        assert!(holder(FREE[2], "two").is_some());
        drop(occupied);
    }

    #[test]
    fn name_without_a_listener_keeps_no_program_from_its_start() {
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
        let own = comm.trim().to_owned();
        for name in [protocol_name(FREE[3]), program_name(FREE[3], &own)] {
            let flags = SockFlag::empty();
            let bound = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
            let address = UnixAddr::new_abstract(name.as_bytes()).unwrap();
            nix::sys::socket::bind(bound.as_raw_fd(), &address).unwrap();
            assert_eq!(holder(FREE[3], &own), None);
            let _claim = Claim::take(FREE[3], &own).unwrap();
            assert_eq!(holder(FREE[3], &own), None, "it is the program itself");
        }
    }

    // Promise (Kernel routes): No two programs write kernel routes with one protocol.
    #[test]
    fn second_program_with_a_protocol_is_refused() {
        let first = Claim::take(FREE[0], "one").unwrap();
        assert!(first.doubts().is_empty());
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

    #[test]
    fn own_process_that_ends_is_no_other_holder() {
        const PROGRAM: &str = "ends";
        for _ in 0..500 {
            let claim = Claim::take(FREE_TO_END, PROGRAM).unwrap();
            std::thread::scope(|scope| {
                let end = scope.spawn(|| drop(claim));
                while !end.is_finished() {
                    assert_eq!(holder(FREE_TO_END, PROGRAM), None);
                }
            });
        }
    }
}
