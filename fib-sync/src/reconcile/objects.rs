//! Events of nexthop objects.

use super::reconciler::Reconciler;
use crate::nexthop::NexthopEvent;
use instant::Instant;

impl Reconciler {
    /// Handles a report about nexthop objects.
    pub(super) fn nexthop(&mut self, now: Instant, event: &NexthopEvent) {
        match event {
            NexthopEvent::Row(nexthop) => drop(self.nexthops.found(nexthop)),
            NexthopEvent::DumpDone {
                complete,
                supported,
            } => self.nexthops_dumped(now, *complete, *supported),
            NexthopEvent::Changed(nexthop) => {
                self.nexthops.found(nexthop);
                self.nexthop_changed(now);
            }
            NexthopEvent::Removed(id) => {
                self.nexthops.removed(*id);
                self.nexthop_changed(now);
            }
            NexthopEvent::Applied(id, result) => {
                self.in_flight = self.in_flight.saturating_sub(1);
                self.urgent.remove(id);
                if self.nexthops.applied(*id, result) {
                    self.force_dump(now);
                }
            }
        }
    }

    /// Reads the tables after a change by another program: the kernel does not report the routes that
    /// it has changed or deleted with an object.
    fn nexthop_changed(&mut self, now: Instant) {
        if self.nexthops.is_read() {
            self.settle_and_dump(now);
        }
    }

    /// Handles the end of the dump of nexthop objects.
    fn nexthops_dumped(&mut self, now: Instant, complete: bool, supported: bool) {
        let Some(round) = &mut self.dumps.current else {
            return;
        };
        round.waiting = false;
        if !complete {
            self.dumps.current = None;
            self.dumps.void = true;
            return self.force_dump(now);
        }
        if self.nexthops.dumped(supported).is_none() {
            return;
        }
        for (key, entry) in &mut self.entries {
            if let Some(mut want) = entry.want.clone() {
                self.nexthops.mark(&mut want);
                entry.wish(key, Some(want), &self.nexthops);
            }
        }
    }
}
