//! The program, and direct access to the store.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use calico_ipam::{Ipam, Pool, Request, Taker};
use calico_model::IpamKey;
use calico_store::{EtcdOptions, EtcdStore, KeyRange, LeaseId, Store};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::PREFIX;

/// The program, while it runs.
pub(crate) struct Running(Child);

impl Running {
    /// Stops it, and waits until it has ended.
    pub(crate) fn stop(&mut self) {
        let pid = i32::try_from(self.0.id()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        let ended = self.0.wait().unwrap();
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program with a store, and a directory for its files.
pub(crate) struct Tool {
    url: String,
    files: TempDir,
}

impl Tool {
    pub(crate) fn at(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            files: tempfile::tempdir().unwrap(),
        }
    }

    /// The address of the store.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Writes a file, and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = PathBuf::from(self.path(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self.path(name)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cambric"));
        for (name, _) in std::env::vars() {
            if name.contains("ETCD_") || name.contains("DATASTORE_TYPE") {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .env("DATASTORE_TYPE", "etcdv3")
            .env("ETCD_ENDPOINTS", &self.url);
        command
    }

    fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that does not read it may have ended.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Runs it, and returns its standard output and standard error. It must succeed.
    pub(crate) fn both(&self, arguments: &[&str]) -> (String, String) {
        let output = self.run(arguments, "");
        assert!(output.status.success(), "{output:?}");
        let text = |octets| String::from_utf8(octets).unwrap();
        (text(output.stdout), text(output.stderr))
    }

    /// Starts it in the background, until it is stopped.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Running(command.spawn().unwrap())
    }

    /// Runs it, and returns its output. It must succeed.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        self.fed(arguments, "")
    }

    /// Applies a manifest of this name, and returns the output.
    pub(crate) fn apply(&self, name: &str, text: &str) -> String {
        self.done(&["apply", "-f", &self.file(name, text)])
    }

    /// Applies a manifest that is rejected, and returns the errors.
    pub(crate) fn apply_refused(&self, name: &str, text: &str) -> String {
        self.refused(&["apply", "-f", &self.file(name, text)])
    }

    /// Runs it with this on its standard input.
    pub(crate) fn fed(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}{errors}");
        text
    }

    /// Runs it, and returns its errors. It must fail.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        self.fed_refused(arguments, "")
    }

    pub(crate) fn fed_refused(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{arguments:?}: {text}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Runs it, and returns its standard output and standard error. It must fail.
    pub(crate) fn failed(&self, arguments: &[&str]) -> (String, String) {
        let output = self.run(arguments, "");
        assert!(!output.status.success(), "{output:?}");
        let text = |octets| String::from_utf8(octets).unwrap();
        (text(output.stdout), text(output.stderr))
    }

    pub(crate) async fn store(&self) -> EtcdStore {
        EtcdStore::connect(&EtcdOptions::new([&self.url]))
            .await
            .unwrap()
    }

    /// The stored value under a resource's path.
    pub(crate) async fn value(&self, path: &str) -> Option<Value> {
        let key = format!("{PREFIX}{path}");
        let found = self.store().await.get(key.into()).await.unwrap()?;
        Some(serde_json::from_slice(&found.value).unwrap())
    }

    pub(crate) async fn stored(&self, path: &str) -> Value {
        match self.value(path).await {
            Some(value) => value,
            None => panic!("nothing is stored at {path}"),
        }
    }

    /// Stores a value without this program.
    pub(crate) async fn put(&self, path: &str, value: &Value) {
        let (key, octets) = (format!("{PREFIX}{path}"), value.to_string());
        let store = self.store().await;
        store
            .put(key.into(), octets.into(), LeaseId::NONE)
            .await
            .unwrap();
    }

    /// The paths of all resources.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let listing = self
            .store()
            .await
            .list(KeyRange::prefix(PREFIX))
            .await
            .unwrap();
        let keys = listing
            .items
            .iter()
            .map(|item| String::from_utf8_lossy(&item.key));
        keys.map(|key| key.trim_start_matches(PREFIX).to_owned())
            .collect()
    }

    /// Allocates an address of a pool for a host.
    pub(crate) async fn assign(&self, host: &str, handle: &str, pool: &str) -> IpAddr {
        let store = self.store().await;
        let taker = Taker {
            handle: handle.to_owned(),
            attributes: [("node".to_owned(), host.to_owned())].into(),
        };
        let pools = [Pool {
            cidr: pool.parse().unwrap(),
            block_size: 26,
        }];
        let request = Request {
            host,
            taker: &taker,
            count: 1,
            pools: &pools,
            reserved: &[],
            blocks_max: None,
        };
        Ipam::new(&store).assign(&request).await.unwrap()[0].address
    }

    /// The handles that have addresses, and the owners of blocks.
    pub(crate) async fn addresses(&self) -> (Vec<String>, Vec<String>) {
        let below = async |prefix: &str| -> Vec<String> {
            let listing = self
                .store()
                .await
                .list(KeyRange::prefix(prefix.to_owned()))
                .await;
            let items = listing.unwrap().items;
            let keys = items.iter().map(|item| String::from_utf8_lossy(&item.key));
            keys.map(|key| key.trim_start_matches(prefix).to_owned())
                .collect()
        };
        let affinities = below("/calico/ipam/v2/").await.into_iter();
        let affinities = affinities.filter(|key| key.starts_with("host/")).collect();
        (below(IpamKey::HANDLES).await, affinities)
    }
}
