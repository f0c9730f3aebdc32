//! A container's network namespace.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, setns};

use crate::failure::{Code, Failure};

/// A network namespace, by its file.
#[derive(Debug)]
pub(crate) struct Netns {
    file: File,
    path: PathBuf,
}

impl Netns {
    /// Opens a namespace; `None` if it no longer exists.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, Failure> {
        match File::open(path) {
            Ok(file) => Ok(Some(Self {
                file,
                path: path.to_owned(),
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let message = format!("network namespace {}: {error}", path.display());
                Err(Failure::new(Code::Io, message))
            }
        }
    }

    /// Opens a namespace that must exist.
    pub(crate) fn must_open(path: Option<&Path>) -> Result<Self, Failure> {
        let gone = |path: &Path| {
            let message = format!("network namespace {} is not there", path.display());
            Failure::new(Code::UnknownContainer, message)
        };
        let path = path.ok_or_else(|| Failure::new(Code::Environment, "CNI_NETNS is missing"))?;
        Self::open(path)?.ok_or_else(|| gone(path))
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns its path, as passed by the runtime.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a closure in the namespace, on a new thread, because a thread that has entered another
    /// namespace is not reused.
    pub(crate) fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        let fail = |error: &dyn std::fmt::Display| {
            let message = format!(
                "entering network namespace {}: {error}",
                self.path.display()
            );
            Failure::new(Code::Kernel, message)
        };
        thread::scope(|scope| {
            let entered = thread::Builder::new().spawn_scoped(scope, || {
                setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|error| fail(&error))?;
                Ok(act())
            });
            match entered.map_err(|error| fail(&error))?.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}
