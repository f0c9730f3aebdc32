//! A path to a prefix, and the list of them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::attributes::AttrId;
use crate::eligible::Ineligible;
use crate::peer::PeerId;

/// One path to a prefix, received from one peer: 16 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    peer: u16,
    /// The epoch in the low octet, then the bits below, then the reason in the top four.
    flags: u16,
    path_id: u32,
    received: AttrId,
    accepted: Option<AttrId>,
}

const _: () = assert!(size_of::<Path>() == 16);

/// The path is in the multipath set of its prefix.
const MULTIPATH: u16 = 1 << 8;
/// The accepted attributes have changed since the last decision.
const CHANGED: u16 = 1 << 9;
/// Another peer has withdrawn the route of the same origin, and the peer of this path has sent nothing since.
const DOUBTED: u16 = 1 << 10;
const REASON_SHIFT: u16 = 12;

impl Path {
    pub(crate) const fn new(
        peer: PeerId,
        path_id: u32,
        epoch: u8,
        received: AttrId,
        accepted: Option<AttrId>,
        reason: Option<Ineligible>,
    ) -> Self {
        let reason = match reason {
            Some(reason) => reason as u16,
            None => 0,
        };
        let flags = epoch as u16 | CHANGED | reason << REASON_SHIFT;
        Self {
            peer: peer.0,
            flags,
            path_id,
            received,
            accepted,
        }
    }

    /// Returns the peer it was received from.
    #[must_use]
    pub const fn peer(&self) -> PeerId {
        PeerId(self.peer)
    }

    /// Returns its received path identifier; 0 for none (RFC 7911 §3).
    #[must_use]
    pub const fn path_id(&self) -> u32 {
        self.path_id
    }

    /// Returns the attributes as received.
    #[must_use]
    pub const fn received(&self) -> AttrId {
        self.received
    }

    /// Returns the attributes after import; `None` if the import policy rejected the path.
    #[must_use]
    pub const fn accepted(&self) -> Option<AttrId> {
        self.accepted
    }

    /// Returns why the path can never be used in its current form. An unresolved next hop is not
    /// among these reasons: that may change while the path stays.
    pub(crate) const fn reason(&self) -> Option<Ineligible> {
        Ineligible::from_code((self.flags >> REASON_SHIFT) as u8)
    }

    /// Returns whether there is a [`Self::reason`].
    pub(crate) const fn has_reason(&self) -> bool {
        self.flags >> REASON_SHIFT != 0
    }

    /// Returns whether its origin is not confirmed.
    pub(crate) const fn is_unconfirmed(&self) -> bool {
        self.flags >> REASON_SHIFT == Ineligible::Unconfirmed as u16
    }

    /// Returns whether eligibility and import policy have the same result for both.
    pub(crate) fn has_outcome_of(&self, other: &Self) -> bool {
        let differ = (self.flags ^ other.flags) >> REASON_SHIFT;
        self.accepted == other.accepted && differ == 0
    }

    pub(crate) const fn epoch(&self) -> u8 {
        self.flags as u8
    }

    pub(crate) const fn set_epoch(&mut self, epoch: u8) {
        self.flags = self.flags & 0xff00 | epoch as u16;
    }

    pub(crate) const fn is_multipath(&self) -> bool {
        self.flags & MULTIPATH != 0
    }

    pub(crate) const fn is_changed(&self) -> bool {
        self.flags & CHANGED != 0
    }

    /// Records the result of a decision.
    pub(crate) const fn decided(&mut self, multipath: bool) {
        self.flags &= !(CHANGED | MULTIPATH);
        if multipath {
            self.flags |= MULTIPATH;
        }
    }

    /// Takes over the multipath mark of the path that this one replaces.
    pub(crate) const fn inherit(&mut self, old: &Self, changed: bool) {
        self.flags = self.flags & !MULTIPATH | old.flags & MULTIPATH;
        if !changed {
            self.flags = self.flags & !CHANGED | old.flags & CHANGED;
        }
    }

    /// Returns whether another peer has withdrawn the route of its origin, and its own peer has sent nothing
    /// since.
    pub(crate) const fn is_doubted(&self) -> bool {
        self.flags & DOUBTED != 0
    }

    pub(crate) const fn doubt(&mut self, is_doubted: bool) {
        self.flags &= !DOUBTED;
        if is_doubted {
            self.flags |= DOUBTED;
        }
    }

    pub(crate) const fn is_from(&self, peer: PeerId, path_id: u32) -> bool {
        self.peer == peer.0 && self.path_id == path_id
    }
}

/// The paths of one prefix. One path, by far the most frequent case, takes no memory of its own.
#[derive(Clone, Debug)]
pub(crate) enum PathList {
    /// Exactly one.
    One(Path),
    /// Any other number. The second indirection keeps the list at 16 octets.
    #[allow(clippy::box_collection)]
    Many(Option<Box<Vec<Path>>>),
}

const _: () = assert!(
    size_of::<PathList>() == 16,
    "the tag hides in a path's attribute id"
);

impl PathList {
    pub(crate) const EMPTY: Self = Self::Many(None);

    pub(crate) fn as_slice(&self) -> &[Path] {
        match self {
            Self::One(path) => core::slice::from_ref(path),
            Self::Many(Some(paths)) => paths,
            Self::Many(None) => &[],
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [Path] {
        match self {
            Self::One(path) => core::slice::from_mut(path),
            Self::Many(Some(paths)) => paths,
            Self::Many(None) => &mut [],
        }
    }

    /// Appends a path. The capacity grows by a quarter: with twenty paths per prefix, doubling
    /// would cost more memory than the rest of the prefix.
    pub(crate) fn push(&mut self, path: Path) {
        match self {
            Self::Many(None) => *self = Self::One(path),
            Self::One(first) => *self = Self::Many(Some(Box::new(alloc::vec![*first, path]))),
            Self::Many(Some(paths)) => {
                if paths.len() == paths.capacity() {
                    paths.reserve_exact(1 + paths.len() / 4);
                }
                paths.push(path);
            }
        }
    }

    /// Removes a path; the last one moves into its place.
    pub(crate) fn swap_remove(&mut self, at: usize) -> Path {
        match self {
            Self::Many(Some(paths)) if paths.len() > 1 => {
                let path = paths.swap_remove(at);
                if let [only] = paths.as_slice() {
                    *self = Self::One(*only);
                } else if paths.capacity() > 2 * paths.len() + 4 {
                    paths.shrink_to(paths.len() + paths.len() / 4);
                }
                path
            }
            _ => {
                let path = self.as_slice()[at];
                *self = Self::EMPTY;
                path
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(peer: u16) -> Path {
        Path::new(
            PeerId(peer),
            0,
            7,
            AttrId::from_index(3),
            None,
            Some(Ineligible::AsLoop),
        )
    }

    #[test]
    fn a_list_holds_what_was_put_in() {
        let mut list = PathList::EMPTY;
        assert!(list.as_slice().is_empty());
        for peer in 1..=40 {
            list.push(path(peer));
            assert_eq!(list.as_slice().len(), usize::from(peer));
        }
        assert_eq!(list.swap_remove(0).peer(), PeerId(1));
        assert_eq!(list.as_slice()[0].peer(), PeerId(40));
        while list.as_slice().len() > 1 {
            list.swap_remove(0);
        }
        assert!(matches!(list, PathList::One(_)));
        list.swap_remove(0);
        assert!(list.as_slice().is_empty());
    }

    #[test]
    fn flags_do_not_touch_each_other() {
        let mut one = path(1);
        assert_eq!((one.epoch(), one.reason()), (7, Some(Ineligible::AsLoop)));
        one.decided(true);
        one.set_epoch(250);
        assert!(one.is_multipath() && !one.is_changed());
        assert_eq!((one.epoch(), one.reason()), (250, Some(Ineligible::AsLoop)));
        let mut two = path(1);
        two.inherit(&one, true);
        assert!(two.is_multipath() && two.is_changed());
    }
}
