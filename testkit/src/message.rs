//! Messages of a scripted peer: messages of the codec, or raw octets.

use bgp_proto::{Family, HEADER_OCTETS, MARKER, Notification, Open, RouteRefresh, UpdateWriter};
use bytes::BytesMut;

/// Something that a scripted peer can send.
pub trait Encode {
    /// Appends its octets.
    fn encode(&self, out: &mut BytesMut);

    /// Returns its octets.
    fn octets(&self) -> BytesMut {
        let mut out = BytesMut::new();
        self.encode(&mut out);
        out
    }
}

/// A KEEPALIVE (RFC 4271 §4.4).
#[derive(Clone, Copy, Debug)]
pub struct Keepalive;

/// The End-of-RIB marker of a family (RFC 4724 §2).
#[derive(Clone, Copy, Debug)]
pub struct EndOfRib(pub Family);

/// A message of any type and body behind a correct header.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a>(pub u8, pub &'a [u8]);

/// Octets as they are, with or without a header.
#[derive(Clone, Copy, Debug)]
pub struct Octets<'a>(pub &'a [u8]);

impl Encode for Keepalive {
    fn encode(&self, out: &mut BytesMut) {
        UpdateWriter::keepalive(out);
    }
}

impl Encode for EndOfRib {
    fn encode(&self, out: &mut BytesMut) {
        UpdateWriter::end_of_rib(out, self.0);
    }
}

impl Encode for Raw<'_> {
    /// # Panics
    /// If the message is longer than its length field can express.
    fn encode(&self, out: &mut BytesMut) {
        let Self(kind, body) = *self;
        let octets = u16::try_from(HEADER_OCTETS + body.len()).expect("at most 65,535 octets");
        out.extend_from_slice(&MARKER);
        out.extend_from_slice(&octets.to_be_bytes());
        out.extend_from_slice(&[kind]);
        out.extend_from_slice(body);
    }
}

impl Encode for Octets<'_> {
    fn encode(&self, out: &mut BytesMut) {
        out.extend_from_slice(self.0);
    }
}

impl Encode for Open {
    fn encode(&self, out: &mut BytesMut) {
        Self::encode(self, out);
    }
}

impl Encode for Notification {
    fn encode(&self, out: &mut BytesMut) {
        Self::encode(self, out);
    }
}

impl Encode for RouteRefresh {
    fn encode(&self, out: &mut BytesMut) {
        Self::encode(self, out);
    }
}

impl<M: Encode + ?Sized> Encode for &M {
    fn encode(&self, out: &mut BytesMut) {
        M::encode(self, out);
    }
}

/// Several messages, one after the other.
impl<M: Encode> Encode for [M] {
    fn encode(&self, out: &mut BytesMut) {
        self.iter().for_each(|message| message.encode(out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_message_has_a_correct_header() {
        let mut expected = vec![0xff; 16];
        expected.extend([0, 21, 9, 1, 2]);
        assert_eq!(Raw(9, &[1, 2]).octets(), expected[..]);
        assert_eq!(Keepalive.octets(), Raw(4, &[]).octets());
        let both = [Octets(&[7]), Octets(&[8])];
        assert_eq!(both[..].octets(), [7, 8][..]);
    }
}
