//! A cluster of real etcd members, each on a host of its own.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use netns_lab::{Error, Process, Program};

use crate::{Certificates, Ground, Site, programs};

/// The port for clients.
const CLIENTS: u16 = 2379;

/// The port for the other members.
const PEERS: u16 = 2380;

/// The saved content of a member, in the directory of its host, and as the host sees it.
const BACKUP_NAME: &str = "backup";
const BACKUP: &str = "/run/cambric/backup";

/// A cluster of etcd members.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    /// The argument that lists all members.
    cluster: String,
    /// How many times a new cluster was created.
    clusters: u32,
    /// Whether clients use TLS and present certificates.
    secured: bool,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    site: Site,
    process: Option<Process>,
}

impl Etcd {
    /// Starts members on these hosts, which are put on the switch for it; `None`, with a notice,
    /// where etcd is not installed.
    ///
    /// # Errors
    /// If they cannot be started.
    pub async fn start(ground: &Ground, hosts: &[u8]) -> Result<Option<Self>, Error> {
        let Some(mut etcd) = Self::prepare(ground, hosts).await? else {
            return Ok(None);
        };
        for nth in 0..hosts.len() {
            etcd.run(nth)?;
        }
        Ok(Some(etcd))
    }

    /// Starts one member that clients reach by TLS, and returns the certificates that they need.
    /// Returns `None`, with a notice, where etcd or OpenSSL is not installed.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start_secured(
        ground: &Ground,
        host: u8,
    ) -> Result<Option<(Self, Certificates)>, Error> {
        let Some(mut etcd) = Self::prepare(ground, &[host]).await? else {
            return Ok(None);
        };
        let directory = etcd.members[0].site.host.directory();
        let Some(certificates) = Certificates::make(directory, Site::v4(host)) else {
            return Ok(None);
        };
        etcd.secured = true;
        etcd.run(0)?;
        Ok(Some((etcd, certificates)))
    }

    async fn prepare(ground: &Ground, hosts: &[u8]) -> Result<Option<Self>, Error> {
        let Some(program) = programs::foreign("etcd") else {
            return Ok(None);
        };
        let peer = |host: &u8| format!("m{host}=http://{}:{PEERS}", Site::v4(*host));
        let mut etcd = Self {
            program,
            cluster: hosts.iter().map(peer).collect::<Vec<_>>().join(","),
            clusters: 1,
            secured: false,
            members: Vec::new(),
        };
        for host in hosts {
            let site = ground.site(*host).await?;
            let process = None;
            etcd.members.push(Member { site, process });
        }
        Ok(Some(etcd))
    }

    /// The directory of the first member's host, which that host sees as `/run/cambric`.
    pub fn directory(&self) -> &Path {
        self.members[0].site.host.directory()
    }

    /// Returns the number of members, running or not.
    pub const fn members(&self) -> usize {
        self.members.len()
    }

    /// Returns the client endpoints.
    pub fn endpoints(&self) -> Vec<SocketAddr> {
        let hosts = self.members.iter().map(|member| member.site.number);
        hosts
            .map(|host| SocketAddr::new(IpAddr::V4(Site::v4(host)), CLIENTS))
            .collect()
    }

    /// Starts a member, or restarts it with its stored data.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn run(&mut self, nth: usize) -> Result<(), Error> {
        let member = &mut self.members[nth];
        let address = Site::v4(member.site.number);
        let scheme = if self.secured { "https" } else { "http" };
        let (clients, peers) = (
            format!("{scheme}://{address}:{CLIENTS}"),
            format!("http://{address}:{PEERS}"),
        );
        let name = format!("m{}", member.site.number);
        let data = member.site.host.directory().join("etcd");
        let mut program = Program::new(&self.program)
            .args(["--name", &name])
            .args(["--listen-client-urls", &clients])
            .args(["--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers])
            .args(["--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &self.cluster])
            .args(["--initial-cluster-token", &self.clusters.to_string()])
            .args(["--log-level", "warn", "--logger", "zap"])
            .arg("--data-dir")
            .arg(data);
        if self.secured {
            program = program
                .arg("--client-cert-auth")
                .args(["--trusted-ca-file", "/run/cambric/ca.pem"])
                .args(["--cert-file", "/run/cambric/server.pem"])
                .args(["--key-file", "/run/cambric/server.key"]);
        }
        member.process = Some(member.site.host.spawn("etcd", &program)?);
        Ok(())
    }

    /// Deletes the data of all members, which must be stopped: they start again as a new cluster.
    ///
    /// # Panics
    /// If there was no data.
    pub fn wipe(&mut self) {
        self.clusters += 1;
        for member in &self.members {
            let data = member.site.host.directory().join("etcd");
            std::fs::remove_dir_all(data).expect("the data of the member");
        }
    }

    /// Saves the content of the first member in a file of its host; returns false, with a notice,
    /// where etcdctl is not installed.
    ///
    /// # Errors
    /// If etcdctl cannot be started.
    ///
    /// # Panics
    /// If etcdctl fails.
    pub async fn back_up(&self) -> Result<bool, Error> {
        let endpoint = format!("http://{}:{CLIENTS}", Site::v4(self.members[0].site.number));
        let words = ["--endpoints", &endpoint, "snapshot", "save", BACKUP];
        self.control(0, words).await
    }

    /// Replaces the data of all members, which must be stopped, by the saved content. The cluster
    /// keeps its ID, since its token is the same, but its revision is that of the backup.
    ///
    /// # Errors
    /// If etcdctl cannot be started.
    ///
    /// # Panics
    /// If there was no data, or etcdctl fails.
    pub async fn restore(&mut self) -> Result<(), Error> {
        let saved = self.directory().join(BACKUP_NAME);
        for (nth, member) in self.members.iter().enumerate() {
            let directory = member.site.host.directory();
            std::fs::remove_dir_all(directory.join("etcd")).expect("the data of the member");
            if nth > 0 {
                std::fs::copy(&saved, directory.join(BACKUP_NAME)).expect("a copy");
            }
            let name = format!("m{}", member.site.number);
            let peers = format!("http://{}:{PEERS}", Site::v4(member.site.number));
            let token = self.clusters.to_string();
            let words = [
                ["snapshot", "restore"],
                [BACKUP, "--data-dir=/run/cambric/etcd"],
                ["--name", &name],
                ["--initial-cluster", &self.cluster],
                ["--initial-advertise-peer-urls", &peers],
                ["--initial-cluster-token", &token],
            ];
            self.control(nth, words.concat()).await?;
        }
        Ok(())
    }

    /// Runs etcdctl on the host of a member.
    async fn control<'w>(
        &self,
        nth: usize,
        words: impl IntoIterator<Item = &'w str>,
    ) -> Result<bool, Error> {
        let Some(path) = programs::foreign("etcdctl") else {
            return Ok(false);
        };
        let program = Program::new(path).env("ETCDCTL_API", "3");
        let words: Vec<&str> = words.into_iter().collect();
        let program = program.args(words);
        let (status, text) = self.members[nth].site.host.output(&program).await?;
        let text = String::from_utf8_lossy(&text);
        assert!(status.success(), "{text}");
        Ok(true)
    }

    /// Kills a member by SIGKILL.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub async fn kill(&mut self, nth: usize) -> Result<(), Error> {
        match self.members[nth].process.take() {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }
}
