//! A netlink socket for notifications.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NLMSG_ERROR, NetlinkSerializable};
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{SockFilter, SockRef};

use crate::Refused;
use crate::limits::NOTIFICATION_OCTETS_MAX;
use crate::requests::{append, next_message, outcome};

/// Notifications of one group of a netlink protocol, in a receive buffer of limited size.
pub struct Notifications {
    socket: Socket,
    /// The group; 0: none.
    group: u32,
    part: Vec<u8>,
}

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifications").finish_non_exhaustive()
    }
}

/// One notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notification<'n> {
    /// Netlink message type.
    pub kind: u16,
    /// Port ID of the socket whose request caused it; 0 is the kernel itself.
    pub port: u32,
    /// The octets after the netlink header.
    pub payload: &'n [u8],
}

impl<'n> Notification<'n> {
    /// Returns a notification of these parts.
    pub const fn new(kind: u16, port: u32, payload: &'n [u8]) -> Self {
        Self {
            kind,
            port,
            payload,
        }
    }
}

impl Notifications {
    /// Joins a group in the network namespace of the calling thread. The kernel discards what requests
    /// of port `writer` cause, except messages of type `kept`. `octets` is the size of the receive
    /// buffer.
    ///
    /// # Errors
    ///
    /// The kernel has no such protocol or group, or denies it.
    pub fn join(
        protocol: isize,
        group: u32,
        writer: u32,
        kept: u16,
        octets: usize,
    ) -> io::Result<Self> {
        let mut socket = buffered(protocol, octets)?;
        // Set before the socket joins the group, so that no notification passes unfiltered.
        SockRef::from(&socket).attach_filter(&leave_out(writer, kept))?;
        let shift = group.saturating_sub(1);
        let mask = 1_u32
            .checked_shl(shift)
            .ok_or(io::ErrorKind::InvalidInput)?;
        socket.bind(&SocketAddr::new(0, mask))?;
        socket.set_non_blocking(true)?;
        Ok(Self {
            socket,
            group,
            part: Vec::with_capacity(NOTIFICATION_OCTETS_MAX),
        })
    }

    /// Leaves the group. Without any member of it, the kernel does not build notifications. The queue can
    /// still be read.
    ///
    /// # Errors
    ///
    /// The socket has no group.
    pub fn leave(&mut self) -> io::Result<()> {
        self.socket.drop_membership(self.group)
    }

    /// Joins the group again. The notifications since it was [left](Self::leave) are missing.
    ///
    /// # Errors
    ///
    /// The kernel denies it.
    pub fn rejoin(&mut self) -> io::Result<()> {
        self.socket.add_membership(self.group)
    }

    /// Opens a socket that joins no group: it gets the messages that its [requests](Self::request) ask
    /// for, such as those of the packet log. `octets` is the size of the receive buffer.
    ///
    /// # Errors
    ///
    /// The kernel has no such protocol.
    pub fn open(protocol: isize, octets: usize) -> io::Result<Self> {
        let mut socket = buffered(protocol, octets)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        Ok(Self {
            socket,
            group: 0,
            part: Vec::with_capacity(NOTIFICATION_OCTETS_MAX),
        })
    }

    /// Sends a request, and returns the kernel's answer to it. Messages before the answer are discarded.
    ///
    /// # Errors
    ///
    /// The kernel rejected it, or did not answer.
    pub fn request<M: NetlinkSerializable>(&mut self, message: M) -> Result<(), Refused> {
        const SEQUENCE: u32 = 1;
        let mut octets = Vec::new();
        append(&mut octets, message, SEQUENCE, NLM_F_REQUEST | NLM_F_ACK);
        let kernel = SocketAddr::new(0, 0);
        self.socket.send_to(&octets, &kernel, 0)?;
        // The kernel answers within the call.
        loop {
            self.part.clear();
            self.socket.recv(&mut self.part, 0)?;
            let mut rest = self.part.as_slice();
            while let Some(message) = next_message(&mut rest) {
                let is_answer = message.sequence_number() == SEQUENCE;
                if is_answer && message.message_type() == NLMSG_ERROR {
                    return outcome(&message);
                }
            }
        }
    }

    /// Reads the next part of the queue, and calls `each` for its messages. Returns whether there was
    /// one; never waits.
    ///
    /// # Errors
    ///
    /// `ENOBUFS`: messages were lost.
    pub fn read(&mut self, mut each: impl FnMut(Notification<'_>)) -> io::Result<bool> {
        self.part.clear();
        let octets = match self.socket.recv(&mut self.part, libc::MSG_TRUNC) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            octets => octets?,
        };
        if octets > self.part.len() {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        let mut rest = self.part.as_slice();
        while let Some(message) = next_message(&mut rest) {
            each(Notification::new(
                message.message_type(),
                message.port_number(),
                message.payload(),
            ));
        }
        Ok(true)
    }
}

impl AsFd for Notifications {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn buffered(protocol: isize, octets: usize) -> io::Result<Socket> {
    let socket = Socket::new(protocol)?;
    if setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &octets).is_err() {
        setsockopt(&socket.as_fd(), sockopt::RcvBuf, &octets)?;
    }
    Ok(socket)
}

/// Returns a classic socket filter that drops messages whose `nlmsg_pid` is `port`, unless their type
/// is `kept`. All messages of a part have the same port.
fn leave_out(port: u32, kept: u16) -> [SockFilter; 6] {
    const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    /// Offsets of `nlmsg_type` and `nlmsg_pid` in `struct nlmsghdr`.
    const TYPE_AT: u32 = 4;
    const PORT_AT: u32 = 12;
    // The filter machine loads in network byte order; the kernel wrote the fields in host order.
    let kept = u16::from_be_bytes(kept.to_ne_bytes()).into();
    let port = u32::from_be_bytes(port.to_ne_bytes());
    [
        SockFilter::new(LOAD_HALF, 0, 0, TYPE_AT),
        SockFilter::new(JUMP_EQUAL, 3, 0, kept),
        SockFilter::new(LOAD_WORD, 0, 0, PORT_AT),
        SockFilter::new(JUMP_EQUAL, 0, 1, port),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}
