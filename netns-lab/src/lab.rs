//! A lab: a directory, a pid namespace, and the first host.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sched::{CloneFlags, unshare};

use crate::enclose::{private_mounts, private_run};
use crate::init::Init;
use crate::{Error, Host};

/// A set of hosts on this machine, and their shared resources. Dropping it ends its processes.
#[derive(Debug)]
pub struct Lab {
    directory: PathBuf,
    root: Host,
    init: Option<Arc<Init>>,
}

impl Lab {
    /// Returns the lab of a process after [`crate::enclose()`] and [`crate::settle()`]; `directory`
    /// is the result of the latter.
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

    /// Creates a lab for a test: moves the *calling thread* into new network, mount and UTS
    /// namespaces (threads and tasks that it starts from now on are in them too) and opens a pid
    /// namespace for the lab's processes. Needs root, and a running tokio runtime.
    ///
    /// The kernel ends the lab's processes when this process ends, however it ends: the first
    /// process of their namespace waits for the end of a pipe that only this process holds.
    ///
    /// # Errors
    ///
    /// [`Error::Forbidden`] without root; otherwise the failed system call.
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

    /// Returns the lab's directory on its own tmpfs; `<directory>/<host>` is `/run/cambric` of a
    /// host.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the host with the namespaces of the calling process (or test thread).
    pub const fn root(&self) -> &Host {
        &self.root
    }

    /// Creates a host: separate network, mount and UTS namespaces, loopback up, duplicate address
    /// detection off (an address works at once), and a separate directory as `/run/cambric`.
    ///
    /// # Errors
    ///
    /// The failed system call.
    pub async fn host(&self, name: &str) -> Result<Host, Error> {
        let host = Host::create(name, &self.directory, self.init.clone())?;
        host.begin().await?;
        Ok(host)
    }
}
