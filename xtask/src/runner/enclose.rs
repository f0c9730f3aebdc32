//! A test in namespaces of its own: network with a loopback link, processes, `/run` and `/tmp`.
//!
//! Two steps, because a pid namespace begins with a child: [`enclose()`] in the process that the
//! runner starts, which starts this program again as [`settle()`]. When the first process is
//! killed, the kernel kills all processes inside.

use std::env;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::Pid;

/// The exit code for a process that a signal ended.
const FAILED: u8 = 1;

/// This program, also after it has been rebuilt.
pub(super) const THIS: &str = "/proc/self/exe";

/// Runs a command in namespaces of its own. Returns its exit code.
///
/// # Errors
/// If the kernel refuses them.
pub fn enclose(command: &[String]) -> Result<u8> {
    let all = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWPID;
    unshare(all | CloneFlags::CLONE_NEWNS).context("namespaces")?;
    let mut inner = Command::new(THIS);
    inner.arg("settle").args(command);
    let code = inner
        .status()?
        .code()
        .and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(FAILED))
}

/// Runs as process 1 of the namespaces: mounts their own file systems, and runs the command.
/// Returns its exit code.
///
/// # Errors
/// If a mount is refused, or the command cannot be started.
pub fn settle(command: &[String]) -> Result<u8> {
    set_pdeathsig(Signal::SIGKILL).context("the signal of the parent's end")?;
    let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let none = None::<&str>;
    mount(none, "/", none, flags, none).context("private mounts")?;
    let Some((program, arguments)) = command.split_first() else {
        bail!("no command");
    };
    let directory = env::current_dir()?;
    cover(&[crate::root(), directory.clone(), PathBuf::from(program)])?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none).context("/proc")?;
    let up = Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    if !up.context("ip")?.success() {
        bail!("the loopback link");
    }
    let mut test = Command::new(program);
    let test = test.args(arguments).current_dir(directory).spawn();
    let test = Pid::from_raw(test.with_context(|| program.clone())?.id().cast_signed());
    // Process 1 also inherits the children of processes that have ended.
    loop {
        match wait()? {
            WaitStatus::Exited(process, code) if process == test => {
                return Ok(u8::try_from(code).unwrap_or(FAILED));
            }
            WaitStatus::Signaled(process, signal, _) if process == test => {
                bail!("ended by {signal}");
            }
            _ => {}
        }
    }
}

/// Covers `/run` and `/tmp` with file systems of this process. The paths in `kept` stay visible at
/// their places.
fn cover(kept: &[PathBuf]) -> Result<()> {
    let below = |path: &&PathBuf| ["/run", "/tmp"].iter().any(|top| path.starts_with(top));
    let mut open = Vec::new();
    for path in kept.iter().filter(below) {
        // A file is kept with its directory.
        let path = if path.is_dir() {
            path.clone()
        } else {
            parent(path)
        };
        open.push((File::open(&path)?, path));
    }
    for (top, mode) in [("/run", "mode=755"), ("/tmp", "mode=1777")] {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("test"), top, Some("tmpfs"), flags, Some(mode)).context(top)?;
    }
    for (file, path) in open {
        fs::create_dir_all(&path)?;
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(
            Some(source.as_str()),
            &path,
            None::<&str>,
            flags,
            None::<&str>,
        )
        .with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}

fn parent(path: &Path) -> PathBuf {
    path.parent().map_or_else(|| "/".into(), Path::to_owned)
}
