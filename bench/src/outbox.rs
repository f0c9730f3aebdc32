//! Octets to be written to a socket: shared, written in few large writes.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Write};

use bytes::{Buf, Bytes};

use crate::limits::{WRITE_OCTETS_MAX, WRITE_SLICES_MAX};

/// A queue of shared octets.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<Bytes>,
}

impl Outbox {
    /// Appends octets.
    pub fn push(&mut self, octets: Bytes) {
        if !octets.is_empty() {
            self.queue.push_back(octets);
        }
    }

    /// Returns whether all octets are written.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Drops all octets.
    pub fn clear(&mut self) {
        self.queue.clear();
    }

    /// Writes one turn's share of octets, as far as the socket accepts them.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        let mut left = WRITE_OCTETS_MAX;
        while !self.queue.is_empty() && left > 0 {
            let mut slices = [IoSlice::new(&[]); WRITE_SLICES_MAX];
            let mut used = 0;
            for octets in self.queue.iter().take(WRITE_SLICES_MAX) {
                slices[used] = IoSlice::new(&octets[..octets.len().min(WRITE_OCTETS_MAX)]);
                used += 1;
                if octets.len() > WRITE_OCTETS_MAX {
                    break;
                }
            }
            match socket.write_vectored(&slices[..used]) {
                Ok(written) => {
                    left = left.saturating_sub(written);
                    self.written(written);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn written(&mut self, mut octets: usize) {
        while let Some(first) = self.queue.front_mut() {
            if octets < first.len() {
                first.advance(octets);
                return;
            }
            octets -= first.len();
            self.queue.pop_front();
        }
    }
}
