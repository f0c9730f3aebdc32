//! The octets of one connection that wait to be written, in order.

use alloc::{collections::VecDeque, vec::Vec};

use bgp_proto::HEADER_OCTETS;
use bytes::Bytes;

use crate::limits::CHUNKS_KEPT;
use crate::stats::Counts;

/// A queue of whole messages. [`Outbox::fill`] returns its octets when the socket is writable and
/// [`Outbox::sent`] removes them, so a message may be partially written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    /// Each element holds one or more whole messages.
    chunks: VecDeque<Bytes>,
    /// Octets of the first element that are already written.
    written: usize,
    /// Octets waiting.
    octets: usize,
    /// Whether octets were accepted since the last call of [`Outbox::take_progress`].
    progress: bool,
}

impl Outbox {
    /// Appends whole messages.
    pub(crate) fn push(&mut self, messages: Bytes) {
        debug_assert!(Messages(&messages).map(|m| m.octets).sum::<usize>() == messages.len());
        if !messages.is_empty() {
            self.octets += messages.len();
            self.chunks.push_back(messages);
        }
    }

    /// Returns the octets waiting.
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    /// Returns the elements waiting.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Returns whether the last element is this very message.
    pub(crate) fn ends_with(&self, message: &Bytes) -> bool {
        self.chunks.back().is_some_and(|last| last == message)
            && !(self.chunks.len() == 1 && self.written > 0)
    }

    /// Appends up to `octets_max` of the waiting octets to `slices`, without removing them.
    pub(crate) fn fill(&self, slices: &mut Vec<Bytes>, octets_max: usize) {
        let (mut left, mut skip) = (octets_max, self.written);
        for chunk in &self.chunks {
            if left == 0 {
                return;
            }
            let slice = chunk.slice(skip..chunk.len().min(skip.saturating_add(left)));
            left -= slice.len();
            skip = 0;
            slices.push(slice);
        }
    }

    /// Removes the first `octets` and counts the messages that are thereby completely written.
    pub(crate) fn sent(&mut self, octets: usize, counts: &mut Counts) {
        debug_assert!(octets <= self.octets, "more octets sent than were waiting");
        self.progress |= octets > 0;
        self.octets = self.octets.saturating_sub(octets);
        self.written = self.written.saturating_add(octets);
        while let Some(first) = self
            .chunks
            .front()
            .filter(|first| first.len() <= self.written)
        {
            self.written -= first.len();
            Messages(first).for_each(|message| counts.add(message.kind));
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() {
            self.written = 0;
            if self.chunks.capacity() > CHUNKS_KEPT {
                self.chunks = VecDeque::new();
            }
        }
    }

    /// Drops all messages of which nothing is written yet, so that a last one can follow at once at
    /// a message boundary.
    pub(crate) fn cut(&mut self) {
        let mut kept = None;
        if self.written > 0
            && let Some(first) = self.chunks.pop_front()
        {
            let mut end = 0;
            for message in Messages(&first) {
                if end >= self.written {
                    break;
                }
                end += message.octets;
            }
            kept = Some(first.slice(..end.clamp(self.written, first.len())))
                .filter(|kept| kept.len() > self.written);
        }
        self.chunks.clear();
        self.octets = 0;
        match kept {
            Some(kept) => {
                self.octets = kept.len() - self.written;
                self.chunks.push_back(kept);
            }
            None => self.written = 0,
        }
    }

    /// Drops all octets.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns whether octets were accepted since the last call.
    pub(crate) fn take_progress(&mut self) -> bool {
        core::mem::take(&mut self.progress)
    }
}

/// A message in a run of messages.
struct Message {
    kind: u8,
    octets: usize,
}

/// Iterates over a run of whole messages by their headers (RFC 4271 §4.1). Octets that are not a
/// header end the iteration with one message that contains the rest.
struct Messages<'a>(&'a [u8]);

impl Iterator for Messages<'_> {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        if self.0.is_empty() {
            return None;
        }
        let (octets, kind) = match self.0.get(16..HEADER_OCTETS) {
            Some(&[high, low, kind]) => (usize::from(u16::from_be_bytes([high, low])), kind),
            _ => (self.0.len(), 0),
        };
        let octets = octets.clamp(HEADER_OCTETS.min(self.0.len()), self.0.len());
        self.0 = self.0.get(octets..).unwrap_or_default();
        Some(Message { kind, octets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn message(kind: u8, octets: usize) -> Bytes {
        let mut message = vec![0xff; octets];
        message[16..18].copy_from_slice(&u16::try_from(octets).expect("short").to_be_bytes());
        message[18] = kind;
        Bytes::from(message)
    }

    fn joined(parts: &[Bytes]) -> Bytes {
        Bytes::from(parts.concat())
    }

    fn waiting(outbox: &Outbox) -> Bytes {
        let mut slices = Vec::new();
        outbox.fill(&mut slices, usize::MAX);
        joined(&slices)
    }

    #[test]
    fn octets_are_written_in_order_in_any_pieces() {
        let (a, b) = (joined(&[message(2, 30), message(2, 40)]), message(4, 19));
        let all = joined(&[a.clone(), b.clone()]);
        for step in 1..all.len() {
            let (mut outbox, mut counts, mut out) =
                (Outbox::default(), Counts::default(), Vec::new());
            outbox.push(a.clone());
            outbox.push(b.clone());
            while outbox.octets() > 0 {
                let mut slices = Vec::new();
                outbox.fill(&mut slices, step);
                let taken = joined(&slices);
                assert!(taken.len() <= step && !taken.is_empty());
                out.extend_from_slice(&taken);
                outbox.sent(taken.len(), &mut counts);
            }
            assert_eq!(out, all);
            assert_eq!((counts.update, counts.keepalive), (2, 1));
            assert!(outbox.take_progress() && !outbox.take_progress());
        }
    }

    #[test]
    fn cut_outbox_keeps_only_the_half_written_message() {
        let run = joined(&[message(2, 30), message(2, 40), message(2, 50)]);
        for written in 0..run.len() {
            let (mut outbox, mut counts) = (Outbox::default(), Counts::default());
            outbox.push(run.clone());
            outbox.push(message(4, 19));
            outbox.sent(written, &mut counts);
            outbox.cut();
            let boundary = [0, 30, 70, 120]
                .into_iter()
                .find(|end| *end >= written)
                .expect("in the run");
            assert_eq!(
                waiting(&outbox),
                run.slice(written..boundary),
                "after {written} octets"
            );
            assert_eq!(outbox.octets(), boundary - written);
            outbox.push(message(3, 21));
            assert_eq!(outbox.octets(), boundary - written + 21);
            outbox.sent(outbox.octets(), &mut counts);
            assert_eq!(counts.notification, 1);
        }
    }

    #[test]
    fn only_a_whole_last_message_counts_as_waiting() {
        let (mut outbox, mut counts, keepalive) =
            (Outbox::default(), Counts::default(), message(4, 19));
        outbox.push(keepalive.clone());
        assert!(outbox.ends_with(&keepalive));
        outbox.sent(1, &mut counts);
        assert!(!outbox.ends_with(&keepalive));
        outbox.push(message(2, 23));
        assert!(!outbox.ends_with(&keepalive));
    }
}
