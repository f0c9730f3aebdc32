//! Processes of a lab: started in a host, their output in a file, ended by pid.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, SysconfVar, sysconf};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

use crate::limits::LOG_TAIL_OCTETS;
use crate::{Error, Host, within};

/// A program to start, with its arguments and environment.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// Returns the program at `path` (absolute, or found in PATH), without arguments.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
}

/// A process in a host. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    pid: u32,
    child: Child,
}

impl Host {
    /// Starts `program` in this host, under `name`; its output goes to `<name>.log` in the host's
    /// directory. Needs a running tokio runtime.
    ///
    /// # Errors
    ///
    /// If the log cannot be written or the program not be started.
    pub fn spawn(&self, name: &str, program: &Program) -> Result<Process, Error> {
        let log = self.directory().join(format!("{name}.log"));
        let path = log.display().to_string();
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|e| Error::io("opening", path.as_str(), e))?;
        let errors = output
            .try_clone()
            .map_err(|e| Error::io("opening", path, e))?;
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .envs(program.environment.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(true);
        let runtime = Handle::current();
        let child = self
            .run_to_spawn(|| {
                let _within = runtime.enter();
                command.spawn()
            })?
            .map_err(|e| Error::io("starting", program.path.display().to_string(), e))?;
        let pid = child.id().unwrap_or_default();
        Ok(Process {
            name: format!("{name} on {}", self.name()),
            log,
            pid,
            child,
        })
    }

    /// Runs `program` in this host to its end, and returns its exit status and its standard output.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub async fn output(&self, program: &Program) -> Result<(ExitStatus, Vec<u8>), Error> {
        let fail = |e| Error::io("running", program.path.display().to_string(), e);
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .envs(program.environment.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let runtime = Handle::current();
        let child = self
            .run_to_spawn(|| {
                let _within = runtime.enter();
                command.spawn()
            })?
            .map_err(fail)?;
        let mut asked = Asked(child.id());
        let output = child.wait_with_output().await;
        asked.0 = None;
        let output = output.map_err(fail)?;
        Ok((output.status, output.stdout))
    }
}

/// The pid of a program that is run to its end, unless the result is no longer awaited.
struct Asked(Option<u32>);

impl Drop for Asked {
    /// Kills it as for a [`Process`].
    fn drop(&mut self) {
        if let Some(pid) = self.0.and_then(|pid| i32::try_from(pid).ok()) {
            let pid = Pid::from_raw(pid);
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, None);
        }
    }
}

impl Process {
    /// Returns `<program> on <host>`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its pid in the namespace of this process.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the path of the file with its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the end of its output.
    pub fn log_tail(&self) -> String {
        tail(&self.log).unwrap_or_default()
    }

    /// Fails if it has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`], with the end of the log.
    pub fn check(&mut self) -> Result<(), Error> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Error::Ended {
                name: self.name.clone(),
                status,
                tail: self.log_tail(),
            }),
            Err(e) => Err(Error::io("waiting for", self.name.as_str(), e)),
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// If the process has been waited for already, or the kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let fail = |e| Error::system("signaling", self.name.as_str(), e);
        // `id` is `None` once the child is reaped: its pid may belong to another process by then.
        let pid = self.child.id().ok_or(nix::Error::ESRCH).map_err(fail)?;
        let pid = i32::try_from(pid).map_err(|_| fail(nix::Error::ESRCH))?;
        kill(Pid::from_raw(pid), signal).map_err(fail)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Late`] after `limit`.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus, Error> {
        let what = format!("{} ends", self.name);
        let status = within(limit, &what, self.child.wait()).await?;
        status.map_err(|e| Error::io("waiting for", self.name.as_str(), e))
    }

    /// Kills it by SIGKILL and waits for its end.
    ///
    /// # Errors
    ///
    /// If the kernel rejects the signal.
    pub async fn kill(&mut self) -> Result<(), Error> {
        self.child
            .kill()
            .await
            .map_err(|e| Error::io("killing", self.name.as_str(), e))
    }

    /// Returns its resource usage so far, with that of its children; `None` once it has ended.
    pub fn usage(&self) -> Option<Usage> {
        let own = usage(self.pid)?;
        Some(
            children(self.pid)
                .into_iter()
                .filter_map(usage)
                .fold(own, Usage::plus),
        )
    }
}

impl Drop for Process {
    /// Kills it and waits for its end: an unreaped process would keep its pid namespace alive.
    fn drop(&mut self) {
        if self.signal(Signal::SIGKILL).is_ok()
            && let Ok(pid) = i32::try_from(self.pid)
        {
            let _ = waitpid(Pid::from_raw(pid), None);
        }
    }
}

/// The resource usage of a process, from `/proc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident set, in octets (VmRSS).
    pub resident_octets: u64,
    /// The maximum resident set so far, in octets (VmHWM).
    pub peak_octets: u64,
    /// Time on a CPU since its start, of all its threads.
    pub cpu: Duration,
}

impl Usage {
    fn plus(self, other: Self) -> Self {
        Self {
            resident_octets: self.resident_octets + other.resident_octets,
            peak_octets: self.peak_octets + other.peak_octets,
            cpu: self.cpu + other.cpu,
        }
    }
}

/// Returns the children of a process: a BGP daemon is two processes.
fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.unwrap_or_default();
    listed.split_whitespace().flat_map(str::parse).collect()
}

/// Returns the resource usage of the process with this pid; `None` if it does not exist.
pub fn usage(pid: u32) -> Option<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let octets = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kibibytes * 1024)
    };
    let cpu = scheduled(pid).or_else(|| ticks(pid))?;
    Some(Usage {
        resident_octets: octets("VmRSS:")?,
        peak_octets: octets("VmHWM:")?,
        cpu,
    })
}

/// Returns the nanoseconds on a CPU of all threads: the first field of `schedstat`.
fn scheduled(pid: u32) -> Option<Duration> {
    let mut total = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        total += Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?);
    }
    Some(total)
}

/// Returns user and system time in clock ticks, if the kernel has no `schedstat`.
fn ticks(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain spaces.
    let fields = text.rsplit_once(')')?.1;
    let mut numbers = fields.split_whitespace().skip(11);
    let user: u64 = numbers.next()?.parse().ok()?;
    let system: u64 = numbers.next()?.parse().ok()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    let per_second = u64::try_from(per_second).ok()?.max(1);
    Some(Duration::from_millis((user + system) * 1000 / per_second))
}

fn tail(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_OCTETS)))?;
    let mut octets = Vec::new();
    file.read_to_end(&mut octets)?;
    Ok(String::from_utf8_lossy(&octets).into_owned())
}
