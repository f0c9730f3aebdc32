//! The netlink driver.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::{fmt, io};

use std::task::{Context, Poll, Waker, ready};

use super::apply::Batch;
use super::dump::{Reading, What};
use super::job::{Job, JobKind};
use super::queue::Queue;
use super::raw;
use super::socket::{self, ALL_GROUPS, Datagrams, OpenError, Opened, Requests};
use super::watch::{Known, Read, poll_read};
use crate::error::OpError;
use crate::limits::{
    BATCH_REQUESTS_MAX, BATCH_REQUESTS_SMALL, MONITOR_OCTETS, NOTIFICATIONS_AHEAD_MAX, READ_OCTETS,
};
use crate::nexthop::NexthopCommand;
use crate::port::{Command, Event, Fib};
use crate::route::TABLE_MAIN;

/// Times that links or addresses are read again when they change during the read.
const READS_MAX: u32 = 16;

/// Configuration of a [`NetlinkFib`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NetlinkConfig {
    /// Tables of which changes are followed.
    pub tables: Vec<u32>,
    /// Receive buffer for notifications, in octets.
    pub monitor_octets: usize,
}

impl NetlinkConfig {
    /// Returns the configuration for these tables, with the default buffer.
    #[must_use]
    pub const fn new(tables: Vec<u32>) -> Self {
        Self {
            tables,
            monitor_octets: MONITOR_OCTETS,
        }
    }
}

impl Default for NetlinkConfig {
    fn default() -> Self {
        Self::new(vec![TABLE_MAIN])
    }
}

/// The forwarding table of the network namespace in which the driver was opened.
pub struct NetlinkFib {
    config: NetlinkConfig,
    requests: Requests,
    monitor: Datagrams,
    /// Commands not yet started, in order.
    queue: Queue,
    /// Reads of links and addresses not yet started; they precede the commands.
    reads: VecDeque<What>,
    job: Option<Job>,
    sequence: u32,
    requests_max: usize,
    large_buffers: bool,
    /// Events to hand out.
    events: VecDeque<Event>,
    /// Number of `events` that report changes by other programs.
    unreported: usize,
    /// Answers held back until the older notifications have been handed out.
    held: VecDeque<Event>,
    /// Notifications read while answers are pending.
    ahead: usize,
    known: Known,
    /// Reads of links or addresses that failed since the last overrun.
    failed_reads: u32,
    buffer: Vec<u8>,
    closed: bool,
    waker: Option<Waker>,
}

impl NetlinkFib {
    /// Opens the sockets and requests links and addresses. Must be called inside a tokio runtime
    /// with I/O.
    ///
    /// # Errors
    /// If the kernel lacks `NETLINK_ROUTE`, or the required options (Linux 4.20).
    pub fn open(config: NetlinkConfig) -> Result<Self, OpenError> {
        let requests = socket::requests()?;
        let monitor = socket::monitor(requests.port, config.monitor_octets, &ALL_GROUPS)?;
        let large = requests.large;
        Self::with(config, requests, monitor, large, None)
    }

    /// Opens the same for a process that may not write routes: another one writes for it.
    /// `descriptors` are of [`super::RouteWriter::connect`] in that process.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn delegated(
        config: NetlinkConfig,
        descriptors: [OwnedFd; 2],
        is_large: bool,
    ) -> Result<Self, OpenError> {
        let [writer, monitor] = descriptors;
        let monitor = Opened {
            socket: monitor,
            port: 0,
            large: is_large,
        };
        // It carries requests of dumps only, for which the kernel needs no buffer.
        Self::with(config, socket::requests()?, monitor, true, Some(writer))
    }

    fn with(
        config: NetlinkConfig,
        requests: Opened,
        monitor: Opened,
        is_large: bool,
        writer: Option<OwnedFd>,
    ) -> Result<Self, OpenError> {
        let requests = Requests::new(requests.socket, writer).map_err(OpenError::Socket)?;
        Ok(Self {
            requests_max: if is_large {
                BATCH_REQUESTS_MAX
            } else {
                BATCH_REQUESTS_SMALL
            },
            requests,
            monitor: socket::driven(monitor.socket).map_err(OpenError::Socket)?,
            large_buffers: is_large && monitor.large,
            queue: Queue::default(),
            reads: VecDeque::from([What::Links, What::Addresses]),
            job: None,
            sequence: 1,
            events: VecDeque::new(),
            unreported: 0,
            held: VecDeque::new(),
            ahead: 0,
            known: Known::default(),
            failed_reads: 0,
            buffer: Vec::with_capacity(READ_OCTETS),
            closed: false,
            waker: None,
            config,
        })
    }

    /// Returns whether both receive buffers have the requested size.
    pub fn has_large_buffers(&self) -> bool {
        self.large_buffers
    }

    /// Returns the next event.
    pub async fn event(&mut self) -> Event {
        core::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    fn close(&mut self, error: &io::Error) {
        self.closed = true;
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        self.hand_out_held();
        self.events.push_back(Event::Closed(OpError::new(errno)));
    }

    /// Hands out the answers that were held back.
    fn hand_out_held(&mut self) {
        let held = self.held.drain(..);
        self.events
            .extend(held.filter_map(|event| self.known.settled(event)));
        self.known.all_settled();
    }

    /// Reads notifications. Ready when some were read, pending when no more are available.
    fn poll_monitor(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match ready!(poll_read(&self.monitor, cx, &mut self.buffer)) {
            Ok(Read::Some(length)) => {
                let before = self.events.len();
                let octets = self.buffer.get(..length).unwrap_or_default();
                for message in raw::messages(octets) {
                    self.events
                        .extend(self.known.event(&message, &self.config.tables));
                }
                self.queue.overtake(self.events.iter().skip(before));
                self.unreported += self
                    .events
                    .iter()
                    .skip(before)
                    .filter(|event| is_counted(event))
                    .count();
                self.ahead += self.events.len() - before;
            }
            Ok(Read::Lost) => {
                self.events.push_back(Event::Overrun);
                self.unreported += 1;
                self.queue.overtake(self.events.iter());
                self.failed_reads = 0;
                for what in [What::Links, What::Addresses] {
                    if !self.reads.contains(&what) {
                        self.reads.push_back(what);
                    }
                }
            }
            Err(error) => self.close(&error),
        }
        Poll::Ready(())
    }

    /// Reads answers. Ready when some were read.
    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let writer = self.requests.writer.as_ref();
        let is_write = self.job.as_ref().is_some_and(Job::is_write);
        let socket = match writer.filter(|_| is_write) {
            Some(writer) => writer,
            None => &self.requests.socket,
        };
        let is_delegated = is_write && writer.is_some();
        let read = ready!(poll_read(socket, cx, &mut self.buffer));
        let Some(mut job) = self.job.take() else {
            return Poll::Ready(());
        };
        match read {
            Ok(Read::Some(0)) => {
                // Only the writing process can be gone.
                self.fail(job, libc::EPIPE);
                self.close(&io::Error::from_raw_os_error(libc::EPIPE));
            }
            Ok(Read::Some(length)) => {
                let octets = self.buffer.get(..length).unwrap_or_default();
                let ended = match is_delegated {
                    true => job.outcomes(octets),
                    false => job.answers(octets, &mut self.known, &mut self.held),
                };
                if ended {
                    let next = job.finish(&mut self.known, &mut self.held);
                    self.go_on(next);
                } else {
                    self.job = Some(job);
                }
            }
            Ok(Read::Lost) => self.fail(job, libc::ENOBUFS),
            Err(error) => {
                self.fail(job, error.raw_os_error().unwrap_or(libc::EIO));
                self.close(&error);
            }
        }
        Poll::Ready(())
    }

    fn fail(&mut self, job: Job, errno: i32) {
        let next = job.fail(errno, &mut self.known, &mut self.held);
        self.go_on(next);
    }

    /// Queues the next part of a job, or repeats a read of links or addresses that failed.
    fn go_on(&mut self, next: Option<What>) {
        match next {
            Some(routes @ What::Routes { .. }) => self.read(routes),
            Some(again) if self.failed_reads < READS_MAX => {
                self.failed_reads += 1;
                self.reads.push_back(again);
            }
            Some(what) => {
                self.known.give_up();
                tracing::warn!(
                    ?what,
                    "the kernel rejects the read; it is not tried \
                    again"
                );
            }
            None => {}
        }
    }

    fn read(&mut self, what: What) {
        let reading = Reading::new(what, self.sequence);
        self.sequence = self.sequence.wrapping_add(1);
        self.job = Some(Job::new(JobKind::Read(reading)));
    }

    /// Starts the next job. Returns whether there is one.
    fn begin(&mut self) -> bool {
        if let Some(what) = self.reads.pop_front() {
            if what == What::Links {
                self.known.begin_links();
            } else {
                self.known.begin_addresses();
            }
            self.read(what);
            return true;
        }
        match self.queue.front().map(|queued| &queued.command) {
            None => false,
            Some(&Command::Dump { table, owner }) => {
                self.queue.pop();
                self.events.push_back(Event::DumpStart { table, owner });
                self.read(What::Routes {
                    table,
                    owner,
                    ipv6: false,
                });
                true
            }
            Some(Command::Nexthop(NexthopCommand::Dump)) => {
                self.queue.pop();
                self.read(What::Nexthops);
                true
            }
            Some(_) => {
                let is_delegated = self.requests.writer.is_some();
                let take = match is_delegated {
                    true => Batch::delegate,
                    false => Batch::take,
                };
                let batch = take(&mut self.queue, self.sequence, self.requests_max);
                self.sequence = batch.next_sequence();
                if batch.is_void() {
                    self.events.extend(batch.finish());
                } else {
                    self.job = Some(Job::new(JobKind::Write(batch)));
                }
                true
            }
        }
    }

    /// Sends all octets of the job.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(job) = &mut self.job else {
            return Poll::Ready(());
        };
        if let Err(error) = ready!(job.poll_send(&self.requests, cx)) {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            if let Some(job) = self.job.take() {
                self.fail(job, errno);
            }
        }
        Poll::Ready(())
    }

    /// Returns the next event to hand out.
    fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.unreported -= usize::from(is_counted(&event));
        Some(event)
    }
}

/// Returns whether the event reports a change by another program, or the possible loss of such a
/// report.
fn is_counted(event: &Event) -> bool {
    event.changed_key().is_some() || *event == Event::Overrun
}

impl fmt::Debug for NetlinkFib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetlinkFib")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Fib for NetlinkFib {
    fn submit(&mut self, command: Command) {
        let all_reported = self.unreported == 0;
        let unreported = self.events.iter().take_while(|_| !all_reported);
        self.queue.push(command, unreported);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        loop {
            if let Some(event) = self.pop() {
                return Poll::Ready(event);
            }
            if self.closed {
                return Poll::Pending;
            }
            let drained = self.poll_monitor(cx).is_pending();
            if drained || self.ahead > NOTIFICATIONS_AHEAD_MAX {
                self.ahead = 0;
                self.hand_out_held();
            }
            // The kernel receives its next batch before the caller receives the outcomes of the
            // last one.
            let idle = drained && self.job.is_none() && !self.begin();
            if !drained {
                continue;
            }
            let sent = self.poll_send(cx);
            if !self.events.is_empty() {
                continue;
            }
            if idle {
                self.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            ready!(sent);
            if self.job.as_ref().is_some_and(Job::is_sent) {
                ready!(self.poll_answers(cx));
            }
        }
    }
}
