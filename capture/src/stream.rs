//! One direction of a TCP connection: segments in order, and the messages in them.

use bgp_proto::{HEADER_OCTETS, MESSAGE_OCTETS_MAX_EXTENDED, message_header};
use bytes::{Buf, Bytes, BytesMut};

use crate::limits::WAITING_SEGMENTS_MAX;

/// A part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A whole message.
    Message(Bytes),
    /// An invalid header, or a message without its end.
    Malformed(Bytes),
    /// Octets that the capture lacks.
    Lost(u32),
    /// Captured octets that belong to no whole message.
    Skipped(u64),
}

/// One direction. Without a SYN its first octets may be in the middle of a message.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Sequence number of the next octet.
    next: Option<u32>,
    /// The octets in order that are not yet a message.
    buffer: BytesMut,
    /// Whether the buffer begins with a message.
    in_step: bool,
    /// Octets that were skipped while it did not.
    skipped: u64,
    /// Segments after missing ones, with their sequence numbers.
    waiting: Vec<(u32, Bytes)>,
    waiting_octets: usize,
}

impl Stream {
    /// Returns a stream that begins with this sequence number, after a SYN.
    pub(crate) fn beginning(sequence: u32) -> Self {
        Self {
            next: Some(sequence),
            in_step: true,
            ..Self::default()
        }
    }

    /// Returns whether the stream is empty and begins with this sequence number.
    pub(crate) fn is_at(&self, sequence: u32) -> bool {
        self.next == Some(sequence) && self.buffer.is_empty() && self.waiting.is_empty()
    }

    /// Handles a segment with data.
    pub(crate) fn data(&mut self, sequence: u32, payload: &[u8], out: &mut Vec<Piece>) {
        let next = *self.next.get_or_insert(sequence);
        if is_after(sequence, next) {
            self.wait(sequence, payload);
            if self.waiting.len() > WAITING_SEGMENTS_MAX {
                self.give_up(out);
            }
        } else {
            self.append(sequence, payload);
            self.drain(out);
        }
    }

    pub(crate) const fn waiting_octets(&self) -> usize {
        self.waiting_octets
    }

    /// Counts the octets before the first waiting segment as lost.
    pub(crate) fn give_up(&mut self, out: &mut Vec<Piece>) {
        let Some(next) = self.next else { return };
        let ahead = |sequence: &u32| sequence.wrapping_sub(next);
        let Some(first) = self.waiting.iter().map(|(at, _)| *at).min_by_key(ahead) else {
            return;
        };
        self.leave_step(out);
        out.push(Piece::Lost(ahead(&first)));
        self.next = Some(first);
        self.drain(out);
    }

    /// Ends the stream: what waits is read, and incomplete messages are returned.
    pub(crate) fn finish(&mut self, out: &mut Vec<Piece>) {
        while !self.waiting.is_empty() {
            self.give_up(out);
        }
        self.leave_step(out);
        *self = Self::default();
    }

    fn wait(&mut self, sequence: u32, payload: &[u8]) {
        let is_same =
            |(at, octets): &(u32, Bytes)| *at == sequence && octets.len() >= payload.len();
        if !self.waiting.iter().any(is_same) {
            self.waiting_octets += payload.len();
            self.waiting
                .push((sequence, Bytes::copy_from_slice(payload)));
        }
    }

    /// Appends the octets of a segment that have not been read yet.
    fn append(&mut self, sequence: u32, payload: &[u8]) {
        let next = self.next.unwrap_or(sequence);
        let known = next.wrapping_sub(sequence) as usize;
        let unread = payload.get(known..).unwrap_or_default();
        self.buffer.extend_from_slice(unread);
        self.next = Some(next.wrapping_add(unread.len() as u32));
    }

    /// Reads the messages, and waiting segments that are next.
    fn drain(&mut self, out: &mut Vec<Piece>) {
        self.messages(out);
        while let Some(next) = self.next
            && let Some(at) = (self.waiting.iter()).position(|(at, _)| !is_after(*at, next))
        {
            let (sequence, octets) = self.waiting.swap_remove(at);
            self.waiting_octets -= octets.len();
            self.append(sequence, &octets);
            self.messages(out);
        }
    }

    fn messages(&mut self, out: &mut Vec<Piece>) {
        while self.in_step || self.find_marker(out) {
            match message_header(&self.buffer, MESSAGE_OCTETS_MAX_EXTENDED) {
                Ok(Some((_, len))) if len <= self.buffer.len() => {
                    out.push(Piece::Message(self.buffer.split_to(len).freeze()));
                }
                Ok(_) => return,
                Err(_) => {
                    let len = self.buffer.len().min(HEADER_OCTETS);
                    let header = self.buffer.get(..len).unwrap_or_default();
                    out.push(Piece::Malformed(Bytes::copy_from_slice(header)));
                    self.in_step = false;
                    self.skip(1);
                }
            }
        }
    }

    /// Skips octets until the next header of a message. Returns whether there is one.
    fn find_marker(&mut self, out: &mut Vec<Piece>) -> bool {
        let is_header = |octets: &[u8]| {
            matches!(
                message_header(octets, MESSAGE_OCTETS_MAX_EXTENDED),
                Ok(Some(_))
            )
        };
        let found = self.buffer.windows(HEADER_OCTETS).position(is_header);
        // The last octets may be the start of a header.
        let rest = self.buffer.len().saturating_sub(HEADER_OCTETS - 1);
        self.skip(found.unwrap_or(rest));
        self.in_step = found.is_some();
        if self.in_step && self.skipped > 0 {
            out.push(Piece::Skipped(std::mem::take(&mut self.skipped)));
        }
        self.in_step
    }

    fn skip(&mut self, octets: usize) {
        self.buffer.advance(octets);
        self.skipped += octets as u64;
    }

    /// Gives up the message in the buffer: the octets after it are missing.
    fn leave_step(&mut self, out: &mut Vec<Piece>) {
        if self.in_step && !self.buffer.is_empty() {
            out.push(Piece::Malformed(self.buffer.split().freeze()));
        }
        self.skip(self.buffer.len());
        self.in_step = false;
        if self.skipped > 0 {
            out.push(Piece::Skipped(std::mem::take(&mut self.skipped)));
        }
    }
}

/// Returns whether a sequence number is after another one (RFC 9293 §3.4).
const fn is_after(sequence: u32, other: u32) -> bool {
    sequence.wrapping_sub(other) as i32 > 0
}
