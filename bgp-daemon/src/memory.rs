//! What a daemon leaves behind for its next start: that it was here, and which neighbours out of
//! ranges it had.
//!
//! It is a small file beside the control socket, in a directory that does not outlive the
//! machine's uptime. So its presence means a restart of the daemon alone (RFC 4724 §4.1).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use bgp_io::bgp_fsm::Instant;

/// The file, and what it holds.
#[derive(Debug)]
pub(crate) struct Memory {
    path: PathBuf,
    boot: String,
    written: Option<BTreeSet<IpAddr>>,
}

impl Memory {
    /// The memory of the daemon with this control socket, and the dynamic neighbours of its former
    /// self, if it was here since the machine has started.
    pub(crate) fn open(control: &Path) -> (Self, Option<BTreeSet<IpAddr>>) {
        let memory = Self {
            path: control.with_extension("restart"),
            boot: boot_id(),
            written: None,
        };
        let text = fs::read_to_string(&memory.path).ok();
        let former = text.and_then(|text| parse(&text, &memory.boot));
        (memory, former)
    }

    /// Keeps these neighbours in mind.
    ///
    /// # Errors
    ///
    /// The file cannot be written; it is tried again with the next change.
    pub(crate) fn keep(&mut self, neighbors: BTreeSet<IpAddr>) -> io::Result<()> {
        if self.written.as_ref() == Some(&neighbors) {
            return Ok(());
        }
        let mut text = format!("boot {}\n", self.boot);
        for neighbor in &neighbors {
            let _ = writeln!(text, "neighbor {neighbor}");
        }
        let new = self.path.with_extension("restart-new");
        self.written = Some(neighbors); // Also if it fails: once a change is enough.
        fs::write(&new, text)?;
        fs::rename(&new, &self.path)
    }

    /// Forgets everything: the next start is like the first.
    pub(crate) fn forget(&mut self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// When something is done that is wanted at any time: at once, but not again before a while has passed.
#[derive(Debug)]
pub(crate) struct Pace {
    apart: Duration,
    wanted_at: Option<Instant>,
    not_before: Instant,
}

impl Pace {
    /// So far apart.
    pub(crate) const fn new(apart: Duration) -> Self {
        Self {
            apart,
            wanted_at: None,
            not_before: Instant::ZERO,
        }
    }

    /// It is wanted.
    pub(crate) fn want(&mut self, now: Instant) {
        let at = now.max(self.not_before);
        self.wanted_at.get_or_insert(at);
    }

    /// When it is to be done.
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.wanted_at
    }

    /// It is done.
    pub(crate) fn done(&mut self, now: Instant) {
        self.wanted_at = None;
        self.not_before = now + self.apart;
    }
}

/// Tells one uptime of the machine from another; empty where the kernel does not say.
fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn parse(text: &str, boot: &str) -> Option<BTreeSet<IpAddr>> {
    let mut lines = text.lines();
    if lines.next()?.strip_prefix("boot ")? != boot {
        return None;
    }
    let neighbors = lines.filter_map(|line| line.strip_prefix("neighbor ")?.parse().ok());
    Some(neighbors.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session that comes up alone is noted before anything else happens; a thousand at once, some
    /// of which come up when the first was noted, take two turns.
    #[test]
    fn what_is_alone_is_done_at_once_and_what_comes_together_together() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut pace = Pace::new(Duration::from_millis(100));
        assert_eq!(pace.poll_timeout(), None);
        pace.want(at(5000));
        assert_eq!(pace.poll_timeout(), Some(at(5000)));
        pace.done(at(5000));
        assert_eq!(pace.poll_timeout(), None);
        let mut done = Vec::new();
        for millis in 5001..=5250 {
            pace.want(at(millis));
            if pace.poll_timeout() <= Some(at(millis)) {
                pace.done(at(millis));
                done.push(millis);
            }
        }
        assert_eq!(done, [5100, 5200]);
        // What was wanted last is not forgotten.
        assert_eq!(pace.poll_timeout(), Some(at(5300)));
        pace.done(at(5300));
        pace.want(at(9000));
        assert_eq!(pace.poll_timeout(), Some(at(9000)));
    }

    #[test]
    fn a_file_of_another_uptime_means_nothing() {
        let neighbors = BTreeSet::from([IpAddr::from([10, 0, 0, 2])]);
        let text = "boot one\nneighbor 10.0.0.2\nneighbor what?\n";
        assert_eq!(parse(text, "one"), Some(neighbors));
        assert_eq!(parse(text, "two"), None);
        assert_eq!(parse("", "one"), None);
        assert_eq!(parse("boot one\n", "one"), Some(BTreeSet::new()));
    }
}
