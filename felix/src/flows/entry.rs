//! Messages of the kernel until they are entered in the table: they wait for the names of their ends,
//! so that these are looked up for many at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cause::By;
use super::packet::Tuple;
use super::place::{Place, places};
use super::record::{Ended, Record};
use super::table::{Key, Table};
use crate::calc::Calculator;
use crate::limits::FLOWS_WAITING_MAX;
use crate::render::Reported;

/// Returns a table with flows, each with the prefix of the rule that decided.
#[cfg(test)]
pub(crate) fn table_of(calculator: &Calculator, flows: &[(&str, Tuple)]) -> Table {
    let (mut waiting, mut table) = (Waiting::default(), Table::default());
    for (prefix, tuple) in flows {
        let record = Record {
            sequence: None,
            tuple: *tuple,
            octets: 60,
            prefix: (*prefix).to_owned(),
        };
        waiting.packet(0, record);
    }
    assert_eq!(waiting.enter(calculator, &mut table), 0);
    table
}

/// Messages that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    messages: Vec<(u64, Message)>,
    /// The prefixes of packets, each once.
    prefixes: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
enum Message {
    Packet {
        prefix: Arc<str>,
        tuple: Tuple,
        octets: u64,
    },
    Ended(Ended),
}

impl Waiting {
    /// Adds a packet at a time.
    pub(super) fn packet(&mut self, now_ms: u64, record: Record) {
        let prefix = match self.prefixes.get(record.prefix.as_str()) {
            Some(prefix) => Arc::clone(prefix),
            None => {
                let prefix: Arc<str> = record.prefix.into();
                self.prefixes.insert(Arc::clone(&prefix));
                prefix
            }
        };
        let message = Message::Packet {
            prefix,
            tuple: record.tuple,
            octets: record.octets,
        };
        self.messages.push((now_ms, message));
    }

    /// Adds the end of a connection.
    pub(super) fn ended(&mut self, now_ms: u64, ended: Ended) {
        self.messages.push((now_ms, Message::Ended(ended)));
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns whether no further message should wait.
    pub(super) const fn is_full(&self) -> bool {
        self.messages.len() >= FLOWS_WAITING_MAX
    }

    /// Enters all messages into the table. Returns the number of packets with a prefix that no rule of
    /// the packet filter has: another program reports to the same group.
    pub(super) fn enter(&mut self, calculator: &Calculator, table: &mut Table) -> u64 {
        let messages = std::mem::take(&mut self.messages);
        let causes: BTreeMap<Arc<str>, Option<(Reported, By)>> = std::mem::take(&mut self.prefixes)
            .into_iter()
            .map(|prefix| {
                let cause = Reported::parse(&prefix).map(|reported| {
                    let by = By::of(calculator, &reported);
                    (reported, by)
                });
                (prefix, cause)
            })
            .collect();
        let mut addresses = BTreeSet::new();
        for (_, message) in &messages {
            if let Message::Packet { tuple, .. } = message {
                addresses.extend([tuple.source, tuple.destination]);
            }
        }
        let places = places(calculator, addresses);
        let place = |address| places.get(&address).cloned().unwrap_or(Place::Public);
        let mut foreign = 0;
        for (now_ms, message) in messages {
            let (prefix, tuple, octets) = match message {
                Message::Packet {
                    prefix,
                    tuple,
                    octets,
                } => (prefix, tuple, octets),
                Message::Ended(Ended { tuple, counts }) => {
                    table.ended(now_ms, tuple, counts);
                    continue;
                }
            };
            let Some((reported, by)) = causes.get(&prefix).and_then(Option::as_ref) else {
                foreign += 1;
                continue;
            };
            let key = Key {
                source: place(tuple.source),
                destination: place(tuple.destination),
                protocol: tuple.protocol,
                port: tuple.has_ports().then_some(tuple.port),
                direction: reported.direction,
                allowed: reported.allowed,
                by: by.clone(),
            };
            table.packet(now_ms, key, tuple, octets);
        }
        foreign
    }
}
