//! Real etcd processes, on loopback, each with its own directory; killed when dropped.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::{Relay, program, soon};

/// Returns an unused address, another one each time.
pub(crate) fn free_port() -> SocketAddr {
    static GIVEN: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        if GIVEN.lock().unwrap().insert(address) {
            return address;
        }
    }
}

/// Timeouts of etcdctl for a connection and for an answer: longer than the test waits for etcdctl.
pub(crate) const PATIENT: [(&str, &str); 2] = [
    ("ETCDCTL_DIAL_TIMEOUT", "600s"),
    ("ETCDCTL_COMMAND_TIMEOUT", "600s"),
];

/// Runs a program to its end; it must succeed. Returns its output.
pub(crate) async fn command(program: &Path, directory: &Path, arguments: &str) -> String {
    let mut command = Command::new(program);
    command
        .current_dir(directory)
        .env("ETCDCTL_API", "3")
        .envs(PATIENT)
        .args(arguments.split(' '));
    let output = soon(arguments, command.output()).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Reads a metric of an etcd.
pub(crate) async fn metric(url: &str, name: &str) -> f64 {
    let address = url.strip_prefix("http://").unwrap();
    let ask = async {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    let text = soon("figures", ask).await;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{url} has no metric {name}"))
        .parse()
        .unwrap()
}

/// Three times the defaults of etcd.
const STEADY: [&str; 4] = ["--heartbeat-interval", "300", "--election-timeout", "3000"];

/// A cluster of etcd members.
pub(crate) struct Etcd {
    pub(crate) members: Vec<Member>,
}

/// One member; it may be down.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) peer_url: String,
    program: PathBuf,
    arguments: Vec<String>,
    /// Its content survives the process.
    pub(crate) directory: TempDir,
    process: Option<Child>,
}

impl Etcd {
    /// Starts one member, if etcd is installed.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(1, "http", &[]).await
    }

    /// Starts this many members.
    pub(crate) async fn cluster(members: usize) -> Option<Self> {
        Self::start_with(members, "http", &[]).await
    }

    /// Starts this many members with longer timeouts, so that they keep their leader, and do not
    /// abort requests, while they wait for a processor or a disk.
    pub(crate) async fn steady(members: usize) -> Option<Self> {
        Self::start_with(members, "http", &STEADY).await
    }

    /// Starts one member with TLS that requires certificates of this authority.
    pub(crate) async fn start_tls(files: &Path) -> Option<Self> {
        let file = |name: &str| files.join(name).to_str().unwrap().to_owned();
        let (cert, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
        let own = ["--cert-file", &cert, "--key-file", &key];
        let asked = ["--client-cert-auth", "--trusted-ca-file", &ca];
        Self::start_with(1, "https", &[&own[..], &asked[..], &STEADY[..]].concat()).await
    }

    /// Starts this many members, each behind a relay on its peer connections.
    pub(crate) async fn wired(members: usize) -> Option<(Self, Vec<Relay>)> {
        let program = program("etcd")?;
        for _ in 0..5 {
            let peers: Vec<_> = (0..members).map(|_| free_port()).collect();
            let relays = join_all(peers.iter().map(|peer| Relay::before(*peer))).await;
            let peers = peers.into_iter().zip(&relays);
            let peers = peers.map(|(peer, relay)| (peer, relay.address)).collect();
            let mut etcd = Self::plan(&program, peers, "http", &[]);
            if etcd.run().await {
                return Some((etcd, relays));
            }
        }
        panic!("etcd does not start");
    }

    async fn start_with(members: usize, scheme: &str, more: &[&str]) -> Option<Self> {
        let program = program("etcd")?;
        // A port that was free a moment ago may be taken: then try others.
        for _ in 0..5 {
            let peers = (0..members).map(|_| free_port());
            let peers = peers.map(|peer| (peer, peer)).collect();
            let mut etcd = Self::plan(&program, peers, scheme, more);
            if etcd.run().await {
                return Some(etcd);
            }
        }
        panic!("etcd does not start");
    }

    /// Returns a cluster that is not started yet. For each member, the address where it listens for
    /// peers and the address that it advertises to them.
    fn plan(
        program: &Path,
        peers: Vec<(SocketAddr, SocketAddr)>,
        scheme: &str,
        more: &[&str],
    ) -> Self {
        let places: Vec<_> = peers
            .into_iter()
            .enumerate()
            .map(|(nth, (listens, found))| {
                let url = format!("{scheme}://{}", free_port());
                let (listens, found) = (format!("http://{listens}"), format!("http://{found}"));
                (format!("m{nth}"), url, listens, found)
            })
            .collect();
        let cluster: Vec<_> = places
            .iter()
            .map(|(name, _, _, found)| format!("{name}={found}"))
            .collect();
        let cluster = cluster.join(",");
        let member = |(name, url, listens, peer_url): (String, String, String, String)| {
            let directory = tempfile::tempdir().unwrap();
            let data = directory.path().join("data");
            let mut arguments: Vec<String> = [
                ["--name", &name],
                ["--log-level", "info"],
                ["--logger", "zap"],
                ["--listen-client-urls", &url],
                ["--advertise-client-urls", &url],
                ["--listen-peer-urls", &listens],
                ["--initial-advertise-peer-urls", &peer_url],
                ["--initial-cluster", &cluster],
                ["--data-dir", data.to_str().unwrap()],
            ]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect();
            arguments.extend(more.iter().map(|&more| more.to_owned()));
            Member {
                name,
                url,
                peer_url,
                program: program.to_owned(),
                arguments,
                directory,
                process: None,
            }
        };
        Self {
            members: places.into_iter().map(member).collect(),
        }
    }

    /// Starts all members at once, because none is ready before most of them run. Returns whether
    /// they are ready.
    pub(crate) async fn run(&mut self) -> bool {
        let ready = self.members.iter_mut().map(Member::start);
        let ready = join_all(ready).await;
        ready.into_iter().all(|ready| ready)
    }

    /// Returns the index of the only member with this many watches.
    pub(crate) async fn watched(&self, watches: f64) -> usize {
        let find = async {
            loop {
                for (at, member) in self.members.iter().enumerate() {
                    let name = "etcd_debugging_mvcc_watcher_total";
                    if member.runs() && metric(&member.url, name).await == watches {
                        return at;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        soon("somebody to watch", find).await
    }

    /// Returns the index of the leader.
    pub(crate) async fn leader(&self) -> usize {
        let find = async {
            loop {
                for (at, member) in self.members.iter().enumerate() {
                    let name = "etcd_server_is_leader";
                    if member.runs() && metric(&member.url, name).await == 1.0 {
                        return at;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        soon("a leader", find).await
    }

    pub(crate) fn url(&self) -> String {
        self.members[0].url.clone()
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.members
            .iter()
            .map(|member| member.url.clone())
            .collect()
    }
}

impl Member {
    /// Starts the member; returns whether it serves clients.
    pub(crate) async fn start(&mut self) -> bool {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        self.process = Some(child);
        let ready = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if line.contains("serving client traffic") {
                    return true;
                }
            }
            false
        };
        let ready = soon("etcd to be ready", ready).await;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        ready
    }

    pub(crate) const fn runs(&self) -> bool {
        self.process.is_some()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id().unwrap()
    }

    /// Kills the process without a clean shutdown.
    pub(crate) async fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().await.unwrap();
    }

    /// Stops the process: it and its connections stay, but do nothing.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    /// Sets further arguments.
    pub(crate) fn with(&mut self, more: &[&str]) {
        self.arguments
            .extend(more.iter().map(|&more| more.to_owned()));
    }
}

/// etcd's own gRPC proxy before a cluster.
pub(crate) struct Proxy {
    pub(crate) url: String,
    process: Child,
}

impl Proxy {
    pub(crate) async fn start(urls: &[String]) -> Option<Self> {
        let program = program("etcd")?;
        for _ in 0..5 {
            let address = free_port();
            let listen = address.to_string();
            let endpoints = urls.join(",");
            let mut process = Command::new(&program)
                .args(["grpc-proxy", "start"])
                .args(["--endpoints", &endpoints, "--listen-addr", &listen])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let listens = async {
                while TcpStream::connect(address).is_err() {
                    if process.try_wait().unwrap().is_some() {
                        return false;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                true
            };
            if soon("the proxy to listen", listens).await {
                let url = format!("http://{address}");
                return Some(Self { url, process });
            }
        }
        panic!("the proxy does not start");
    }

    /// Kills the process without a clean shutdown.
    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().unwrap()
    }

    /// Returns whether the process still runs.
    pub(crate) fn lives(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }
}
