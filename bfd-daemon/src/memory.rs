//! Memory with the state of the sessions, which outlives the process.
//!
//! It is a file without a name (memfd), and its descriptor is stored outside the process. After a header it
//! has cells of one record each. A cell has two copies of its record, which are written in turn: each with a
//! sequence number and a checksum. If the process dies within a write, the other copy is valid.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use bfd::Instant;
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::engine::{Key, Record, RecordError};
use crate::limits::{RECORD_OCTETS_MAX, RECORDS_MAX, TAKE_OVERS_MAX};

/// The first octets of the header.
const MAGIC: [u8; 8] = *b"CambrBFD";

/// The version of the format. Another one is rejected.
const VERSION: u32 = 1;

/// Where the header has the number of take-overs that did not complete.
const TAKE_OVERS_AT: u64 = 12;

/// Where the cells begin. The octets before it are the header and the cell of the time.
const CELLS_AT: u64 = 4096;

/// Octets of one copy of a record. Two copies are in the same page.
const COPY_OCTETS: usize = 512;

const CELL_OCTETS: usize = 2 * COPY_OCTETS;

/// Octets of a copy before its record: the sequence number and the length.
const RECORD_AT: usize = 10;

const CHECKSUM_OCTETS: usize = 8;

const _: () = assert!(RECORD_AT + RECORD_OCTETS_MAX + CHECKSUM_OCTETS <= COPY_OCTETS);

/// The cell of the time, in the place of the header.
const TIME_AT: u64 = CELL_OCTETS as u64;

/// The memory, and the cells of its records.
#[derive(Debug)]
pub(crate) struct Memory {
    file: File,
    cells: BTreeMap<Key, Cell>,
    /// Cells without a record.
    free: Vec<Cell>,
    /// The number of all cells.
    count: u32,
    time: Cell,
}

/// One cell.
#[derive(Clone, Copy, Debug)]
struct Cell {
    at: u64,
    /// The sequence number of its last written copy.
    sequence: u64,
}

/// The content of a memory.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) records: Vec<Record>,
    /// When all receiving sockets were last found empty.
    pub(crate) emptied_at: Instant,
}

/// A reason not to continue the state of a memory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error("the memory cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("the memory has another content")]
    Magic,
    #[error("the memory has the format {0}: this version reads {VERSION}")]
    Version(u32),
    #[error("the memory has the length {0}")]
    Length(u64),
    #[error("a record of the memory is damaged")]
    Damaged,
    #[error("two records of the memory have one subject")]
    Repeated,
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{TAKE_OVERS_MAX} starts have failed to continue it")]
    TakeOvers,
}

impl Memory {
    /// Makes an empty memory.
    pub(crate) fn create() -> io::Result<Self> {
        let file = memfd_create(c"cambric-bfd", MFdFlags::MFD_CLOEXEC)?;
        let mut header = [0; TAKE_OVERS_AT as usize + 1];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_be_bytes());
        let file = File::from(file);
        file.set_len(CELLS_AT)?;
        file.write_all_at(&header, 0)?;
        Ok(Self::of(file))
    }

    fn of(file: File) -> Self {
        Self {
            file,
            cells: BTreeMap::new(),
            free: Vec::new(),
            count: 0,
            time: Cell {
                at: TIME_AT,
                sequence: 0,
            },
        }
    }

    /// Reads the memory of an earlier process, and counts the attempt to continue it until
    /// [`Memory::is_continued`].
    ///
    /// # Errors
    ///
    /// Its state cannot be continued.
    pub(crate) fn open(file: OwnedFd) -> Result<(Self, Content), MemoryError> {
        let file = File::from(file);
        let length = file.metadata()?.len();
        let mut header = [0; TAKE_OVERS_AT as usize + 1];
        if length < CELLS_AT {
            return Err(MemoryError::Length(length));
        }
        file.read_exact_at(&mut header, 0)?;
        let (magic, rest) = header.split_at(MAGIC.len());
        let (version, take_overs) = rest.split_at(4);
        if magic != MAGIC {
            return Err(MemoryError::Magic);
        }
        let version = u32::from_be_bytes(version.try_into().unwrap_or_default());
        if version != VERSION {
            return Err(MemoryError::Version(version));
        }
        let take_overs = take_overs.first().copied().unwrap_or_default();
        if take_overs >= TAKE_OVERS_MAX {
            return Err(MemoryError::TakeOvers);
        }
        file.write_all_at(&[take_overs + 1], TAKE_OVERS_AT)?;
        Self::read(file, length)
    }

    fn read(file: File, length: u64) -> Result<(Self, Content), MemoryError> {
        let octets = length - CELLS_AT;
        let count = u32::try_from(octets.div_ceil(CELL_OCTETS as u64));
        let count = count.ok().filter(|count| *count <= RECORDS_MAX);
        let count = count.ok_or(MemoryError::Length(length))?;
        let mut memory = Self::of(file);
        let mut content = Content {
            records: Vec::new(),
            emptied_at: Instant::ZERO,
        };
        if let (sequence, Some(time)) = memory.read_cell(TIME_AT)? {
            memory.time.sequence = sequence;
            let time = time.try_into().map_err(|_| MemoryError::Damaged)?;
            content.emptied_at = Instant(u64::from_be_bytes(time));
        }
        for number in 0..count {
            let at = CELLS_AT + u64::from(number) * CELL_OCTETS as u64;
            let (sequence, record) = memory.read_cell(at)?;
            let cell = Cell { at, sequence };
            match record.filter(|record| !record.is_empty()) {
                None => memory.free.push(cell),
                Some(record) => {
                    let record = Record::decode(&record)?;
                    if memory.cells.insert(record.key(), cell).is_some() {
                        return Err(MemoryError::Repeated);
                    }
                    content.records.push(record);
                }
            }
        }
        memory.count = count;
        Ok((memory, content))
    }

    /// Returns the valid copy with the highest sequence number; none if nothing was written completely.
    fn read_cell(&self, at: u64) -> Result<(u64, Option<Vec<u8>>), MemoryError> {
        let mut octets = [0; CELL_OCTETS];
        let mut done = 0;
        // The last cell may be shorter than others: its second copy was not written yet.
        while let Some(rest) = octets.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at + done as u64)? {
                0 => break,
                more => done += more,
            }
        }
        let (copies, _) = octets.as_chunks::<COPY_OCTETS>();
        let valid = copies.iter().filter_map(valid);
        match valid.max_by_key(|(sequence, _)| *sequence) {
            Some((sequence, record)) => Ok((sequence, Some(record.to_vec()))),
            // The first write was torn: the subject was new.
            None if copies.contains(&[0; COPY_OCTETS]) => Ok((0, None)),
            None => Err(MemoryError::Damaged),
        }
    }

    /// Notes that this process has continued the state.
    pub(crate) fn is_continued(&self) -> io::Result<()> {
        self.file.write_all_at(&[0], TAKE_OVERS_AT)
    }

    /// Writes the record of a subject, or removes it.
    pub(crate) fn put(&mut self, key: Key, record: Option<&Record>) -> io::Result<()> {
        let octets = record.map(Record::encode);
        let octets = match octets {
            Some(None) => return Err(io::Error::other("a record is too long")),
            Some(Some(octets)) => octets,
            None => Vec::new(),
        };
        let cell = self.cells.get(&key).copied();
        if cell.is_none() && octets.is_empty() {
            return Ok(());
        }
        let mut cell = match cell {
            Some(cell) => cell,
            None => self.take_free()?,
        };
        write(&self.file, &mut cell, &octets)?;
        match octets.is_empty() {
            true => {
                self.cells.remove(&key);
                self.free.push(cell);
            }
            false => drop(self.cells.insert(key, cell)),
        }
        Ok(())
    }

    /// Writes when all receiving sockets were found empty.
    pub(crate) fn put_time(&mut self, emptied_at: Instant) -> io::Result<()> {
        let octets = emptied_at.0.to_be_bytes();
        write(&self.file, &mut self.time, &octets)
    }

    /// Makes the memory unreadable, so that no later process continues an old state.
    pub(crate) fn abandon(self) {
        // If this fails too, the version of the header stays, and so does the state: nothing else can be done.
        let _ = self.file.set_len(0);
    }

    fn take_free(&mut self) -> io::Result<Cell> {
        if let Some(cell) = self.free.pop() {
            return Ok(cell);
        }
        if self.count >= RECORDS_MAX {
            return Err(io::Error::other(format!("there are {RECORDS_MAX} records")));
        }
        let at = CELLS_AT + u64::from(self.count) * CELL_OCTETS as u64;
        self.count += 1;
        Ok(Cell { at, sequence: 0 })
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Writes the next copy of a cell: the one that does not have the last record.
fn write(file: &File, cell: &mut Cell, record: &[u8]) -> io::Result<()> {
    let sequence = cell.sequence + 1;
    let mut copy = Vec::with_capacity(COPY_OCTETS);
    copy.extend(sequence.to_be_bytes());
    let length = u16::try_from(record.len()).map_err(io::Error::other)?;
    copy.extend(length.to_be_bytes());
    copy.extend(record);
    copy.extend(checksum(&copy).to_be_bytes());
    let which = sequence % 2 * COPY_OCTETS as u64;
    file.write_all_at(&copy, cell.at + which)?;
    cell.sequence = sequence;
    Ok(())
}

/// Returns the sequence number and the record of a copy, if it was written completely.
fn valid(copy: &[u8; COPY_OCTETS]) -> Option<(u64, &[u8])> {
    let (sequence, rest) = copy.split_first_chunk()?;
    let (length, _) = rest.split_first_chunk()?;
    let sequence = u64::from_be_bytes(*sequence);
    let end = RECORD_AT + usize::from(u16::from_be_bytes(*length));
    let sum = copy.get(end..)?.first_chunk()?;
    let is_whole = u64::from_be_bytes(*sum) == checksum(copy.get(..end)?);
    (sequence > 0 && is_whole).then(|| (sequence, copy.get(RECORD_AT..end).unwrap_or_default()))
}

/// Returns the checksum FNV-1a of 64 bits. It finds torn writes: no other user can write to the memory.
fn checksum(octets: &[u8]) -> u64 {
    octets.iter().fold(0xcbf2_9ce4_8422_2325, |sum, octet| {
        (sum ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
