//! The encoded full table dump of a new member, kept for a short time: members that are established
//! soon after take the same octets instead of reading the tables again. When the thousand clients
//! of a reflector come back at once, the tables are read and encoded for one of them.
//!
//! A part is the output of the tables from one cursor to the next. A member at the first cursor may
//! take the part, at any later time, and is at the second cursor then: the effect is the same as if
//! its session had been established with the first one's and only its socket were slower. After the
//! last part a member reads the tables itself, and its parts are appended.

use alloc::{collections::VecDeque, vec::Vec};

use bgp_fsm::Instant;
use bytes::Bytes;
use rib::Cursor;

use crate::{
    limits::{FEED_KEPT, FEED_OCTETS_MAX},
    segment::Audience,
};

/// One step of a full table dump.
#[derive(Debug)]
pub(crate) struct Part {
    from: Cursor,
    /// The cursor of a member after this part.
    pub(crate) to: Cursor,
    /// The encoded messages with their audiences.
    pub(crate) pieces: Vec<(Audience, Bytes)>,
}

/// Approximate octets of a part without its pieces.
const PART_OCTETS: usize = 96;

/// Octets of a piece beside its messages.
const PIECE_OCTETS: usize = size_of::<(Audience, Bytes)>();

impl Part {
    fn octets(&self) -> usize {
        let pieces = self.pieces.iter();
        let octets = pieces.map(|(_, octets)| PIECE_OCTETS + octets.len());
        PART_OCTETS + octets.sum::<usize>()
    }
}

/// The position of a member among the parts. It is only a hint: the cursor decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FeedPlace(u64);

impl FeedPlace {
    /// At none of the parts.
    pub(crate) const ELSEWHERE: Self = Self(u64::MAX);
}

/// Consecutive parts, the oldest first, bounded in octets and time.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    first: u64,
    parts: VecDeque<Part>,
    octets: usize,
    /// When it was last found in use.
    used_at: Instant,
    /// Whether it has been used since.
    used: bool,
}

impl Feed {
    /// Returns the part for a member at `cursor`, and the member's position after it.
    pub(crate) fn next(&mut self, place: FeedPlace, cursor: Cursor) -> Option<(&Part, FeedPlace)> {
        let at = if cursor == Cursor::initial() {
            self.first
        } else {
            place.0
        };
        let index = usize::try_from(at.checked_sub(self.first)?).ok()?;
        let part = self.parts.get(index).filter(|part| part.from == cursor)?;
        self.used = true;
        Some((part, FeedPlace(at + 1)))
    }

    /// Stores the output for a member that went from `from` to `to`; returns the member's position.
    pub(crate) fn push(
        &mut self,
        from: Cursor,
        to: Cursor,
        pieces: Vec<(Audience, Bytes)>,
    ) -> FeedPlace {
        let begins = from == Cursor::initial();
        if begins {
            self.clear();
        }
        let follows = self.parts.back().is_some_and(|last| last.to == from);
        if !begins && !follows {
            return FeedPlace::ELSEWHERE;
        }
        self.used = true;
        match self.parts.back_mut() {
            // There were no messages.
            Some(last) if pieces.is_empty() => last.to = to,
            _ => {
                let part = Part { from, to, pieces };
                self.octets += part.octets();
                self.parts.push_back(part);
            }
        }
        let place = FeedPlace(self.first + self.parts.len() as u64);
        while self.octets > FEED_OCTETS_MAX
            && let Some(part) = self.parts.pop_front()
        {
            self.octets -= part.octets();
            self.first += 1;
        }
        place
    }

    /// Drops all parts if no member has used them for a while.
    pub(crate) fn expire(&mut self, now: Instant) {
        if core::mem::take(&mut self.used) {
            self.used_at = now;
        } else if !self.parts.is_empty() && now - self.used_at >= FEED_KEPT {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.first += self.parts.len() as u64;
        self.parts = VecDeque::new();
        self.octets = 0;
    }

    /// Returns the log position from which a member continues after the oldest part.
    pub(crate) fn held_cursors(&self) -> impl Iterator<Item = Cursor> + '_ {
        let oldest = self.parts.front();
        oldest.into_iter().flat_map(|part| [part.from, part.to])
    }

    /// Returns the stored octets.
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns cursors of a dump that differ from each other as real ones do.
    fn cursors(count: u32) -> Vec<Cursor> {
        let config = rib::RibConfig::default();
        let mut rib = rib::Rib::new(config, 1);
        let family = bgp_proto::Family::IPV4_UNICAST;
        let mut cursor = Cursor::initial();
        let mut all = alloc::vec![cursor];
        for number in 0..count {
            let net = bgp_proto::Ipv4Prefix::new(number.to_be_bytes().into(), 32);
            let net = bgp_proto::Net::V4(net.expect("a prefix"));
            rib.announce(family, net, bgp_proto::Attributes::default(), None);
            while rib.decide(rib::Budget(9)) != rib::Progress::Done {}
            let _ = rib.changes(family, &mut cursor, rib::Budget(9), &mut |_| {});
            all.push(cursor);
        }
        all
    }

    fn pieces(octets: usize) -> Vec<(Audience, Bytes)> {
        alloc::vec![(Audience::All, alloc::vec![0; octets].into())]
    }

    #[test]
    fn later_reader_takes_every_part() {
        let cursors = cursors(4);
        let mut feed = Feed::default();
        for (octets, step) in (1..).zip(cursors.windows(2)) {
            feed.push(step[0], step[1], pieces(octets));
        }
        let (mut at, mut cursor) = (FeedPlace::ELSEWHERE, Cursor::initial());
        for octets in 1..=4 {
            let (part, next) = feed.next(at, cursor).expect("a part");
            assert_eq!(part.pieces, pieces(octets));
            (cursor, at) = (part.to, next);
        }
        assert!(feed.next(at, cursor).is_none());
        assert_eq!(cursor, cursors[4]);
        // A member with other cursors takes no part.
        assert!(feed.next(FeedPlace::ELSEWHERE, cursors[1]).is_none());
        let elsewhere = feed.push(cursors[1], cursors[2], pieces(1));
        assert_eq!(elsewhere, FeedPlace::ELSEWHERE);
    }

    #[test]
    fn oldest_parts_are_dropped_at_the_limit_of_octets() {
        let cursors = cursors(3);
        let mut feed = Feed::default();
        for step in cursors.windows(2) {
            feed.push(step[0], step[1], pieces(FEED_OCTETS_MAX / 2));
        }
        assert!(feed.octets() <= FEED_OCTETS_MAX);
        assert!(feed.next(FeedPlace::ELSEWHERE, Cursor::initial()).is_none());
        assert_eq!(feed.held_cursors().next(), Some(cursors[2]));
        // The next new member starts another dump.
        feed.push(Cursor::initial(), cursors[1], pieces(1));
        assert!(feed.next(FeedPlace::ELSEWHERE, Cursor::initial()).is_some());
    }

    #[test]
    fn initial_transfer_without_readers_is_dropped() {
        let cursors = cursors(1);
        let mut feed = Feed::default();
        feed.push(cursors[0], cursors[1], pieces(1));
        feed.expire(Instant::from_secs(5));
        feed.expire(Instant::from_secs(5) + FEED_KEPT / 2);
        assert_eq!(feed.held_cursors().count(), 2);
        feed.expire(Instant::from_secs(5) + FEED_KEPT);
        assert_eq!((feed.held_cursors().count(), feed.octets()), (0, 0));
    }
}
