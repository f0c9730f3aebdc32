//! What several tests need: deadlines, servers, foreign programs.

#![allow(dead_code, unused_imports, reason = "every test uses a part of it")]

mod counted;
mod etcd;
mod picture;
mod relay;
mod secured;

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use datastore::serve::{ServeConfig, Server};
use datastore::{EtcdOptions, EtcdStore};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use counted::Counted;
pub(crate) use etcd::{Etcd, Proxy, command, free_port, metric};
pub(crate) use picture::Picture;
pub(crate) use relay::{Cut, Relay};
pub(crate) use secured::{certificates, tls, users};

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
        Self::keeping(address, None).await
    }

    /// One that is kept in a file, if one is given.
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
