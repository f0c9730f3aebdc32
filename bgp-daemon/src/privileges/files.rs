//! The files of a confined process, as rules of landlock.
//!
//! A rule belongs to the file or directory that has the path when the process is confined. A file
//! that another one replaces is a new file. So a configured file is allowed by its directory, and
//! only files in a shared directory, such as `/etc`, are allowed alone.

mod modules;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

/// Files of the machine that the C library's resolver and the daemon read, beside configured ones.
/// The files below `/proc` and `/sys` are made by the kernel; other processes' files there stay closed,
/// because a confined process may not trace another one.
const OF_MACHINE: &[&str] = &[
    "/proc",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/etc/localtime",
    "/usr/share/zoneinfo",
];

/// Files that the resolver and look-ups of users read. Many programs replace them.
const OF_RESOLVER: &[&str] = &[
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
];

/// Directories with files of many programs: a configured file in one of them is allowed alone.
const SHARED: &[&str] = &[
    "/", "/etc", "/home", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/var", "/var/lib",
    "/var/run",
];

/// The files of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    read: BTreeSet<PathBuf>,
    write: BTreeSet<PathBuf>,
}

impl Files {
    /// Adds a file that is read, also after another file has replaced it.
    pub fn read_file(&mut self, path: &Path) {
        for path in [Some(path.to_owned()), fs::canonicalize(path).ok()] {
            let Some(path) = path else { continue };
            let directory = directory_of(&path);
            let is_shared = SHARED.iter().any(|shared| directory == Path::new(shared));
            self.read.insert(if is_shared { path } else { directory });
        }
    }

    /// Adds a directory whose files are read.
    pub fn read_directory(&mut self, path: &Path) {
        self.read.insert(path.to_owned());
    }

    /// Adds a file or socket that is made, replaced and removed: so are the other files of its
    /// directory, which is made if it is missing.
    pub fn write_file(&mut self, path: &Path) {
        let directory = directory_of(path);
        // A socket in it is bound later, and reports an error.
        let _ = fs::create_dir_all(&directory);
        self.write.insert(directory);
    }

    /// Confines the calling thread, and those that it will start, to these files.
    pub(super) fn confine(&self) -> Result<RestrictionStatus, RulesetError> {
        modules::load();
        let mut read = self.read.clone();
        read.extend(OF_MACHINE.iter().map(PathBuf::from));
        for path in OF_RESOLVER {
            let path = Path::new(path);
            let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            let mut target_only = Self::default();
            // Of systemd-resolved and NetworkManager, in directories of their own.
            target_only.read_file(&target);
            read.extend(target_only.read);
        }
        // ABI 5 has all rights of files. A further right, to connect to sockets by path, would close
        // the journal and the service manager.
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI::V5))?
            .scope(Scope::Signal)?
            .create()?
            .add_rules(path_beneath_rules(read, reading()))?
            .add_rules(path_beneath_rules(&self.write, writing()))?
            .restrict_self()
    }
}

/// Never to execute one: a confined process starts no program.
fn reading() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

fn writing() -> BitFlags<AccessFs> {
    reading()
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeSock
        | AccessFs::RemoveFile
}

fn directory_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    parent.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// Returns the ABI of landlock that is in effect, or why none is.
pub(super) fn abi(status: &RestrictionStatus) -> Result<u32, &'static str> {
    match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi as u32),
        LandlockStatus::NotEnabled => Err("the kernel has it, not enabled at boot (lsm=)"),
        LandlockStatus::NotImplemented => Err("the kernel does not have it"),
    }
}

/// Returns the files of the resolver that exist and cannot be read: another program has replaced
/// them.
pub(super) fn replaced() -> Vec<&'static str> {
    let is_closed = |path: &&&str| {
        let opened = File::open(path);
        opened.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    OF_RESOLVER.iter().filter(is_closed).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_file_is_allowed_by_its_directory() {
        let mut files = Files::default();
        files.read_file(Path::new("/nonexistent/cambric/rr.toml"));
        files.read_file(Path::new("/etc/nonexistent.toml"));
        files.read_file(Path::new("nonexistent.toml"));
        let expected = ["/etc/nonexistent.toml", "/nonexistent/cambric", "."];
        let read: Vec<&Path> = files.read.iter().map(PathBuf::as_path).collect();
        assert_eq!(read, expected.map(Path::new));
    }

    #[test]
    fn target_of_a_link_is_allowed_with_the_link() {
        let directory = tempfile::tempdir().expect("a directory");
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir(&from).expect("made");
        fs::create_dir(&to).expect("made");
        fs::write(to.join("key.pem"), "").expect("written");
        std::os::unix::fs::symlink(to.join("key.pem"), from.join("key.pem")).expect("a link");
        let mut files = Files::default();
        files.read_file(&from.join("key.pem"));
        assert!(
            files.read.contains(&from) && files.read.contains(&to),
            "{files:?}"
        );
    }
}
