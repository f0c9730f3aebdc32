//! Opens the two netlink sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{SockFilter, SockRef};
use tokio::task::JoinHandle;

use crate::limits::REPLY_OCTETS;

/// An error that prevents all access to the kernel's routes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A netlink socket was refused.
    #[error("cannot open a netlink socket: {0}")]
    Socket(#[source] io::Error),
    /// An option or group of the socket was refused.
    #[error("cannot set up the netlink socket ({step}): {error}")]
    Setup {
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
}

fn step(step: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |error| OpenError::Setup { step, error }
}

/// A socket, its port id, and whether its receive buffer has the requested size.
pub(super) struct Opened {
    pub(super) socket: OwnedFd,
    pub(super) port: u32,
    pub(super) large: bool,
}

/// A socket with messages, by the type that the runtime has for one, whatever its address family is.
pub(super) type Datagrams = tokio::net::UnixDatagram;

/// Returns the same socket for the runtime.
pub(super) fn driven(socket: OwnedFd) -> io::Result<Datagrams> {
    let socket = UnixDatagram::from(socket);
    socket.set_nonblocking(true)?;
    Datagrams::from_std(socket)
}

/// The sockets for requests.
pub(super) struct Requests {
    pub(super) socket: Datagrams,
    /// The same socket for threads that send on it.
    shared: Arc<socket2::Socket>,
    /// The process that carries out writes, if this one may not.
    pub(super) writer: Option<Datagrams>,
}

/// A thread that sends: its result, and the octets returned.
pub(super) type Sender = JoinHandle<(io::Result<usize>, Vec<u8>)>;

impl Requests {
    pub(super) fn new(socket: OwnedFd, writer: Option<OwnedFd>) -> io::Result<Self> {
        let shared = socket.try_clone()?;
        Ok(Self {
            socket: driven(socket)?,
            shared: Arc::new(shared.into()),
            writer: writer.map(driven).transpose()?,
        })
    }

    /// Sends on a thread. The kernel carries out route requests within the system call, so the
    /// caller can prepare the next requests during that time.
    pub(super) fn send(&self, octets: Vec<u8>) -> Sender {
        let socket = self.shared.clone();
        tokio::task::spawn_blocking(move || {
            let sent = loop {
                match socket.send(&octets) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    sent => break sent,
                }
            };
            (sent, octets)
        })
    }
}

/// Opens the socket for requests and answers.
pub(super) fn requests() -> Result<Opened, OpenError> {
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(OpenError::Socket)?;
    // Strict checking lets the kernel filter dumps; available since Linux 4.20.
    socket
        .set_netlink_get_strict_chk(true)
        .map_err(step("strict checking"))?;
    socket
        .set_ext_ack(true)
        .map_err(step("extended acknowledgments"))?;
    socket
        .set_cap_ack(true)
        .map_err(step("short acknowledgments"))?;
    let large = grow(&socket, REPLY_OCTETS);
    let address = socket.bind_auto().map_err(step("bind"))?;
    socket
        .connect(&SocketAddr::new(0, 0))
        .map_err(step("connect"))?;
    Ok(Opened {
        socket: owned(&socket)?,
        port: address.port_number(),
        large,
    })
}

/// The groups of all notifications that a [`super::NetlinkFib`] follows.
pub(super) const ALL_GROUPS: [u32; 6] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_NEXTHOP,
];

/// The groups of routes and nexthop objects.
pub(super) const ROUTE_GROUPS: [u32; 3] = [
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_NEXTHOP,
];

/// Opens a socket for notifications, except those caused by requests of port `writer`.
pub(super) fn monitor(writer: u32, octets: usize, groups: &[u32]) -> Result<Opened, OpenError> {
    let mut socket = Socket::new(NETLINK_ROUTE).map_err(OpenError::Socket)?;
    let large = grow(&socket, octets);
    // Set before the socket joins any group, so that no notification passes unfiltered.
    SockRef::from(&socket)
        .attach_filter(&leave_out(writer))
        .map_err(step("filter"))?;
    let mask = groups
        .iter()
        .fold(0, |mask, group| mask | 1_u32 << (group - 1));
    socket
        .bind(&SocketAddr::new(0, mask))
        .map_err(step("join groups"))?;
    Ok(Opened {
        socket: owned(&socket)?,
        port: 0,
        large,
    })
}

fn owned(socket: &Socket) -> Result<OwnedFd, OpenError> {
    let owned = socket.as_fd().try_clone_to_owned();
    owned.map_err(OpenError::Socket)
}

/// Enlarges the receive buffer, beyond the system's limit with `CAP_NET_ADMIN`, otherwise up to it.
fn grow(socket: &Socket, octets: usize) -> bool {
    if setsockopt(socket, sockopt::RcvBufForce, &octets).is_ok() {
        return true;
    }
    let reference = SockRef::from(socket);
    // The kernel counts its own overhead too and therefore doubles the requested size.
    reference.set_recv_buffer_size(octets).is_ok()
        && reference
            .recv_buffer_size()
            .is_ok_and(|size| size >= octets)
}

/// Returns a classic socket filter that drops messages whose `nlmsg_pid` is `port`.
fn leave_out(port: u32) -> [SockFilter; 4] {
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    /// Offset of `nlmsg_pid` in `struct nlmsghdr`.
    const PORT_AT: u32 = 12;
    // The filter machine loads words in network byte order; the kernel wrote the field in host
    // order.
    let port = u32::from_be_bytes(port.to_ne_bytes());
    [
        SockFilter::new(LOAD_WORD, 0, 0, PORT_AT),
        SockFilter::new(JUMP_EQUAL, 0, 1, port),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}
