//! Disk space that is held back, so that a full disk still accepts deletions.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::posix_fallocate;

use crate::limits::{RESERVE_MARGIN_OCTETS, RESERVE_OCTETS};

/// A file beside that of the store, which occupies the space.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    is_held: bool,
}

impl Reserve {
    /// Returns the reserve of a store's file; it is not held yet.
    pub(super) fn beside(store: &Path) -> Self {
        let mut path = store.as_os_str().to_owned();
        path.push(".reserve");
        Self {
            path: path.into(),
            is_held: false,
        }
    }

    pub(super) const fn is_held(&self) -> bool {
        self.is_held
    }

    /// Occupies the space, if there is enough and some more. Returns whether it is held.
    pub(super) fn hold(&mut self) -> io::Result<bool> {
        if self.is_held {
            return Ok(true);
        }
        match self.allocate() {
            Ok(()) => self.is_held = true,
            Err(error) if is_full(&error) => self.release()?,
            Err(error) => return Err(error),
        }
        Ok(self.is_held)
    }

    fn allocate(&self) -> io::Result<()> {
        if fs::metadata(&self.path).is_ok_and(|file| is_complete(&file)) {
            return Ok(());
        }
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.path)?;
        // With a margin, so that a disk is not full again after the next write.
        let octets = RESERVE_OCTETS + RESERVE_MARGIN_OCTETS;
        while let Err(error) = posix_fallocate(&file, 0, octets.cast_signed()) {
            if error != Errno::EINTR {
                return Err(error.into());
            }
        }
        file.set_len(RESERVE_OCTETS)
    }

    /// Frees the space.
    pub(super) fn release(&mut self) -> io::Result<()> {
        self.is_held = false;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Returns whether a reserve of an earlier run still occupies its space.
fn is_complete(file: &Metadata) -> bool {
    /// The unit of [`MetadataExt::blocks`], on every file system.
    const BLOCK: u64 = 512;
    file.len() == RESERVE_OCTETS && file.blocks() * BLOCK >= RESERVE_OCTETS
}

/// Returns whether a write failed because there is no space.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
