//! Encoded UPDATEs shared by the members of a group, and the bounded ring they wait in.

use alloc::collections::VecDeque;

use bytes::Bytes;
use rib::{Cursor, PeerId};

use crate::limits::SEGMENT_OCTETS;
use crate::outlet::Outlet;

/// The receivers of a segment among a group's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Every member.
    All,
    /// Every member except the source of the routes: no echo (RFC 4456 §6).
    Except(PeerId),
    /// One member alone: its own route has become the best.
    Only(PeerId),
}

impl Audience {
    /// Returns whether `member` receives it.
    pub(crate) fn includes(self, member: PeerId) -> bool {
        match self {
            Self::All => true,
            Self::Except(source) => source != member,
            Self::Only(only) => only == member,
        }
    }
}

/// Whole UPDATE messages with one audience.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Its receivers.
    pub(crate) audience: Audience,
    /// The messages, headers included.
    pub(crate) octets: Bytes,
    /// The group's log position before the step of this segment: a member that misses the segment
    /// continues from here.
    pub(crate) from: Cursor,
}

impl Segment {
    /// Returns the octets that it takes.
    fn octets(&self) -> usize {
        // With its place in `Ring::starts`.
        SEGMENT_OCTETS + self.octets.len()
    }
}

const _: () = assert!(size_of::<Segment>() + size_of::<u64>() <= SEGMENT_OCTETS);

/// The segments of one group and family, numbered consecutively, bounded in octets.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    first: u64,
    segments: VecDeque<Segment>,
    /// The octets of all segments so far before each of these.
    starts: VecDeque<u64>,
    octets: usize,
    /// The octets of all segments so far.
    pushed: u64,
}

impl Ring {
    /// Returns the number of the next segment: the position of a member that has taken all
    /// segments.
    pub(crate) fn tip(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// Returns the octets that the segments take.
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    /// Appends a segment.
    pub(crate) fn push(&mut self, segment: Segment) {
        self.starts.push_back(self.pushed);
        self.pushed += segment.octets() as u64;
        self.octets += segment.octets();
        self.segments.push_back(segment);
    }

    /// Returns the segment with this number, if it is in the ring.
    pub(crate) fn segment(&self, number: u64) -> Option<&Segment> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.segments.get(index)
    }

    /// Returns the octets of the segments from this number on.
    pub(crate) fn octets_from(&self, number: u64) -> usize {
        let index = number.saturating_sub(self.first);
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let start = self.starts.get(index).copied().unwrap_or(self.pushed);
        usize::try_from(self.pushed - start).unwrap_or(usize::MAX)
    }

    /// Queues the segments of a member from number `from` on, until its session has no room. Returns
    /// the number of the next one.
    pub(crate) fn take(&self, from: u64, member: PeerId, session: &mut Outlet<'_>) -> u64 {
        let first = from.checked_sub(self.first).map(usize::try_from);
        let Some(Ok(first)) = first.filter(|_| from <= self.tip()) else {
            return from;
        };
        let mut next = from;
        for segment in self.segments.range(first..) {
            if !session.has_room() {
                break;
            }
            if segment.audience.includes(member) {
                session.queue(segment.octets.clone());
            }
            next += 1;
        }
        next
    }

    /// Returns the oldest segment in the ring.
    pub(crate) fn oldest(&self) -> Option<&Segment> {
        self.segments.front()
    }

    /// Drops the segments that every member has taken: all before `number`.
    pub(crate) fn release(&mut self, number: u64) {
        while self.first < number && self.evict().is_some() {}
    }

    /// Drops the oldest segment and returns its number and the position from which a member that
    /// missed it continues.
    pub(crate) fn evict(&mut self) -> Option<(u64, Cursor)> {
        let segment = self.segments.pop_front()?;
        let number = self.first;
        self.starts.pop_front();
        self.first += 1;
        self.octets -= segment.octets();
        Some((number, segment.from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(octets: &'static [u8]) -> Segment {
        Segment {
            audience: Audience::All,
            octets: Bytes::from_static(octets),
            from: Cursor::default(),
        }
    }

    #[test]
    fn numbers_survive_release_and_eviction() {
        let mut ring = Ring::default();
        for octets in [&b"one"[..], b"three", b"four"] {
            ring.push(segment(octets));
        }
        assert_eq!((ring.tip(), ring.octets()), (3, 12 + 3 * SEGMENT_OCTETS));
        assert_eq!(ring.octets_from(0), ring.octets());
        assert_eq!(
            (ring.octets_from(2), ring.octets_from(3)),
            (4 + SEGMENT_OCTETS, 0)
        );
        ring.release(1);
        assert!(ring.segment(0).is_none());
        assert_eq!(&ring.segment(1).expect("kept").octets[..], b"three");
        assert_eq!(ring.evict().map(|(number, _)| number), Some(1));
        assert_eq!((ring.tip(), ring.octets()), (3, 4 + SEGMENT_OCTETS));
        assert_eq!(ring.octets_from(2), 4 + SEGMENT_OCTETS);
        assert!(ring.segment(3).is_none(), "yet to come");
        ring.release(9);
        assert_eq!((ring.tip(), ring.octets()), (3, 0));
    }

    #[test]
    fn audience_includes_only_its_peers() {
        let (a, b) = (PeerId(1), PeerId(2));
        assert!(Audience::All.includes(a));
        assert!(!Audience::Except(a).includes(a) && Audience::Except(a).includes(b));
        assert!(Audience::Only(a).includes(a) && !Audience::Only(a).includes(b));
    }
}
