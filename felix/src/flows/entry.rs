//! Messages of the kernel until they are entered in the table, a limited number of them for a limited
//! time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fib_sync::Instant;

use super::cause::By;
use super::packet::Tuple;
use super::place::Places;
use super::record::{Ended, Record};
use super::table::{Key, Table};
use crate::calc::Calculator;
use crate::limits::{FLOW_NAMES_GAP, FLOWS_WAITING_MAX};
use crate::render::Reported;

/// A packet log without a limit.
#[cfg(test)]
const FLOW_LOG: crate::render::PacketLog = crate::render::PacketLog {
    group: 80,
    records_per_second: 0,
};

/// Returns a table with flows, each with the prefix of the rule that decided.
#[cfg(test)]
pub(crate) fn table_of(calculator: &Calculator, flows: &[(&str, Tuple)]) -> Table {
    let (mut waiting, mut table) = (Waiting::default(), Table::default());
    let mut calculator = calculator.clone();
    calculator.set_flows(Some(FLOW_LOG));
    for (prefix, tuple) in flows {
        let record = Record {
            sequence: None,
            tuple: *tuple,
            octets: 60,
            prefix: (*prefix).to_owned(),
        };
        waiting.packet(0, record);
    }
    let now = || Instant(0);
    assert_eq!(waiting.enter(&calculator, &mut table, now, Instant(1)), 0);
    table
}

/// Messages that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    messages: VecDeque<(u64, Message)>,
    /// The prefixes of packets, each once.
    prefixes: BTreeSet<Arc<str>>,
    /// Names that were looked up since a time.
    names: Option<(Instant, Names)>,
}

/// Names of ends and of deciding rules.
#[derive(Debug)]
struct Names {
    places: Places,
    /// `None`: no rule of the packet filter has this prefix.
    causes: BTreeMap<Arc<str>, Option<(Reported, By)>>,
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
        self.messages.push_back((now_ms, message));
    }

    /// Adds the end of a connection.
    pub(super) fn ended(&mut self, now_ms: u64, ended: Ended) {
        self.messages.push_back((now_ms, Message::Ended(ended)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns whether no further message should wait.
    pub(super) fn is_full(&self) -> bool {
        self.messages.len() >= FLOWS_WAITING_MAX
    }

    /// Enters messages into the table until a time, at least one of them. Returns the number of packets
    /// with a prefix that no rule of the packet filter has: another program reports to the same group.
    pub(super) fn enter(
        &mut self,
        calculator: &Calculator,
        table: &mut Table,
        now: impl Fn() -> Instant,
        until: Instant,
    ) -> u64 {
        let mut foreign = 0;
        let began = now();
        let fresh = self.names.take();
        let fresh = fresh.filter(|(since, _)| began < *since + FLOW_NAMES_GAP);
        let (since, mut names) = fresh.unwrap_or_else(|| {
            self.prefixes.retain(|prefix| Arc::strong_count(prefix) > 1);
            (began, Names::new(calculator))
        });
        while let Some((now_ms, message)) = self.messages.pop_front() {
            match message {
                Message::Packet {
                    prefix,
                    tuple,
                    octets,
                } => match names.key(calculator, &prefix, &tuple) {
                    Some(key) => table.packet(now_ms, key, tuple, octets),
                    None => foreign += 1,
                },
                Message::Ended(Ended { tuple, counts }) => table.ended(now_ms, tuple, counts),
            }
            if now() >= until {
                break;
            }
        }
        self.names = (!self.messages.is_empty()).then_some((since, names));
        foreign
    }
}

impl Names {
    fn new(calculator: &Calculator) -> Self {
        Self {
            places: Places::new(calculator),
            causes: BTreeMap::new(),
        }
    }

    /// Returns the row of a packet; `None`: no rule of the packet filter has this prefix.
    fn key(&mut self, calculator: &Calculator, prefix: &Arc<str>, tuple: &Tuple) -> Option<Key> {
        let causes = self.causes.entry(Arc::clone(prefix));
        let cause = causes.or_insert_with(|| {
            let reported = Reported::parse(prefix)?;
            let by = By::of(calculator, &reported);
            Some((reported, by))
        });
        let (reported, by) = cause.as_ref()?;
        let mut place = |address| self.places.of(calculator, address);
        Some(Key {
            source: place(tuple.source),
            destination: place(tuple.destination),
            protocol: tuple.protocol,
            port: tuple.has_ports().then_some(tuple.port),
            direction: reported.direction,
            allowed: reported.allowed,
            by: by.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn tuple(port: u16) -> Tuple {
        Tuple {
            protocol: 17,
            source: [8, 8, 8, 8].into(),
            destination: [10, 0, 0, 2].into(),
            source_port: port,
            port: 53,
        }
    }

    #[test]
    fn entry_stops_at_its_time_and_continues_later() {
        let mut calculator = Calculator::new("n1", None);
        calculator.set_flows(Some(FLOW_LOG));
        let (mut waiting, mut table) = (Waiting::default(), Table::default());
        for port in 0..10 {
            let record = Record {
                sequence: None,
                tuple: tuple(port),
                octets: 60,
                prefix: "of another program".to_owned(),
            };
            waiting.packet(0, record);
        }
        let time = Cell::new(0);
        let now = || {
            time.set(time.get() + 1);
            Instant(time.get())
        };
        let mut enter = |until| {
            let entered = waiting.enter(&calculator, &mut table, now, Instant(until));
            (entered, waiting.messages.len())
        };
        // One look at the time is before the first message.
        assert_eq!(enter(5), (4, 6));
        // No time is left, and still there is progress.
        assert_eq!(enter(5), (1, 5));
        assert_eq!(enter(u64::MAX), (5, 0));
        assert!(waiting.names.is_none());
    }

    #[test]
    fn names_of_a_long_entry_are_looked_up_again() {
        let mut calculator = Calculator::new("n1", None);
        calculator.set_flows(Some(FLOW_LOG));
        let (mut waiting, mut table) = (Waiting::default(), Table::default());
        let end = Ended {
            tuple: tuple(1),
            counts: None,
        };
        (0..3).for_each(|_| waiting.ended(0, end));
        let gap = u64::try_from(FLOW_NAMES_GAP.as_nanos()).unwrap();
        let mut since = |at| {
            waiting.enter(&calculator, &mut table, || Instant(at), Instant(0));
            waiting.names.as_ref().map(|(since, _)| since.0)
        };
        assert_eq!(since(5), Some(5));
        assert_eq!(since(5 + gap), Some(5 + gap));
        assert_eq!(since(6 + gap), None);
    }
}
