//! The path identifiers of paths sent to the members of an ADD-PATH group (RFC 7911 §3).
//!
//! The upper bits of an identifier are the number of the source peer, the lower ones distinguish
//! the paths of this peer and prefix. So one identifier never refers to paths of two sources: the
//! source of a path, which is excluded from its advertisements, never holds anything under its
//! identifier. Within a source a number may be reused: a member that still holds another path under
//! it receives the new one later, which replaces it.

use alloc::vec::Vec;

use smallvec::SmallVec;

use crate::intern::Stamp;
use crate::limits::PATHS_PER_PEER_MAX;
use crate::peer::PeerId;

/// A path that the members of a group must be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) source: PeerId,
    /// Its received path identifier.
    pub(crate) received_id: u32,
    /// Its sent attributes, before the rewriting that is common to a run.
    pub(crate) stamp: Stamp,
}

impl Chosen {
    pub(crate) const fn key(&self) -> (PeerId, u32) {
        (self.source, self.received_id)
    }
}

/// An identifier that members may hold.
#[derive(Clone, Copy, Debug)]
struct Sent {
    source: PeerId,
    number: u8,
    /// Whether the path is selected, by the last selection for the slot.
    chosen: bool,
    received_id: u32,
    /// The state that the members at the shared cursor hold under it. `None` if they hold none: it
    /// was withdrawn, but private members may not have received that; or it was sent to private
    /// members only, and the group's entry is stale.
    stamp: Option<Stamp>,
}

const _: () = assert!(size_of::<Sent>() == 16);

impl Sent {
    const fn key(&self) -> (PeerId, u32) {
        (self.source, self.received_id)
    }

    const fn path_id(&self) -> u32 {
        (self.source.0 as u32) << 16 | self.number as u32
    }
}

/// The identifiers of one prefix.
#[derive(Clone, Debug)]
struct Ids {
    /// In the order of sources and received identifiers.
    sent: SmallVec<[Sent; 1]>,
    /// The version of the slot for which the paths were selected. All readers of one version
    /// receive the same paths, although paths may become unusable, or usable, before a decision has
    /// been logged.
    as_of: u64,
}

const _: () = assert!(size_of::<Ids>() == 32);

/// No paths were selected for any version.
const NEVER: u64 = u64::MAX;

impl Default for Ids {
    fn default() -> Self {
        Self {
            sent: SmallVec::new(),
            as_of: NEVER,
        }
    }
}

// The used numbers of one source are the bits of a `u64`.
const _: () = assert!(PATHS_PER_PEER_MAX <= 64);

impl Ids {
    fn find(&self, key: (PeerId, u32)) -> Result<usize, usize> {
        self.sent.binary_search_by_key(&key, Sent::key)
    }

    /// Assigns an identifier to every path. `chosen` is in the order of keys.
    fn assign(&mut self, chosen: &[Chosen]) {
        for path in chosen {
            if let Err(at) = self.find(path.key()) {
                self.number(path, at, chosen);
            }
        }
    }

    /// Gives a path the lowest free number of its source. If there is none, slow members may hold
    /// all numbers except those of the selected paths, and one of these numbers is reused.
    fn number(&mut self, path: &Chosen, at: usize, chosen: &[Chosen]) {
        let ours = self
            .sent
            .iter()
            .filter(|sent| sent.source == path.source)
            .fold(0_u64, |used, sent| used | 1 << (sent.number - 1));
        let free = (!ours).trailing_zeros() as u8;
        let (number, at) = if usize::from(free) < PATHS_PER_PEER_MAX {
            (free + 1, at)
        } else {
            let is_chosen = |key| chosen.binary_search_by_key(&key, Chosen::key).is_ok();
            let spare = self
                .sent
                .iter()
                .position(|sent| sent.source == path.source && !is_chosen(sent.key()));
            // A peer never has more paths than there are numbers, so one is available.
            let Some(spare) = spare else { return };
            (
                self.sent.remove(spare).number,
                if spare < at { at - 1 } else { at },
            )
        };
        let sent = Sent {
            source: path.source,
            number,
            chosen: false,
            received_id: path.received_id,
            stamp: None,
        };
        self.sent.insert(at, sent);
    }

    /// Passes each identifier to `each`, with the path selected for it, if there is one.
    fn pair<'c>(
        &mut self,
        version: u64,
        chosen: &'c [Chosen],
        mut each: impl FnMut(&mut Sent, Option<&'c Chosen>),
    ) {
        self.assign(chosen);
        self.as_of = version;
        let mut chosen = chosen.iter().peekable();
        for sent in &mut self.sent {
            while chosen.next_if(|path| path.key() < sent.key()).is_some() {}
            let path = chosen.next_if(|path| path.key() == sent.key());
            sent.chosen = path.is_some();
            each(sent, path);
        }
    }
}

impl Ids {
    /// Adds the paths that members of another group may hold, as possibly held by private members.
    fn adopt(&mut self, other: &Self) {
        for theirs in &other.sent {
            let same = |ours: &Sent| ours.path_id() == theirs.path_id();
            if self.sent.iter().any(same) {
                continue;
            }
            // The path may have another number here already. Then any other key will do: a path
            // that gets this key later is sent under this number.
            let names = core::iter::once(theirs.received_id).chain((0..=u32::MAX).rev());
            let free = names.map(|name| self.find((theirs.source, name)).err().zip(Some(name)));
            let Some((at, received_id)) = free.flatten().next() else {
                continue;
            };
            let held = Sent {
                chosen: false,
                stamp: None,
                received_id,
                ..*theirs
            };
            self.sent.insert(at, held);
        }
    }
}

/// One message about one path of a prefix.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word<'c> {
    /// The path is announced with this identifier.
    Reach(&'c Chosen, u32),
    /// The identifier, of a former path of this peer, is withdrawn.
    Unreach(PeerId, u32),
}

/// The routes that are sent although members already hold them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Repeat {
    /// Members may hold a state that differs from the group's: send everything.
    pub(crate) all: bool,
    /// Equal attributes do not imply an equal route: announce everything.
    pub(crate) reach: bool,
}

/// The paths that were selected for one version of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChosenKeys<'a>(&'a Ids);

impl ChosenKeys<'_> {
    /// Returns whether a path is among them.
    pub(crate) fn contains(&self, key: (PeerId, u32)) -> bool {
        let at = self.0.find(key).ok();
        at.and_then(|at| self.0.sent.get(at))
            .is_some_and(|sent| sent.chosen)
    }
}

/// The identifiers of a group in one family, by slot.
#[derive(Debug, Default)]
pub(crate) struct SentIds(Vec<Ids>);

impl SentIds {
    fn ids(&mut self, slot: u32) -> &mut Ids {
        let at = slot as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, Ids::default());
        }
        &mut self.0[at]
    }

    /// Returns the paths that were selected for a version of a slot, if any reader has read it.
    pub(crate) fn chosen(&self, slot: u32, version: u64) -> Option<ChosenKeys<'_>> {
        let ids = self.0.get(slot as usize)?;
        (ids.as_of == version).then_some(ChosenKeys(ids))
    }

    /// Adds the paths that members joining from another group may hold; they are withdrawn here.
    pub(crate) fn adopt(&mut self, other: &Self) {
        for (slot, theirs) in (0..).zip(&other.0) {
            if !theirs.sent.is_empty() {
                self.ids(slot).adopt(theirs);
            }
        }
    }

    /// Returns the messages that update the members at the shared cursor to `chosen`, which is in the
    /// order of keys, at a version of the slot.
    pub(crate) fn update_group<'c>(
        &mut self,
        (slot, version): (u32, u64),
        chosen: &'c [Chosen],
        repeat: Repeat,
        each: &mut dyn FnMut(Word<'c>),
    ) {
        if chosen.is_empty() && slot as usize >= self.0.len() {
            return;
        }
        self.ids(slot).pair(version, chosen, |sent, path| {
            let stamp = path.map(|path| path.stamp);
            match path {
                Some(path) if repeat.all || repeat.reach || sent.stamp != stamp => {
                    each(Word::Reach(path, sent.path_id()));
                }
                None if repeat.all || sent.stamp.is_some() => {
                    each(Word::Unreach(sent.source, sent.path_id()));
                }
                _ => {}
            }
            sent.stamp = stamp;
        });
    }

    /// Returns the messages that update a private member to `chosen` from any state. Also returns
    /// whether the members at the shared cursor hold another state.
    pub(crate) fn update_member<'c>(
        &mut self,
        (slot, version): (u32, u64),
        chosen: &'c [Chosen],
        each: &mut dyn FnMut(Word<'c>),
    ) -> bool {
        if chosen.is_empty() && slot as usize >= self.0.len() {
            return false;
        }
        let mut differs = false;
        self.ids(slot).pair(version, chosen, |sent, path| {
            differs |= sent.stamp != path.map(|path| path.stamp);
            each(match path {
                Some(path) => Word::Reach(path, sent.path_id()),
                None => Word::Unreach(sent.source, sent.path_id()),
            });
        });
        differs
    }

    /// Drops identifiers that the group does not hold, after every reader has received their
    /// withdrawal. Returns whether there were any.
    pub(crate) fn prune(&mut self, slot: u32) -> bool {
        let Some(Ids { sent: ids, .. }) = self.0.get_mut(slot as usize) else {
            return false;
        };
        let before = ids.len();
        ids.retain(|sent| sent.stamp.is_some());
        let pruned = ids.len() < before;
        if pruned && ids.spilled() && ids.capacity() > 2 * ids.len() + 4 {
            ids.shrink_to_fit();
        }
        pruned
    }

    /// Returns the identifier of a path at the members; only some hold it if the group's entry is
    /// `stale`.
    pub(crate) fn path_id(&self, slot: u32, key: (PeerId, u32), stale: bool) -> Option<u32> {
        let ids = self.0.get(slot as usize)?;
        let sent = ids.sent.get(ids.find(key).ok()?)?;
        (stale || sent.stamp.is_some()).then(|| sent.path_id())
    }

    /// Clears the entry of a slot that is about to be released.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(ids) = self.0.get_mut(slot as usize) {
            *ids = Ids::default();
        }
    }

    /// Clears all entries of an empty table.
    pub(crate) fn forget_all(&mut self) {
        self.0 = Vec::new();
    }

    /// Returns the number of identifiers.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|ids| ids.sent.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::AttrId;

    fn path(source: u16, received_id: u32, attributes: u32) -> Chosen {
        Chosen {
            source: PeerId(source),
            received_id,
            stamp: Stamp::new(AttrId::from_index(attributes), 0),
        }
    }

    /// Returns the messages to the group: announced identifiers, withdrawn ones.
    fn update(sent: &mut SentIds, chosen: &[Chosen]) -> (Vec<u32>, Vec<u32>) {
        let (mut reach, mut unreach) = (Vec::new(), Vec::new());
        sent.update_group((0, 1), chosen, Repeat::default(), &mut |word| match word {
            Word::Reach(_, id) => reach.push(id),
            Word::Unreach(source, id) => {
                assert_eq!(id >> 16, u32::from(source.0));
                unreach.push(id);
            }
        });
        (reach, unreach)
    }

    #[test]
    fn an_identifier_stays_with_its_path() {
        let mut sent = SentIds::default();
        let (reach, _) = update(&mut sent, &[path(3, 0, 1), path(7, 9, 1)]);
        assert_eq!(reach, [3 << 16 | 1, 7 << 16 | 1]);
        let (reach, unreach) = update(&mut sent, &[path(3, 0, 1), path(7, 4, 1), path(7, 9, 2)]);
        assert_eq!(
            reach,
            [7 << 16 | 2, 7 << 16 | 1],
            "what members hold is not sent again"
        );
        assert!(unreach.is_empty());
        let (reach, unreach) = update(&mut sent, &[path(7, 9, 2)]);
        assert!(reach.is_empty());
        assert_eq!(unreach, [3 << 16 | 1, 7 << 16 | 2]);
        assert_eq!(sent.len(), 3, "kept for members that lag");
        assert!(sent.prune(0) && !sent.prune(0));
        assert_eq!(sent.len(), 1);
    }

    #[test]
    fn path_ids_never_run_out() {
        let mut sent = SentIds::default();
        let max = PATHS_PER_PEER_MAX as u32;
        for round in 0..5 {
            let chosen: Vec<_> = (0..max).map(|at| path(1, round * max + at, 1)).collect();
            let (reach, unreach) = update(&mut sent, &chosen);
            assert_eq!(reach.len(), PATHS_PER_PEER_MAX);
            assert!(unreach.is_empty(), "replaced, all of them");
            let id = |path: &Chosen| sent.path_id(0, path.key(), false).expect("sent");
            let mut ids: Vec<u32> = chosen.iter().map(id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), PATHS_PER_PEER_MAX, "no two paths share one");
            assert_eq!(sent.len(), PATHS_PER_PEER_MAX);
        }
        let (reach, unreach) = update(&mut sent, &[path(1, 9999, 1)]);
        assert_eq!((reach.len(), unreach.len()), (1, PATHS_PER_PEER_MAX - 1));
    }

    #[test]
    fn a_member_by_itself_leaves_its_trace() {
        let mut sent = SentIds::default();
        assert!(sent.update_member((0, 1), &[path(1, 0, 1)], &mut |_| {}));
        let mut words = Vec::new();
        assert!(
            !sent.update_member((0, 1), &[], &mut |word| words.push(word)),
            "the group was sent nothing"
        );
        assert!(matches!(words[..], [Word::Unreach(PeerId(1), 0x1_0001)]));
        let (mut reach, mut unreach) = (0, 0);
        let repeat = Repeat {
            all: true,
            reach: false,
        };
        sent.update_group((0, 1), &[path(2, 0, 1)], repeat, &mut |word| match word {
            Word::Reach(..) => reach += 1,
            Word::Unreach(..) => unreach += 1,
        });
        assert_eq!((reach, unreach), (1, 1));
        assert!(!sent.update_member((0, 1), &[path(2, 0, 1)], &mut |_| {}));
    }
}
