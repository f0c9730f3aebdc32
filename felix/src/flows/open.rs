//! Flows that were seen: their later packets are no new flows, and their end belongs to their rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::packet::Tuple;
use super::shares::{Owned, Shares};
use crate::limits::FLOW_REPEATED;

/// Flows in a limited number. Beyond it, the flow of the largest owner that was seen first is forgotten.
#[derive(Debug)]
pub(super) struct Known<K> {
    max: usize,
    flows: BTreeMap<Tuple, Flow<K>>,
    /// The flows in the order of their begin.
    order: BTreeMap<u64, Tuple>,
    /// The flows of each owner of a first row.
    shares: Shares,
    begun: u64,
}

#[derive(Debug)]
struct Flow<K> {
    number: u64,
    /// The rows that have it: one of each direction that decided. Few, so a list.
    seen: Vec<(Arc<K>, u64)>,
}

/// Whether a packet is the first of a flow for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    First,
    Again,
}

/// Rows of one flow: two directions, and two host endpoints that a packet passes.
const ROWS_PER_FLOW_MAX: usize = 8;

impl<K: PartialEq + Owned> Known<K> {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            flows: BTreeMap::new(),
            order: BTreeMap::new(),
            shares: Shares::default(),
            begun: 0,
        }
    }

    /// Records a packet of a row.
    pub(super) fn see(&mut self, now_ms: u64, tuple: Tuple, key: &Arc<K>) -> Seen {
        if let Some(flow) = self.flows.get_mut(&tuple) {
            let mut seen = flow.seen.iter_mut();
            if let Some((_, last_ms)) = seen.find(|(held, _)| held == key) {
                let since = u128::from(now_ms.saturating_sub(*last_ms));
                *last_ms = now_ms;
                return match since < FLOW_REPEATED.as_millis() {
                    true => Seen::Again,
                    false => Seen::First,
                };
            }
            if flow.seen.len() < ROWS_PER_FLOW_MAX {
                flow.seen.push((Arc::clone(key), now_ms));
            }
            return Seen::First;
        }
        while self.flows.len() >= self.max
            && let Some(number) = self.shares.oldest_of_largest()
            && let Some(oldest) = self.order.get(&number).copied()
        {
            self.remove(&oldest);
        }
        self.begun += 1;
        self.order.insert(self.begun, tuple);
        self.shares.add(key.owner(), self.begun);
        let flow = Flow {
            number: self.begun,
            seen: vec![(Arc::clone(key), now_ms)],
        };
        self.flows.insert(tuple, flow);
        Seen::First
    }

    /// Removes a flow, and returns its rows.
    pub(super) fn remove(&mut self, tuple: &Tuple) -> Vec<Arc<K>> {
        let Some(flow) = self.flows.remove(tuple) else {
            return Vec::new();
        };
        self.order.remove(&flow.number);
        if let Some((key, _)) = flow.seen.first() {
            self.shares.remove(key.owner(), flow.number);
        }
        flow.seen.into_iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    impl Owned for &str {
        fn owner(&self) -> &str {
            self
        }
    }

    #[test]
    fn oldest_flow_is_forgotten() {
        let key = Arc::new("a row");
        let tuple = |port| Tuple {
            protocol: 17,
            source: IpAddr::from([8, 8, 8, 8]),
            destination: IpAddr::from([9, 9, 9, 9]),
            source_port: port,
            port: 53,
        };
        let mut known = Known::new(2);
        for port in 1..=3 {
            assert_eq!(known.see(0, tuple(port), &key), Seen::First);
        }
        assert_eq!(known.see(1, tuple(3), &key), Seen::Again);
        assert_eq!(known.remove(&tuple(1)), []);
        assert_eq!(known.remove(&tuple(2)), [Arc::clone(&key)]);
        assert_eq!(known.order.len(), known.flows.len());
        assert_eq!(known.see(2, tuple(2), &key), Seen::First);
    }
}
