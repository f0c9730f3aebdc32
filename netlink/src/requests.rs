//! A netlink socket for requests.
//!
//! The kernel processes a request within the `send` call, so the answer is available when `send`
//! returns and reading it does not block; the socket has a timeout nevertheless.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_ECHO, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

use crate::Row;
use crate::attributes::{find, text};
use crate::limits::{DUMP_ATTEMPTS, DUMP_PART_OCTETS, NETLINK_BUFFER_OCTETS, NETLINK_TIMEOUT};

/// `NLMSGERR_ATTR_MSG`: the kernel's error text.
const ERROR_TEXT: u16 = 1;
/// Octets of `nlmsghdr`, which an error message repeats.
const HEADER_OCTETS: usize = 16;
/// Netlink messages begin at multiples of this many octets.
const ALIGN: usize = 4;

/// A request that the kernel rejected, or that did not reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// Error number, positive.
    pub errno: i32,
    /// The kernel's error text, if there is one.
    pub text: Option<String>,
    /// Sequence number of the rejected message, if the kernel reported it.
    pub sequence: Option<u32>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.errno);
        match &self.text {
            Some(text) => write!(f, "{error}: {text}"),
            None => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Refused {}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self {
            errno: error.raw_os_error().unwrap_or(libc::EIO),
            text: None,
            sequence: None,
        }
    }
}

impl Refused {
    /// Returns an error with only its number.
    pub const fn of(errno: i32) -> Self {
        Self {
            errno,
            text: None,
            sequence: None,
        }
    }
}

/// The socket.
pub struct Requests {
    socket: Socket,
    port: u32,
    sequence: u32,
}

/// A table of the kernel that is read part by part.
#[derive(Debug)]
pub struct Dump {
    sequence: u32,
    is_consistent: bool,
}

impl Dump {
    /// Returns whether no change has interrupted it so far.
    pub const fn is_consistent(&self) -> bool {
        self.is_consistent
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl Requests {
    /// Opens a socket of a netlink protocol (`NETLINK_ROUTE`, `NETLINK_NETFILTER`) in the network
    /// namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel has no such protocol, or cannot allocate a socket.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        // Without privileges for large buffers the default ones are used; a transaction that does
        // not fit is rejected with an error.
        let octets = NETLINK_BUFFER_OCTETS;
        if setsockopt(&socket.as_fd(), sockopt::SndBufForce, &octets).is_err() {
            let _ = setsockopt(&socket.as_fd(), sockopt::SndBuf, &octets);
        }
        if setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &octets).is_err() {
            let _ = setsockopt(&socket.as_fd(), sockopt::RcvBuf, &octets);
        }
        let timeout = TimeVal::new(NETLINK_TIMEOUT.as_secs() as i64, 0);
        setsockopt(&socket.as_fd(), sockopt::ReceiveTimeout, &timeout)?;
        // Older kernels support neither; errors then have no text.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self {
            socket,
            port,
            sequence: 0,
        })
    }

    /// Returns the port ID of the socket: the kernel's notifications name it as their cause.
    pub const fn port(&self) -> u32 {
        self.port
    }

    /// Returns an empty batch.
    pub fn batch(&mut self) -> Batch<'_> {
        self.drain();
        Batch {
            requests: self,
            octets: Vec::new(),
        }
    }

    /// Sends one request and waits for its acknowledgment.
    ///
    /// # Errors
    ///
    /// The kernel rejected it, or did not answer.
    pub fn execute<M>(&mut self, message: M, flags: u16) -> Result<(), Refused>
    where
        M: NetlinkSerializable,
    {
        let mut batch = self.batch();
        batch.push(message, flags | NLM_F_ACK);
        batch.commit()
    }

    /// Reads a table of the kernel. A dump that a change interrupted is repeated.
    ///
    /// # Errors
    ///
    /// The kernel rejected it, or did not answer.
    pub fn dump<M>(&mut self, message: M) -> Result<Vec<Row>, Refused>
    where
        M: NetlinkSerializable + Clone,
    {
        for _ in 0..DUMP_ATTEMPTS {
            let mut batch = self.batch();
            let sequence = batch.push(message.clone(), NLM_F_DUMP);
            batch.send()?;
            if let Some(rows) = self.rows(sequence)? {
                return Ok(rows);
            }
        }
        Err(Refused::of(libc::EINTR))
    }

    /// Begins to read a table of the kernel part by part. Another request on this socket reads the rest
    /// first.
    ///
    /// # Errors
    ///
    /// The request did not reach the kernel.
    pub fn begin_dump<M>(&mut self, message: M) -> Result<Dump, Refused>
    where
        M: NetlinkSerializable,
    {
        let mut batch = self.batch();
        let sequence = batch.push(message, NLM_F_DUMP);
        batch.send()?;
        Ok(Dump {
            sequence,
            is_consistent: true,
        })
    }

    /// Reads the next part of a dump, and calls `each` for its rows. Returns whether it was the last.
    ///
    /// # Errors
    ///
    /// The kernel rejected the dump, or did not answer.
    pub fn dump_part(
        &mut self,
        dump: &mut Dump,
        mut each: impl FnMut(Row),
    ) -> Result<bool, Refused> {
        let mut part = Vec::with_capacity(DUMP_PART_OCTETS);
        let octets = self.socket.recv(&mut part, libc::MSG_TRUNC)?;
        if octets > part.len() {
            return Err(Refused::of(libc::EMSGSIZE));
        }
        let mut rest = part.as_slice();
        while let Some(message) = next_message(&mut rest) {
            if message.sequence_number() != dump.sequence {
                continue;
            }
            dump.is_consistent &= message.flags() & NLM_F_DUMP_INTR == 0;
            match message.message_type() {
                NLMSG_ERROR => return outcome(&message).map(|()| true),
                NLMSG_DONE => return done(&message).map(|()| true),
                kind => each(Row {
                    kind,
                    payload: message.payload().to_vec(),
                }),
            }
        }
        Ok(false)
    }

    /// Reads a single object; the answer is one message.
    ///
    /// # Errors
    ///
    /// The kernel rejected it, or did not answer.
    pub fn fetch<M>(&mut self, message: M) -> Result<Option<Row>, Refused>
    where
        M: NetlinkSerializable,
    {
        let mut batch = self.batch();
        let sequence = batch.push(message, NLM_F_ACK);
        batch.send()?;
        Ok(self
            .rows(sequence)?
            .and_then(|rows| rows.into_iter().next()))
    }

    /// Sends one request that creates or changes an object, and returns the kernel's notifications of the
    /// change (`NLM_F_ECHO`).
    ///
    /// # Errors
    ///
    /// The kernel rejected it, or did not answer.
    pub fn change<M>(&mut self, message: M, flags: u16) -> Result<Vec<Row>, Refused>
    where
        M: NetlinkSerializable,
    {
        let mut batch = self.batch();
        let sequence = batch.push(message, flags | NLM_F_ACK | NLM_F_ECHO);
        batch.send()?;
        Ok(self.rows(sequence)?.unwrap_or_default())
    }

    /// Returns the rows of an answer; `None` if the kernel reports that they may be inconsistent.
    fn rows(&mut self, sequence: u32) -> Result<Option<Vec<Row>>, Refused> {
        let mut rows = Vec::new();
        let mut whole = true;
        loop {
            let part = self.receive()?;
            let mut rest = part.as_slice();
            while let Some(message) = next_message(&mut rest) {
                if message.sequence_number() != sequence {
                    continue;
                }
                whole &= message.flags() & NLM_F_DUMP_INTR == 0;
                match message.message_type() {
                    NLMSG_ERROR => return outcome(&message).map(|()| whole.then_some(rows)),
                    NLMSG_DONE => {
                        done(&message)?;
                        return Ok(whole.then_some(rows));
                    }
                    kind => rows.push(Row {
                        kind,
                        payload: message.payload().to_vec(),
                    }),
                }
            }
        }
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let (octets, _) = self.socket.recv_from_full()?;
        Ok(octets)
    }

    /// Discards the answers of an aborted exchange.
    fn drain(&mut self) {
        let mut buffer = Vec::with_capacity(1);
        while self.socket.recv(&mut buffer, libc::MSG_DONTWAIT).is_ok() {
            buffer.clear();
        }
    }
}

/// Messages that are sent to the kernel as a whole.
pub struct Batch<'r> {
    requests: &'r mut Requests,
    octets: Vec<u8>,
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

impl<'r> Batch<'r> {
    /// Appends a message; returns its sequence number.
    pub fn push<M: NetlinkSerializable>(&mut self, message: M, flags: u16) -> u32 {
        self.requests.sequence = self.requests.sequence.wrapping_add(1).max(1);
        let sequence = self.requests.sequence;
        append(&mut self.octets, message, sequence, flags | NLM_F_REQUEST);
        sequence
    }

    /// Sends the batch and waits until the kernel has acknowledged every message that requests it,
    /// or has rejected one.
    ///
    /// # Errors
    ///
    /// The first rejected message.
    pub fn commit(self) -> Result<(), Refused> {
        let mut awaited = acknowledged(&self.octets);
        let requests = self.send()?;
        while awaited > 0 {
            let part = requests.receive()?;
            let mut rest = part.as_slice();
            while let Some(message) = next_message(&mut rest) {
                if message.message_type() == NLMSG_ERROR {
                    outcome(&message)?;
                    awaited -= 1;
                }
            }
        }
        Ok(())
    }

    fn send(self) -> Result<&'r mut Requests, Refused> {
        self.requests.socket.send(&self.octets, 0)?;
        Ok(self.requests)
    }
}

/// Appends a message.
pub(crate) fn append<M: NetlinkSerializable>(
    octets: &mut Vec<u8>,
    message: M,
    sequence: u32,
    flags: u16,
) {
    let mut header = NetlinkHeader::default();
    header.sequence_number = sequence;
    header.flags = flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    message.finalize();
    let start = octets.len();
    let end = start + message.buffer_len().next_multiple_of(ALIGN);
    octets.resize(end, 0);
    if let Some(place) = octets.get_mut(start..end) {
        message.serialize(place);
    }
}

/// Returns the number of messages in `octets` that request an acknowledgment.
fn acknowledged(octets: &[u8]) -> usize {
    let mut rest = octets;
    std::iter::from_fn(|| next_message(&mut rest))
        .filter(|message| {
            message.flags() & NLM_F_ACK != 0 && message.flags() & NLM_F_DUMP != NLM_F_DUMP
        })
        .count()
}

/// Returns the next message, and removes it from the rest.
pub(crate) fn next_message<'o>(rest: &mut &'o [u8]) -> Option<NetlinkBuffer<&'o [u8]>> {
    let message = NetlinkBuffer::new_checked(*rest).ok()?;
    let octets = usize::try_from(message.length()).ok()?;
    *rest = rest
        .get(octets.next_multiple_of(ALIGN)..)
        .unwrap_or_default();
    Some(message)
}

/// Returns the outcome in an `NLMSG_ERROR`; number 0 is an acknowledgment.
pub(crate) fn outcome(message: &NetlinkBuffer<&[u8]>) -> Result<(), Refused> {
    let payload = message.payload();
    match error_number(payload) {
        0 => Ok(()),
        number => Err(Refused {
            errno: number.saturating_neg(),
            text: error_text(payload),
            sequence: Some(message.sequence_number()),
        }),
    }
}

/// Returns the outcome in an `NLMSG_DONE`, because a dump may end in an error, too.
fn done(message: &NetlinkBuffer<&[u8]>) -> Result<(), Refused> {
    match error_number(message.payload()) {
        number if number < 0 => Err(Refused {
            sequence: Some(message.sequence_number()),
            ..Refused::of(number.saturating_neg())
        }),
        _ => Ok(()),
    }
}

fn error_number(payload: &[u8]) -> i32 {
    payload
        .first_chunk()
        .map_or(0, |octets| i32::from_ne_bytes(*octets))
}

fn error_text(payload: &[u8]) -> Option<String> {
    find(payload.get(ALIGN + HEADER_OCTETS..)?, ERROR_TEXT).map(text)
}
