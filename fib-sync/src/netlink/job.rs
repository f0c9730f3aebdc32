//! What the request socket is busy with.

use super::apply::Batch;
use super::dump::{Reading, What};
use super::raw::{Raw, Reply};
use super::watch::Known;
use super::{parse, raw};
use crate::port::Event;

/// One `send` and the answers to it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) kind: JobKind,
    pub(super) sent: bool,
}

#[derive(Debug)]
pub(super) enum JobKind {
    Write(Batch),
    Read(Reading),
}

impl Job {
    pub(super) fn new(kind: JobKind) -> Self {
        Self { kind, sent: false }
    }

    /// What to send.
    pub(super) fn octets(&self) -> &[u8] {
        match &self.kind {
            JobKind::Write(batch) => &batch.octets,
            JobKind::Read(reading) => &reading.octets,
        }
    }

    /// Takes in one datagram of answers; what they tell goes to `events`.
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

    /// All answers are there. Returns what is to be read next, or again.
    pub(super) fn finish(self, known: &mut Known, events: &mut impl Extend<Event>) -> Option<What> {
        match self.kind {
            JobKind::Write(batch) => {
                events.extend(batch.finish());
                None
            }
            JobKind::Read(reading) => finish_reading(&reading, known, events),
        }
    }

    /// The answers, or some of them, will never come. Returns what is to be read again.
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

/// One message of a dump. Returns whether it was the last one.
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
        (Reply::Row, What::Links | What::Addresses) => {
            events.extend(known.event(message, &[]));
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
