//! `cambric-bfd` on a host of the lab.

use std::path::PathBuf;

use daemon_common::client::call;
use daemon_common::report::BfdSession;
use daemon_common::{Command, Reply};
use netns_lab::{Error, Process, Program, until};

use crate::{PATIENCE, Site, programs};

/// A running `cambric-bfd`.
#[derive(Debug)]
pub struct Bfd {
    control: PathBuf,
    _process: Process,
}

/// Returns the path of the socket on which it serves the daemons of its host.
pub(crate) fn socket(site: &Site) -> PathBuf {
    site.host.directory().join("bfd-clients.sock")
}

impl Bfd {
    /// Starts it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(site: &Site) -> Result<Self, Error> {
        let control = site.host.directory().join("bfd.sock");
        let text = format!(
            "control = \"{}\"\nsocket = \"{}\"\nlog = \"debug\"\n",
            control.display(),
            socket(site).display()
        );
        let program = Program::new(programs::own("cambric-bfd"))
            .arg("--config")
            .arg(site.save("bfd.toml", &text));
        Ok(Self {
            control,
            _process: site.host.spawn("bfd", &program)?,
        })
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
        let waited = until(PATIENCE, "sessions of BFD", async || {
            let sessions = match self.sessions().await {
                Ok(sessions) => sessions,
                Err(silent) => return Ok::<_, Error>(Err(silent)),
            };
            let up = sessions.iter().filter(|one| one.state == "Up").count();
            Ok(match (sessions.len(), up) == (count, count) {
                true => Ok(sessions),
                false => Err(format!("{sessions:?}")),
            })
        });
        let (sessions, _) = waited.await.unwrap_or_else(|error| panic!("{error}"));
        sessions
    }
}
