//! `cambric-bfd` on a host of the lab.

use std::fs;
use std::path::{Path, PathBuf};

use daemon_common::client::call;
use daemon_common::report::BfdSession;
use daemon_common::{Command, Reply};
use netns_lab::{Error, Host, Process, Program, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{PATIENCE, Site, programs};

/// A running `cambric-bfd`.
#[derive(Debug)]
pub struct Bfd {
    control: PathBuf,
    clients: PathBuf,
    process: Process,
    host: Host,
}

/// Returns the path of the socket on which it serves the daemons of its host.
pub(crate) fn socket(site: &Site) -> PathBuf {
    site.host.directory().join("bfd-clients.sock")
}

/// Returns the interval in milliseconds and the multiplier in a value of the key `bfd` of Cambric's
/// neighbors, or their defaults.
pub(crate) fn timers(bfd: &str) -> (u32, u32) {
    let number = |key: &str, default| {
        let Some((_, after)) = bfd.split_once(key) else {
            return default;
        };
        let digits = after.split(|next: char| !next.is_ascii_digit()).next();
        let number = digits.and_then(|digits| digits.parse().ok());
        number.expect("a number")
    };
    (number("interval_ms = ", 300), number("multiplier = ", 3))
}

impl Bfd {
    /// Starts it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(site: &Site) -> Result<Self, Error> {
        Self::start_with(site, &[])
    }

    /// Starts it with a keeper, so that its sessions survive its process.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_kept(site: &Site) -> Result<Self, Error> {
        Self::start_with(site, &["--supervise"])
    }

    fn start_with(site: &Site, arguments: &[&str]) -> Result<Self, Error> {
        let (control, clients) = (site.host.directory().join("bfd.sock"), socket(site));
        let text = format!(
            "control = \"{}\"\nsocket = \"{}\"\nlog = \"debug\"\n",
            control.display(),
            clients.display()
        );
        let program = Program::new(programs::own("cambric-bfd"))
            .args(arguments.iter().copied())
            .arg("--config")
            .arg(site.save("bfd.toml", &text));
        Ok(Self {
            control,
            clients,
            process: site.host.spawn("bfd", &program)?,
            host: site.host.clone(),
        })
    }

    /// Returns the path of the socket on which it serves the daemons of its host.
    pub fn clients(&self) -> &Path {
        &self.clients
    }

    async fn pid(&self) -> Option<u32> {
        match call(&self.control, &Command::Status {}).await {
            Ok(Reply::Status(status)) => Some(status.pid),
            _ => None,
        }
    }

    /// Sends a signal to the process that has the sessions, and returns its number in the lab.
    ///
    /// # Panics
    /// If it does not run below this keeper.
    pub async fn signal(&self, signal: Signal) -> u32 {
        let number = self.pid().await.expect("cambric-bfd answers");
        let child = child_of(self.process.pid(), number).expect("a child of the keeper");
        kill(Pid::from_raw(child), signal).expect("it runs");
        number
    }

    /// Waits until another process than this one has the sessions.
    ///
    /// # Panics
    /// If that is not so in time.
    pub async fn is_another(&self, former: u32) {
        let waited = until(PATIENCE, "another process", async || {
            Ok::<_, Error>(match self.pid().await {
                Some(pid) if pid != former => Ok(()),
                other => Err(format!("{other:?}")),
            })
        });
        waited.await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns the kernel's routes of its host, as `ip route` shows them.
    ///
    /// # Panics
    /// If they cannot be read.
    pub async fn routes(&self) -> String {
        let program = Program::new("/bin/sh").args(["-c", "ip -4 route; ip -6 route"]);
        let (_, output) = self.host.output(&program).await.expect("ip route");
        String::from_utf8_lossy(&output).into_owned()
    }

    /// Returns its sessions.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn sessions(&self) -> Result<Vec<BfdSession>, String> {
        match call(&self.control, &Command::Bfd {}).await {
            Ok(Reply::Bfd(report)) => Ok(report.sessions),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Waits until it has this many sessions, and all are up. Returns them.
    ///
    /// # Panics
    /// If that is not so in time.
    pub async fn has_up(&self, count: usize) -> Vec<BfdSession> {
        self.has(count, "sessions of BFD", |one| one.state == "Up")
            .await
    }

    /// Waits until it has this many sessions, and none is up. Returns them.
    ///
    /// # Panics
    /// If that is not so in time.
    pub async fn has_failed(&self, count: usize) -> Vec<BfdSession> {
        self.has(count, "failed sessions of BFD", |one| one.state != "Up")
            .await
    }

    async fn has(
        &self,
        count: usize,
        what: &str,
        wanted: impl Fn(&BfdSession) -> bool,
    ) -> Vec<BfdSession> {
        let waited = until(PATIENCE, what, async || {
            let sessions = match self.sessions().await {
                Ok(sessions) => sessions,
                Err(silent) => return Ok::<_, Error>(Err(silent)),
            };
            let is_so = sessions.len() == count && sessions.iter().all(&wanted);
            Ok(match is_so {
                true => Ok(sessions),
                false => Err(format!("{sessions:?}")),
            })
        });
        let (sessions, _) = waited.await.unwrap_or_else(|error| panic!("{error}"));
        sessions
    }
}

/// Returns the pid of the child of `parent` with this number in the pid namespace of the lab.
fn child_of(parent: u32, number: u32) -> Option<i32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).ok()?;
    let lists = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let mut children = lists.iter().flat_map(|list| list.split_whitespace());
    let child = children.find(|child| innermost(child) == Some(number))?;
    child.parse().ok()
}

/// Returns the number of a process in its own pid namespace.
fn innermost(pid: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}
