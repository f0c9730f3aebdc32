//! A netlink socket for requests.
//!
//! The kernel works a request off while it is being sent, so the answer is there when `send`
//! returns and reading it does not block; the socket has a time-out all the same.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

use crate::Row;
use crate::attributes::{find, text};
use crate::limits::{DUMP_ATTEMPTS, NETLINK_BUFFER_OCTETS, NETLINK_TIMEOUT};

/// `NLMSGERR_ATTR_MSG`: the kernel's own words about an error.
const ERROR_TEXT: u16 = 1;
/// Octets of `nlmsghdr`, which an error message repeats.
const HEADER_OCTETS: usize = 16;
/// Netlink messages begin at multiples of this many octets.
const ALIGN: usize = 4;

/// A request that the kernel refused, or that did not reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Error number, positive.
    pub errno: i32,
    /// The kernel's own words, if it had any.
    pub text: Option<String>,
    /// Sequence number of the message that was refused, where the kernel told.
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
    /// An error with the number alone.
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
    sequence: u32,
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
    /// The kernel has no such protocol, or no room for a socket.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Without privileges for large buffers the usual ones must do; a transaction that does
        // not fit is refused and says so.
        let octets = NETLINK_BUFFER_OCTETS;
        if setsockopt(&socket.as_fd(), sockopt::SndBufForce, &octets).is_err() {
            let _ = setsockopt(&socket.as_fd(), sockopt::SndBuf, &octets);
        }
        if setsockopt(&socket.as_fd(), sockopt::RcvBufForce, &octets).is_err() {
            let _ = setsockopt(&socket.as_fd(), sockopt::RcvBuf, &octets);
        }
        let timeout = TimeVal::new(NETLINK_TIMEOUT.as_secs() as i64, 0);
        setsockopt(&socket.as_fd(), sockopt::ReceiveTimeout, &timeout)?;
        // Older kernels know neither; errors are then without words.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// An empty batch.
    pub fn batch(&mut self) -> Batch<'_> {
        self.drain();
        Batch {
            requests: self,
            octets: Vec::new(),
        }
    }

    /// Sends one request and waits for its acknowledgement.
    ///
    /// # Errors
    ///
    /// The kernel refused it, or did not answer.
    pub fn execute<M>(&mut self, message: M, flags: u16) -> Result<(), Refused>
    where
        M: NetlinkSerializable,
    {
        let mut batch = self.batch();
        batch.push(message, flags | NLM_F_ACK);
        batch.commit()
    }

    /// Reads a table of the kernel. A dump that a change disturbed is repeated.
    ///
    /// # Errors
    ///
    /// The kernel refused it, or did not answer.
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

    /// Asks for a single object; the answer is one message.
    ///
    /// # Errors
    ///
    /// The kernel refused it, or did not answer.
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

    /// The rows of an answer; `None` if the kernel says that they may not fit together.
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

    /// Throws away answers that a broken-off exchange left behind.
    fn drain(&mut self) {
        let mut buffer = Vec::with_capacity(1);
        while self.socket.recv(&mut buffer, libc::MSG_DONTWAIT).is_ok() {
            buffer.clear();
        }
    }
}

/// Messages that go to the kernel in one piece.
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
    /// Appends a message; its sequence number is returned.
    pub fn push<M: NetlinkSerializable>(&mut self, message: M, flags: u16) -> u32 {
        let mut header = NetlinkHeader::default();
        self.requests.sequence = self.requests.sequence.wrapping_add(1).max(1);
        header.sequence_number = self.requests.sequence;
        header.flags = flags | NLM_F_REQUEST;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let start = self.octets.len();
        let end = start + message.buffer_len().next_multiple_of(ALIGN);
        self.octets.resize(end, 0);
        if let Some(place) = self.octets.get_mut(start..end) {
            message.serialize(place);
        }
        header.sequence_number
    }

    /// Sends the batch and waits until the kernel has answered every message that asks for an
    /// acknowledgement, or has refused one.
    ///
    /// # Errors
    ///
    /// The first message that was refused.
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

/// The messages in `octets` that ask for an acknowledgement.
fn acknowledged(octets: &[u8]) -> usize {
    let mut rest = octets;
    std::iter::from_fn(|| next_message(&mut rest))
        .filter(|message| {
            message.flags() & NLM_F_ACK != 0 && message.flags() & NLM_F_DUMP != NLM_F_DUMP
        })
        .count()
}

fn next_message<'o>(rest: &mut &'o [u8]) -> Option<NetlinkBuffer<&'o [u8]>> {
    let message = NetlinkBuffer::new_checked(*rest).ok()?;
    let octets = usize::try_from(message.length()).ok()?;
    *rest = rest
        .get(octets.next_multiple_of(ALIGN)..)
        .unwrap_or_default();
    Some(message)
}

/// What an `NLMSG_ERROR` says; number 0 is an acknowledgement.
fn outcome(message: &NetlinkBuffer<&[u8]>) -> Result<(), Refused> {
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

/// What an `NLMSG_DONE` says: a dump may end in an error, too.
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
