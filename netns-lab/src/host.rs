//! A host: a network, a mount and a UTS namespace, held by file descriptors.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::sethostname;

use crate::Error;
use crate::enclose::RUN_DIRECTORY;
use crate::init::{Init, ensure_directory, thread_namespace};

/// One machine of a lab. Namespaces live as long as this value, or a process in them.
#[derive(Clone, Debug)]
pub struct Host {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    directory: PathBuf,
    network: File,
    mounts: File,
    uts: File,
    init: Option<Arc<Init>>,
}

/// The descriptors, in this process, of a host's namespaces: `/proc/<this process>/fd/<n>` lets
/// another process of the same user enter them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceFiles {
    /// Network namespace.
    pub network: i32,
    /// Mount namespace.
    pub mounts: i32,
    /// UTS namespace (the host name).
    pub uts: i32,
}

impl Host {
    /// Returns the namespaces of the calling thread.
    pub(crate) fn current(name: &str, lab: &Path, init: Option<Arc<Init>>) -> Result<Self, Error> {
        let directory = lab.join(name);
        ensure_directory(&directory)?;
        name_this(name, &directory)?;
        Self::open(name, directory, init)
    }

    pub(crate) fn create(name: &str, lab: &Path, init: Option<Arc<Init>>) -> Result<Self, Error> {
        let directory = lab.join(name);
        ensure_directory(&directory)?;
        in_thread(|| {
            let own = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS;
            unshare(own).map_err(|e| Error::system("new namespaces", name, e))?;
            name_this(name, &directory)?;
            Self::open(name, directory, init)
        })
    }

    fn open(name: &str, directory: PathBuf, init: Option<Arc<Init>>) -> Result<Self, Error> {
        let inner = Inner {
            name: name.to_owned(),
            directory,
            network: thread_namespace("net")?,
            mounts: thread_namespace("mnt")?,
            uts: thread_namespace("uts")?,
            init,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Performs the initial setup of a host.
    pub(crate) async fn begin(&self) -> Result<(), Error> {
        for scope in ["all", "default"] {
            self.sysctl(&format!("net/ipv6/conf/{scope}/accept_dad"), "0")?;
            self.sysctl(&format!("net/ipv6/conf/{scope}/dad_transmits"), "0")?;
            self.sysctl(&format!("net/ipv4/conf/{scope}/rp_filter"), "0")?;
        }
        self.links()?.up("lo").await
    }

    /// Returns its name, which is also its host name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the directory that is `/run/cambric` within this host, as a path of the lab's first
    /// host.
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// Returns the namespaces' descriptors.
    pub fn namespace_files(&self) -> NamespaceFiles {
        NamespaceFiles {
            network: self.inner.network.as_raw_fd(),
            mounts: self.inner.mounts.as_raw_fd(),
            uts: self.inner.uts.as_raw_fd(),
        }
    }

    /// Returns the network namespace, for moving links into it.
    pub(crate) fn network(&self) -> i32 {
        self.inner.network.as_raw_fd()
    }

    /// Runs `f` in a new thread in this host's namespaces. Sockets opened by `f` stay in them
    /// wherever they are used later; files are those of the host.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started or cannot enter the namespaces.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, Error> {
        in_thread(|| {
            self.enter()?;
            Ok(f())
        })
    }

    /// Runs `f` like [`Self::run`], with processes that `f` starts in the lab's pid namespace. `f`
    /// cannot start threads.
    pub(crate) fn run_to_spawn<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, Error> {
        in_thread(|| {
            self.enter()?;
            if let Some(init) = &self.inner.init {
                setns(&init.namespace, CloneFlags::CLONE_NEWPID)
                    .map_err(|e| Error::system("entering the pid namespace", self.name(), e))?;
            }
            Ok(f())
        })
    }

    fn enter(&self) -> Result<(), Error> {
        let fail = |e| Error::system("entering the namespaces", self.name(), e);
        // By default a thread shares its root and working directory with the others, and cannot
        // change its mount namespace while it does.
        unshare(CloneFlags::CLONE_FS).map_err(fail)?;
        setns(&self.inner.network, CloneFlags::CLONE_NEWNET).map_err(fail)?;
        setns(&self.inner.uts, CloneFlags::CLONE_NEWUTS).map_err(fail)?;
        setns(&self.inner.mounts, CloneFlags::CLONE_NEWNS).map_err(fail)
    }

    /// Writes a sysctl: `net/ipv4/ip_forward`.
    ///
    /// # Errors
    ///
    /// If the kernel rejects the value or has no such sysctl.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), Error> {
        let path = format!("/proc/sys/{key}");
        self.run(|| fs::write(&path, value))?
            .map_err(|e| Error::io("setting", key, e))
    }

    /// Reads a sysctl.
    ///
    /// # Errors
    ///
    /// If the kernel has no such sysctl.
    pub fn read_sysctl(&self, key: &str) -> Result<String, Error> {
        let path = format!("/proc/sys/{key}");
        let text = self
            .run(|| fs::read_to_string(&path))?
            .map_err(|e| Error::io("reading", key, e))?;
        Ok(text.trim().to_owned())
    }
}

/// Sets the host name and mounts of the calling thread's UTS and mount namespaces.
fn name_this(name: &str, directory: &Path) -> Result<(), Error> {
    sethostname(name).map_err(|e| Error::system("naming", name, e))?;
    let none = None::<&str>;
    mount(Some(directory), RUN_DIRECTORY, none, MsFlags::MS_BIND, none)
        .map_err(|e| Error::system("mount", RUN_DIRECTORY, e))
}

/// Runs `f` in a new thread, because a thread that has entered namespaces is not reused.
fn in_thread<T: Send>(f: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .spawn_scoped(scope, f)
            .map_err(|e| Error::io("starting", "a thread", e))?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
