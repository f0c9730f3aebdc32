//! Splits a stream into records (RFC 6396 §2, §3).

use std::io::{self, Read};

use bytes::Bytes;
use thiserror::Error;

use crate::limits::RECORD_OCTETS_MAX;

/// Octets of a record's header (RFC 6396 §2).
const HEADER_OCTETS: usize = 12;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Octet offset of the record's header, after decompression.
    pub at: u64,
    /// Time of writing, in seconds since 1970.
    pub time_s: u32,
    /// Microseconds to add, in records of the extended form (RFC 6396 §3).
    pub microseconds: Option<u32>,
    /// Type (RFC 6396 §4).
    pub kind: u16,
    /// Subtype; its meaning depends on the type.
    pub subtype: u16,
    /// The octets after the header, without the microseconds.
    pub body: Bytes,
}

/// Why no more records follow.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file ends within the record at this octet offset.
    #[error("file truncated within the record at octet {at}")]
    Truncated {
        /// Offset of the record's header, after decompression.
        at: u64,
    },
    /// The length of the record at this octet offset exceeds
    /// [`RECORD_OCTETS_MAX`](crate::limits::RECORD_OCTETS_MAX).
    #[error("record of {len} octets at octet {at}: the file is damaged")]
    TooLong {
        /// Offset of the record's header, after decompression.
        at: u64,
        /// The length in the header.
        len: u32,
    },
    /// Reading or decompressing failed within the record at this octet offset.
    #[error("record at octet {at}: {error}")]
    Io {
        /// Offset of the record's header, after decompression.
        at: u64,
        /// The error.
        #[source]
        error: io::Error,
    },
}

impl ReadError {
    /// Returns the octet offset, after decompression, of the record that could not be read.
    pub const fn at(&self) -> u64 {
        match self {
            Self::Truncated { at } | Self::TooLong { at, .. } | Self::Io { at, .. } => *at,
        }
    }
}

/// Reads records from a stream. After an error no more records follow, because the start of the
/// next one is unknown.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    at: u64,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Creates a reader of `source`, which must return plain octets and should be buffered.
    pub const fn new(source: R) -> Self {
        Self {
            source,
            at: 0,
            ended: false,
        }
    }

    fn record(&mut self) -> Result<Option<Record>, ReadError> {
        let at = self.at;
        let header = self.read(HEADER_OCTETS)?;
        if header.is_empty() {
            return Ok(None);
        }
        let mut fields = crate::cursor::Cursor::new(header);
        let cut = ReadError::Truncated { at };
        let (Some(time_s), Some(kind), Some(subtype), Some(len)) =
            (fields.u32(), fields.u16(), fields.u16(), fields.u32())
        else {
            return Err(cut);
        };
        if len > RECORD_OCTETS_MAX {
            return Err(ReadError::TooLong { at, len });
        }
        let len = len as usize;
        let mut body = self.read(len)?;
        if body.len() < len {
            return Err(cut);
        }
        // RFC 6396 §3: the microseconds count as part of the body.
        let microseconds = match kind {
            crate::record_type::BGP4MP_ET => match body.first_chunk::<4>().copied() {
                Some(octets) => {
                    body = body.slice(4..);
                    Some(u32::from_be_bytes(octets))
                }
                None => None,
            },
            _ => None,
        };
        self.at += (HEADER_OCTETS + len) as u64;
        Ok(Some(Record {
            at,
            time_s,
            microseconds,
            kind,
            subtype,
            body,
        }))
    }

    /// Reads up to `len` octets; fewer only at the end of the stream. Memory is allocated as octets
    /// arrive, so that a wrong length allocates nothing.
    fn read(&mut self, len: usize) -> Result<Bytes, ReadError> {
        let mut octets = Vec::with_capacity(len.min(64 << 10));
        match self
            .source
            .by_ref()
            .take(len as u64)
            .read_to_end(&mut octets)
        {
            Ok(_) => Ok(octets.into()),
            // Decompressors return this error for a truncated file.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(ReadError::Truncated { at: self.at })
            }
            Err(error) => Err(ReadError::Io { at: self.at, error }),
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let record = self.record().transpose();
        self.ended = !matches!(record, Some(Ok(_)));
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u16, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len()).unwrap();
        let head = [
            &7_u32.to_be_bytes()[..],
            &kind.to_be_bytes(),
            &[0, 1],
            &len.to_be_bytes(),
        ];
        [&head.concat(), body].concat()
    }

    #[test]
    fn reads_until_the_cut() {
        let file = [record(16, &[1, 2, 3]), record(17, &[0, 0, 0, 9, 5])].concat();
        for cut in 0..=file.len() {
            let read: Vec<_> = Reader::new(&file[..cut]).collect();
            let whole = match cut {
                0..15 => 0,
                15..32 => 1,
                _ => 2,
            };
            assert_eq!(
                read.iter().filter(|record| record.is_ok()).count(),
                whole,
                "{cut}"
            );
            let want = match cut {
                0 | 15 | 32 => None,
                1..15 => Some(0),
                _ => Some(15),
            };
            let error = read
                .last()
                .and_then(|last| last.as_ref().err())
                .map(ReadError::at);
            assert_eq!(error, want, "{cut}");
        }
    }

    #[test]
    fn takes_microseconds_off() {
        let file = record(17, &[0, 0, 0, 9, 5]);
        let read: Vec<_> = Reader::new(&file[..]).map(Result::unwrap).collect();
        assert_eq!(read[0].microseconds, Some(9));
        assert_eq!(&read[0].body[..], [5]);
        assert_eq!((read[0].time_s, read[0].kind, read[0].subtype), (7, 17, 1));
    }

    #[test]
    fn does_not_believe_any_length() {
        let mut file = record(16, &[]);
        file[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
        let error = Reader::new(&file[..]).next().unwrap().unwrap_err();
        assert!(matches!(
            error,
            ReadError::TooLong {
                at: 0,
                len: u32::MAX
            }
        ));
    }
}
