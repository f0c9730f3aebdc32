//! Helpers of several tests: deadlines, servers, foreign programs.

#![allow(dead_code, unused_imports, reason = "every test uses a part of it")]

mod counted;
mod etcd;
mod forward;
mod picture;
mod relay;
mod secured;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use calico_store::resources::{ResourceError, Resources};
use calico_store::{Error, EtcdOptions, EtcdStore, LeaseId, Revision, Store};
use etcd_lite::serve::{ServeConfig, Server};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use counted::Counted;
pub(crate) use etcd::{Etcd, PATIENT, Proxy, command, free_port, metric};
pub(crate) use forward::forward;
pub(crate) use picture::Picture;
pub(crate) use relay::{Cut, Relay};
pub(crate) use secured::{certificates, tls, users};

/// Longer than any step takes; a test that waits this long has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(180);

/// Waits for a future, with a deadline.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(done) => done,
        Err(_) => panic!("waited too long: {what}"),
    }
}

/// Repeats a request until there is an answer: a server that was just stopped has closed the
/// connection, and a cluster without a leader does not answer.
pub(crate) async fn insist<T>(what: &str, ask: impl AsyncFn() -> Result<T, Error>) -> T {
    let answered = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => assert!(error.is_transient(), "{what}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(what, answered).await
}

pub(crate) async fn put(store: &EtcdStore, key: &'static str, value: &'static str) -> Revision {
    let write = async || store.put(key.into(), value.into(), LeaseId::NONE).await;
    insist("a write", write).await
}

/// Performs the first write of a Calico client.
pub(crate) async fn initialize(store: &EtcdStore) {
    let resources = Resources::new(store.clone());
    let initialize = async || {
        let done = resources.initialize().await;
        done.map_err(|error| match error {
            ResourceError::Store(error) => error,
            other => panic!("{other}"),
        })
    };
    insist("the first write", initialize).await;
}

/// A store served over the network.
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
        Self::keeping(address, None).await
    }

    /// Serves a store, which is kept in a file if one is given.
    pub(crate) async fn keeping(address: SocketAddr, data: Option<PathBuf>) -> Self {
        let config = ServeConfig {
            listen: vec![address],
            manifests: None,
            data,
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

/// Returns a program on the machine, or prints that the test is skipped without it. If labs are
/// requested, it must exist.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        assert!(!netns_lab::asked_for(), "{name} is not installed");
        println!("skipped: {name} is not installed");
    }
    found
}
