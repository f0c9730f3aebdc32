//! The file of an embedded store: an append-only log of its changes.
//!
//! A head has the format version and the cluster ID; frames follow, each with its length and the
//! checksums of the length and of its content. A frame has the changes between two flushes, and no
//! request is answered before its frame is on disk. A truncated frame at the end was never
//! acknowledged and is dropped; any other invalid content is an error with file and offset. When
//! the file has grown to twice the size of a rewritten one, it is rewritten as a temporary file and
//! renamed.

use std::fs::{File, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tracing::{info, warn};

use crate::core::{Core, CoreConfig};
use crate::limits::{KEPT_PIECE_OCTETS, KEPT_SLACK_OCTETS};
use calico_store::shared::replace_file;

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

/// The open file.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    file: File,
    cluster: u64,
    length: u64,
    /// Its length after the last rewrite.
    begun: u64,
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
        let mut reading = Reading {
            input: BufReader::new(&file),
            path,
            at: 0,
            length,
        };
        let Some((cluster, frames)) = reading.head()? else {
            warn!(file = %path.display(), length, "the file of the store is truncated in its header; an empty store is started");
            drop(file);
            return Self::begin(path, config);
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
        let kept = reading.at;
        if kept < length {
            let dropped = length - kept;
            warn!(file = %path.display(), at = kept, dropped, "the store's file is truncated; its \
                last, incomplete write is dropped");
            file.set_len(kept).map_err(failed)?;
            file.sync_all().map_err(failed)?;
        }
        (&file).seek(SeekFrom::Start(kept)).map_err(failed)?;
        let revision = core.header().revision;
        info!(file = %path.display(), %revision, "the content of the store's file is restored");
        core.keep_journal();
        let path = path.to_owned();
        let kept = Self {
            path,
            file,
            cluster,
            length: kept,
            begun,
        };
        Ok((kept, core))
    }

    fn begin(path: &Path, config: CoreConfig) -> Result<(Self, Core), KeptError> {
        let mut core = Core::new(config);
        core.keep_journal();
        let kept = Self::write(path, config.cluster, &core.base(KEPT_PIECE_OCTETS))?;
        Ok((kept, core))
    }

    /// Writes a new file, which replaces the present one.
    fn write(path: &Path, cluster: u64, pieces: &[Vec<u8>]) -> Result<Self, KeptError> {
        let failed = |source| KeptError::Io {
            file: path.to_owned(),
            source,
        };
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
        Ok(Self {
            path: path.to_owned(),
            file,
            cluster,
            length,
            begun: length,
        })
    }

    /// Appends changes, and waits until they are on disk.
    pub(crate) fn append(&mut self, records: &[u8]) -> Result<(), KeptError> {
        let frame = frame(records);
        self.length += frame.len() as u64;
        self.file
            .write_all(&frame)
            .map_err(|source| self.failed(source))?;
        self.file.sync_data().map_err(|source| self.failed(source))
    }

    /// Returns whether a rewrite is worthwhile.
    pub(crate) const fn is_wasteful(&self) -> bool {
        self.length
            > self
                .begun
                .saturating_mul(2)
                .saturating_add(KEPT_SLACK_OCTETS)
    }

    /// Rewrites the file with the pieces of [`Core::base`].
    pub(crate) fn rewrite(&mut self, pieces: &[Vec<u8>]) -> Result<(), KeptError> {
        *self = Self::write(&self.path, self.cluster, pieces)?;
        Ok(())
    }

    fn failed(&self, source: io::Error) -> KeptError {
        KeptError::Io {
            file: self.path.clone(),
            source,
        }
    }
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
