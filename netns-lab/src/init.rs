//! The init process of a lab, and helpers of labs and hosts.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sched::{CloneFlags, unshare};

use crate::Error;

/// A pid namespace, held by its first process: `cat` on a pipe of which this process holds the
/// other end.
#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) namespace: File,
    child: Child,
}

impl Init {
    pub(crate) fn start() -> Result<Self, Error> {
        // In another thread: a thread that has unshared its children's pid namespace cannot start
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

/// Creates `directory` if it does not exist.
pub(crate) fn ensure_directory(directory: &Path) -> Result<(), Error> {
    fs::create_dir_all(directory)
        .map_err(|e| Error::io("creating", directory.display().to_string(), e))
}

/// Opens a namespace of the calling thread.
pub(crate) fn thread_namespace(kind: &'static str) -> Result<File, Error> {
    File::open(format!("/proc/thread-self/ns/{kind}"))
        .map_err(|e| Error::io("opening namespace", kind, e))
}
