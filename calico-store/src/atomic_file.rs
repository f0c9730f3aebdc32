//! Atomic replacement of files.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces a file atomically: `fill` writes a temporary file beside it, which is flushed to disk
/// and then renamed. Until then the old file stays, and after a failure it stays alone. Only its
/// owner may read the new file. If the directory cannot be flushed after the rename, the error has
/// [`io::ErrorKind::Other`]: the old file is no longer there.
pub fn replace<E>(
    path: &Path,
    failed: impl Fn(io::Error) -> E,
    fill: impl FnOnce(&File) -> Result<(), E>,
) -> Result<File, E> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .map_err(&failed)?;
    let written = fill(&file)
        .and_then(|()| file.sync_all().map_err(&failed))
        .and_then(|()| fs::rename(&beside, path).map_err(&failed));
    if let Err(error) = written {
        // It may fill the disk.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))
        .and_then(|directory| directory.sync_all())
        .map_err(|error| failed(io::Error::other(error)))?;
    Ok(file)
}
