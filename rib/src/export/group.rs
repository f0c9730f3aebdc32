//! Update groups: peers that receive the same routes share one cursor of the log.
//!
//! A group stores, for every slot, the peer whose route its members hold. That is sufficient to
//! exclude a member's own routes, and to withdraw a route from a member whose own route becomes the
//! best one.

use alloc::vec::Vec;

use bgp_proto::Nlri;

use super::cursor::Cursor;
use super::sent::SentIds;
use super::sink::ExportSink;
use crate::peer::PeerId;
use crate::prefixes::Prefixes;
use crate::table::Key;

/// No peer's route.
const NO_SOURCE: u16 = u16::MAX;

/// The Adj-RIB-Out of a group's members in one family, and their shared cursor.
#[derive(Debug)]
pub(crate) struct AdjRibOut {
    cursor: Cursor,
    /// By slot: the source of the route that the members hold. The source itself holds none.
    sources: Vec<u16>,
    /// By slot, as bits: the entry is stale. Some members may hold another state, because they
    /// received a change that the group has not reached yet.
    stale: Vec<u64>,
    /// The paths that members hold if they are sent several paths of a prefix; replaces `sources`.
    sent: Option<SentIds>,
    /// Entries stay stale below this version: members may hold a path that is no longer in the
    /// tables.
    stale_below: u64,
}

/// The possible state of members for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Nothing,
    /// They hold the route of this peer, except the peer itself.
    From(PeerId),
    /// Unknown: any route or none.
    Unknown,
}

impl AdjRibOut {
    /// Makes a group that begins at the end of the log. Its members are dumped one by one, so the
    /// group's entries of all existing slots are stale.
    pub(super) fn new(next: u64, table_len: u32, sent: Option<SentIds>) -> Self {
        let mut new = Self {
            cursor: Cursor::following(next),
            sources: Vec::new(),
            stale: Vec::new(),
            sent,
            stale_below: 0,
        };
        new.mark_all_stale(0, table_len);
        new
    }

    /// Marks the entries of the whole table stale, each until it is logged with this version or a
    /// later one.
    pub(super) fn mark_all_stale(&mut self, version: u64, table_len: u32) {
        self.stale_below = version;
        self.stale.clear();
        self.stale.resize(table_len.div_ceil(64) as usize, u64::MAX);
    }

    /// Takes the state of the members at the shared cursor for a slot, which is about to be sent to
    /// them.
    pub(super) fn take_held(&mut self, slot: u32) -> Held {
        let source = self.sources.get(slot as usize).copied();
        match source.filter(|&source| source != NO_SOURCE) {
            _ if self.take_stale(slot) => Held::Unknown,
            Some(source) => Held::From(PeerId(source)),
            None => Held::Nothing,
        }
    }

    /// Records that the members at the shared cursor hold the route of this peer, or none.
    pub(super) fn set_source(&mut self, slot: u32, source: Option<PeerId>) {
        let at = slot as usize;
        let source = source.map_or(NO_SOURCE, |source| source.0);
        if at >= self.sources.len() {
            if source == NO_SOURCE {
                return;
            }
            self.sources.resize(at + 1, NO_SOURCE);
        }
        self.sources[at] = source;
    }

    pub(super) fn mark_stale(&mut self, slot: u32) {
        let at = slot as usize / 64;
        if at >= self.stale.len() {
            self.stale.resize(at + 1, 0);
        }
        self.stale[at] |= 1 << (slot % 64);
    }

    pub(super) fn is_stale(&self, slot: u32) -> bool {
        let bits = self.stale.get(slot as usize / 64);
        bits.is_some_and(|bits| bits & 1 << (slot % 64) != 0)
    }

    fn take_stale(&mut self, slot: u32) -> bool {
        let Some(bits) = self.stale.get_mut(slot as usize / 64) else {
            return false;
        };
        let bit = 1 << (slot % 64);
        let was = *bits & bit != 0;
        *bits &= !bit;
        was
    }

    /// Does the same at a version of the slot, which is about to be sent completely.
    pub(super) fn take_stale_at(&mut self, slot: u32, version: u64) -> bool {
        if version < self.stale_below {
            return self.is_stale(slot);
        }
        self.take_stale(slot)
    }

    /// Clears the entry of a slot that is about to be released.
    pub(super) fn forget(&mut self, slot: u32) {
        self.set_source(slot, None);
        self.take_stale(slot);
        if let Some(sent) = &mut self.sent {
            sent.forget(slot);
        }
    }

    /// Clears all entries of an empty table.
    pub(super) fn forget_all(&mut self) {
        self.sources = Vec::new();
        self.stale = Vec::new();
        if let Some(sent) = &mut self.sent {
            sent.forget_all();
        }
    }

    /// Drops identifiers that no reader holds, after all readers have read the slot since the group
    /// did. Returns whether identifiers were dropped that an unknown reader may hold.
    pub(super) fn prune(&mut self, slot: u32) -> bool {
        !self.is_stale(slot) && self.sent.as_mut().is_some_and(|sent| sent.prune(slot))
    }

    /// Returns whether members are sent several paths of a prefix.
    pub(super) const fn sends_paths(&self) -> bool {
        self.sent.is_some()
    }

    /// Returns the path identifiers that members hold, if they are sent several paths of a prefix.
    pub(super) const fn sent(&self) -> Option<&SentIds> {
        self.sent.as_ref()
    }

    pub(super) const fn sent_mut(&mut self) -> Option<&mut SentIds> {
        self.sent.as_mut()
    }

    /// Returns the path identifiers of a removed group.
    pub(super) fn into_sent(self) -> Option<SentIds> {
        self.sent
    }

    /// Adds the paths that members joining from another group may hold.
    pub(super) fn adopt(&mut self, other: &SentIds, (next, table_len): (u64, u32)) {
        if let Some(sent) = &mut self.sent {
            sent.adopt(other);
            // The members have read the slots in their current state, but not the withdrawals added
            // here: these are kept until the members have read a later version of the slot.
            self.mark_all_stale(next, table_len);
        }
    }

    pub(crate) const fn cursor(&self) -> Cursor {
        self.cursor
    }

    pub(super) const fn set_cursor(&mut self, cursor: Cursor) {
        self.cursor = cursor;
    }
}

/// Withdrawals of one step, by audience.
#[derive(Debug, Default)]
pub(super) struct Withdrawals {
    /// For all members except one, or for all: slot and path identifier.
    except: Vec<(Option<PeerId>, u32, u32)>,
    /// For one member alone.
    only: Vec<(PeerId, u32)>,
}

impl Withdrawals {
    pub(super) fn push(&mut self, except: Option<PeerId>, slot: u32, path_id: u32) {
        self.except.push((except, slot, path_id));
    }

    pub(super) fn push_only(&mut self, only: PeerId, slot: u32) {
        self.only.push((only, slot));
    }

    /// Passes them to the sink, those for the same members together.
    pub(super) fn send<K: Key>(&mut self, prefixes: &Prefixes<K>, sink: &mut dyn ExportSink) {
        self.except.sort_unstable();
        for (except, slot, path_id) in self.except.drain(..) {
            let net = prefixes.net(slot);
            sink.unreach(&Nlri { path_id, net }, except);
        }
        self.only.sort_unstable();
        for (only, slot) in self.only.drain(..) {
            sink.unreach_only(prefixes.net(slot), only);
        }
    }
}
