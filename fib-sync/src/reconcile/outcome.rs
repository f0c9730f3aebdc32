//! Updates the believed state of the kernel from the answers to own writes.

use super::delta::{Cause, Flight, Found, Op};
use super::reconciler::Reconciler;
use crate::error::OpError;
use crate::port::PutMode;
use crate::route::{Route, RouteKey};
use instant::Instant;

impl Reconciler {
    /// Handles a `Put` or `Delete` that was carried out or refused.
    pub(super) fn applied(&mut self, now: Instant, key: RouteKey, result: &Result<(), OpError>) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let Some(flight) = entry.flight.take() else {
            return;
        };
        self.in_flight = self.in_flight.saturating_sub(1);
        let plain = result.is_ok() && !flight.disturbed && entry.fault.is_none();
        let nexthops = &self.nexthops;
        let is_whole = |id, want: &Route| nexthops.has(id, &want.next_hops);
        let is_as_wanted = match (flight.nexthop, &entry.want) {
            (Some(id), Some(want)) => is_whole(id, want),
            _ => entry
                .want
                .as_ref()
                .is_none_or(|want| want.nexthop.is_none()),
        };
        if plain && is_as_wanted && flight.sent.is_none() && matches!(flight.op, Op::Put(_)) {
            // By far the most frequent outcome: nothing is left to do.
            entry.found = Found::AsWanted;
            entry.nexthop = flight.nexthop;
            self.free_beside(&key);
            return;
        }
        self.dirty.insert(key);
        if result.as_ref().is_err_and(OpError::is_cancelled) {
            // Nothing was done; the events that canceled the write have reported the route.
            self.free_beside(&key);
            return;
        }
        if flight.disturbed {
            // The order of the own and the foreign change is unknown; only a dump of the
            // kernel has the result.
            entry.found = Found::Unknown;
            self.clear_fault(&key);
            self.force_dump(now);
            return;
        }
        match (result, flight.op) {
            (Ok(()), Op::Put(_)) => self.installed(key, &flight),
            (Ok(()), Op::Delete) => self.absent(key),
            (Err(error), Op::Delete | Op::Put(PutMode::Replace)) if error.is_absent() => {
                self.absent(key);
            }
            (Err(error), Op::Put(PutMode::Create)) if error.is_exists() => self.exists(now, key),
            (Err(error), op) => self.refused(now, key, op, &flight, error.clone()),
        }
    }

    fn installed(&mut self, key: RouteKey, flight: &Flight) {
        self.clear_fault(&key);
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let sent = flight.sent.as_ref().or(entry.want.as_ref()).cloned();
        entry.nexthop = flight.nexthop;
        let route = sent.map(|sent| entry.installed(sent, &self.nexthops));
        entry.observe(&key, route);
        self.free_beside(&key);
    }

    fn absent(&mut self, key: RouteKey) {
        self.clear_fault(&key);
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.found = Found::Absent;
        }
    }

    /// Handles a route of the same key that prevented a create. If its owner is unknown, a dump
    /// reads it: it may even be an own route.
    fn exists(&mut self, now: Instant, key: RouteKey) {
        self.counters.conflicts += 1;
        let Some(entry) = self.entries.get(&key) else {
            return;
        };
        let nameless = entry.foreign.is_none() && entry.fault.is_none();
        self.set_fault(now, key, Cause::Conflict);
        if nameless {
            self.dumps.name_foreign = true;
            self.force_dump(now);
        }
    }

    fn refused(&mut self, now: Instant, key: RouteKey, op: Op, flight: &Flight, error: OpError) {
        self.counters.refused += 1;
        let error = self.cause(&key, flight, error);
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        // A refused replace of several IPv6 next hops may have been carried out partly.
        let half = op == Op::Put(PutMode::Replace)
            && key.is_ipv6()
            && entry
                .want
                .as_ref()
                .is_some_and(|want| want.next_hops.len() > 1);
        // A lost answer proves nothing about the route.
        let lost = error.errno == libc::ENOBUFS;
        if half || lost {
            entry.found = Found::Unknown;
            self.force_dump(now);
        }
        self.set_fault(now, key, Cause::Refused(error));
    }

    /// Returns why a route was refused: the kernel reports only that its object does not exist.
    fn cause(&self, key: &RouteKey, flight: &Flight, error: OpError) -> OpError {
        let want = self.entries.get(key).and_then(|entry| entry.want.as_ref());
        let sent = flight.sent.as_ref().or(want);
        let sent = sent.filter(|_| flight.nexthop.is_some() && error.errno == libc::EINVAL);
        let refusal = sent.and_then(|sent| self.nexthops.refusal(&sent.next_hops));
        refusal.cloned().unwrap_or(error)
    }
}
