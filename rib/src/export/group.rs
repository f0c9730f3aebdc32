//! Update groups: peers that are sent the same routes share one walk of the log.
//!
//! A group keeps, for every slot, the peer whose route its members hold. That is all it takes to
//! leave a member's own routes out, and to withdraw from a member what it holds when its own route
//! becomes the best one.

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

/// What the members of a group hold in one family, and where their shared walk is.
#[derive(Debug)]
pub(crate) struct AdjRibOut {
    cursor: Cursor,
    /// By slot: the peer whose route the members hold. That peer itself holds nothing.
    sources: Vec<u16>,
    /// By slot, as bits: the entry is stale. Single members may hold something else, because they
    /// were sent a change that still lies ahead of the group.
    stale: Vec<u64>,
    /// What the members hold where they are sent several paths of a prefix, in place of `sources`.
    sent: Option<SentIds>,
    /// Entries stay stale below this version: members may hold something that is no longer in the
    /// tables.
    stale_below: u64,
}

/// What the members that take part in a walk may hold of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Nothing,
    /// The route of this peer, all but the peer itself.
    From(PeerId),
    /// A route or none, whichever.
    Unknown,
}

impl AdjRibOut {
    /// A group that begins at the end of the log. Its members are fed one by one, so of everything
    /// that is in the table already the group's entries are stale.
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

    /// Marks the entries of everything in the table stale, each until it goes into the log with
    /// this version or a later one.
    pub(super) fn mark_all_stale(&mut self, version: u64, table_len: u32) {
        self.stale_below = version;
        self.stale.clear();
        self.stale.resize(table_len.div_ceil(64) as usize, u64::MAX);
    }

    /// What the members of the shared walk may hold of a slot, which they are about to be sent.
    pub(super) fn take_held(&mut self, slot: u32) -> Held {
        let source = self.sources.get(slot as usize).copied();
        match source.filter(|&source| source != NO_SOURCE) {
            _ if self.take_stale(slot) => Held::Unknown,
            Some(source) => Held::From(PeerId(source)),
            None => Held::Nothing,
        }
    }

    /// The members of the shared walk hold the route of this peer, or none.
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

    /// The same at a version of the slot, which is about to be sent whole.
    pub(super) fn take_stale_at(&mut self, slot: u32, version: u64) -> bool {
        if version < self.stale_below {
            return self.is_stale(slot);
        }
        self.take_stale(slot)
    }

    /// The slot is about to be given back.
    pub(super) fn forget(&mut self, slot: u32) {
        self.set_source(slot, None);
        self.take_stale(slot);
        if let Some(sent) = &mut self.sent {
            sent.forget(slot);
        }
    }

    /// The table is empty.
    pub(super) fn forget_all(&mut self) {
        self.sources = Vec::new();
        self.stale = Vec::new();
        if let Some(sent) = &mut self.sent {
            sent.forget_all();
        }
    }

    /// All readers have come by the slot since the group did: what its members do not hold, no
    /// reader holds. Returns whether identifiers are forgotten that an unknown reader may hold.
    pub(super) fn prune(&mut self, slot: u32) -> bool {
        !self.is_stale(slot) && self.sent.as_mut().is_some_and(|sent| sent.prune(slot))
    }

    /// Whether members are sent several paths of a prefix.
    pub(super) const fn sends_paths(&self) -> bool {
        self.sent.is_some()
    }

    /// The path identifiers that members hold, if they are sent several paths of a prefix.
    pub(super) const fn sent(&self) -> Option<&SentIds> {
        self.sent.as_ref()
    }

    pub(super) const fn sent_mut(&mut self) -> Option<&mut SentIds> {
        self.sent.as_mut()
    }

    /// The path identifiers of a group that is no more.
    pub(super) fn into_sent(self) -> Option<SentIds> {
        self.sent
    }

    /// Takes in what members of another group may hold that come to this one.
    pub(super) fn adopt(&mut self, other: &SentIds, (next, table_len): (u64, u32)) {
        if let Some(sent) = &mut self.sent {
            sent.adopt(other);
            // The members have come by the slots as they are, not by what is withdrawn here: that
            // is kept until they have come by a later version of the slot.
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

/// Withdrawals of one bite, by audience.
#[derive(Debug, Default)]
pub(super) struct Withdrawals {
    /// For all but one, or for all: slot and path identifier.
    except: Vec<(Option<PeerId>, u32, u32)>,
    /// For one alone.
    only: Vec<(PeerId, u32)>,
}

impl Withdrawals {
    pub(super) fn push(&mut self, except: Option<PeerId>, slot: u32, path_id: u32) {
        self.except.push((except, slot, path_id));
    }

    pub(super) fn push_only(&mut self, only: PeerId, slot: u32) {
        self.only.push((only, slot));
    }

    /// Hands them over, those for the same members together.
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
