//! Update groups: peers that receive the same octets share one reading of the log, one encoding and
//! one ring of segments.
//!
//! A member is in one of two modes per family. *Shared*: it takes segments from the ring, by
//! reference count. *Private*: it reads the tables itself, because it has just been established
//! (its cursor is at a full table dump) or because it was so slow that the ring had to drop
//! segments that it still needed. Members that are established at about the same time take each
//! other's octets (see [`crate::feed`]). A private member that reaches the tip of the log joins the
//! ring. Later announcements of the group may repeat routes that the member already has; this is
//! harmless, since the last message about a prefix is always the right one.

use alloc::{collections::BTreeMap, vec::Vec};
use core::ops::ControlFlow;

use bgp_fsm::{Instant, Session};
use bgp_proto::{EncodeParams, Family, FamilySet, Net, Nlri};
use bytes::BytesMut;
use rib::{Budget, Cursor, GroupId, GroupRules, PeerId, Progress, Rib, Role, SentPath};

use crate::{
    config::PrefixLimitsOut,
    encode::Encoder,
    feed::{Feed, FeedPlace},
    limited::{Limited, NoMember, OwnOutput},
    limits::{
        FEED_PREFIXES, FEED_STEP_OCTETS_MAX, RING_OCTETS_MAX, STEP_OCTETS_MAX, STEP_PREFIXES,
    },
    member::{Dump, DumpEnd, Lost, MemberState, Mode, RefreshMarkers, queue},
    octets::Encoded,
    outlet::Outlet,
    segment::{Ring, Segment},
};

/// Everything that determines the octets sent to a peer; peers with equal keys share a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    /// The export rules of the tables.
    pub(crate) rules: GroupRules,
    /// Whether AS numbers have four octets in messages.
    pub(crate) as4: bool,
    /// The largest message, header included.
    pub(crate) octets_max: usize,
    /// The limits of sent paths.
    pub(crate) limits: PrefixLimitsOut,
    /// The families in which each member is sent the routes of its route targets only (RFC 4684).
    pub(crate) selected: FamilySet,
}

impl GroupKey {
    /// Returns why members have an output of their own in a family, if they have.
    fn own_output(&self, family: Family) -> Option<OwnOutput> {
        let how = OwnOutput {
            limit: self.limits.get(family),
            selects: self.selected.contains(family),
        };
        (how.limit.is_some() || how.selects).then_some(how)
    }

    fn params(&self, family: Family) -> EncodeParams {
        EncodeParams {
            as4: self.as4,
            add_path: self.rules.add_path.contains_key(&family),
            octets_max: self.octets_max,
        }
    }
}

/// The states of a member in all its families.
#[derive(Debug, Default)]
pub(crate) struct MemberStates(Vec<(Family, MemberState, Option<Limited>)>);

/// One family of a group.
#[derive(Debug, Default)]
struct FamilyGroup {
    ring: Ring,
    /// The buffer for the next segments, in the same allocation as the last ones.
    room: BytesMut,
    feed: Feed,
    members: BTreeMap<PeerId, MemberState>,
    /// The members' own state, in a family in which they have an output of their own.
    limited: BTreeMap<PeerId, Limited>,
    /// Members in shared mode that have not taken all segments.
    behind: usize,
}

/// Peers that receive the same octets.
#[derive(Debug)]
pub(crate) struct OutGroup {
    pub(crate) key: GroupKey,
    id: GroupId,
    families: BTreeMap<Family, FamilyGroup>,
    /// The account of what is encoded, that of the speaker.
    encoded: Encoded,
}

impl OutGroup {
    pub(crate) fn new(key: GroupKey, rib: &mut Rib, encoded: Encoded) -> Self {
        let id = rib.add_group(key.rules.clone());
        Self {
            key,
            id,
            families: BTreeMap::new(),
            encoded,
        }
    }

    /// Returns its number in the tables.
    pub(crate) fn id(&self) -> GroupId {
        self.id
    }

    /// Removes the group from the tables.
    pub(crate) fn close(self, rib: &mut Rib) {
        rib.remove_group(self.id);
    }

    /// Returns whether it has no members.
    pub(crate) fn is_empty(&self) -> bool {
        self.families.values().all(|group| group.members.is_empty())
    }

    /// Adds a peer: in each family in which it is not a member yet it receives a full table dump,
    /// then an End-of-RIB marker.
    pub(crate) fn join(&mut self, peer: PeerId, families: FamilySet) {
        for family in families.iter() {
            let member = MemberState {
                mode: Mode::Private(Cursor::initial(), FeedPlace::ELSEWHERE),
                dump_end: DumpEnd::EndOfRib,
                again: None,
            };
            let group = self.families.entry(family).or_default();
            if let Some(how) = self.key.own_output(family) {
                let limited = Limited::new(family, how, false);
                group.limited.entry(peer).or_insert(limited);
            }
            group.members.entry(peer).or_insert(member);
        }
    }

    /// Sends a family to one member again (RFC 2918 §4). Any number of requests during a dump cause
    /// one more dump after it. So no refresh begins before the End-of-RIB marker (RFC 7313 §4.1).
    pub(crate) fn refeed(
        &mut self,
        rib: &mut Rib,
        (peer, session): (PeerId, &mut Session),
        family: Family,
        markers: RefreshMarkers,
    ) {
        let Some(group) = self.families.get_mut(&family) else {
            return;
        };
        let Some(member) = group.members.get_mut(&peer) else {
            return;
        };
        if member.dump_end != DumpEnd::Nothing {
            member.again = Some(markers);
            return;
        }
        let mode = member.mode;
        let from = group.stand(mode, || rib.group_cursor(self.id, family));
        group.leave(peer);
        let mut session = Outlet::new(session, None);
        let member = MemberState::refreshed(from, family, markers, &mut session);
        group.members.insert(peer, member);
        if let Some(limited) = group.limited.get_mut(&peer) {
            limited.wake();
        }
    }

    /// Removes a peer that moves to another group, and returns its progress.
    pub(crate) fn hand_over(&mut self, rib: &mut Rib, peer: PeerId) -> MemberStates {
        let mut members = MemberStates::default();
        for (&family, group) in &mut self.families {
            let Some(member) = group.members.get(&peer).copied() else {
                continue;
            };
            let from = group.stand(member.mode, || rib.group_cursor(self.id, family));
            let mode = Mode::Private(from.with_new_rules(), FeedPlace::ELSEWHERE);
            let limited = group.limited.remove(&peer);
            members
                .0
                .push((family, MemberState { mode, ..member }, limited));
            group.leave(peer);
        }
        members
    }

    /// Adds a peer from another group: it receives everything by the rules of this group.
    pub(crate) fn take_over(&mut self, peer: PeerId, members: MemberStates) {
        for (family, member, limited) in members.0 {
            let group = self.families.entry(family).or_default();
            group.members.insert(peer, member);
            if let Some(how) = self.key.own_output(family) {
                let limited = limited.unwrap_or_else(|| Limited::new(family, how, true));
                group.limited.insert(peer, limited.again_with(how));
            }
        }
    }

    /// Removes a peer.
    pub(crate) fn leave(&mut self, peer: PeerId) {
        for group in self.families.values_mut() {
            group.leave(peer);
            group.limited.remove(&peer);
        }
    }

    /// Encodes the next step of every family for which the ring has room. Members with new segments
    /// are appended to `writable`, those whose session must be reset to `lost`.
    pub(crate) fn export(
        &mut self,
        now: Instant,
        rib: &mut Rib,
        writable: &mut Vec<PeerId>,
        lost: &mut Vec<PeerId>,
    ) -> Progress {
        let mut progress = Progress::Done;
        for (&family, group) in &mut self.families {
            if self.key.own_output(family).is_some() {
                let more = group.follow((self.id, family), rib, writable);
                progress = if more { Progress::More } else { progress };
                continue;
            }
            group.feed.expire(now);
            if !group.make_room() {
                continue;
            }
            let tip = group.ring.tip();
            let from = rib.group_cursor(self.id, family);
            let room = core::mem::take(&mut group.room);
            let params = self.key.params(family);
            let mut encoder = Encoder::new(family, params, STEP_OCTETS_MAX, room);
            match rib.export(self.id, family, Budget(STEP_PREFIXES), &mut encoder) {
                Progress::Done => {}
                Progress::More => progress = Progress::More,
                Progress::Lost => lost.extend(group.shared()),
            }
            let pieces;
            (pieces, group.room) = encoder.finish(&self.encoded);
            for (audience, octets) in pieces {
                group.ring.push(Segment {
                    audience,
                    octets,
                    from,
                });
            }
            group.wake(tip, writable);
        }
        progress
    }

    /// Queues the next octets of a peer in `session`, up to the session's limit.
    ///
    /// # Errors
    /// The peer has not read for so long that the changes it missed are no longer available.
    pub(crate) fn pull(
        &mut self,
        peer: PeerId,
        session: &mut Outlet<'_>,
        rib: &mut Rib,
    ) -> Result<(), Lost> {
        for (&family, group) in &mut self.families {
            while session.has_room() {
                let Some(member) = group.members.get_mut(&peer) else {
                    break;
                };
                match member.mode {
                    Mode::Shared(from) => {
                        let next = group.ring.take(from, peer, session);
                        if next == from {
                            break;
                        }
                        member.mode = Mode::Shared(next);
                        group.taken(next);
                    }
                    Mode::Private(cursor, at) => {
                        let dump = Dump {
                            group: self.id,
                            family,
                            peer,
                            params: self.key.params(family),
                            encoded: self.encoded.clone(),
                        };
                        if let Some(limited) = group.limited.get_mut(&peer) {
                            match limited.step(&dump, member, session, rib)? {
                                ControlFlow::Continue(()) => continue,
                                ControlFlow::Break(()) => break,
                            }
                        }
                        if let Some((part, at)) = group.feed.next(at, cursor) {
                            queue(session, peer, &part.pieces);
                            member.mode = Mode::Private(part.to, at);
                            continue;
                        }
                        group.step_dump(&dump, cursor, session, rib)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns whether the peer has anything to take.
    pub(crate) fn has_more(&self, peer: PeerId) -> bool {
        self.families.values().any(|group| group.has_more(peer))
    }

    /// Returns the log positions from which members may still continue, so that the tables keep
    /// their tombstones for them: those of private members, and that of the oldest segment, where a
    /// member continues that loses its place in the ring.
    pub(crate) fn held_cursors(&self) -> impl Iterator<Item = (Family, Cursor)> + '_ {
        self.families.iter().flat_map(|(&family, group)| {
            let private = group
                .members
                .values()
                .filter_map(|member| match member.mode {
                    Mode::Private(cursor, _) => Some(cursor),
                    Mode::Shared(_) => None,
                });
            let fed = group.feed.held_cursors();
            let passes = group.limited.values().filter_map(Limited::held_cursor);
            let oldest = group.ring.oldest().map(|segment| segment.from);
            private
                .chain(fed)
                .chain(passes)
                .chain(oldest)
                .map(move |cursor| (family, cursor))
        })
    }

    /// Returns the octets of the fullest of the group's rings, and of the fullest of its feeds.
    pub(crate) fn fullest(&self) -> (usize, usize) {
        let families = self.families.values();
        let octets = families.map(|group| (group.ring.octets(), group.feed.octets()));
        octets.fold((0, 0), |(ring, feed), (r, f)| (ring.max(r), feed.max(f)))
    }

    /// Returns the members in a family except `source`, and their number.
    pub(crate) fn receivers(
        &self,
        family: Family,
        source: PeerId,
    ) -> (usize, impl Iterator<Item = PeerId> + '_) {
        let members = self.families.get(&family).map(|group| &group.members);
        let is_member = members.is_some_and(|members| members.contains_key(&source));
        let count = members.map_or(0, BTreeMap::len) - usize::from(is_member);
        let peers = members
            .into_iter()
            .flat_map(|members| members.keys().copied());
        (count, peers.filter(move |peer| *peer != source))
    }

    /// Returns the members in a family, and the paths of a prefix that each receives, except a
    /// path's own source.
    pub(crate) fn sent<'a>(
        &'a self,
        rib: &'a Rib,
        family: Family,
        net: Net<'a>,
    ) -> impl Iterator<Item = (PeerId, SentPath)> + 'a {
        let group = self.families.get(&family);
        // RFC 4684 §3.2.
        let echoes = family == Family::ROUTE_TARGET && self.key.rules.role == Role::Client;
        let members = group
            .into_iter()
            .flat_map(|group| group.members.keys().copied());
        let paths = rib.sent(self.id, family, net);
        members.flat_map(move |member| {
            let others = paths.clone().into_iter();
            let limited = group.and_then(|group| group.limited.get(&member));
            let others = others.filter(move |path| {
                let path_id = path.path_id.unwrap_or_default();
                let is_sent = |limited: &Limited| limited.holds(&Nlri { path_id, net });
                (echoes || path.source != member) && limited.is_none_or(is_sent)
            });
            others.map(move |path| (member, path))
        })
    }

    /// Returns the octets waiting in the group's rings, and kept for new members.
    pub(crate) fn ring_octets(&self) -> usize {
        let families = self.families.values();
        let octets = families.map(|group| group.ring.octets() + group.feed.octets());
        octets.sum()
    }

    /// Returns the octets of the lists of sent paths of all members.
    pub(crate) fn sent_octets(&self) -> usize {
        let families = self.families.values();
        let limited = families.flat_map(|group| group.limited.values());
        limited.map(Limited::octets).sum()
    }

    /// Returns the octets in the rings that a member has not taken.
    pub(crate) fn octets_behind(&self, peer: PeerId) -> usize {
        let families = self.families.values();
        let octets = families.map(|group| match group.members.get(&peer)?.mode {
            Mode::Shared(from) => Some(group.ring.octets_from(from)),
            Mode::Private(..) => None,
        });
        octets.flatten().sum()
    }

    /// Returns whether its members have outputs of their own.
    pub(crate) fn is_limited(&self) -> bool {
        self.families
            .values()
            .any(|group| !group.limited.is_empty())
    }

    /// Returns a member's state in the families in which it has an output of its own.
    pub(crate) fn limited(&self, peer: PeerId) -> impl Iterator<Item = &Limited> {
        let families = self.families.values();
        families.filter_map(move |group| group.limited.get(&peer))
    }

    /// Returns the same, to change it.
    pub(crate) fn limited_mut(&mut self, peer: PeerId) -> impl Iterator<Item = &mut Limited> {
        let families = self.families.values_mut();
        families.filter_map(move |group| group.limited.get_mut(&peer))
    }
}

impl FamilyGroup {
    /// Returns the cursor up to which a member has been served; `tip` is the group's cursor.
    fn stand(&self, mode: Mode, tip: impl FnOnce() -> Cursor) -> Cursor {
        match mode {
            Mode::Private(cursor, _) => cursor,
            Mode::Shared(next) => self.ring.segment(next).map_or_else(tip, |s| s.from),
        }
    }

    fn leave(&mut self, peer: PeerId) {
        if let Some(MemberState {
            mode: Mode::Shared(next),
            ..
        }) = self.members.remove(&peer)
            && next < self.ring.tip()
        {
            self.caught_up();
        }
    }

    fn has_more(&self, peer: PeerId) -> bool {
        self.members
            .get(&peer)
            .is_some_and(|member| match member.mode {
                Mode::Shared(next) => next < self.ring.tip(),
                Mode::Private(..) => self.limited.get(&peer).is_none_or(Limited::has_more),
            })
    }

    /// Advances the group's own position behind its members with outputs of their own, which read
    /// by themselves, and wakes them. Returns whether there is more to read.
    fn follow(
        &mut self,
        (id, family): (GroupId, Family),
        rib: &mut Rib,
        writable: &mut Vec<PeerId>,
    ) -> bool {
        let before = rib.group_cursor(id, family);
        let progress = rib.export(id, family, Budget(STEP_PREFIXES), &mut NoMember);
        if rib.group_cursor(id, family) != before {
            for (&peer, limited) in &mut self.limited {
                limited.wake();
                writable.push(peer);
            }
        }
        progress == Progress::More
    }

    /// Returns the members that take from the ring.
    fn shared(&self) -> impl Iterator<Item = PeerId> + '_ {
        let shared = self
            .members
            .iter()
            .filter(|(_, member)| matches!(member.mode, Mode::Shared(_)));
        shared.map(|(&peer, _)| peer)
    }

    /// Records that a shared member has taken every segment before `next`.
    fn taken(&mut self, next: u64) {
        if next == self.ring.tip() {
            self.caught_up();
        }
    }

    /// Records that one member less is behind; with none behind, all segments are released.
    fn caught_up(&mut self) {
        self.behind = self.behind.saturating_sub(1);
        if self.behind == 0 {
            self.ring.release(self.ring.tip());
        }
    }

    /// Wakes every shared member after new segments from number `tip` on.
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

    /// Returns whether another step fits into the ring.
    fn has_room(&self) -> bool {
        self.ring.octets() <= RING_OCTETS_MAX - STEP_OCTETS_MAX
    }

    /// Makes room for another step in the ring; returns whether there is. A full ring waits while every member is
    /// behind; as soon as one member has taken all segments, the slowest lose their place in it.
    fn make_room(&mut self) -> bool {
        if self.has_room() {
            return true;
        }
        let tip = self.ring.tip();
        let slowest = self
            .members
            .values()
            .filter_map(|member| match member.mode {
                Mode::Shared(next) => Some(next),
                Mode::Private(..) => None,
            });
        if let Some(slowest) = slowest.min() {
            self.ring.release(slowest);
        }
        let at_tip =
            |member: &MemberState| matches!(member.mode, Mode::Shared(next) if next == tip);
        if !self.members.values().any(at_tip) {
            return self.has_room();
        }
        while self.ring.octets() >= RING_OCTETS_MAX / 2 {
            let Some((number, from)) = self.ring.evict() else {
                break;
            };
            for member in self.members.values_mut() {
                if matches!(member.mode, Mode::Shared(next) if next == number) {
                    member.mode = Mode::Private(from, FeedPlace::ELSEWHERE);
                    self.behind = self.behind.saturating_sub(1);
                }
            }
        }
        true
    }

    /// Performs one step of a private dump; at its end the member joins the ring.
    fn step_dump(
        &mut self,
        dump: &Dump,
        from: Cursor,
        session: &mut Outlet<'_>,
        rib: &mut Rib,
    ) -> Result<(), Lost> {
        let octets_max = FEED_STEP_OCTETS_MAX;
        let mut encoder = Encoder::new(dump.family, dump.params, octets_max, BytesMut::new());
        let mut cursor = from;
        let budget = Budget(FEED_PREFIXES);
        let progress =
            rib.export_private(dump.group, dump.family, &mut cursor, budget, &mut encoder);
        let pieces = encoder.finish_exact(&dump.encoded);
        queue(session, dump.peer, &pieces);
        let Some(member) = self.members.get_mut(&dump.peer) else {
            return Ok(());
        };
        match progress {
            Progress::Done => {}
            Progress::More => {
                member.mode = Mode::Private(cursor, self.feed.push(from, cursor, pieces));
                return Ok(());
            }
            Progress::Lost => return Err(Lost),
        }
        self.feed.push(from, cursor, pieces);
        let joined = Mode::Shared(self.ring.tip());
        *member = member.dumped(cursor, dump.family, joined, session);
        Ok(())
    }
}
