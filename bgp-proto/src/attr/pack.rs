//! Numbers and runs of octets as a packed set has them.

use alloc::vec::Vec;

use crate::reader::Reader;

/// Appends a number: seven bits an octet, the lowest first; the eighth bit is set if more follow.
pub(super) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads a number.
pub(super) fn number(reader: &mut Reader<'_>) -> Option<u64> {
    let mut number = 0;
    let mut shift = 0;
    loop {
        let octet = reader.u8()?;
        number |= u64::from(octet & 0x7f).checked_shl(shift)?;
        if octet & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

/// Appends the octets that `write` appends, with their number in front.
pub(super) fn put_octets(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    let end = out.len();
    put_number((end - start) as u64, out);
    let head = out.len() - end;
    if let Some(octets) = out.get_mut(start..) {
        octets.rotate_right(head);
    }
}

/// Appends octets with their number in front.
pub(super) fn put_slice(octets: &[u8], out: &mut Vec<u8>) {
    put_number(octets.len() as u64, out);
    out.extend_from_slice(octets);
}

/// Reads octets with their number in front.
pub(super) fn octets<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = usize::try_from(number(reader)?).ok()?;
    reader.take(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_are_read_back() {
        for number_in in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::MAX] {
            let mut out = Vec::new();
            put_number(number_in, &mut out);
            let mut reader = Reader::new(&out, 0);
            assert_eq!(number(&mut reader), Some(number_in));
            assert!(reader.is_empty());
        }
        let too_long = [0xff; 11];
        assert_eq!(number(&mut Reader::new(&too_long, 0)), None);
    }

    #[test]
    fn octets_of_unknown_length_get_their_length_in_front() {
        for length in [0, 1, 127, 128, 20_000] {
            let value = alloc::vec![7; length];
            let (mut out, mut same) = (alloc::vec![9], alloc::vec![9]);
            put_octets(&mut out, |out| out.extend_from_slice(&value));
            put_slice(&value, &mut same);
            assert_eq!(out, same);
            let mut reader = Reader::new(&out, 0);
            assert_eq!(reader.u8(), Some(9));
            assert_eq!(octets(&mut reader), Some(&value[..]));
        }
    }
}
