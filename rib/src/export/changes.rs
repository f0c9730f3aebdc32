//! Readers that want the routes themselves: the kernel's FIB, displays, exporters.

use bgp_proto::{Attributes, Net};

use crate::path::Path;
use crate::peer::PeerId;
use crate::shared::Shared;
use crate::slot::Slot;

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
    /// The route of a slot, if it has one.
    pub(super) fn of<K>(shared: &'a Shared, slot: &'a Slot<K>) -> Option<Self> {
        Some(Self {
            shared,
            paths: slot.paths(),
            best: slot.best()?,
        })
    }

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
