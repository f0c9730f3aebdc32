//! A file that a load of the table writes beside the control socket of a daemon without permission
//! to read the table. It records the loaded entries, the network namespace and the boot, but does
//! not prove that the table still exists.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cover::Cover;
use crate::limits::RECORD_OCTETS_MAX;

#[derive(Serialize, Deserialize)]
struct Record {
    boot: String,
    network: u64,
    cover: Cover,
}

/// Returns the path of the record of a daemon with this control socket.
pub fn path(control: &Path) -> PathBuf {
    control.with_extension("guard")
}

/// Writes a record, replacing an older one.
///
/// # Errors
///
/// The file cannot be written.
pub fn write(path: &Path, cover: &Cover) -> io::Result<()> {
    let record = Record {
        boot: boot()?,
        network: network()?,
        cover: cover.clone(),
    };
    let text = serde_json::to_vec(&record)?;
    // The directory belongs to the daemon's user, and this process is root: it neither follows nor
    // opens existing files.
    let new = path.with_extension("guard-new");
    remove(&new)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&new)?;
    file.write_all(&text)?;
    // Readable for the daemon's user, whatever the unit's UMask= is.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    fs::rename(&new, path)
}

/// Removes a record; a missing one is not an error.
///
/// # Errors
///
/// The file exists and cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads a record. `None` if it does not exist, or belongs to another boot or network namespace.
pub fn read(path: &Path) -> Option<Cover> {
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    file.take(RECORD_OCTETS_MAX).read_to_end(&mut text).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    let here = (boot().ok()?, network().ok()?);
    (here == (record.boot, record.network)).then_some(record.cover)
}

fn boot() -> io::Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

/// Returns the inode number of the calling thread's network namespace.
fn network() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::{Mode, umask};

    #[test]
    fn a_record_of_another_boot_or_namespace_does_not_count() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = path(&directory.path().join("rr.sock"));
        assert_eq!(read(&file), None);
        let cover = Cover {
            ports: [179].into(),
            peers: [([10, 0, 0, 9], 1790).into()].into(),
            users: [0, 998].into(),
        };
        write(&file, &cover).expect("written");
        let before = umask(Mode::from_bits_truncate(0o077));
        write(&file, &cover).expect("written over an older one");
        umask(before);
        let mode = fs::metadata(&file).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "the daemon's user may read it");
        assert_eq!(read(&file), Some(cover));
        let text = fs::read_to_string(&file).expect("text");
        for (part, other) in [(boot().expect("boot"), "x".into()), {
            let number = network().expect("a namespace");
            (number.to_string(), (number + 1).to_string())
        }] {
            fs::write(&file, text.replace(&part, &other)).expect("written");
            assert_eq!(read(&file), None, "{part}");
        }
        fs::write(&file, "{").expect("written");
        assert_eq!(read(&file), None);
        remove(&file).expect("removed");
        remove(&file).expect("not there");
    }

    #[test]
    fn a_link_at_the_place_of_a_record_is_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = path(&directory.path().join("rr.sock"));
        let victim = directory.path().join("victim");
        fs::write(&victim, "as it was").expect("written");
        for link in [file.clone(), file.with_extension("guard-new")] {
            std::os::unix::fs::symlink(&victim, link).expect("a link");
        }
        write(&file, &Cover::default()).expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("text"), "as it was");
        assert_eq!(read(&file), Some(Cover::default()));
    }
}
