//! Encoded UPDATEs shared by the members of a group, and the bounded ring they wait in.

use alloc::collections::VecDeque;

use bytes::Bytes;
use rib::{Cursor, PeerId};

/// Who among a group's members a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Everyone.
    All,
    /// Everyone but the member the routes came from: no echo (RFC 4456 §6).
    Except(PeerId),
    /// One member alone, whose own route has become the best.
    Only(PeerId),
}

impl Audience {
    /// Whether `member` is to receive it.
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
    /// Who receives it.
    pub(crate) audience: Audience,
    /// The messages, headers included.
    pub(crate) octets: Bytes,
    /// Where the group stood in the log before the bite this segment is part of: a member that
    /// misses the segment walks on by itself from here.
    pub(crate) from: Cursor,
}

/// The segments of one group and family, numbered without gaps, bounded in octets.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    first: u64,
    segments: VecDeque<Segment>,
    octets: usize,
}

impl Ring {
    /// The number the next segment will get: where a member stands that has taken everything.
    pub(crate) fn tip(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    /// Octets waiting.
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    /// Appends a segment.
    pub(crate) fn push(&mut self, segment: Segment) {
        self.octets += segment.octets.len();
        self.segments.push_back(segment);
    }

    /// The segment numbered `number`, unless it is gone or yet to come.
    pub(crate) fn segment(&self, number: u64) -> Option<&Segment> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.segments.get(index)
    }

    /// The oldest segment that waits.
    pub(crate) fn oldest(&self) -> Option<&Segment> {
        self.segments.front()
    }

    /// Drops what every member has taken: all segments before `number`.
    pub(crate) fn release(&mut self, number: u64) {
        while self.first < number && self.evict().is_some() {}
    }

    /// Drops the oldest segment and gives its number and where a member that missed it resumes.
    pub(crate) fn evict(&mut self) -> Option<(u64, Cursor)> {
        let segment = self.segments.pop_front()?;
        let number = self.first;
        self.first += 1;
        self.octets -= segment.octets.len();
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
        assert_eq!((ring.tip(), ring.octets()), (3, 12));
        ring.release(1);
        assert!(ring.segment(0).is_none());
        assert_eq!(&ring.segment(1).expect("kept").octets[..], b"three");
        assert_eq!(ring.evict().map(|(number, _)| number), Some(1));
        assert_eq!((ring.tip(), ring.octets()), (3, 4));
        assert!(ring.segment(3).is_none(), "yet to come");
        ring.release(9);
        assert_eq!((ring.tip(), ring.octets()), (3, 0));
    }

    #[test]
    fn a_source_hears_only_what_is_for_it_alone() {
        let (a, b) = (PeerId(1), PeerId(2));
        assert!(Audience::All.includes(a));
        assert!(!Audience::Except(a).includes(a) && Audience::Except(a).includes(b));
        assert!(Audience::Only(a).includes(a) && !Audience::Only(a).includes(b));
    }
}
