//! A lab: a directory, a pid namespace, and the first host.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sched::{CloneFlags, unshare};

use crate::enclose::{private_mounts, private_run};
use crate::init::Init;
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
