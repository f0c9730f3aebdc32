//! A lab: a directory, a pid namespace, and the first host.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use nix::sched::{CloneFlags, unshare};

use crate::enclose::{private_mounts, private_run};
use crate::host::thread_namespace;
use crate::{Error, Host};

/// A set of hosts on this machine, and what they share. Dropping it ends its processes.
#[derive(Debug)]
pub struct Lab {
    directory: PathBuf,
    root: Host,
    init: Option<Arc<Init>>,
}

impl Lab {
    /// The lab of a process that went through [`crate::enclose()`] and [`crate::settle()`];
    /// `directory` is what the latter returned.
    ///
    /// # Errors
    ///
    /// If the namespaces of this process cannot be opened.
    pub async fn enclosed(directory: PathBuf) -> Result<Self, Error> {
        let root = Host::current("fabric", &directory, None)?;
        root.begin().await?;
        Ok(Self {
            directory,
            root,
            init: None,
        })
    }

    /// A lab for a test: moves the *calling thread* into fresh network, mount and UTS namespaces
    /// (threads and tasks it starts from now on are in them too) and opens a pid namespace for
    /// the lab's processes. Needs root, and a running tokio runtime.
    ///
    /// The lab's processes are ended by the kernel when this process ends, however it ends: the
    /// first process of their namespace waits for the end of a pipe that only we hold.
    ///
    /// # Errors
    ///
    /// [`Error::Forbidden`] without root; else whatever system call failed.
    pub async fn new() -> Result<Self, Error> {
        let own = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS;
        unshare(own).map_err(|source| Error::Forbidden {
            namespace: "network",
            source,
        })?;
        private_mounts()?;
        let directory = private_run()?;
        let init = Arc::new(Init::start()?);
        let root = Host::current("fabric", &directory, Some(init.clone()))?;
        root.begin().await?;
        Ok(Self {
            directory,
            root,
            init: Some(init),
        })
    }

    /// The lab's directory on its own tmpfs; `<directory>/<host>` is `/run/cambric` of a host.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The host whose namespaces are those of the calling process (or test thread).
    pub const fn root(&self) -> &Host {
        &self.root
    }

    /// A new host: own network, mount and UTS namespace, loopback up, duplicate address
    /// detection off (an address works at once), and a directory of its own as `/run/cambric`.
    ///
    /// # Errors
    ///
    /// Whatever system call failed.
    pub async fn host(&self, name: &str) -> Result<Host, Error> {
        let host = Host::create(name, &self.directory, self.init.clone())?;
        host.begin().await?;
        Ok(host)
    }
}

/// A pid namespace, kept by its first process: `cat` on a pipe of which we hold the other end.
#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) namespace: File,
    child: Child,
}

impl Init {
    fn start() -> Result<Self, Error> {
        // Not in this thread: one that has unshared its children's pid namespace can start no
        // threads any more.
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    unshare(CloneFlags::CLONE_NEWPID).map_err(|source| Error::Forbidden {
                        namespace: "pid",
                        source,
                    })?;
                    let child = Command::new("cat")
                        .stdin(Stdio::piped())
                        .stdout(Stdio::null())
                        .spawn()
                        .map_err(|e| Error::io("starting", "cat", e))?;
                    let namespace = thread_namespace("pid_for_children")?;
                    Ok(Self { namespace, child })
                })
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Creates `directory` if it is not there yet.
pub(crate) fn ensure_directory(directory: &Path) -> Result<(), Error> {
    fs::create_dir_all(directory)
        .map_err(|e| Error::io("creating", directory.display().to_string(), e))
}
