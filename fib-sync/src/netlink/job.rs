//! The current job of the request socket.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::apply::Batch;
use super::dump::{Reading, What};
use super::raw::{Raw, Reply};
use super::socket::{Requests, Sender};
use super::watch::Known;
use super::{parse, raw};
use crate::limits::THREAD_REQUESTS_MIN;
use crate::nexthop::{self, NexthopEvent};
use crate::port::Event;

/// One `send` and the answers to it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) kind: JobKind,
    pub(super) sending: Sending,
}

/// The progress of the `send`.
#[derive(Debug)]
pub(super) enum Sending {
    /// Not started.
    Waiting,
    /// A thread is in the system call: the kernel carries out all requests before it returns.
    Under(Sender),
    /// The send buffer was full; sending resumes as soon as it has room.
    Blocked,
    /// Done.
    Done,
}

#[derive(Debug)]
pub(super) enum JobKind {
    Write(Batch),
    Read(Reading),
}

impl Job {
    pub(super) fn new(kind: JobKind) -> Self {
        Self {
            kind,
            sending: Sending::Waiting,
        }
    }

    /// Returns the octets to send.
    pub(super) fn octets(&self) -> &[u8] {
        match &self.kind {
            JobKind::Write(batch) => &batch.octets,
            JobKind::Read(reading) => &reading.octets,
        }
    }

    /// Returns whether the job writes routes.
    pub(super) const fn is_write(&self) -> bool {
        matches!(self.kind, JobKind::Write(_))
    }

    /// Returns whether everything has been sent, so that answers can be read.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self.sending, Sending::Done)
    }

    /// Continues sending. An error means that no request was carried out.
    pub(super) fn poll_send(
        &mut self,
        requests: &Requests,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match &mut self.sending {
                Sending::Done => return Poll::Ready(Ok(())),
                Sending::Under(thread) => {
                    let (sent, octets) = ready!(Pin::new(thread).poll(cx))?;
                    self.sending = match sent {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            if let JobKind::Write(batch) = &mut self.kind {
                                batch.octets = octets;
                            }
                            Sending::Blocked
                        }
                        sent => sent.map(|_| Sending::Done)?,
                    };
                }
                Sending::Waiting => {
                    self.sending = match &mut self.kind {
                        JobKind::Write(batch)
                            if batch.len() >= THREAD_REQUESTS_MIN && requests.writer.is_none() =>
                        {
                            let octets = core::mem::take(&mut batch.octets);
                            Sending::Under(requests.send(octets))
                        }
                        _ => Sending::Blocked,
                    };
                }
                Sending::Blocked => {
                    let writer = requests.writer.as_ref().filter(|_| self.is_write());
                    let socket = writer.unwrap_or(&requests.socket);
                    match ready!(socket.poll_send(cx, self.octets())) {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        sent => self.sending = sent.map(|_| Sending::Done)?,
                    }
                }
            }
        }
    }

    /// Parses one datagram of answers and adds their outcomes to `events`.
    pub(super) fn answers(
        &mut self,
        datagram: &[u8],
        known: &mut Known,
        events: &mut impl Extend<Event>,
    ) -> bool {
        let mut ended = false;
        for message in raw::messages(datagram) {
            ended |= match &mut self.kind {
                JobKind::Write(batch) => match message.reply() {
                    Reply::End(result) => batch.answer(message.sequence, result),
                    Reply::Row => false,
                },
                JobKind::Read(reading) if message.sequence == reading.sequence => {
                    row(reading, &message, known, events)
                }
                JobKind::Read(_) => false,
            };
        }
        ended
    }

    /// Takes the outcomes of writes by another process. Returns whether these are all.
    pub(super) fn outcomes(&mut self, message: &[u8]) -> bool {
        match &mut self.kind {
            JobKind::Write(batch) => batch.outcomes(message),
            JobKind::Read(_) => false,
        }
    }

    /// Completes the job after all answers. Returns the next read, or the read to repeat.
    pub(super) fn finish(self, known: &mut Known, events: &mut impl Extend<Event>) -> Option<What> {
        match self.kind {
            JobKind::Write(batch) => {
                events.extend(batch.finish());
                None
            }
            JobKind::Read(reading) => finish_reading(&reading, known, events),
        }
    }

    /// Ends the job when some answers will never arrive. Returns the read to repeat.
    pub(super) fn fail(
        self,
        errno: i32,
        known: &mut Known,
        events: &mut impl Extend<Event>,
    ) -> Option<What> {
        match self.kind {
            JobKind::Write(batch) => {
                events.extend(batch.fail(errno));
                None
            }
            JobKind::Read(mut reading) => {
                reading.complete = false;
                finish_reading(&reading, known, events)
            }
        }
    }
}

/// Handles one message of a dump. Returns whether it was the last one.
fn row(
    reading: &mut Reading,
    message: &Raw<'_>,
    known: &mut Known,
    events: &mut impl Extend<Event>,
) -> bool {
    reading.complete &= !message.is_interrupted();
    match (message.reply(), reading.what) {
        (Reply::End(result), _) => {
            reading.end(&result);
            true
        }
        (Reply::Row, What::Routes { table, .. }) => {
            let row = parse::route(message.payload).filter(|(key, _)| key.table == table);
            events.extend(row.map(|(key, route)| Event::DumpRoute(key, route)));
            false
        }
        (Reply::Row, What::Nexthops) => {
            let row = nexthop::parse(message.payload);
            events.extend(row.map(|row| Event::Nexthop(NexthopEvent::Row(row))));
            false
        }
        (Reply::Row, What::Links | What::Addresses) => {
            events.extend(known.row(message));
            false
        }
    }
}

fn finish_reading(
    reading: &Reading,
    known: &mut Known,
    events: &mut impl Extend<Event>,
) -> Option<What> {
    let complete = reading.complete;
    match reading.what {
        What::Links | What::Addresses if !complete => Some(reading.what),
        What::Links => {
            events.extend(known.end_links());
            None
        }
        What::Addresses => {
            events.extend(known.end_addresses());
            None
        }
        What::Nexthops => {
            let supported = reading.supported;
            events.extend([Event::Nexthop(NexthopEvent::DumpDone {
                complete,
                supported,
            })]);
            None
        }
        What::Routes {
            table,
            owner,
            ipv6: false,
        } if complete => Some(What::Routes {
            table,
            owner,
            ipv6: true,
        }),
        What::Routes { table, owner, .. } => {
            events.extend([Event::DumpDone {
                table,
                owner,
                complete,
            }]);
            None
        }
    }
}
