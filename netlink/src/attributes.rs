//! Parses netlink attributes in place.

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
