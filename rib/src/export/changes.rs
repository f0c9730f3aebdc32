//! Readers that want the routes themselves: the kernel's FIB, displays, exporters.

use bgp_proto::{Attributes, Net};

use super::cursor::Cursor;
use crate::bite::{Budget, Progress};
use crate::family::FamilyTable;
use crate::path::Path;
use crate::peer::PeerId;
use crate::shared::Shared;
use crate::table::Key;

/// One prefix whose route has changed.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The destination.
    pub net: Net<'a>,
    /// What is in use now; `None` if there is no route any more.
    pub route: Option<Route<'a>>,
}

/// The route of a prefix: the best path and those used beside it.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    shared: &'a Shared,
    paths: &'a [Path],
    best: usize,
}

/// One path in use.
#[derive(Clone, Debug)]
pub struct RoutePath {
    /// The peer it was learned from.
    pub peer: PeerId,
    /// Its path identifier; 0 for none.
    pub path_id: u32,
    /// Its attributes after import.
    pub attributes: Attributes,
}

impl<'a> Route<'a> {
    /// The best path.
    #[must_use]
    pub fn best(&self) -> RoutePath {
        self.path(&self.paths[self.best])
    }

    /// All paths in use, the best one first, the others in no particular order; no two of them
    /// have the same next hop.
    pub fn paths(&self) -> impl Iterator<Item = RoutePath> + '_ {
        let others = self.paths.iter().enumerate();
        let others = others.filter(|&(at, path)| at != self.best && path.is_multipath());
        core::iter::once(self.best()).chain(others.map(|(_, path)| self.path(path)))
    }

    fn path(&self, path: &Path) -> RoutePath {
        let id = path.accepted().unwrap_or_else(|| path.received());
        let attributes = self.shared.interner.get(id);
        RoutePath {
            peer: path.peer(),
            path_id: path.path_id(),
            attributes,
        }
    }
}

impl<K: Key> FamilyTable<K> {
    pub(crate) fn changes(
        &mut self,
        shared: &Shared,
        cursor: &mut Cursor,
        budget: Budget,
        reader: &mut dyn FnMut(Change<'_>),
    ) -> Progress {
        if self.tombstones.are_lost_to(cursor.heard()) {
            *cursor = Cursor::feed();
            return Progress::Lost;
        }
        let mut slots = core::mem::take(&mut self.scratch.slots);
        let step = self
            .log
            .read(cursor, self.prefixes.len(), budget.0, &mut slots);
        for &at in &slots {
            if !self.prefixes.is_readable(at) {
                continue;
            }
            let slot = self.prefixes.slot(at);
            let paths = slot.paths();
            let route = slot.best().map(|best| Route {
                shared,
                paths,
                best,
            });
            if route.is_some() || !step.fresh && slot.version() != 0 {
                reader(Change {
                    net: self.prefixes.net(at),
                    route,
                });
            }
        }
        self.scratch.slots = slots;
        step.progress
    }
}
