//! The request to drain that a daemon has received on its control socket, in a file beside that socket:
//! it is in effect after a restart of the daemon, but not after one of the machine.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::restart_file::boot_id;

/// The file.
#[derive(Debug)]
pub(crate) struct DrainFile {
    path: PathBuf,
    boot: String,
}

impl DrainFile {
    /// Opens the file of the daemon with this control socket. Also returns the time of the request of
    /// its predecessor, if there was one since the machine has started.
    pub(crate) fn open(control: &Path) -> (Self, Option<String>) {
        let file = Self {
            path: control.with_extension("drain"),
            boot: boot_id(),
        };
        let text = fs::read_to_string(&file.path).ok();
        let since = text.and_then(|text| parse(&text, &file.boot));
        (file, since)
    }

    /// Writes the time of the request, or removes the file.
    ///
    /// # Errors
    ///
    /// The file cannot be written or removed.
    pub(crate) fn keep(&self, since: Option<&str>) -> io::Result<()> {
        let Some(since) = since else {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        };
        let new = self.path.with_extension("drain-new");
        fs::write(&new, format!("boot {}\nsince {since}\n", self.boot))?;
        fs::rename(&new, &self.path)
    }
}

fn parse(text: &str, boot: &str) -> Option<String> {
    let mut lines = text.lines();
    if lines.next()?.strip_prefix("boot ")? != boot {
        return None;
    }
    let since = lines.next()?.strip_prefix("since ")?;
    Some(since.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_stays_until_undrain_or_the_next_boot() {
        let directory = tempfile::tempdir().expect("a directory");
        let control = directory.path().join("bgp-client.sock");
        let (file, since) = DrainFile::open(&control);
        assert_eq!(since, None);
        file.keep(Some("2026-03-04T10:22:00Z")).expect("written");
        let (file, since) = DrainFile::open(&control);
        assert_eq!(since.as_deref(), Some("2026-03-04T10:22:00Z"));
        file.keep(None).expect("removed");
        file.keep(None).expect("it is removed already");
        assert_eq!(DrainFile::open(&control).1, None);
        assert_eq!(parse("boot one\nsince x\n", "two"), None);
        assert_eq!(parse("boot one\n", "one"), None);
    }
}
