//! Update groups: peers that must be told the same octets share one walk of the log, one encoding
//! and one ring of segments.
//!
//! A member is in one of two modes per family. *Shared*: it takes segments from the ring, by
//! reference count. *Private*: it walks the tables by itself, because it has just come up (its
//! cursor is a feed) or because it was so slow that the ring had to let go of what it still
//! needed; those that come up at about the same time take each other's octets (see
//! [`crate::feed`]). A private member that reaches the tip of the log joins the ring; what the group
//! announces after that may repeat what the member already has, which is harmless, since the last
//! message about a prefix is always the right one.

use alloc::{collections::BTreeMap, vec::Vec};

use bgp_fsm::{Instant, Session};
use bgp_proto::{EncodeParams, Family, FamilySet, Net, RefreshSubtype, RouteRefresh, UpdateWriter};
use bytes::{Bytes, BytesMut};
use rib::{Budget, Cursor, GroupId, GroupRules, PeerId, Progress, Rib, SentPath};

use crate::{
    encode::Encoder,
    feed::{Feed, FeedPlace},
    limits::{
        BITE_PREFIXES, FEED_PREFIXES, RING_OCTETS_MAX, SESSION_OCTETS_MAX, SESSION_PIECES_MAX,
    },
    segment::{Audience, Ring, Segment},
};

/// All that changes the octets a peer is sent; peers with equal keys share a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    /// The export rules of the tables.
    pub(crate) rules: GroupRules,
    /// Whether AS numbers have four octets on the wire.
    pub(crate) as4: bool,
    /// The largest message, header included.
    pub(crate) octets_max: usize,
}

impl GroupKey {
    fn params(&self, family: Family) -> EncodeParams {
        EncodeParams {
            as4: self.as4,
            add_path: self.rules.add_path.contains_key(&family),
            octets_max: self.octets_max,
        }
    }
}

/// Where one member stands in one family.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// It walks by itself from here, unless somebody has gone this way before.
    Private(Cursor, FeedPlace),
    /// It has taken every segment before this number.
    Shared(u64),
}

/// One member's place in one family.
#[derive(Clone, Copy, Debug)]
struct Place {
    mode: Mode,
    /// What follows the walk of the whole table that is going on.
    owed: Owed,
    /// Everything is wanted once more after that.
    again: Option<Borders>,
}

impl Place {
    /// The place of a member that has read up to `from` and is told everything once more.
    fn refreshed(from: Cursor, family: Family, borders: Borders, session: &mut Session) -> Self {
        if let Some(begin) = borders.message(family, RefreshSubtype::Begin) {
            session.queue(begin);
        }
        Self {
            mode: Mode::Private(from.again(), FeedPlace::ELSEWHERE),
            owed: Owed::EndOfRefresh(borders),
            again: None,
        }
    }
}

/// What a walk of the whole table ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    /// Nothing; there may be no such walk.
    Nothing,
    /// The End-of-RIB marker after the first one (RFC 4724 §2).
    EndOfRib,
    /// The end of a refresh, which is marked if the peer knows marks (RFC 7313 §4.1).
    EndOfRefresh(Borders),
}

/// How a refresh is told apart from other UPDATEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Borders {
    /// Not at all (RFC 2918).
    Unmarked,
    /// By a message before and one behind it (RFC 7313).
    Marked,
}

impl Borders {
    /// The message that stands at a border.
    fn message(self, family: Family, subtype: RefreshSubtype) -> Option<Bytes> {
        let marked = self == Self::Marked;
        marked.then(|| message(|out| RouteRefresh { family, subtype }.encode(out)))
    }
}

/// Where a member stands in all its families.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<(Family, Place)>);

/// One family of a group.
#[derive(Debug, Default)]
struct Lane {
    ring: Ring,
    /// Where the next segments are written, after the last ones in the same allocation.
    room: BytesMut,
    feed: Feed,
    places: BTreeMap<PeerId, Place>,
    /// Members in shared mode that have not taken everything.
    behind: usize,
}

/// Peers that are told the same.
#[derive(Debug)]
pub(crate) struct OutGroup {
    pub(crate) key: GroupKey,
    id: GroupId,
    lanes: BTreeMap<Family, Lane>,
}

impl OutGroup {
    pub(crate) fn new(key: GroupKey, rib: &mut Rib) -> Self {
        let id = rib.add_group(key.rules.clone());
        Self {
            key,
            id,
            lanes: BTreeMap::new(),
        }
    }

    /// Its number in the tables.
    pub(crate) fn id(&self) -> GroupId {
        self.id
    }

    /// Takes the group out of the tables.
    pub(crate) fn close(self, rib: &mut Rib) {
        rib.remove_group(self.id);
    }

    /// Whether nobody is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.values().all(|lane| lane.places.is_empty())
    }

    /// Lets a peer in: it is fed each family whole in which it is no member yet, then an End-of-RIB
    /// marker.
    pub(crate) fn join(&mut self, peer: PeerId, families: FamilySet) {
        for family in families.iter() {
            let place = Place {
                mode: Mode::Private(Cursor::feed(), FeedPlace::ELSEWHERE),
                owed: Owed::EndOfRib,
                again: None,
            };
            self.lanes
                .entry(family)
                .or_default()
                .places
                .entry(peer)
                .or_insert(place);
        }
    }

    /// Tells one member everything of a family once more (RFC 2918 §4). Who asks again while it is
    /// being told is told once more at the end, however often it asked. So no refresh begins
    /// before the End-of-RIB marker, either (RFC 7313 §4.1).
    pub(crate) fn refeed(
        &mut self,
        rib: &mut Rib,
        (peer, session): (PeerId, &mut Session),
        family: Family,
        borders: Borders,
    ) {
        let Some(lane) = self.lanes.get_mut(&family) else {
            return;
        };
        let Some(place) = lane.places.get_mut(&peer) else {
            return;
        };
        if place.owed != Owed::Nothing {
            place.again = Some(borders);
            return;
        }
        let mode = place.mode;
        let from = lane.stand(mode, || rib.group_cursor(self.id, family));
        lane.leave(peer);
        lane.places
            .insert(peer, Place::refreshed(from, family, borders, session));
    }

    /// Takes a peer out that another group takes in, and says where it stood.
    pub(crate) fn hand_over(&mut self, rib: &mut Rib, peer: PeerId) -> Places {
        let mut places = Places::default();
        for (&family, lane) in &mut self.lanes {
            let Some(place) = lane.places.get(&peer).copied() else {
                continue;
            };
            let from = lane.stand(place.mode, || rib.group_cursor(self.id, family));
            let mode = Mode::Private(from.anew(), FeedPlace::ELSEWHERE);
            places.0.push((family, Place { mode, ..place }));
            lane.leave(peer);
        }
        places
    }

    /// Takes in a peer from another group: it is told everything by the rules of this one.
    pub(crate) fn take_over(&mut self, peer: PeerId, places: Places) {
        for (family, place) in places.0 {
            self.lanes
                .entry(family)
                .or_default()
                .places
                .insert(peer, place);
        }
    }

    /// Takes a peer out.
    pub(crate) fn leave(&mut self, peer: PeerId) {
        for lane in self.lanes.values_mut() {
            lane.leave(peer);
        }
    }

    /// Encodes the next bite of every family for which the ring has room. Members that now have
    /// something to take are appended to `writable`, those whose session has to start over to
    /// `lost`.
    pub(crate) fn export(
        &mut self,
        now: Instant,
        rib: &mut Rib,
        writable: &mut Vec<PeerId>,
        lost: &mut Vec<PeerId>,
    ) -> Progress {
        let mut progress = Progress::Done;
        for (&family, lane) in &mut self.lanes {
            lane.feed.expire(now);
            if !lane.make_room() {
                continue;
            }
            let tip = lane.ring.tip();
            let from = rib.group_cursor(self.id, family);
            let room = core::mem::take(&mut lane.room);
            let mut encoder = Encoder::new(family, self.key.params(family), room);
            match rib.export(self.id, family, Budget(BITE_PREFIXES), &mut encoder) {
                Progress::Done => {}
                Progress::More => progress = Progress::More,
                Progress::Lost => lost.extend(lane.shared()),
            }
            let pieces;
            (pieces, lane.room) = encoder.finish();
            for (audience, octets) in pieces {
                lane.ring.push(Segment {
                    audience,
                    octets,
                    from,
                });
            }
            lane.wake(tip, writable);
        }
        progress
    }

    /// Hands `session` what its peer is to be told next, up to the session's limit.
    ///
    /// # Errors
    /// The peer has not read for so long that it can no longer be told what it missed.
    pub(crate) fn pull(
        &mut self,
        peer: PeerId,
        session: &mut Session,
        rib: &mut Rib,
    ) -> Result<(), Lost> {
        for (&family, lane) in &mut self.lanes {
            while session.queued_octets() < SESSION_OCTETS_MAX
                && session.queued_pieces() < SESSION_PIECES_MAX
            {
                let Some(place) = lane.places.get_mut(&peer) else {
                    break;
                };
                match place.mode {
                    Mode::Shared(next) => match lane.ring.segment(next) {
                        Some(segment) => {
                            if segment.audience.includes(peer) {
                                session.queue(segment.octets.clone());
                            }
                            place.mode = Mode::Shared(next + 1);
                            lane.taken(next + 1);
                        }
                        None => break,
                    },
                    Mode::Private(cursor, at) => {
                        if let Some((bite, at)) = lane.feed.next(at, cursor) {
                            queue(session, peer, &bite.pieces);
                            place.mode = Mode::Private(bite.to, at);
                            continue;
                        }
                        let walk = Walk {
                            group: self.id,
                            family,
                            peer,
                            params: self.key.params(family),
                        };
                        lane.walk(&walk, cursor, session, rib)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the peer has anything to take.
    pub(crate) fn has_more(&self, peer: PeerId) -> bool {
        self.lanes.values().any(|lane| lane.has_more(peer))
    }

    /// The log positions that members may still have to go on from, so that the tables keep their
    /// tombstones for them: those of private members, and that of the oldest segment, from where
    /// a member walks that loses its place in the ring.
    pub(crate) fn held_cursors(&self) -> impl Iterator<Item = (Family, Cursor)> + '_ {
        self.lanes.iter().flat_map(|(&family, lane)| {
            let private = lane.places.values().filter_map(|place| match place.mode {
                Mode::Private(cursor, _) => Some(cursor),
                Mode::Shared(_) => None,
            });
            let fed = lane.feed.held_cursors();
            let oldest = lane.ring.oldest().map(|segment| segment.from);
            private
                .chain(fed)
                .chain(oldest)
                .map(move |cursor| (family, cursor))
        })
    }

    /// Octets waiting in the fullest of the group's rings.
    pub(crate) fn fullest_ring(&self) -> usize {
        let rings = self.lanes.values().map(|lane| lane.ring.octets());
        rings.max().unwrap_or(0)
    }

    /// The members in a family, and the paths of a prefix that each but a path's source is sent.
    pub(crate) fn sent<'a>(
        &'a self,
        rib: &'a Rib,
        family: Family,
        net: Net<'_>,
    ) -> impl Iterator<Item = (PeerId, SentPath)> + 'a {
        let lane = self.lanes.get(&family);
        let members = lane
            .into_iter()
            .flat_map(|lane| lane.places.keys().copied());
        let paths = rib.sent(self.id, family, net);
        members.flat_map(move |member| {
            let others = paths.clone().into_iter();
            let others = others.filter(move |path| path.source != member);
            others.map(move |path| (member, path))
        })
    }

    /// Octets waiting in the group's rings, and kept for newcomers.
    pub(crate) fn ring_octets(&self) -> usize {
        let lanes = self.lanes.values();
        lanes
            .map(|lane| lane.ring.octets() + lane.feed.octets())
            .sum()
    }
}

/// What a peer missed can no longer be told: its session has to start over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

/// What one private walk is about.
struct Walk {
    group: GroupId,
    family: Family,
    peer: PeerId,
    params: EncodeParams,
}

impl Lane {
    /// Up to where a member has been told, where `tip` is where the group stands.
    fn stand(&self, mode: Mode, tip: impl FnOnce() -> Cursor) -> Cursor {
        match mode {
            Mode::Private(cursor, _) => cursor,
            Mode::Shared(next) => self.ring.segment(next).map_or_else(tip, |s| s.from),
        }
    }

    fn leave(&mut self, peer: PeerId) {
        if let Some(Place {
            mode: Mode::Shared(next),
            ..
        }) = self.places.remove(&peer)
            && next < self.ring.tip()
        {
            self.caught_up();
        }
    }

    fn has_more(&self, peer: PeerId) -> bool {
        self.places
            .get(&peer)
            .is_some_and(|place| match place.mode {
                Mode::Shared(next) => next < self.ring.tip(),
                Mode::Private(..) => true,
            })
    }

    /// The members that take from the ring.
    fn shared(&self) -> impl Iterator<Item = PeerId> + '_ {
        let shared = self
            .places
            .iter()
            .filter(|(_, place)| matches!(place.mode, Mode::Shared(_)));
        shared.map(|(&peer, _)| peer)
    }

    /// A shared member has taken every segment before `next`.
    fn taken(&mut self, next: u64) {
        if next == self.ring.tip() {
            self.caught_up();
        }
    }

    /// One member fewer is behind; when none is, nobody needs the segments any more.
    fn caught_up(&mut self) {
        self.behind = self.behind.saturating_sub(1);
        if self.behind == 0 {
            self.ring.release(self.ring.tip());
        }
    }

    /// New segments from number `tip` on: every shared member has something to take.
    fn wake(&mut self, tip: u64, writable: &mut Vec<PeerId>) {
        if self.ring.tip() == tip {
            return;
        }
        let before = writable.len();
        writable.extend(self.shared());
        self.behind = writable.len() - before;
        if self.behind == 0 {
            self.ring.release(self.ring.tip());
        }
    }

    /// Whether the ring can take another bite. A full ring waits while everyone is behind; as
    /// soon as one member has taken everything, the slowest lose their place in it.
    fn make_room(&mut self) -> bool {
        if self.ring.octets() < RING_OCTETS_MAX {
            return true;
        }
        let tip = self.ring.tip();
        let slowest = self.places.values().filter_map(|place| match place.mode {
            Mode::Shared(next) => Some(next),
            Mode::Private(..) => None,
        });
        if let Some(slowest) = slowest.min() {
            self.ring.release(slowest);
        }
        let at_tip = |place: &Place| matches!(place.mode, Mode::Shared(next) if next == tip);
        if !self.places.values().any(at_tip) {
            return self.ring.octets() < RING_OCTETS_MAX;
        }
        while self.ring.octets() >= RING_OCTETS_MAX / 2 {
            let Some((number, from)) = self.ring.evict() else {
                break;
            };
            for place in self.places.values_mut() {
                if matches!(place.mode, Mode::Shared(next) if next == number) {
                    place.mode = Mode::Private(from, FeedPlace::ELSEWHERE);
                    self.behind = self.behind.saturating_sub(1);
                }
            }
        }
        true
    }

    /// One bite of a private walk; at its end the member joins the ring.
    fn walk(
        &mut self,
        walk: &Walk,
        from: Cursor,
        session: &mut Session,
        rib: &mut Rib,
    ) -> Result<(), Lost> {
        let mut encoder = Encoder::new(walk.family, walk.params, BytesMut::new());
        let mut cursor = from;
        let budget = Budget(FEED_PREFIXES);
        let progress =
            rib.export_private(walk.group, walk.family, &mut cursor, budget, &mut encoder);
        let (pieces, _) = encoder.finish();
        queue(session, walk.peer, &pieces);
        let Some(place) = self.places.get_mut(&walk.peer) else {
            return Ok(());
        };
        match progress {
            Progress::Done => {}
            Progress::More => {
                place.mode = Mode::Private(cursor, self.feed.push(from, cursor, pieces));
                return Ok(());
            }
            Progress::Lost => return Err(Lost),
        }
        self.feed.push(from, cursor, pieces);
        let end = match place.owed {
            Owed::Nothing => None,
            Owed::EndOfRib => Some(message(|out| UpdateWriter::end_of_rib(out, walk.family))),
            Owed::EndOfRefresh(borders) => borders.message(walk.family, RefreshSubtype::End),
        };
        if let Some(end) = end {
            session.queue(end);
        }
        *place = match place.again {
            Some(borders) => Place::refreshed(cursor, walk.family, borders, session),
            None => Place {
                mode: Mode::Shared(self.ring.tip()),
                owed: Owed::Nothing,
                again: None,
            },
        };
        Ok(())
    }
}

/// Queues those of the pieces that are for this peer.
fn queue(session: &mut Session, peer: PeerId, pieces: &[(Audience, Bytes)]) {
    for (audience, octets) in pieces {
        if audience.includes(peer) {
            session.queue(octets.clone());
        }
    }
}

/// One message by itself.
fn message(encode: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.freeze()
}
