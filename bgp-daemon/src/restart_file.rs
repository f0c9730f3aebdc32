//! The file that a daemon leaves for its next start: it proves an earlier run, and has the
//! neighbors in ranges.
//!
//! It is a small file beside the control socket, in a directory that does not outlive the machine's
//! uptime. So its presence means a restart of the daemon alone (RFC 4724 §4.1).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use bgp_config::Intent;
use bgp_io::bgp_fsm::Instant;
use bgp_io::{Event, Speaker, StopMode, bgp_speaker};
use daemon_common::events::{self, Text};

use crate::limits::RESTART_FILE_PACE;
use crate::{Driver, DriverError, Round, Settings, restart};

/// The file and its content.
#[derive(Debug)]
pub(crate) struct RestartFile {
    path: PathBuf,
    boot: String,
    written: Option<BTreeSet<IpAddr>>,
    pace: Pace,
}

impl RestartFile {
    /// Opens the file of the daemon with this control socket. Also returns the dynamic neighbors of
    /// its predecessor, if there was one since the machine has started.
    pub(crate) fn open(control: &Path) -> (Self, Option<BTreeSet<IpAddr>>) {
        let mut file = Self {
            path: control.with_extension("restart"),
            boot: boot_id(),
            written: None,
            pace: Pace::new(RESTART_FILE_PACE),
        };
        file.pace.want(Instant::ZERO);
        let text = fs::read_to_string(&file.path).ok();
        let former = text.and_then(|text| parse(&text, &file.boot));
        (file, former)
    }

    /// Writes the neighbors that the next start needs; called by the first turn of a daemon and
    /// after each change of the neighbors.
    fn write(&mut self, now: Instant, speaker: &Speaker) {
        self.pace.done(now);
        if let Err(error) = self.keep(restart::remembered(speaker)) {
            events::emit(events::Event::RestartFileFailed {
                file: Text::new(self.path.display()),
                reason: Text::new(error),
            });
        }
    }

    /// Writes these neighbors to the file. A failed write is repeated with the next change.
    fn keep(&mut self, neighbors: BTreeSet<IpAddr>) -> io::Result<()> {
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
}

impl<S: Settings> Driver<S> for RestartFile {
    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        if self.pace.poll_timeout().is_some_and(|at| at <= round.now) {
            self.write(round.now, round.io.speaker());
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pace.poll_timeout()
    }

    fn observe(&mut self, now: Instant, _: &Speaker, event: &Event) {
        if changes_peers(event) {
            self.pace.want(now);
        }
    }

    /// A neighbor in a range may be statically configured now, or the other way round.
    fn adopted(&mut self, now: Instant, _: &Intent) {
        self.pace.want(now);
    }

    fn stopping(&mut self, speaker: &Speaker, now: Instant, mode: StopMode) {
        match mode {
            StopMode::GracefulRestart => self.write(now, speaker),
            // The next start is a first start.
            StopMode::Permanent => drop(fs::remove_file(&self.path)),
        }
    }
}

/// Returns whether an event may change the dynamic neighbors, or those that are awaited.
const fn changes_peers(event: &Event) -> bool {
    use bgp_speaker::Event as Of;
    matches!(
        event,
        Event::PeerRemoved(_) | Event::Speaker(Of::Up { .. } | Of::Selected { .. })
    )
}

/// Limits how often an action is repeated: at once, but not again before an interval has passed.
#[derive(Debug)]
struct Pace {
    apart: Duration,
    wanted_at: Option<Instant>,
    not_before: Instant,
}

impl Pace {
    /// Creates a pace with this interval.
    const fn new(apart: Duration) -> Self {
        Self {
            apart,
            wanted_at: None,
            not_before: Instant::ZERO,
        }
    }

    /// Requests the action.
    fn want(&mut self, now: Instant) {
        let at = now.max(self.not_before);
        self.wanted_at.get_or_insert(at);
    }

    /// Returns when the action is due.
    const fn poll_timeout(&self) -> Option<Instant> {
        self.wanted_at
    }

    /// Records that the action is done.
    fn done(&mut self, now: Instant) {
        self.wanted_at = None;
        self.not_before = now + self.apart;
    }
}

/// Returns an identifier of the machine's uptime; empty if the kernel does not provide it.
/// Returns the identifier of this uptime of the machine.
pub(crate) fn boot_id() -> String {
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

    /// A session that comes up alone is written before the next event; a thousand at once, some of
    /// which come up after the first was written, cause two writes.
    #[test]
    fn single_change_is_applied_at_once_and_bursts_together() {
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
        // The last request is not lost.
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
