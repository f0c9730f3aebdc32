//! Atomic replacement of files.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces a file atomically: `fill` writes a temporary file beside it, which is flushed to disk
/// and then renamed. Until then the old file stays, and after a failure it stays alone. Only its
/// owner may read the new file. A path that is a link stays one: the file at its [`target`] is replaced.
/// If the directory cannot be flushed after the rename, the error has
/// [`io::ErrorKind::Other`]: the old file is no longer there.
pub fn replace<E>(
    path: &Path,
    failed: impl Fn(io::Error) -> E,
    fill: impl FnOnce(&File) -> Result<(), E>,
) -> Result<File, E> {
    let path = &*target(path);
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

/// Returns the file to which a path leads: that of the link, or the path itself.
pub fn target(path: &Path) -> PathBuf {
    let parent = path.parent().unwrap_or_else(|| Path::new(""));
    fs::read_link(path).map_or_else(|_| path.to_owned(), |target| parent.join(target))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn file_behind_a_link_is_replaced_and_the_link_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let (link, file) = (
            directory.path().join("link"),
            directory.path().join("own/file"),
        );
        fs::create_dir(directory.path().join("own")).expect("made");
        symlink("own/file", &link).expect("a link without a file");
        for text in ["first", "second"] {
            replace(
                &link,
                |error| error,
                |mut file| file.write_all(text.as_bytes()),
            )
            .expect("written");
            assert_eq!(fs::read_link(&link).expect("a link"), Path::new("own/file"));
            assert_eq!(fs::read_to_string(&file).expect("a file"), text);
        }
        assert_eq!(target(&link), file);
        assert_eq!(target(&file), file);
        let beside = fs::read_dir(directory.path().join("own")).expect("a directory");
        assert_eq!(beside.count(), 1, "the temporary file is renamed");
    }
}
