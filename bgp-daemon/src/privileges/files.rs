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

use calico_store::shared::target_of_file;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use nix::unistd::geteuid;

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
    "/",
    "/boot",
    "/dev",
    "/dev/shm",
    "/etc",
    "/etc/kubernetes",
    "/etc/kubernetes/pki",
    "/etc/pki",
    "/etc/pki/tls",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/private",
    "/etc/ssl",
    "/etc/ssl/certs",
    "/etc/ssl/private",
    "/home",
    "/mnt",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/tmp",
    "/usr",
    "/usr/local",
    "/usr/local/etc",
    "/usr/local/share",
    "/usr/share",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/tmp",
];

/// The directory whose directories have the files of one user each.
const HOMES: &str = "/home";

/// The files of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    read: BTreeSet<PathBuf>,
    write: BTreeSet<PathBuf>,
}

/// Landlock and seccomp leave sockets with a path open, for the journal and the service manager.
const OF_ROOT: &str = "the daemon runs as root, and reaches sockets that only root may use, such as a \
                       container runtime's: use the packaged unit, or a user of its own";

impl Files {
    /// Adds a file that is read, also after another file has replaced it, or the link that it is.
    pub fn read_file(&mut self, path: &Path) {
        let link = directory_of(path).and_then(|directory| Some(directory.join(path.file_name()?)));
        for path in [link, fs::canonicalize(path).ok()].into_iter().flatten() {
            let directory = path.parent().filter(|directory| !is_shared(directory));
            let directory = directory.map(Path::to_owned);
            self.read.insert(directory.unwrap_or(path));
        }
    }

    /// Adds a directory whose files are read.
    pub fn read_directory(&mut self, path: &Path) {
        self.read.extend(fs::canonicalize(path));
    }

    /// Adds a file or socket that is made, replaced and removed: so are the other files of its
    /// directory, which is made if it is missing. Of a link, the file to which it leads is replaced.
    pub fn write_file(&mut self, path: &Path) {
        let path = &*target_of_file(path);
        // A socket in it is bound later, and reports an error.
        if let Some(parent) = path.parent() {
            let _ = fs::create_dir_all(parent);
        }
        self.write.extend(directory_of(path));
    }

    /// Returns the files and sockets beyond its own that the process reaches nevertheless, each with
    /// the remedy.
    pub(super) fn excess(&self) -> Vec<String> {
        let shared = self.write.iter().filter(|directory| is_shared(directory));
        let mut excess: Vec<String> = shared
            .map(|directory| {
                let directory = directory.display();
                format!(
                    "all of {directory} is writable: set `control` and `datastore_snapshot.file` to \
                     files in a directory of their own, such as those of the packaged unit"
                )
            })
            .collect();
        if geteuid().is_root() {
            excess.push(OF_ROOT.to_owned());
        }
        excess
    }

    /// Confines the writes of the calling thread, and of the processes that it will start, to these
    /// files. It reads and executes all that its user may.
    pub(super) fn confine_writes(&self) -> Result<RestrictionStatus, RulesetError> {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_write(ABI::V5))?
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?
            .create()?
            .add_rules(path_beneath_rules(
                &self.write,
                writing() & AccessFs::from_write(ABI::V5),
            ))?
            .restrict_self()
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
            // The journal and the service manager have no abstract sockets.
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?
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

/// Returns the directory of a file, without links; `None` if it is missing.
fn directory_of(path: &Path) -> Option<PathBuf> {
    let parent = path.parent()?;
    let is_bare = parent == Path::new("");
    fs::canonicalize(if is_bare { Path::new(".") } else { parent }).ok()
}

/// Whether a directory has files of many programs. Its path has no links.
fn is_shared(directory: &Path) -> bool {
    let is_home = directory.parent() == Some(Path::new(HOMES));
    is_home || SHARED.iter().any(|shared| directory == Path::new(shared))
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
        let directory = tempfile::tempdir().expect("a directory");
        let directory = fs::canonicalize(directory.path()).expect("it is there");
        let mut files = Files::default();
        files.read_file(&directory.join("rr.toml"));
        files.read_file(Path::new("/etc/../etc/nonexistent.toml"));
        files.read_file(Path::new("/nonexistent/cambric/rr.toml"));
        files.read_file(Path::new("nonexistent.toml"));
        let own = std::env::current_dir().expect("a directory");
        let expected = [directory, own, "/etc/nonexistent.toml".into()];
        assert_eq!(files.read, expected.into());
    }

    #[test]
    fn file_in_a_home_or_among_keys_is_allowed_alone() {
        let home = Path::new(HOMES).join("alice");
        assert!(is_shared(&home) && !is_shared(&home.join("cambric")));
        for directory in ["/", "/etc/ssl/private", "/usr/local/etc"] {
            assert!(is_shared(Path::new(directory)), "{directory}");
        }
        for directory in ["/etc/cambric", "/run/cambric-route-reflector"] {
            assert!(!is_shared(Path::new(directory)), "{directory}");
        }
    }

    #[test]
    fn shared_directory_that_is_writable_is_named_with_the_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut files = Files::default();
        files.write_file(&directory.path().join("rr.sock"));
        let of_root = usize::from(geteuid().is_root());
        assert_eq!(files.excess().len(), of_root, "{:?}", files.excess());
        files.write_file(Path::new("/var/../tmp/rr.sock"));
        let excess = files.excess();
        assert_eq!(excess.len(), 1 + of_root, "{excess:?}");
        let remedy = "all of /tmp is writable: set `control`";
        assert!(excess[0].starts_with(remedy), "{excess:?}");
    }

    #[test]
    fn written_link_allows_the_directory_of_its_target_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = fs::canonicalize(directory.path()).expect("it is there");
        let (common, own) = (directory.join("common"), directory.join("own"));
        fs::create_dir(&common).expect("made");
        let link = common.join("rr.snapshot");
        std::os::unix::fs::symlink("../own/rr.snapshot", &link).expect("a link");
        let mut files = Files::default();
        files.write_file(&link);
        assert_eq!(files.write, [own].into());
    }

    #[test]
    fn target_of_a_link_is_allowed_with_the_link() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = fs::canonicalize(directory.path()).expect("it is there");
        let (from, to) = (directory.join("from"), directory.join("to"));
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
