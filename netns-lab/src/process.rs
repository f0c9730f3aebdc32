//! Processes of a lab: started in a host, their output in a file, ended by pid.

use std::collections::BTreeMap;
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

    /// Returns its resource usage so far, with that of its descendants, as [`usage_of_family`] does;
    /// `None` once it has ended.
    pub fn usage(&self) -> Option<Usage> {
        usage_of_family(self.pid)
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
    /// Returns the usage of several processes, whose resident sets have `twice` octets in common.
    fn together(members: impl Iterator<Item = Self>, twice: u64) -> Self {
        let mut all = Self::default();
        let mut above = 0;
        for one in members {
            all.resident_octets += one.resident_octets;
            all.cpu += one.cpu;
            above = above.max(one.peak_octets.saturating_sub(one.resident_octets));
        }
        all.resident_octets = all.resident_octets.saturating_sub(twice);
        all.peak_octets = all.resident_octets + above;
        all
    }
}

/// Returns the resource usage of the process with this pid and of all its descendants; `None` if it
/// does not exist. Pages of files that several of them have mapped count once, as in the memory of the
/// machine: both processes of a BGP daemon are the same program. The peak is the greatest at the peak
/// of one of them, while the others have what they have now.
pub fn usage_of_family(pid: u32) -> Option<Usage> {
    let mut members = vec![(pid, usage(pid)?)];
    let mut at = 0;
    while let Some(&(member, _)) = members.get(at) {
        at += 1;
        let found = children(member).into_iter();
        members.extend(found.filter_map(|child| Some((child, usage(child)?))));
    }
    let twice = match members.len() {
        1 => 0,
        _ => counted_twice(members.iter().map(|&(member, _)| mapped_files(member))),
    };
    Some(Usage::together(
        members.into_iter().map(|(_, used)| used),
        twice,
    ))
}

/// Returns the children of all threads of a process.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids = |list: String| -> Vec<u32> {
        let words = list.split_whitespace();
        words.flat_map(str::parse).collect()
    };
    lists.flat_map(pids).collect()
}

/// The part of a file that a process has mapped: its device, inode and offset.
type Mapping = (String, String, String);

/// The resident pages of a file in one process, without altered copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FilePages {
    /// All of them, in octets.
    resident: u64,
    /// The process's share: a page that n processes have mapped counts as an n-th.
    share: u64,
}

/// Returns the resident pages of each mapped file.
fn mapped_files(pid: u32) -> BTreeMap<Mapping, FilePages> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps"));
    file_pages(&text.unwrap_or_default())
}

/// Reads the file mappings of `/proc/PID/smaps`.
fn file_pages(smaps: &str) -> BTreeMap<Mapping, FilePages> {
    let mut found: BTreeMap<Mapping, FilePages> = BTreeMap::new();
    let mut current = None;
    for line in smaps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            // The line of a mapping. Inode 0 is anonymous memory.
            [range, _, offset, device, inode, ..] if range.contains('-') => {
                let key = (device.to_owned(), inode.to_owned(), offset.to_owned());
                current = (inode != "0").then_some(key);
            }
            [field @ ("Rss:" | "Pss:" | "Anonymous:"), kibibytes, "kB"] => {
                let Some(key) = &current else { continue };
                let octets = kibibytes.parse::<u64>().unwrap_or(0) * 1024;
                let pages = found.entry(key.clone()).or_default();
                match field {
                    "Rss:" => pages.resident += octets,
                    "Pss:" => pages.share += octets,
                    _ => {
                        // Altered copies belong to the process alone.
                        pages.resident = pages.resident.saturating_sub(octets);
                        pages.share = pages.share.saturating_sub(octets);
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns by how many octets the sum of the resident sets is above the memory that they take.
fn counted_twice(processes: impl Iterator<Item = BTreeMap<Mapping, FilePages>>) -> u64 {
    let mut files: BTreeMap<Mapping, Vec<FilePages>> = BTreeMap::new();
    for (mapping, pages) in processes.flatten() {
        files.entry(mapping).or_default().push(pages);
    }
    let twice = files.values().map(|members| {
        let sum: u64 = members.iter().map(|pages| pages.resident).sum();
        let shares: u64 = members.iter().map(|pages| pages.share).sum();
        let most = members.iter().map(|pages| pages.resident).max();
        // Other programs have shares of a library, too.
        sum.saturating_sub(shares.max(most.unwrap_or(0)))
    });
    twice.sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of `smaps`: a file with 12 kB, 4 of them an altered copy, of which the share is
    /// `share`; and a heap.
    fn smaps(share: u64) -> String {
        format!(
            "55d0-55d3 r-xp 00002000 fe:00 1234  /usr/bin/program\n\
             Size:                 12 kB\n\
             Rss:                  12 kB\n\
             Pss:                  {share} kB\n\
             Anonymous:             4 kB\n\
             VmFlags: rd ex mr mw me\n\
             55e0-55e9 rw-p 00000000 00:00 0  [heap]\n\
             Rss:                  99 kB\n\
             Pss:                  99 kB\n\
             Anonymous:            99 kB\n"
        )
    }

    #[test]
    fn file_pages_of_two_processes_count_once() {
        let one = || file_pages(&smaps(8));
        assert_eq!(one().len(), 1, "the heap is no file");
        // 8 kB of the program's file each, of which both hold the same.
        assert_eq!(counted_twice([one(), one()].into_iter()), 8 * 1024);
        // Half of it is shared.
        let half = || file_pages(&smaps(10));
        assert_eq!(counted_twice([half(), half()].into_iter()), 4 * 1024);
        assert_eq!(counted_twice([half()].into_iter()), 0);
    }

    #[test]
    fn peak_of_a_family_is_that_of_one_member() {
        let used = |resident_octets, peak_octets| Usage {
            resident_octets,
            peak_octets,
            cpu: Duration::from_secs(1),
        };
        let all = Usage::together([used(10, 40), used(100, 120)].into_iter(), 5);
        assert_eq!((all.resident_octets, all.peak_octets), (105, 135));
        assert_eq!(all.cpu, Duration::from_secs(2));
    }

    #[test]
    fn own_process_has_file_pages() {
        let own = mapped_files(std::process::id());
        assert!(own.values().any(|pages| pages.resident > 0), "{own:?}");
    }
}
