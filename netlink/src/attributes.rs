//! Parses netlink attributes in place.

use std::net::IpAddr;

use netlink_packet_core::NLA_TYPE_MASK;

use crate::Row;

/// Octets of an attribute's header, and the alignment of attributes.
const HEADER_OCTETS: usize = 4;

/// Returns type and value of each attribute, in order; ends at the first that does not fit.
pub fn iterate(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind) = header(octets)?;
        let value = octets.get(HEADER_OCTETS..length)?;
        let next = length.next_multiple_of(HEADER_OCTETS);
        octets = octets.get(next..).unwrap_or_default();
        Some((kind & NLA_TYPE_MASK, value))
    })
}

/// Returns the value of the first attribute of this type.
pub fn find(octets: &[u8], kind: u16) -> Option<&[u8]> {
    iterate(octets)
        .find(|(found, _)| *found == kind)
        .map(|(_, value)| value)
}

/// Returns the first octets of a value as a number in network byte order.
pub fn number_16(octets: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*octets.first_chunk()?))
}

/// Returns the first octets of a value as a number in network byte order.
pub fn number_32(octets: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*octets.first_chunk()?))
}

/// Returns the first octets of a value as a number in network byte order.
pub fn number_64(octets: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*octets.first_chunk()?))
}

/// Returns the IP address that a value is; `None` if it has neither 4 nor 16 octets.
pub fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(IpAddr::from(*octets.first_chunk::<4>()?)),
        16 => Some(IpAddr::from(*octets.first_chunk::<16>()?)),
        _ => None,
    }
}

/// Returns the attributes of a netfilter message, which follow a header of four octets.
pub fn of_netfilter(row: &Row) -> &[u8] {
    row.payload.get(HEADER_OCTETS..).unwrap_or_default()
}

/// Returns the text up to its terminating NUL.
pub fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets)
        .trim_end_matches('\0')
        .into()
}

fn header(octets: &[u8]) -> Option<(usize, u16)> {
    let (length, rest) = octets.split_first_chunk()?;
    let length = usize::from(u16::from_ne_bytes(*length));
    let kind = u16::from_ne_bytes(*rest.first_chunk()?);
    (length >= HEADER_OCTETS).then_some((length, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_another_length_is_neither_number_nor_address() {
        let octets = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(number_16(&octets), Some(0x0102));
        assert_eq!(number_32(&octets), Some(0x0102_0304));
        assert_eq!(number_64(&octets), Some(0x0102_0304_0506_0708));
        assert_eq!(number_16(&octets[..1]), None);
        assert_eq!(number_32(&octets[..3]), None);
        assert_eq!(number_64(&octets[..7]), None);
        assert_eq!(address(&octets[..4]), Some([1, 2, 3, 4].into()));
        assert_eq!(address(&[0; 16]), Some([0_u8; 16].into()));
        assert_eq!(address(&octets), None);
    }

    #[test]
    fn iteration_over_any_octets_ends() {
        let one = [6, 0, 2, 0x80, b'a', 0, 0, 0, 4, 0, 3, 0];
        let found: Vec<_> = iterate(&one).collect();
        assert_eq!(found, [(2, &b"a\0"[..]), (3, &[][..])]);
        assert_eq!(text(find(&one, 2).unwrap()), "a");
        for end in 0..one.len() {
            assert!(iterate(&one[..end]).count() < 2);
        }
        assert_eq!(iterate(&[0; 64]).count(), 0);
        assert_eq!(iterate(&[0xff; 64]).count(), 0);
    }
}
