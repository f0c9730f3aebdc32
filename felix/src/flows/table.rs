//! The rows of the flow log: flows by their ends, protocol, port, verdict and deciding rule.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cause::By;
use super::open::{Known, Seen};
use super::packet::Tuple;
use super::place::Place;
use super::shares::{Owned, Shares};
use crate::limits::{FLOW_NAMES_OCTETS_MAX, FLOW_ROWS_MAX, FLOWS_DENIED_MAX, FLOWS_OPEN_MAX};
use crate::render::Direction;

/// The common part of all flows of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) source: Place,
    pub(crate) destination: Place,
    pub(crate) protocol: u8,
    /// The destination port of a protocol with ports.
    pub(crate) port: Option<u16>,
    /// Whether the destination's endpoint (ingress) or the source's (egress) decided.
    pub(crate) direction: Direction,
    pub(crate) allowed: bool,
    pub(crate) by: By,
}

impl Key {
    fn octets(&self) -> usize {
        self.source.octets() + self.destination.octets() + self.by.octets()
    }
}

impl Owned for Key {
    /// Returns the endpoint of the row: the source, else the destination.
    fn owner(&self) -> &str {
        match (&self.source, &self.destination) {
            (Place::Endpoint { resource, .. }, _) | (_, Place::Endpoint { resource, .. }) => {
                resource
            }
            _ => "",
        }
    }
}

/// The counts of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Changes of the table until the last one of this row.
    pub(crate) changed: u64,
    pub(crate) flows: u64,
    /// Flows of which the packets are counted.
    pub(crate) counted: u64,
    /// Packets and octets of counted flows, of both directions.
    pub(crate) packets: u64,
    pub(crate) octets: u64,
    /// Milliseconds of Unix time.
    pub(crate) first_ms: u64,
    pub(crate) last_ms: u64,
    /// The ends of the last flow.
    pub(crate) last: Tuple,
}

/// All rows, in a limited number.
#[derive(Debug)]
pub(crate) struct Table {
    rows: BTreeMap<Arc<Key>, Row>,
    /// The rows in the order of their last change.
    order: BTreeMap<u64, Arc<Key>>,
    /// The last changes of the rows of each endpoint.
    shares: Shares,
    octets: usize,
    changes: u64,
    /// Allowed flows of which the end is awaited, and denied ones that may be tried again.
    open: Known<Key>,
    denied: Known<Key>,
    /// Rows that were removed to make room.
    removed: u64,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            order: BTreeMap::new(),
            shares: Shares::default(),
            octets: 0,
            changes: 0,
            open: Known::new(FLOWS_OPEN_MAX),
            denied: Known::new(FLOWS_DENIED_MAX),
            removed: 0,
        }
    }
}

impl Table {
    /// Records a packet about which rules decided: the first one of a flow, or a repetition.
    pub(crate) fn packet(&mut self, now_ms: u64, key: Key, tuple: Tuple, octets: u64) {
        let allowed = key.allowed;
        let key = match self.rows.get_key_value(&key) {
            Some((held, _)) => Arc::clone(held),
            None => Arc::new(key),
        };
        let known = match allowed {
            true => &mut self.open,
            false => &mut self.denied,
        };
        let is_new = known.see(now_ms, tuple, &key) == Seen::First;
        // The packets of an allowed flow are counted at its end.
        if !is_new && allowed {
            return;
        }
        let row = self.touch(&key, now_ms, tuple);
        row.flows += u64::from(is_new);
        if !allowed {
            row.counted += u64::from(is_new);
            row.packets += 1;
            row.octets = row.octets.saturating_add(octets);
        }
    }

    /// Records the end of a connection, with packets and octets of both directions if they are known.
    pub(crate) fn ended(&mut self, now_ms: u64, tuple: Tuple, counts: Option<(u64, u64)>) {
        let keys = self.open.remove(&tuple);
        let Some((packets, octets)) = counts else {
            return;
        };
        for key in keys {
            // A removed row does not appear again.
            if self.rows.contains_key(&key) {
                let last = self.rows.get(&key).map_or(tuple, |row| row.last);
                let row = self.touch(&key, now_ms, last);
                row.counted += 1;
                row.packets = row.packets.saturating_add(packets);
                row.octets = row.octets.saturating_add(octets);
            }
        }
    }

    /// Returns a row, as the one that has changed last.
    fn touch(&mut self, key: &Arc<Key>, now_ms: u64, last: Tuple) -> &mut Row {
        self.changes += 1;
        let changed = self.changes;
        match self.rows.get(key) {
            Some(row) => {
                self.order.remove(&row.changed);
                self.shares.renumber(key.owner(), row.changed, changed);
            }
            None => {
                self.octets += key.octets();
                self.make_room();
                self.shares.add(key.owner(), changed);
            }
        }
        self.order.insert(changed, Arc::clone(key));
        let row = self.rows.entry(Arc::clone(key)).or_insert_with(|| Row {
            changed,
            flows: 0,
            counted: 0,
            packets: 0,
            octets: 0,
            first_ms: now_ms,
            last_ms: now_ms,
            last,
        });
        (row.changed, row.last_ms, row.last) = (changed, now_ms, last);
        row
    }

    /// Removes rows until another one with the octets that are already added has room: the oldest rows
    /// of the endpoint with the most rows.
    fn make_room(&mut self) {
        while self.rows.len() >= FLOW_ROWS_MAX || self.octets > FLOW_NAMES_OCTETS_MAX {
            let number = self.shares.oldest_of_largest();
            let oldest = number.and_then(|number| Some((number, self.order.remove(&number)?)));
            let Some((number, oldest)) = oldest else {
                return;
            };
            self.shares.remove(oldest.owner(), number);
            self.rows.remove(&oldest);
            self.octets = self.octets.saturating_sub(oldest.octets());
            self.removed += 1;
        }
    }

    /// Returns the rows that have changed after a number of changes, in the order of their change.
    pub(crate) fn changed_after(&self, changes: u64) -> impl Iterator<Item = (&Key, &Row)> {
        let later = self.order.range(changes.saturating_add(1)..);
        later.filter_map(|(_, key)| Some((&**key, self.rows.get(key)?)))
    }

    /// Returns the number of changes until now.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Returns the number of rows that were removed to make room.
    pub(crate) const fn removed(&self) -> u64 {
        self.removed
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::limits::FLOW_REPEATED;

    fn tuple(port: u16) -> Tuple {
        Tuple {
            protocol: 6,
            source: IpAddr::from([10, 0, 0, 1]),
            destination: IpAddr::from([10, 0, 0, 2]),
            source_port: port,
            port: 80,
        }
    }

    fn key(allowed: bool, direction: Direction) -> Key {
        Key {
            source: Place::Address([10, 0, 0, 1].into()),
            destination: Place::Public,
            protocol: 6,
            port: Some(80),
            direction,
            allowed,
            by: By::words("x"),
        }
    }

    fn counts(table: &Table) -> Vec<(u64, u64, u64, u64)> {
        let rows = table.rows.values();
        rows.map(|row| (row.flows, row.counted, row.packets, row.octets))
            .collect()
    }

    #[test]
    fn allowed_flow_is_counted_once_and_its_packets_at_its_end() {
        let mut table = Table::default();
        let (ingress, egress) = (Direction::Ingress, Direction::Egress);
        for at in 0..3 {
            table.packet(at, key(true, egress), tuple(1), 60);
            table.packet(at, key(true, ingress), tuple(1), 60);
        }
        table.packet(4, key(true, egress), tuple(2), 60);
        assert_eq!(counts(&table), [(1, 0, 0, 0), (2, 0, 0, 0)]);
        table.ended(5, tuple(1), Some((7, 700)));
        table.ended(6, tuple(1), Some((7, 700)));
        table.ended(7, tuple(2), None);
        assert_eq!(counts(&table), [(1, 1, 7, 700), (2, 1, 7, 700)]);
        // The same ends again are a new flow.
        table.packet(8, key(true, egress), tuple(1), 60);
        assert_eq!(counts(&table)[1].0, 3);
    }

    #[test]
    fn denied_flow_has_the_packets_of_its_attempts() {
        let mut table = Table::default();
        let denied = || key(false, Direction::Ingress);
        for at in 0..3 {
            table.packet(at, denied(), tuple(1), 60);
        }
        assert_eq!(counts(&table), [(1, 1, 3, 180)]);
        let later = 3 + u64::try_from(FLOW_REPEATED.as_millis()).unwrap();
        table.packet(later, denied(), tuple(1), 60);
        table.packet(later, denied(), tuple(2), 60);
        assert_eq!(counts(&table), [(3, 3, 5, 300)]);
    }

    #[test]
    fn oldest_row_makes_room_and_is_counted() {
        let mut table = Table::default();
        let rows = u16::try_from(FLOW_ROWS_MAX).unwrap();
        for port in 0..rows + 5 {
            let key = Key {
                port: Some(port),
                ..key(true, Direction::Egress)
            };
            table.packet(port.into(), key, tuple(port), 60);
        }
        assert_eq!((table.rows(), table.removed()), (FLOW_ROWS_MAX, 5));
        assert!(!table.rows.keys().any(|key| key.port < Some(5)));
        let changed: Vec<u64> = table.changed_after(0).map(|(_, row)| row.changed).collect();
        assert_eq!(changed.len(), FLOW_ROWS_MAX);
        assert!(changed.is_sorted());
        // The end of a flow of a removed row changes nothing.
        table.ended(9, tuple(0), Some((1, 1)));
        assert_eq!(
            (table.rows(), table.changes()),
            (FLOW_ROWS_MAX, u64::from(rows) + 5)
        );
    }

    #[test]
    fn scan_of_one_endpoint_removes_no_rows_of_others() {
        let mut table = Table::default();
        let endpoint = |name: &str| Place::Endpoint {
            resource: format!("prod/{name}"),
            workload: name.to_owned(),
        };
        let row = |from: Place, to: Place, port: u16| Key {
            source: from,
            destination: to,
            port: Some(port),
            ..key(false, Direction::Ingress)
        };
        table.packet(0, row(endpoint("a"), Place::Public, 1), tuple(1), 60);
        table.packet(0, row(Place::Public, endpoint("b"), 2), tuple(2), 60);
        let rows = u16::try_from(FLOW_ROWS_MAX).unwrap();
        for port in 0..rows + 500 {
            let key = row(endpoint("scanner"), endpoint("b"), port);
            table.packet(1, key, tuple(port), 60);
        }
        assert_eq!(table.rows(), FLOW_ROWS_MAX);
        let others = table
            .rows
            .keys()
            .filter(|key| key.owner() != "prod/scanner");
        assert_eq!(others.count(), 2);
        // The denied flow of another endpoint is recognized: it is tried again, and is no new flow.
        table.packet(2, row(endpoint("a"), Place::Public, 1), tuple(1), 60);
        let row = &table.rows[&row(endpoint("a"), Place::Public, 1)];
        assert_eq!((row.flows, row.packets), (1, 2));
    }

    #[test]
    fn octets_of_names_are_limited() {
        let mut table = Table::default();
        let long = "x".repeat(4096);
        let rows = u16::try_from(FLOW_NAMES_OCTETS_MAX / long.len()).unwrap();
        for port in 0..rows + 9 {
            let key = Key {
                by: By::words(&long),
                port: Some(port),
                ..key(true, Direction::Egress)
            };
            table.packet(0, key, tuple(port), 60);
        }
        assert_eq!(table.rows(), usize::from(rows));
        assert!(table.octets <= FLOW_NAMES_OCTETS_MAX);
    }

    #[test]
    fn changed_rows_follow_a_number_of_changes() {
        let mut table = Table::default();
        table.packet(0, key(true, Direction::Egress), tuple(1), 60);
        let before = table.changes();
        assert_eq!(table.changed_after(before).count(), 0);
        table.packet(1, key(false, Direction::Egress), tuple(1), 60);
        let after: Vec<bool> = table
            .changed_after(before)
            .map(|(key, _)| key.allowed)
            .collect();
        assert_eq!(after, [false]);
        assert_eq!(table.changed_after(0).count(), 2);
    }
}
