//! Advances the cursors of all readers of the log, step by step.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use super::cursor::Cursor;
use super::log::Log;
use crate::adj_rib_in::AdjRibsIn;
use crate::budget::Progress;
use crate::limits::{CHUNK, READ_SLOTS};
use crate::prefixes::Prefixes;
use crate::shared::Shared;
use crate::table::Key;

/// The parts of the tables that readers of the log read.
#[derive(Debug)]
pub(crate) struct View<'t, K: Key> {
    pub(crate) prefixes: &'t mut Prefixes<K>,
    pub(crate) received: &'t AdjRibsIn,
    pub(crate) shared: &'t mut Shared,
}

/// A slot in use that a reader has reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub(super) at: u32,
    /// The reader held no routes before: it needs no withdrawal.
    pub(super) fresh: bool,
    /// Whether the reader may read the slot; otherwise it reaches it again after the decision.
    pub(super) is_readable: bool,
}

/// Advances a cursor by up to `budget` slots and passes those in use to `visit`, which returns the
/// number of routes to advertise. The step ends behind a slot for which it breaks. Returns the sum
/// of the routes, where a slot counts as at least one, with the progress.
pub(super) fn advance<K: Key>(
    log: &Log,
    view: &mut View<'_, K>,
    (cursor, budget): (&mut Cursor, u32),
    slots: &mut Vec<u32>,
    mut visit: impl FnMut(&mut View<'_, K>, Visit) -> ControlFlow<u32, u32>,
) -> (Progress, u32) {
    let (mut cost, mut left) = (0, budget);
    loop {
        let from = *cursor;
        let step = log.read(cursor, view.prefixes.len(), left.min(READ_SLOTS), slots);
        let visited = visit_all(view, (slots, step.fresh), &mut cost, &mut visit);
        if let ControlFlow::Break(visited) = visited {
            // The position behind the slots that were visited: the log has not changed since.
            *cursor = from;
            let step = log.read(cursor, view.prefixes.len(), visited, slots);
            return (step.progress, cost);
        }
        left -= slots.len() as u32;
        let is_same_pass = cursor.has_full_table() == from.has_full_table();
        if left == 0 || step.progress == Progress::Done || !is_same_pass {
            return (step.progress, cost);
        }
    }
}

/// Visits slots and adds their routes to `cost`. Breaks with the number of visited slots.
fn visit_all<K: Key>(
    view: &mut View<'_, K>,
    (slots, fresh): (&[u32], bool),
    cost: &mut u32,
    visit: &mut impl FnMut(&mut View<'_, K>, Visit) -> ControlFlow<u32, u32>,
) -> ControlFlow<u32> {
    let mut visited = 0;
    for chunk in slots.chunks(CHUNK) {
        warm(view, chunk);
        for &at in chunk {
            let mut advertised = ControlFlow::Continue(0);
            if view.prefixes.used(at).is_some() {
                let is_readable = view.prefixes.slot_mut(at).is_readable();
                let slot = Visit {
                    at,
                    fresh,
                    is_readable,
                };
                advertised = visit(view, slot);
            }
            let (ControlFlow::Continue(routes) | ControlFlow::Break(routes)) = advertised;
            *cost += routes.max(1);
            visited += 1;
            if advertised.is_break() {
                return ControlFlow::Break(visited);
            }
        }
    }
    ControlFlow::Continue(())
}

/// Prefetches the memory that visits of all these slots read, so that the processor does not wait
/// for one after the other.
fn warm<K: Key>(view: &View<'_, K>, slots: &[u32]) {
    let read = |&at: &u32| {
        let path = view.prefixes.used(at)?.best_path()?;
        Some(view.shared.interner.ranks(path.accepted()?).next_hop)
    };
    let all = slots.iter().filter_map(read);
    core::hint::black_box(all.fold(0, core::ops::BitXor::bitxor));
}
