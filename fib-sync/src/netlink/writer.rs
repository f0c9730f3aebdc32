//! The process that may write: carries out the writes of a process that may not, as far as they are
//! within their bounds.
//!
//! It has no runtime and no copy of the table, only the keys of its own routes. Each message of writes
//! becomes as few netlink batches as possible, and one message of outcomes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, recv, send, setsockopt, socketpair, sockopt,
};

use super::apply::Batch;
use super::dump::{Reading, What};
use super::parse;
use super::queue::Queue;
use super::raw::{self, Reply};
use super::socket::{self, OpenError};
use super::watch::{Known, receive};
use crate::error::OpError;
use crate::limits::{
    BATCH_REQUESTS_MAX, BATCH_REQUESTS_SMALL, GATE_OCTETS, MONITOR_OCTETS, READ_OCTETS,
    WRITES_OCTETS_MAX,
};
use crate::nexthop::{self, NexthopCommand, NexthopEvent};
use crate::port::{Command, Event, PutMode};
use crate::writer::{Bounds, Gate, Outcomes, Writes};

/// Messages that are executed before other descriptors are polled.
const MESSAGES_AT_ONCE: usize = 16;

/// Writes routes for another process.
pub struct RouteWriter {
    /// `None`: nothing is written.
    kernel: Option<Kernel>,
    /// The socket of the other process.
    sender: Option<OwnedFd>,
    buffer: Vec<u8>,
}

/// An admitted write.
enum Written {
    /// A route is put in this mode, or deleted.
    Route(Option<PutMode>),
    Nexthop(NexthopCommand),
}

/// The kernel's routes.
struct Kernel {
    gate: Gate,
    requests: OwnedFd,
    port: u32,
    is_large: bool,
    /// Changes by other programs.
    monitor: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl RouteWriter {
    /// Opens the sockets. Without bounds every write is refused.
    ///
    /// # Errors
    ///
    /// As [`super::NetlinkFib::open`].
    pub fn open(bounds: Option<Bounds>) -> Result<Self, OpenError> {
        Ok(Self {
            kernel: bounds.map(Kernel::open).transpose()?,
            sender: None,
            buffer: vec![0; WRITES_OCTETS_MAX],
        })
    }

    /// Changes the bounds for the next process.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn renew(&mut self, bounds: Option<Bounds>) -> Result<(), OpenError> {
        match (&mut self.kernel, bounds) {
            (Some(kernel), Some(bounds)) => kernel.gate.renew(bounds),
            (kernel, bounds) => *kernel = bounds.map(Kernel::open).transpose()?,
        }
        Ok(())
    }

    /// Connects another process: returns the descriptors that [`super::NetlinkFib::delegated`] needs,
    /// and whether the receive buffer has the requested size. A former process is disconnected.
    ///
    /// # Errors
    ///
    /// The kernel refuses a socket.
    pub fn connect(&mut self) -> Result<([OwnedFd; 2], bool), OpenError> {
        let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (own, other) = socketpair(family, kind, None, flags)
            .map_err(|error| OpenError::Socket(error.into()))?;
        for socket in [&own, &other] {
            // The kernel takes what it allows, and doubles it.
            let _ = setsockopt(socket, sockopt::SndBuf, &(2 * WRITES_OCTETS_MAX));
        }
        let port = self.kernel.as_ref().map_or(0, |kernel| kernel.port);
        let monitor = socket::monitor(port, MONITOR_OCTETS, &socket::ALL_GROUPS)?;
        self.sender = Some(own);
        Ok(([other, monitor.socket], monitor.large))
    }

    /// Returns whether a process is connected.
    pub const fn is_connected(&self) -> bool {
        self.sender.is_some()
    }

    /// Returns the descriptors that [`serve`](Self::serve) reads.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let monitor = self.kernel.iter().map(|kernel| kernel.monitor.as_fd());
        self.sender.iter().map(AsFd::as_fd).chain(monitor).collect()
    }

    /// Carries out the writes that have arrived.
    pub fn serve(&mut self) {
        if let Some(kernel) = &mut self.kernel {
            kernel.observe();
        }
        for _ in 0..MESSAGES_AT_ONCE {
            let Some(sender) = &self.sender else { return };
            let octets = match recv(sender.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => return,
                Ok(length) if length > 0 => self.buffer.get(..length).unwrap_or_default(),
                Ok(_) | Err(_) => return self.sender = None,
            };
            // A process that sends something else is not answered.
            let Some(writes) = Writes::parse(octets) else {
                return self.sender = None;
            };
            let outcomes = match &mut self.kernel {
                Some(kernel) => kernel.execute(writes),
                None => refused(&writes),
            };
            // It is not waited for if it does not read the outcomes.
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(sender.as_raw_fd(), &outcomes.to_octets(), flags);
        }
    }
}

fn refused(writes: &[Command]) -> Outcomes {
    let count = u16::try_from(writes.len()).unwrap_or(u16::MAX);
    let errors = (0..count).map(|position| (position, OpError::new(libc::EPERM)));
    Outcomes {
        count,
        errors: errors.collect(),
    }
}

impl Kernel {
    fn open(bounds: Bounds) -> Result<Self, OpenError> {
        let requests = socket::requests()?;
        let monitor = socket::monitor(requests.port, GATE_OCTETS, &socket::ROUTE_GROUPS)?;
        Ok(Self {
            gate: Gate::new(bounds),
            requests: requests.socket,
            port: requests.port,
            is_large: requests.large,
            monitor: monitor.socket,
            sequence: 1,
            buffer: Vec::with_capacity(READ_OCTETS),
        })
    }

    /// Reads the changes by other programs.
    fn observe(&mut self) {
        let table = [self.gate.bounds().table];
        loop {
            match receive(&self.monitor, &mut self.buffer) {
                Ok(length) if length < READ_OCTETS => {
                    let octets = self.buffer.get(..length).unwrap_or_default();
                    for message in raw::messages(octets) {
                        let event = Known::nexthop_event(&message)
                            .or_else(|| Known::route_event(&message, &table));
                        if let Some(event) = event {
                            self.gate.observe(&event);
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() != Some(libc::ENOBUFS) => {
                    return self.gate.lost();
                }
                Ok(_) | Err(_) => self.gate.lost(),
            }
        }
    }

    /// Carries out writes in their order.
    fn execute(&mut self, writes: Vec<Command>) -> Outcomes {
        let mut outcomes = Outcomes {
            count: u16::try_from(writes.len()).unwrap_or(u16::MAX),
            errors: Vec::new(),
        };
        let needs_own = |write: &Command| {
            let is_delete = matches!(write, Command::Nexthop(NexthopCommand::Delete(_)));
            is_delete || write.replaced_key().is_some()
        };
        if writes.iter().any(needs_own) {
            self.observe();
            if writes.iter().any(|write| self.gate.needs_reading(write)) {
                self.read_own();
                self.observe();
            }
        }
        let (mut queue, mut positions) = (Queue::default(), Vec::with_capacity(writes.len()));
        for (position, write) in (0..outcomes.count).zip(writes) {
            match self.gate.admit(&write) {
                Ok(()) => {
                    let kind = match &write {
                        Command::Put(_, _, mode) => Written::Route(Some(*mode)),
                        Command::Nexthop(command) => Written::Nexthop(command.clone()),
                        _ => Written::Route(None),
                    };
                    positions.push((position, kind));
                    queue.push(write, [].iter());
                }
                Err(error) => outcomes.errors.push((position, error)),
            }
        }
        let mut positions = positions.into_iter();
        while queue.front().is_some() {
            for event in self.send(&mut queue) {
                let Some((position, kind)) = positions.next() else {
                    continue;
                };
                let result = match (event, kind) {
                    (Event::Applied(key, result), Written::Route(mode)) => {
                        self.gate.settled(&key, mode, &result);
                        result
                    }
                    (
                        Event::Nexthop(NexthopEvent::Applied(_, result)),
                        Written::Nexthop(command),
                    ) => {
                        self.gate.settled_nexthop(&command, &result);
                        result
                    }
                    _ => continue,
                };
                outcomes
                    .errors
                    .extend(result.err().map(|error| (position, error)));
            }
        }
        outcomes
    }

    /// Sends one batch, and returns the outcomes.
    fn send(&mut self, queue: &mut Queue) -> Vec<Event> {
        let most = if self.is_large {
            BATCH_REQUESTS_MAX
        } else {
            BATCH_REQUESTS_SMALL
        };
        let mut batch = Batch::take(queue, self.sequence, most);
        self.sequence = batch.next_sequence();
        let errno = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        if let Err(error) = self.request(&batch.octets) {
            return batch.fail(errno(error)).collect();
        }
        loop {
            let octets = match self.answers() {
                Ok(octets) => octets,
                Err(error) => return batch.fail(errno(error)).collect(),
            };
            for message in raw::messages(octets) {
                if let Reply::End(result) = message.reply()
                    && batch.answer(message.sequence, result)
                {
                    return batch.finish().collect();
                }
            }
        }
    }

    /// Reads the own routes of the table.
    fn read_own(&mut self) {
        self.gate.reading();
        let (table, owner) = (self.gate.bounds().table, self.gate.bounds().owner);
        let routes = [false, true].map(|ipv6| What::Routes {
            table,
            owner: Some(owner),
            ipv6,
        });
        for what in routes.into_iter().chain([What::Nexthops]) {
            let reading = Reading::new(what, self.sequence);
            self.sequence = self.sequence.wrapping_add(1);
            if self.request(&reading.octets).is_err() {
                return self.gate.lost();
            }
            let mut more = true;
            while more {
                let Ok(octets) = self.answers() else {
                    return self.gate.lost();
                };
                let (mut rows, mut nexthops) = (Vec::new(), Vec::new());
                for message in raw::messages(octets) {
                    match message.reply() {
                        _ if message.sequence != reading.sequence => {}
                        Reply::End(_) => more = false,
                        Reply::Row if what == What::Nexthops => {
                            nexthops.extend(nexthop::parse(message.payload));
                        }
                        Reply::Row => rows.extend(parse::route(message.payload)),
                    }
                }
                for (key, route) in rows {
                    self.gate.seen(&key, route.owner());
                }
                for nexthop in nexthops {
                    self.gate.seen_nexthop(&nexthop);
                }
            }
        }
    }

    fn request(&self, octets: &[u8]) -> io::Result<()> {
        loop {
            match send(self.requests.as_raw_fd(), octets, MsgFlags::empty()) {
                Err(Errno::EINTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }

    /// Reads one datagram of answers: the kernel has written them before a request returns.
    fn answers(&mut self) -> io::Result<&[u8]> {
        let length = loop {
            match receive(&self.requests, &mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        let lost = || io::Error::from_raw_os_error(libc::ENOBUFS);
        self.buffer.get(..length).ok_or_else(lost)
    }
}
