//! The BGP ports in the files of this host's BGP daemons, which no resource of the datastore names.
//! The packet filter closes them to workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use calico_model::BGP_PORT;
use daemon_common::config::{Source, beside};
use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;
use serde::Deserialize;

use crate::calc::BgpPorts;
use crate::limits::BGP_FILES_CHECK;

/// The files of the BGP daemons, as the packages name them.
const NAMES: [&str; 2] = ["bgp-client.toml", "route-reflector.toml"];

/// The files to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BgpFilePaths {
    /// Files of the packages that exist: beside this file of Felix, otherwise in the packages'
    /// directory.
    Beside(PathBuf),
    /// These.
    Named(Vec<PathBuf>),
}

impl BgpFilePaths {
    fn now(&self) -> BTreeSet<PathBuf> {
        match self {
            Self::Beside(own) => NAMES.iter().filter_map(|name| beside(own, name)).collect(),
            Self::Named(paths) => paths.iter().cloned().collect(),
        }
    }
}

/// The keys of a file that concern ports. The daemon itself checks all others.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    listen: Vec<SocketAddr>,
    #[serde(default)]
    guard: Guard,
    #[serde(default)]
    neighbor: Vec<Neighbor>,
}

#[derive(Default, Deserialize)]
struct Guard {
    #[serde(default)]
    ports: Vec<u16>,
}

#[derive(Deserialize)]
struct Neighbor {
    address: IpAddr,
    port: Option<u16>,
}

impl From<File> for BgpPorts {
    fn from(file: File) -> Self {
        let ports = file.listen.iter().map(SocketAddr::port);
        let neighbors = file.neighbor.iter().map(|neighbor| {
            let port = neighbor.port.unwrap_or(BGP_PORT);
            SocketAddr::new(neighbor.address.to_canonical(), port)
        });
        Self {
            // The port 0 stands for one that the kernel chooses.
            ports: ports
                .chain(file.guard.ports)
                .filter(|port| *port != 0)
                .collect(),
            neighbors: neighbors.collect(),
            incomplete: false,
        }
    }
}

/// Metadata that change with the content of a file.
type Stamp = (u64, u64, u64, i64, i64);

/// A file as it was read last.
#[derive(Debug, Default)]
struct Known {
    /// `None` if there was no file.
    stamp: Option<Stamp>,
    /// The ports of its last readable content.
    ports: Option<BgpPorts>,
    problem: Option<String>,
}

/// Reads the files when they change.
#[derive(Debug)]
pub(crate) struct BgpFiles {
    paths: BgpFilePaths,
    files: BTreeMap<PathBuf, Known>,
    look_at: Instant,
    found: BgpPorts,
}

impl BgpFiles {
    pub(crate) fn new(now: Instant, paths: BgpFilePaths) -> Self {
        Self {
            paths,
            files: BTreeMap::new(),
            look_at: now,
            found: BgpPorts::default(),
        }
    }

    /// Sets the files, which are read again at once.
    pub(crate) fn reconfigure(&mut self, now: Instant, paths: BgpFilePaths) {
        (self.paths, self.look_at) = (paths, now);
    }

    /// Reads changed files if that is due. Returns the ports of all files if they differ from the
    /// last returned ones. A file that becomes unreadable keeps its last ports.
    pub(crate) fn look(&mut self, now: Instant) -> Option<BgpPorts> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now + BGP_FILES_CHECK;
        let paths = self.paths.now();
        self.files.retain(|path, _| paths.contains(path));
        for path in paths {
            let known = self.files.entry(path.clone()).or_default();
            known.look(&path);
        }
        let mut all = BgpPorts::default();
        for known in self.files.values() {
            let Some(ports) = &known.ports else {
                all.incomplete = true;
                continue;
            };
            all.ports.extend(&ports.ports);
            all.neighbors.extend(&ports.neighbors);
        }
        (all != self.found).then(|| {
            self.found = all.clone();
            all
        })
    }

    /// Returns when the files are looked at next.
    pub(crate) const fn poll_timeout(&self) -> Instant {
        self.look_at
    }

    /// Describes the unreadable files.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        self.files.iter().filter_map(|(path, known)| {
            let problem = known.problem.as_ref()?;
            let effect = match known.ports {
                Some(_) => "its last ports stay closed to workloads",
                None => "workloads open no TCP connection to this host, and its neighbors are open",
            };
            Some(format!("{}: {problem}; {effect}", path.display()))
        })
    }
}

impl Known {
    fn look(&mut self, path: &Path) {
        let stamp = std::fs::metadata(path).ok().map(|of| {
            (
                of.dev(),
                of.ino(),
                of.len(),
                of.mtime()
                    .wrapping_mul(1_000_000_000)
                    .wrapping_add(of.mtime_nsec()),
                of.ctime()
                    .wrapping_mul(1_000_000_000)
                    .wrapping_add(of.ctime_nsec()),
            )
        });
        // A file that could not be read is read again: the reason may have been a shortage.
        if stamp.is_some() && stamp == self.stamp && self.problem.is_none() {
            return;
        }
        self.stamp = stamp;
        match read(path) {
            Ok(ports) => (self.ports, self.problem) = (Some(ports), None),
            Err(reason) => {
                if self.problem.as_ref() != Some(&reason) {
                    emit(Event::BgpFileUnreadable {
                        path: Text::new(path.display()),
                        reason: Text::new(&reason),
                    });
                }
                self.problem = Some(reason);
            }
        }
    }
}

/// Reads the ports of a file. The reason does not quote it, because it may contain passwords.
fn read(path: &Path) -> Result<BgpPorts, String> {
    let source = Source::read(path).map_err(|report| report.to_string())?;
    let file: Result<File, _> = toml::from_str(source.text());
    let reason = "it is no valid file of a BGP daemon; `--check` of that daemon has the reason";
    file.map(BgpPorts::from).map_err(|_| reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(0);

    /// A directory with the file of a BGP daemon, and its reader.
    struct World {
        directory: tempfile::TempDir,
        files: BgpFiles,
        now: Instant,
    }

    impl World {
        fn new(text: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let paths = BgpFilePaths::Beside(directory.path().join("felix.toml"));
            let files = BgpFiles::new(NOW, paths);
            let world = Self {
                directory,
                files,
                now: NOW,
            };
            world.write(text);
            world
        }

        fn path(&self) -> PathBuf {
            self.directory.path().join("bgp-client.toml")
        }

        /// Replaces the file as editors do, so that its inode differs.
        fn write(&self, text: &str) {
            let new = self.directory.path().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, self.path()).unwrap();
        }

        fn look(&mut self) -> Option<BgpPorts> {
            let found = self.files.look(self.now);
            self.now = self.files.poll_timeout();
            found
        }
    }

    fn ports(ports: &[u16], neighbors: &[&str]) -> BgpPorts {
        BgpPorts {
            ports: ports.iter().copied().collect(),
            neighbors: neighbors.iter().map(|at| at.parse().unwrap()).collect(),
            incomplete: false,
        }
    }

    const FILE: &str = "asn = 64512\nlisten = [\"0.0.0.0:1790\", \"[::]:1791\", \"127.0.0.1:0\"]\n\
        [guard]\nports = [1792]\n[[neighbor]]\naddress = \"10.0.0.1\"\nport = 8179\n\
        password = \"word\"\n[[neighbor]]\naddress = \"fd00::1\"\n";

    #[test]
    fn ports_of_a_file_are_found_and_followed() {
        let mut world = World::new(FILE);
        let all = ports(&[1790, 1791, 1792], &["10.0.0.1:8179", "[fd00::1]:179"]);
        assert_eq!(world.look(), Some(all));
        assert_eq!(world.look(), None, "nothing has changed");
        world.write("listen = []\n");
        assert_eq!(world.files.look(NOW), None, "it is not due");
        assert_eq!(world.look(), Some(BgpPorts::default()));
        world.write("guard.ports = [7]\n");
        assert_eq!(world.look(), Some(ports(&[7], &[])));
        std::fs::remove_file(world.path()).unwrap();
        assert_eq!(world.look(), Some(BgpPorts::default()));
        assert_eq!(world.files.problems().count(), 0);
    }

    #[test]
    fn unreadable_file_keeps_its_last_ports() {
        let mut world = World::new("guard.ports = [7]\n");
        assert_eq!(world.look(), Some(ports(&[7], &[])));
        for bad in [
            "listen = 7\n",
            "[[neighbor]]\nport = 8\n",
            "password = \"word\n",
        ] {
            world.write(bad);
            assert_eq!(world.look(), None);
            let problem: Vec<String> = world.files.problems().collect();
            assert!(problem[0].contains("last ports"), "{problem:?}");
            assert!(!problem[0].contains("word"), "{problem:?}");
        }
        world.write("guard.ports = [8]\n");
        assert_eq!(world.look(), Some(ports(&[8], &[])));
        assert_eq!(world.files.problems().count(), 0);
    }

    #[test]
    fn unreadable_file_is_read_again_without_a_change() {
        let mut world = World::new("guard.ports = [7]\n");
        assert_eq!(world.look(), Some(ports(&[7], &[])));
        // Reading failed once, as without free file descriptors.
        let known = world.files.files.values_mut().next().unwrap();
        (known.ports, known.problem) = (None, Some("too many open files".into()));
        assert_eq!(world.look(), None, "the ports are the same");
        assert_eq!(world.files.problems().count(), 0);
    }

    #[test]
    fn file_that_cannot_be_examined_leaves_ports_unknown() {
        let mut world = World::new(FILE);
        std::fs::remove_file(world.path()).unwrap();
        std::os::unix::fs::symlink(world.path(), world.path()).unwrap();
        assert!(world.look().unwrap().incomplete);
        assert_eq!(world.files.problems().count(), 1);
    }

    #[test]
    fn file_that_was_never_readable_leaves_ports_unknown() {
        let mut world = World::new("listen =");
        assert!(world.look().unwrap().incomplete);
        world.write("");
        assert_eq!(world.look(), Some(BgpPorts::default()));
    }

    #[test]
    fn named_file_that_is_missing_leaves_ports_unknown() {
        let mut world = World::new(FILE);
        let missing = world.directory.path().join("missing.toml");
        let paths = BgpFilePaths::Named(vec![missing]);
        world.files.reconfigure(NOW, paths);
        let found = world.files.look(NOW).unwrap();
        assert_eq!((found.incomplete, found.ports), (true, BTreeSet::new()));
    }
}
