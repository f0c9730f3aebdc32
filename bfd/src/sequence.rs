//! Sequence numbers of authenticated packets (RFC 5880 §6.7.3, §6.8.1).

use crate::Instant;
use crate::auth::AuthType;
use crate::encoded::Encoded;
use crate::limits::SEQUENCE_WINDOW;

/// The last accepted sequence number: bfd.RcvAuthSeq and bfd.AuthSeqKnown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Received {
    last: Option<u32>,
    /// When the number is forgotten, once the detection time has expired.
    known_until: Option<Instant>,
}

impl Received {
    /// Returns whether a packet with this number may be accepted. `multiplier` is that of the packet.
    pub(crate) fn accepts(
        &self,
        now: Instant,
        auth_type: AuthType,
        number: u32,
        multiplier: u8,
    ) -> bool {
        let is_known = self.known_until.is_none_or(|until| now < until);
        let Some(last) = self.last.filter(|_| is_known && auth_type.has_sequence()) else {
            return true;
        };
        // RFC 5880 §6.7.3: in a circular space of 32 bits.
        let steps = number.wrapping_sub(last);
        let steps_min = u32::from(auth_type.is_meticulous());
        (steps_min..=SEQUENCE_WINDOW * u32::from(multiplier)).contains(&steps)
    }

    /// Stores the number of an accepted packet.
    pub(crate) fn store(&mut self, number: u32) {
        *self = Self {
            last: Some(number),
            known_until: None,
        };
    }

    /// Returns the stored number, and when it is forgotten.
    pub(crate) const fn parts(&self) -> (Option<u32>, Option<Instant>) {
        (self.last, self.known_until)
    }

    pub(crate) const fn from_parts(last: Option<u32>, known_until: Option<Instant>) -> Self {
        Self { last, known_until }
    }

    /// Returns the same with another time.
    pub(crate) fn with_times(&self, change: impl Fn(Instant) -> Instant) -> Self {
        Self::from_parts(self.last, self.known_until.map(change))
    }

    /// Sets when the stored number is forgotten: the detection time has expired.
    pub(crate) fn forget_at(&mut self, at: Instant) {
        self.known_until.get_or_insert(at);
    }
}

/// The next sequence number to send: bfd.XmitAuthSeq.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    next: u32,
    /// The last packet, without its section.
    last: Option<Encoded>,
}

impl Sent {
    /// Starts at a random number (RFC 5880 §6.8.1).
    pub(crate) const fn new(first: u32) -> Self {
        Self {
            next: first,
            last: None,
        }
    }

    /// Returns the last number, or the first one before it was sent.
    pub(crate) const fn last(&self) -> u32 {
        self.next
    }

    /// Returns the number of a packet with these contents. It differs from the last one if the
    /// contents do, or if the type is meticulous.
    pub(crate) fn take(&mut self, auth_type: AuthType, contents: Encoded) -> u32 {
        let differs = self.last.is_some_and(|last| last != contents);
        let first = self.last.is_none();
        if !first && (differs || auth_type.is_meticulous()) {
            self.next = self.next.wrapping_add(1);
        }
        self.last = Some(contents);
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    #[test]
    fn window_is_circular_and_three_multipliers_wide() {
        let mut received = Received::default();
        let accepts =
            |received: &Received, auth_type, number| received.accepts(NOW, auth_type, number, 3);
        assert!(accepts(&received, AuthType::KeyedMd5, 77));
        received.store(u32::MAX - 1);
        let plain = AuthType::KeyedSha1;
        let meticulous = AuthType::MeticulousKeyedSha1;
        assert!(accepts(&received, plain, u32::MAX - 1));
        assert!(!accepts(&received, meticulous, u32::MAX - 1));
        for auth_type in [plain, meticulous] {
            assert!(!accepts(&received, auth_type, u32::MAX - 2), "older");
            assert!(accepts(&received, auth_type, u32::MAX));
            assert!(accepts(&received, auth_type, 7), "nine later");
            assert!(!accepts(&received, auth_type, 8), "ten later");
        }
        assert!(accepts(&received, AuthType::SimplePassword, 0));
    }

    #[test]
    fn number_is_forgotten_at_its_time_and_stored_again() {
        let mut received = Received::default();
        received.store(100);
        received.forget_at(Instant::from_secs(6));
        let accepts = |received: &Received, seconds| {
            received.accepts(Instant::from_secs(seconds), AuthType::KeyedMd5, 5, 3)
        };
        assert!(!accepts(&received, 5));
        assert!(accepts(&received, 6));
        received.store(100);
        assert!(!accepts(&received, 7));
    }

    #[test]
    fn numbers_grow_with_contents_or_with_each_packet() {
        let mut contents = Encoded::default();
        let mut sent = Sent::new(u32::MAX);
        assert_eq!(sent.take(AuthType::KeyedMd5, contents), u32::MAX);
        assert_eq!(sent.take(AuthType::KeyedMd5, contents), u32::MAX);
        contents.push(&[1]);
        assert_eq!(sent.take(AuthType::KeyedMd5, contents), 0);
        assert_eq!(sent.take(AuthType::MeticulousKeyedMd5, contents), 1);
        assert_eq!(sent.take(AuthType::MeticulousKeyedMd5, contents), 2);
    }
}
