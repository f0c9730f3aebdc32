//! The snapshot file, which preserves a mirror's picture across a restart.
//!
//! A file is used as a whole or rejected. It contains a magic number with the format version, its
//! time of writing, the cluster ID and the ranges, every key in order, an end mark, and a checksum
//! of everything.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::atomic_file::replace;
use crate::kv::{KeyRange, KeyValue, LeaseId, RangeEnd, Revision};
use crate::limits::{FIELD_OCTETS_MAX, SNAPSHOT_AHEAD_MAX, SNAPSHOT_RANGES_MAX};

/// The start of the file; the last octet is the format version.
const MAGIC: [u8; 8] = *b"cbrmirr\x01";

/// Before each key.
const ITEM: u8 = 1;

/// After the last key, before the checksum.
const END: u8 = 0;

/// Why a snapshot is unusable.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("octet {at}: {what}")]
    Form { at: u64, what: &'static str },
    #[error("written {age_s} s ago; {max_s} s are allowed")]
    Old { age_s: u64, max_s: u64 },
    #[error("written {ahead_s} s ahead of this host's clock, so that its age is not known")]
    Ahead { ahead_s: u64 },
    #[error("it does not hold all that is to be mirrored")]
    Ranges,
}

/// The header of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// Seconds since 1970 when its picture was current.
    pub(super) written_s: u64,
    pub(super) cluster: u64,
    pub(super) ranges: Vec<KeyRange>,
}

/// A snapshot read at the start.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) cluster: u64,
    pub(super) age: Duration,
    pub(super) items: Vec<KeyValue>,
}

/// Reads a snapshot; `None` if the file does not exist.
pub(super) fn load(
    path: &Path,
    ranges: &[KeyRange],
    now: SystemTime,
    age_max: Duration,
) -> Result<Option<Loaded>, Fault> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut reader = Reader::open(BufReader::new(file))?;
    let age = age(&reader.header, now, age_max)?;
    let held = |range| reader.header.ranges.iter().any(|held| held.covers(range));
    if !ranges.iter().all(held) {
        return Err(Fault::Ranges);
    }
    let mut items = Vec::new();
    while let Some(item) = reader.next()? {
        if ranges.iter().any(|range| range.contains(&item.key)) {
            items.push(item);
        }
    }
    let cluster = reader.header.cluster;
    Ok(Some(Loaded {
        cluster,
        age,
        items,
    }))
}

fn age(header: &Header, now: SystemTime, max: Duration) -> Result<Duration, Fault> {
    let written = UNIX_EPOCH
        .checked_add(Duration::from_secs(header.written_s))
        .unwrap_or(UNIX_EPOCH);
    let age = match now.duration_since(written) {
        Ok(age) => age,
        Err(ahead) if ahead.duration() <= SNAPSHOT_AHEAD_MAX => Duration::ZERO,
        Err(ahead) => {
            let ahead_s = ahead.duration().as_secs();
            return Err(Fault::Ahead { ahead_s });
        }
    };
    if age > max || max.is_zero() {
        let (age_s, max_s) = (age.as_secs(), max.as_secs());
        return Err(Fault::Old { age_s, max_s });
    }
    Ok(age)
}

/// Writes the next snapshot: the previous one, with the changes since. The old file stays until the
/// new one is on disk. Returns the new file.
pub(super) fn write(
    path: &Path,
    header: &Header,
    base: Option<&File>,
    changes: &BTreeMap<Bytes, Option<KeyValue>>,
) -> Result<File, Fault> {
    replace(path, Fault::from, |file| {
        let mut writer = Writer::begin(BufWriter::new(file), header)?;
        let mut changed = changes.iter().peekable();
        if let Some(mut base) = base {
            base.rewind()?;
            let mut base = Reader::open(BufReader::new(base))?;
            while let Some(item) = base.next()? {
                while let Some((_, now)) = changed.next_if(|(key, _)| **key < item.key) {
                    writer.items(now.as_ref())?;
                }
                match changed.next_if(|(key, _)| **key == item.key) {
                    Some((_, now)) => writer.items(now.as_ref())?,
                    None if header.ranges.iter().any(|range| range.contains(&item.key)) => {
                        writer.items(Some(&item))?;
                    }
                    None => {}
                }
            }
        }
        for (_, now) in changed {
            writer.items(now.as_ref())?;
        }
        Ok(writer.end()?)
    })
}

/// Writes octets and computes their checksum.
struct Writer<W> {
    output: W,
    sum: crc32fast::Hasher,
}

impl<W: Write> Writer<W> {
    fn begin(output: W, header: &Header) -> io::Result<Self> {
        let mut writer = Self {
            output,
            sum: crc32fast::Hasher::new(),
        };
        writer.put(&MAGIC)?;
        writer.number(header.written_s)?;
        writer.number(header.cluster)?;
        writer.number(header.ranges.len() as u64)?;
        for range in &header.ranges {
            writer.field(&range.start)?;
            match &range.end {
                RangeEnd::Single => writer.put(&[0])?,
                RangeEnd::Open => writer.put(&[1])?,
                RangeEnd::Before(end) => {
                    writer.put(&[2])?;
                    writer.field(end)?;
                }
            }
        }
        Ok(writer)
    }

    fn items<'a>(&mut self, items: impl IntoIterator<Item = &'a KeyValue>) -> io::Result<()> {
        for item in items {
            self.put(&[ITEM])?;
            self.field(&item.key)?;
            self.field(&item.value)?;
            let revisions = [item.create_revision, item.mod_revision];
            for Revision(number) in revisions {
                self.number(number.cast_unsigned())?;
            }
            self.number(item.version.cast_unsigned())?;
            self.number(item.lease.0.cast_unsigned())?;
        }
        Ok(())
    }

    fn end(mut self) -> io::Result<()> {
        self.put(&[END])?;
        let sum = self.sum.finalize();
        self.output.write_all(&sum.to_le_bytes())?;
        self.output.flush()
    }

    fn put(&mut self, octets: &[u8]) -> io::Result<()> {
        self.sum.update(octets);
        self.output.write_all(octets)
    }

    fn number(&mut self, number: u64) -> io::Result<()> {
        self.put(&number.to_le_bytes())
    }

    fn field(&mut self, octets: &[u8]) -> io::Result<()> {
        self.number(octets.len() as u64)?;
        self.put(octets)
    }
}

/// Reads octets, computes their checksum, and tracks the position.
struct Reader<R> {
    input: R,
    sum: crc32fast::Hasher,
    at: u64,
    header: Header,
}

impl<R: Read> Reader<R> {
    fn open(input: R) -> Result<Self, Fault> {
        let header = Header {
            written_s: 0,
            cluster: 0,
            ranges: Vec::new(),
        };
        let mut reader = Self {
            input,
            sum: crc32fast::Hasher::new(),
            at: 0,
            header,
        };
        if reader.take::<8>()? != MAGIC {
            return Err(Fault::Form {
                at: 0,
                what: "not a snapshot of this version",
            });
        }
        reader.header.written_s = reader.number()?;
        reader.header.cluster = reader.number()?;
        let ranges = reader.number()?;
        if ranges > SNAPSHOT_RANGES_MAX as u64 {
            return Err(reader.fault("too many ranges"));
        }
        for _ in 0..ranges {
            let start = reader.field()?;
            let end = match reader.take::<1>()? {
                [0] => RangeEnd::Single,
                [1] => RangeEnd::Open,
                [2] => RangeEnd::Before(reader.field()?),
                _ => return Err(reader.fault("a range ends in no known way")),
            };
            reader.header.ranges.push(KeyRange { start, end });
        }
        Ok(reader)
    }

    /// Returns the next key. The content is valid only after the call that returns `None`, which
    /// checks the checksum.
    fn next(&mut self) -> Result<Option<KeyValue>, Fault> {
        match self.take::<1>()? {
            [ITEM] => {}
            [END] => return self.end(),
            _ => return Err(self.fault("neither a key nor the end")),
        }
        Ok(Some(KeyValue {
            key: self.field()?,
            value: self.field()?,
            create_revision: Revision(self.number()?.cast_signed()),
            mod_revision: Revision(self.number()?.cast_signed()),
            version: self.number()?.cast_signed(),
            lease: LeaseId(self.number()?.cast_signed()),
        }))
    }

    fn end(&mut self) -> Result<Option<KeyValue>, Fault> {
        let sum = self.sum.clone().finalize();
        if self.take::<4>()? != sum.to_le_bytes() {
            return Err(self.fault("the checksum is wrong"));
        }
        if self.input.read(&mut [0])? != 0 {
            return Err(self.fault("there is more after the end"));
        }
        Ok(None)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut octets = [0; N];
        self.fill(&mut octets)?;
        Ok(octets)
    }

    fn fill(&mut self, octets: &mut [u8]) -> Result<(), Fault> {
        match self.input.read_exact(octets) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.fault("it is cut off after this"));
            }
            Err(error) => return Err(error.into()),
        }
        self.sum.update(octets);
        self.at += octets.len() as u64;
        Ok(())
    }

    fn number(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn field(&mut self) -> Result<Bytes, Fault> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if length > FIELD_OCTETS_MAX {
            return Err(self.fault("a key or value is too long"));
        }
        // Grows as octets arrive: a wrong length allocates nothing.
        let mut octets = Vec::new();
        while octets.len() < length {
            let from = octets.len();
            octets.resize(length.min(from + 64 * 1024), 0);
            let part = octets.get_mut(from..).unwrap_or_default();
            self.fill(part)?;
        }
        Ok(octets.into())
    }

    const fn fault(&self, what: &'static str) -> Fault {
        Fault::Form { at: self.at, what }
    }
}

#[cfg(test)]
mod tests;
