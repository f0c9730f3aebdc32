//! The octets of a packet to send.

use core::fmt;

use crate::limits::PACKET_OCTETS_MAX;

/// The octets of an encoded packet, in a buffer of fixed size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    octets: [u8; PACKET_OCTETS_MAX],
    length: usize,
}

impl Default for Encoded {
    fn default() -> Self {
        Self {
            octets: [0; PACKET_OCTETS_MAX],
            length: 0,
        }
    }
}

impl Encoded {
    /// Returns the octets.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..self.length).unwrap_or_default()
    }

    /// Appends octets. A packet has room for its header and the longest section.
    pub(crate) fn push(&mut self, octets: &[u8]) {
        self.overwrite(self.length, octets);
        self.length = (self.length + octets.len()).min(PACKET_OCTETS_MAX);
    }

    /// Replaces octets.
    pub(crate) fn overwrite(&mut self, at: usize, octets: &[u8]) {
        let room = self.octets.get_mut(at..at + octets.len());
        debug_assert!(room.is_some(), "a packet fits into its buffer");
        if let Some(room) = room {
            room.copy_from_slice(octets);
        }
    }
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        self.octets()
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A section may have a password.
        write!(f, "Encoded({} octets)", self.length)
    }
}
