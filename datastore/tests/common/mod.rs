//! What several tests need: deadlines, servers, foreign programs.

#![allow(dead_code, reason = "every test uses a part of it")]

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use datastore::serve::{ServeConfig, Server};
use datastore::{EtcdOptions, EtcdStore};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than anything here takes; a test that waits so long has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Waits for something, but not for ever.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(done) => done,
        Err(_) => panic!("waited too long: {what}"),
    }
}

/// A served store of its own.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn at(address: SocketAddr) -> Self {
        let config = ServeConfig {
            listen: vec![address],
            manifests: None,
        };
        let server = Server::bind(config).await.unwrap();
        let address = server.addresses()[0];
        let (stop, stopped) = oneshot::channel::<()>();
        let until = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(async move { server.run(until).await.unwrap() });
        Self {
            address,
            stop: Some(stop),
            task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn client(&self) -> EtcdStore {
        EtcdStore::connect(&EtcdOptions::new([self.url()]))
            .await
            .unwrap()
    }

    /// Stops it as its users would.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        soon("the server to stop", self.task).await.unwrap();
    }
}

/// A program on the machine, or a notice that the test is skipped for want of it. Where labs are
/// asked for, it must be there.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        assert!(!lab::asked_for(), "{name} is not installed");
        println!("skipped: {name} is not installed");
    }
    found
}

/// A real etcd of its own, on loopback, in a directory of its own; killed when dropped.
pub(crate) struct Etcd {
    pub(crate) url: String,
    _child: Child,
    _directory: tempfile::TempDir,
}

impl Etcd {
    /// Starts one if it is installed.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with("http", &[]).await
    }

    /// Starts one with TLS that asks for certificates of this authority.
    pub(crate) async fn start_tls(files: &Path) -> Option<Self> {
        let file = |name: &str| files.join(name).to_str().unwrap().to_owned();
        let (cert, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
        let own = ["--cert-file", &cert, "--key-file", &key];
        let asked = ["--client-cert-auth", "--trusted-ca-file", &ca];
        Self::start_with("https", &[&own[..], &asked[..]].concat()).await
    }

    async fn start_with(scheme: &str, more: &[&str]) -> Option<Self> {
        let program = program("etcd")?;
        // A port that was free a moment ago may be taken: then try others.
        for _ in 0..5 {
            if let Some(etcd) = Self::try_start(&program, scheme, more).await {
                return Some(etcd);
            }
        }
        panic!("etcd does not start");
    }

    async fn try_start(program: &Path, scheme: &str, more: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [url, peer] = ports.map(|port| port.local_addr().unwrap());
        let (url, peer) = (format!("{scheme}://{url}"), format!("http://{peer}"));
        let mut child = Command::new(program)
            .args(["--name", "t", "--log-level", "info", "--logger", "zap"])
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("t={peer}")])
            .args(more)
            .arg("--data-dir")
            .arg(directory.path())
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take()?).lines();
        let ready = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if line.contains("serving client traffic") {
                    return true;
                }
            }
            false
        };
        if !soon("etcd to be ready", ready).await {
            return None;
        }
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Some(Self {
            url,
            _child: child,
            _directory: directory,
        })
    }
}
