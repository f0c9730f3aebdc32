//! Readers of the routes themselves: the kernel's FIB, displays, exporters.

use alloc::vec::Vec;

use bgp_proto::{Attributes, Net};

use crate::adj_rib_in::AdjRibsIn;
use crate::decide::{Step, select};
use crate::limits::NEXT_BEST_PATHS_MAX;
use crate::path::Path;
use crate::peer::PeerId;
use crate::shared::Shared;
use crate::slot::Slot;

/// One prefix whose route has changed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Change<'a> {
    /// The destination.
    pub net: Net<'a>,
    /// The current route; `None` if it was removed.
    pub route: Option<Route<'a>>,
}

/// The route of a prefix: the best path and the other ones in use.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    shared: &'a Shared,
    received: &'a AdjRibsIn,
    paths: &'a [Path],
    best: usize,
}

/// One path in use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RoutePath {
    /// The peer it was received from.
    pub peer: PeerId,
    /// Its path identifier; 0 for none.
    pub path_id: u32,
    /// Its attributes after import.
    pub attributes: Attributes,
}

impl<'a> Route<'a> {
    /// Returns the route of a slot, if it has one.
    pub(super) fn of<K>(
        (shared, received): (&'a Shared, &'a AdjRibsIn),
        slot: &'a Slot<K>,
    ) -> Option<Self> {
        Some(Self {
            shared,
            received,
            paths: slot.paths(),
            best: slot.best()?,
        })
    }

    /// Returns the best path.
    #[must_use]
    pub fn best(&self) -> RoutePath {
        self.path(&self.paths[self.best])
    }

    /// Returns all paths in use, the best one first, the others in no particular order; all have
    /// distinct next hops.
    pub fn paths(&self) -> impl Iterator<Item = RoutePath> + '_ {
        let others = self.paths.iter().enumerate();
        let others = others.filter(|&(at, path)| at != self.best && path.is_multipath());
        core::iter::once(self.best()).chain(others.map(|(_, path)| self.path(path)))
    }

    /// Decides again, and returns the step at which the path next to the best one lost; `None` if
    /// there is no other path, or more than [`NEXT_BEST_PATHS_MAX`].
    #[must_use]
    pub fn next_best_lost(&self) -> Option<Step> {
        if !(2..=NEXT_BEST_PATHS_MAX).contains(&self.paths.len()) {
            return None;
        }
        let paths = self.paths.iter();
        let candidates: Vec<_> = paths
            .map(|path| self.received.candidate(self.shared, path))
            .collect();
        let mut last = None;
        let mut lost = |_, step| last = last.max(Some(step));
        let _ = select(&candidates, &self.shared.config.decision, 1, &mut lost);
        last
    }

    /// Returns the number of paths in use.
    #[must_use]
    pub fn paths_len(&self) -> usize {
        let others = self.paths.iter().enumerate();
        let others = others.filter(|&(at, path)| at != self.best && path.is_multipath());
        1 + others.count()
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
