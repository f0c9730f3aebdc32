//! The file of an embedded store: an append-only log of its changes.
//!
//! A head has the format version and the cluster ID; frames follow, each with its length and the
//! checksums of the length and of its content. A frame has the changes between two flushes, and no
//! request is answered before its frame is on disk. A truncated frame at the end was never
//! acknowledged and is dropped; any other invalid content is an error with file and offset. When
//! the file has grown to twice the size of a rewritten one, it is rewritten as a temporary file and
//! renamed.
//!
//! A reserve of disk space is held back. When the disk is full, the reserve is released, and the
//! changes that did not fit are written into it. Then the core accepts only deletions and
//! compactions, until the reserve can be held again.

mod reserve;

use std::fs::{File, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tracing::{info, warn};

use crate::core::{Core, CoreConfig};
use crate::limits::{KEPT_PIECE_OCTETS, KEPT_SLACK_OCTETS};
use calico_store::shared::replace_file;
use reserve::{Reserve, is_full};

/// The start of the file; the last octet is the format version.
const MAGIC: [u8; 8] = *b"cbrstor\x01";

/// Magic, cluster ID, number of frames of the initial state, and a checksum.
const HEAD: usize = 8 + 8 + 8 + 4;

/// Length of the content, and the checksums of that length and of the content.
const FRAME_HEAD: usize = 8 + 4 + 4;

/// Why the file of a store is unusable.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The file cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another program has it open.
    #[error("{}: another store has it open", file.display())]
    Busy {
        /// The file.
        file: PathBuf,
    },
    /// Its content is invalid.
    #[error("{}: octet {at}: {what}", file.display())]
    Form {
        /// The file.
        file: PathBuf,
        /// The offset.
        at: u64,
        /// The fault.
        what: &'static str,
    },
}

impl KeptError {
    /// Returns whether there is no disk space.
    fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

/// The open file.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    file: File,
    config: CoreConfig,
    length: u64,
    /// Its length after the last rewrite.
    begun: u64,
    reserve: Reserve,
    /// The least content that did not fit on the full disk when the file was to be rewritten.
    too_large: u64,
}

/// The content of a file that was read.
struct Content {
    core: Core,
    cluster: u64,
    /// The end of the last complete frame.
    length: u64,
    begun: u64,
}

/// Whether changes are on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Saved {
    /// They are.
    Stored,
    /// They did not fit, not even into the reserve: the core must be restored.
    NotStored,
}

impl Kept {
    /// Opens a file and restores its store; creates a new file with this configuration if it does
    /// not exist.
    pub(crate) fn open(path: &Path, config: CoreConfig) -> Result<(Self, Core), KeptError> {
        let failed = |source| KeptError::Io {
            file: path.to_owned(),
            source,
        };
        let opened = File::options().read(true).write(true).open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Self::begin(path, config);
            }
            Err(error) => return Err(failed(error)),
        };
        lock(&file, path)?;
        let length = file.metadata().map_err(failed)?.len();
        let Some(content) = content(&file, path, length, config)? else {
            warn!(file = %path.display(), length, "the file of the store is truncated in its header; an empty store is started");
            drop(file);
            return Self::begin(path, config);
        };
        let kept = content.length;
        if kept < length {
            let dropped = length - kept;
            warn!(file = %path.display(), at = kept, dropped, "the store's file is truncated; its \
                last, incomplete write is dropped");
            file.set_len(kept).map_err(failed)?;
            file.sync_all().map_err(failed)?;
        }
        (&file).seek(SeekFrom::Start(kept)).map_err(failed)?;
        let mut core = content.core;
        let revision = core.header().revision;
        info!(file = %path.display(), %revision, "the content of the store's file is restored");
        core.keep_journal();
        let config = CoreConfig {
            cluster: content.cluster,
            ..config
        };
        let kept = Self::new(path, file, config, kept, content.begun);
        kept.with_reserve(core)
    }

    fn begin(path: &Path, config: CoreConfig) -> Result<(Self, Core), KeptError> {
        let mut core = Core::new(config);
        core.keep_journal();
        let (file, length) = write(path, config.cluster, &core.base(KEPT_PIECE_OCTETS))?;
        Self::new(path, file, config, length, length).with_reserve(core)
    }

    fn new(path: &Path, file: File, config: CoreConfig, length: u64, begun: u64) -> Self {
        Self {
            path: path.to_owned(),
            file,
            config,
            length,
            begun,
            reserve: Reserve::beside(path),
            too_large: u64::MAX,
        }
    }

    /// Holds the reserve, if the disk has space for it.
    fn with_reserve(mut self, mut core: Core) -> Result<(Self, Core), KeptError> {
        if !self.look_for_space()? {
            self.warn_full();
        }
        core.set_full(self.is_full());
        Ok((self, core))
    }

    fn warn_full(&self) {
        warn!(file = %self.path.display(), "the disk of the store is full: only deletions and \
            compactions are accepted; free some space");
    }

    /// Returns whether the disk is full.
    pub(crate) const fn is_full(&self) -> bool {
        !self.reserve.is_held()
    }

    /// Holds the reserve if there is space for it. Returns whether it is held.
    pub(crate) fn look_for_space(&mut self) -> Result<bool, KeptError> {
        let held = self.reserve.hold();
        let is_held = held.map_err(|source| failed(&self.path, source))?;
        if is_held {
            self.too_large = u64::MAX;
        }
        Ok(is_held)
    }

    /// Writes changes, and waits until they are on disk. With the pieces of [`Core::base`], the file
    /// is rewritten instead if there is space for it.
    pub(crate) fn save(
        &mut self,
        records: &[u8],
        base: Option<&[Vec<u8>]>,
    ) -> Result<Saved, KeptError> {
        if let Some(base) = base {
            match self.rewrite(base) {
                Ok(()) => return Ok(Saved::Stored),
                Err(error) if error.is_full() => {
                    let octets: usize = base.iter().map(Vec::len).sum();
                    self.too_large = self.too_large.min(octets as u64);
                    // Not with each write again.
                    self.begun = self.length;
                }
                Err(error) => return Err(error),
            }
        }
        match self.append(records) {
            Err(error) if error.is_full() => {}
            other => return other.map(|()| Saved::Stored),
        }
        if !self.is_full() {
            self.reserve
                .release()
                .map_err(|source| failed(&self.path, source))?;
            self.warn_full();
        }
        match self.append(records) {
            Ok(()) => Ok(Saved::Stored),
            Err(error) if error.is_full() => Ok(Saved::NotStored),
            Err(error) => Err(error),
        }
    }

    /// Returns the content of the file: the state before the changes that were not stored.
    pub(crate) fn restore(&mut self) -> Result<Core, KeptError> {
        let rewound = (&self.file).seek(SeekFrom::Start(0));
        rewound.map_err(|source| failed(&self.path, source))?;
        let read = content(&self.file, &self.path, self.length, self.config)?;
        let Some(read) = read.filter(|read| read.length == self.length) else {
            return Err(KeptError::Form {
                file: self.path.clone(),
                at: 0,
                what: "the file was changed by another program",
            });
        };
        self.seek_to_end()?;
        let mut core = read.core;
        core.keep_journal();
        core.set_full(self.is_full());
        Ok(core)
    }

    /// Appends changes, and waits until they are on disk. After a failure the file is as before.
    fn append(&mut self, records: &[u8]) -> Result<(), KeptError> {
        let frame = frame(records);
        let written = self
            .file
            .write_all(&frame)
            .and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.length += frame.len() as u64,
            Err(source) => {
                // Not full, whatever the reason is: a part of the frame may be in the file.
                let fatal = |source| failed(&self.path, io::Error::other(source));
                self.file.set_len(self.length).map_err(fatal)?;
                self.seek_to_end()?;
                return Err(failed(&self.path, source));
            }
        }
        Ok(())
    }

    fn seek_to_end(&self) -> Result<(), KeptError> {
        let sought = (&self.file).seek(SeekFrom::Start(self.length));
        sought
            .map(drop)
            .map_err(|source| failed(&self.path, source))
    }

    /// Returns whether a rewrite is worthwhile, with about this many octets of content.
    pub(crate) const fn is_wasteful(&self, octets: u64) -> bool {
        if self.is_full() {
            // It frees space, if there is space for both files.
            return octets < self.too_large / 2 && octets < self.length / 2;
        }
        self.length
            > self
                .begun
                .saturating_mul(2)
                .saturating_add(KEPT_SLACK_OCTETS)
    }

    /// Rewrites the file with the pieces of [`Core::base`].
    fn rewrite(&mut self, pieces: &[Vec<u8>]) -> Result<(), KeptError> {
        let (file, length) = write(&self.path, self.config.cluster, pieces)?;
        (self.file, self.length, self.begun) = (file, length, length);
        Ok(())
    }
}

fn failed(path: &Path, source: io::Error) -> KeptError {
    KeptError::Io {
        file: path.to_owned(),
        source,
    }
}

/// Writes a new file, which replaces the present one. Returns it, and its length.
fn write(path: &Path, cluster: u64, pieces: &[Vec<u8>]) -> Result<(File, u64), KeptError> {
    let failed = |source| failed(path, source);
    let mut head = Vec::with_capacity(HEAD);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&cluster.to_le_bytes());
    head.extend_from_slice(&(pieces.len() as u64).to_le_bytes());
    head.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
    let mut length = head.len() as u64;
    let file = replace_file(path, failed, |mut file| {
        lock(file, path)?;
        file.write_all(&head).map_err(failed)?;
        for piece in pieces {
            let frame = frame(piece);
            file.write_all(&frame).map_err(failed)?;
            length += frame.len() as u64;
        }
        Ok(())
    })?;
    Ok((file, length))
}

/// Reads a file of this length; `None` if its head is incomplete.
fn content(
    file: &File,
    path: &Path,
    length: u64,
    config: CoreConfig,
) -> Result<Option<Content>, KeptError> {
    let mut reading = Reading {
        input: BufReader::new(file),
        path,
        at: 0,
        length,
    };
    let Some((cluster, frames)) = reading.head()? else {
        return Ok(None);
    };
    let mut core = Core::new(CoreConfig { cluster, ..config });
    let mut begun = reading.at;
    let mut read = 0;
    while let Some((at, records)) = reading.frame()? {
        let within = |offset: usize| reading.fault(at + offset as u64, "a record is not known");
        core.replay(records).map_err(within)?;
        read += 1;
        if read == frames {
            begun = reading.at;
        }
    }
    if read < frames {
        return Err(reading.fault(
            reading.at,
            "the file is truncated within its initial \
            content",
        ));
    }
    Ok(Some(Content {
        core,
        cluster,
        length: reading.at,
        begun,
    }))
}

fn lock(file: &File, path: &Path) -> Result<(), KeptError> {
    let path = path.to_owned();
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(KeptError::Busy { file: path }),
        Err(TryLockError::Error(source)) => Err(KeptError::Io { file: path, source }),
    }
}

fn frame(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    let mut frame = Vec::with_capacity(FRAME_HEAD + content.len());
    frame.extend_from_slice(&length);
    frame.extend_from_slice(&crc32fast::hash(&length).to_le_bytes());
    frame.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
    frame.extend_from_slice(content);
    frame
}

/// Reads the file once, from its start.
struct Reading<'a> {
    input: BufReader<&'a File>,
    path: &'a Path,
    /// Everything before this offset was parsed.
    at: u64,
    length: u64,
}

impl Reading<'_> {
    /// Returns the cluster ID, and the number of frames of the initial state; `None` if the head is
    /// incomplete.
    fn head(&mut self) -> Result<Option<(u64, u64)>, KeptError> {
        if self.length < HEAD as u64 {
            let mut some = Vec::new();
            self.input
                .read_to_end(&mut some)
                .map_err(|e| self.failed(e))?;
            let known = some.len().min(MAGIC.len());
            return match some.get(..known) == MAGIC.get(..known) {
                true => Ok(None),
                false => Err(self.fault(0, "not the file of a store")),
            };
        }
        let head: [u8; HEAD] = self.take()?;
        let (content, sum) = head.split_at(HEAD - 4);
        if content.get(..8) != Some(&MAGIC) {
            return Err(self.fault(0, "not the file of a store of this version"));
        }
        if crc32fast::hash(content).to_le_bytes() != sum {
            return Err(self.fault(0, "the checksum of the head is wrong"));
        }
        self.at = HEAD as u64;
        let number = |from: usize| {
            let octets = content.get(from..from + 8)?;
            Some(u64::from_le_bytes(octets.try_into().ok()?))
        };
        Ok(number(8).zip(number(16)))
    }

    /// Returns the next frame's content and its offset; `None` at the end, or where the file is
    /// truncated.
    fn frame(&mut self) -> Result<Option<(u64, Bytes)>, KeptError> {
        let left = self.length - self.at;
        if left < FRAME_HEAD as u64 {
            return Ok(None);
        }
        let length: [u8; 8] = self.take()?;
        let sums: [[u8; 4]; 2] = [self.take()?, self.take()?];
        if crc32fast::hash(&length).to_le_bytes() != sums[0] {
            return match (length, sums) == ([0; 8], [[0; 4]; 2]) && self.only_zeros()? {
                // Allocated space that was never written.
                true => Ok(None),
                false => Err(self.fault(self.at, "the checksum of a frame's length is wrong")),
            };
        }
        let length = u64::from_le_bytes(length);
        let content_at = self.at + FRAME_HEAD as u64;
        let left = left - FRAME_HEAD as u64;
        if length > left {
            return Ok(None);
        }
        let mut content = vec![0; usize::try_from(length).unwrap_or(0)];
        self.input
            .read_exact(&mut content)
            .map_err(|e| self.failed(e))?;
        if crc32fast::hash(&content).to_le_bytes() != sums[1] {
            return match length == left {
                // Its length was on disk before its content.
                true => Ok(None),
                false => Err(self.fault(self.at, "the checksum of a frame is wrong")),
            };
        }
        self.at = content_at + length;
        Ok(Some((content_at, content.into())))
    }

    fn only_zeros(&mut self) -> Result<bool, KeptError> {
        let mut rest = Vec::new();
        self.input
            .read_to_end(&mut rest)
            .map_err(|e| self.failed(e))?;
        Ok(rest.iter().all(|octet| *octet == 0))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], KeptError> {
        let mut octets = [0; N];
        self.input
            .read_exact(&mut octets)
            .map_err(|e| self.failed(e))?;
        Ok(octets)
    }

    fn failed(&self, source: io::Error) -> KeptError {
        KeptError::Io {
            file: self.path.to_owned(),
            source,
        }
    }

    fn fault(&self, at: u64, what: &'static str) -> KeptError {
        KeptError::Form {
            file: self.path.to_owned(),
            at,
            what,
        }
    }
}

#[cfg(test)]
mod tests;
