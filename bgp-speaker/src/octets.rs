//! The octets that a speaker holds, in the accounts of its peers and groups.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// The octets in the accounts of a speaker. Messages that wait for several peers of a group are in
/// the account of each, and in that of the group as long as it keeps them. The sum of
/// [`crate::Speaker::limit_memory`] has them once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Octets {
    /// The octets of all peers.
    pub peers: PeerOctets,
    /// The octets in the rings and feeds of all groups.
    pub groups: usize,
}

/// The octets in the account of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerOctets {
    /// The octets of its received routes in the tables: see [`rib::Rib::octets`].
    pub received: usize,
    /// The octets that wait for its socket.
    pub queued: usize,
    /// The octets in the rings of its group that it has not taken yet.
    pub behind: usize,
    /// The octets of the lists of paths that it was sent, in families with a limit of them or with
    /// route targets.
    pub sent: usize,
}

impl PeerOctets {
    /// Returns the sum.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.received + self.queued + self.behind + self.sent
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            queued: self.queued + other.queued,
            behind: self.behind + other.behind,
            sent: self.sent + other.sent,
        }
    }
}

/// The octets of encoded messages, each counted once until its last copy is dropped: in a ring, a
/// feed, or the queue of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Encoded(Arc<AtomicUsize>);

impl Encoded {
    pub(crate) fn octets(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts messages from now on.
    pub(crate) fn count(&self, messages: Bytes) -> Bytes {
        self.0.fetch_add(messages.len(), Ordering::Relaxed);
        let account = self.clone();
        Bytes::from_owner(Counted { messages, account })
    }
}

struct Counted {
    messages: Bytes,
    account: Encoded,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.messages
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Encoded(octets) = &self.account;
        octets.fetch_sub(self.messages.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_count_once_until_the_last_copy_is_dropped() {
        let encoded = Encoded::default();
        let first = encoded.count(Bytes::from_static(b"one"));
        let second = encoded.count(Bytes::from_static(b"three"));
        let part = first.slice(1..);
        assert_eq!((&part[..], encoded.octets()), (&b"ne"[..], 8));
        drop(first);
        assert_eq!(encoded.octets(), 8);
        drop((part, second));
        assert_eq!(encoded.octets(), 0);
    }
}
