//! Moves a program into new namespaces.
//!
//! There are two steps, because a pid namespace starts with a child: [`enclose()`] in the process
//! that the user started, which then starts itself a second time; [`settle()`] in that child, which
//! is process 1 of the lab. When process 1 dies, however it dies, the kernel ends every process of
//! the lab, and with the last process it removes the namespaces, their links and their tmpfs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{getegid, geteuid};

use crate::Error;

/// How a process was moved into namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enclosure {
    /// As root: the namespaces belong to the machine's own user namespace.
    Root,
    /// Within a user namespace: root inside, an ordinary user outside.
    User,
}

/// Moves this process into new network, UTS and IPC namespaces, and its children into a new pid
/// namespace; without root, into a user namespace first. The next child is process 1 and must call
/// [`settle()`].
///
/// The process must have one thread only (the kernel rejects a user namespace otherwise).
///
/// # Errors
///
/// [`Error::Forbidden`] if the system forbids such namespaces.
pub fn enclose() -> Result<Enclosure, Error> {
    let (uid, gid) = (geteuid(), getegid());
    let inner = CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWPID;
    if uid.is_root() {
        match unshare(inner) {
            Ok(()) => return Ok(Enclosure::Root),
            // Root of a container without CAP_SYS_ADMIN: a user namespace may still be possible.
            Err(Errno::EPERM) => {}
            Err(source) => {
                return Err(Error::Forbidden {
                    namespace: "network and pid",
                    source,
                });
            }
        }
    }
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|source| Error::Forbidden {
        namespace: "user",
        source,
    })?;
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text).map_err(|e| Error::io("writing", file, e))
    };
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("0 {uid} 1"))?;
    map("gid_map", format!("0 {gid} 1"))?;
    unshare(inner).map_err(|source| Error::Forbidden {
        namespace: "network and pid",
        source,
    })?;
    Ok(Enclosure::User)
}

/// Prepares process 1 of an enclosed lab: in a private mount namespace, `/proc` shows this pid
/// namespace, and `/run` is an empty tmpfs. Returns the lab's directory, on that tmpfs. The parent
/// still sees the machine's files.
///
/// # Errors
///
/// [`Error::System`] if a mount fails.
pub fn settle() -> Result<PathBuf, Error> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|source| Error::Forbidden {
        namespace: "mount",
        source,
    })?;
    private_mounts()?;
    let proc_flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        proc_flags,
        None::<&str>,
    )
    .map_err(|e| Error::system("mount", "/proc", e))?;
    more_files()?;
    private_run()
}

/// Raises the limit of open files to the maximum: every host needs some, and the usual limit of
/// 1024 is meant for programs with select(2).
fn more_files() -> Result<(), Error> {
    let fail = |e| Error::system("raising the limit", "open files", e);
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(fail)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(fail)
}

/// Makes the mounts of this mount namespace private, so that changes do not propagate.
pub(crate) fn private_mounts() -> Result<(), Error> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .map_err(|e| Error::system("making private the mounts", "/", e))
}

/// Mounts a tmpfs on `/run`, and creates the lab's directory there.
pub(crate) fn private_run() -> Result<PathBuf, Error> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("lab"), "/run", Some("tmpfs"), flags, Some("mode=755"))
        .map_err(|e| Error::system("mount", "/run", e))?;
    let directory = Path::new("/run/lab").to_owned();
    fs::create_dir(&directory).map_err(|e| Error::io("creating", "/run/lab", e))?;
    fs::create_dir(RUN_DIRECTORY).map_err(|e| Error::io("creating", RUN_DIRECTORY, e))?;
    for daemon in DAEMONS {
        let own = format!("{RUN_DIRECTORY}-{daemon}");
        symlink(RUN_DIRECTORY, &own).map_err(|e| Error::io("creating", &own, e))?;
    }
    Ok(directory)
}

/// Directory of the files and control sockets of a host's daemons; in a lab, each host has its own.
pub(crate) const RUN_DIRECTORY: &str = "/run/cambric";

/// Daemons with a directory of their own where they are installed. In a lab it leads to that of the host,
/// so that `cambric show` finds the control sockets.
const DAEMONS: [&str; 3] = ["bgp-client", "route-reflector", "felix"];
