//! FRR's bfdd and the zebra that connects it with bgpd, on a host of the lab.

use netns_lab::{Error, Host, Process, Program, until};
use serde_json::Value;

use crate::{PATIENCE, Site, frr, programs};

/// A running zebra and bfdd. A bgpd on the same host asks them for its sessions if its setup has BFD.
#[derive(Debug)]
pub struct FrrBfd {
    host: Host,
    bfdd: Process,
    _zebra: Process,
}

/// A session of BFD as bfdd shows it.
#[derive(Debug)]
pub struct FrrSession {
    /// Whether it is a session over several hops (RFC 5883).
    pub is_multihop: bool,
    /// Its state.
    pub state: String,
}

impl FrrBfd {
    /// Returns whether they are installed.
    pub fn is_installed() -> bool {
        frr::has("zebra") && frr::has("bfdd")
    }

    /// Starts both, and waits until zebra has bfdd as a client: it does not keep what bgpd asks before. bfdd
    /// has these lines of configuration.
    ///
    /// # Errors
    /// If they cannot be started, or are not connected in time.
    pub async fn start(site: &Site, lines: &str) -> Result<Self, Error> {
        site.save("vtysh.conf", "");
        let zebra = spawn(site, "zebra", "")?;
        clients(&site.host, "").await?;
        let bfdd = spawn(site, "bfdd", lines)?;
        clients(&site.host, "bfd").await?;
        Ok(Self {
            host: site.host.clone(),
            bfdd,
            _zebra: zebra,
        })
    }

    /// Ends bfdd by SIGKILL.
    ///
    /// # Panics
    /// If it has ended before.
    pub async fn kill(&mut self) {
        self.bfdd.kill().await.expect("it runs");
    }

    /// Returns its sessions.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn sessions(&self) -> Result<Vec<FrrSession>, String> {
        let peers = self.peers("show bfd peers json").await?;
        let session = |peer: &Value| FrrSession {
            is_multihop: peer["multihop"] == true,
            state: peer["status"].as_str().unwrap_or_default().to_owned(),
        };
        Ok(peers.iter().map(session).collect())
    }

    /// Returns how often all sessions went down.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn downs(&self) -> u64 {
        let peers = self.peers("show bfd peers counters json").await;
        let peers = peers.expect("an answer");
        let downs = peers.iter().map(|peer| peer["session-down"].as_u64());
        downs.map(|downs| downs.expect("a counter")).sum()
    }

    /// Returns the answer to a question for its peers.
    async fn peers(&self, question: &str) -> Result<Vec<Value>, String> {
        let shown = frr::ask_daemon(&self.host, "bfdd", &[question.to_owned()]).await;
        let shown = shown.map_err(|error| error.to_string())?;
        serde_json::from_str(&shown).map_err(|_| shown)
    }

    /// Waits until it has this many sessions, and all are up. Returns them.
    ///
    /// # Panics
    /// If that is not so in time.
    pub async fn has_up(&self, count: usize) -> Vec<FrrSession> {
        let waited = until(PATIENCE, "sessions of bfdd", async || {
            Ok::<_, Error>(match self.sessions().await {
                Ok(all) if all.len() == count && all.iter().all(|one| one.state == "up") => Ok(all),
                Ok(other) => Err(format!("{other:?}")),
                Err(silent) => Err(silent),
            })
        });
        let (sessions, _) = waited.await.unwrap_or_else(|error| panic!("{error}"));
        sessions
    }
}

/// Waits until zebra answers, and its clients include this one.
async fn clients(host: &Host, client: &str) -> Result<(), Error> {
    let question = ["show zebra client summary".to_owned()];
    let waited = until(PATIENCE, "clients of zebra", async || {
        let shown = frr::ask_daemon(host, "zebra", &question).await?;
        let is_shown = shown.contains("Name") && shown.contains(client);
        Ok::<_, Error>(if is_shown { Ok(()) } else { Err(shown) })
    });
    waited.await.map(|((), _)| ())
}

/// Starts a program of FRR as the calling user: FRR demands a user of its group `frrvty`.
fn spawn(site: &Site, name: &str, lines: &str) -> Result<Process, Error> {
    let config = site.save(&format!("{name}.conf"), &format!("log stdout\n{lines}"));
    let directory = site.host.directory().display().to_string();
    let group = site.save(&format!("{name}.group"), "root:x:0:\nfrrvty:x:1:root\n");
    let path = programs::foreign_in(frr::DAEMONS, name).expect("FRR is installed");
    let as_root = format!(
        "mount --bind {} /etc/group && exec {} --user root --group root --log stdout --vty_port 0 \
         --config_file {} --pid_file {directory}/{name}.pid --vty_socket {directory} \
         --socket {directory}/zserv.api {}",
        group.display(),
        path.display(),
        config.display(),
        match name {
            "bfdd" => format!("--bfdctl {directory}/bfdctl.sock"),
            _ => String::new(),
        }
    );
    let program = Program::new("/usr/bin/unshare").args(["--mount", "sh", "-c", &as_root]);
    site.host.spawn(name, &program)
}
