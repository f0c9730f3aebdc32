//! The API server of Kubernetes of the tests, in a thread of its own, and the controller.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};
use daemon_common::report::Status;
use daemon_common::{Command, Reply, client};
use interop_tests::ApiServer;
use netns_lab::fabric::{Bgp, Daemon};
use netns_lab::{Process, Program};
use tokio::sync::oneshot;

use super::{Ground, program};
use crate::limits::{CLUSTER_PORT, FABRIC_WITHIN};

/// The name of the controller among the daemons of a node.
const NAME: &str = "kube";

/// A running API server.
#[derive(Debug)]
pub struct Cluster {
    /// Its objects.
    pub server: Arc<ApiServer>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Cluster {
    /// Starts an API server in the namespaces of this thread.
    pub fn start(address: SocketAddr) -> Result<Self> {
        let (sender, started) = sync_channel(1);
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let server = Arc::new(ApiServer::start(address, 1).await);
                if sender.send(server).is_ok() {
                    // It also ends when the other end is dropped.
                    let _ = stopped.await;
                }
            });
        });
        Ok(Self {
            server: started.recv().context("the API server has not started")?,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has no result.
            let _ = thread.join();
        }
    }
}

impl Ground {
    /// Starts an API server that the nodes reach.
    pub fn cluster(&self) -> Result<Cluster> {
        Cluster::start(self.cluster_address())
    }

    fn cluster_address(&self) -> SocketAddr {
        SocketAddr::new(self.fabric.plan.store_address().ip(), CLUSTER_PORT)
    }

    /// Starts the controller at a node.
    pub fn start_controller(&mut self, node: usize) -> Result<()> {
        let text = format!(
            "control = {:?}\n[datastore]\nendpoints = [\"http://{}\"]\n[kubernetes]\nserver = \"http://{}\"\n",
            self.fabric.node(node)?.control(NAME),
            self.fabric.plan.store_address(),
            self.cluster_address(),
        );
        let machine = self.fabric.nodes.get_mut(node).context("a node")?;
        let path = machine.host.directory().join("kube.toml");
        std::fs::write(&path, text)?;
        let program = Program::new(program("cambric-kube")?)
            .arg("--config")
            .arg(&path);
        let process = machine.host.spawn(NAME, &program)?;
        machine.daemons.push(Daemon {
            name: NAME,
            process,
        });
        Ok(())
    }

    /// Kills the controller of a node.
    pub async fn kill_controller(&mut self, node: usize) -> Result<()> {
        self.kill(node, NAME).await
    }

    async fn kill(&mut self, node: usize, name: &str) -> Result<()> {
        let machine = self.fabric.nodes.get_mut(node).context("a node")?;
        let at = machine.daemons.iter().position(|one| one.name == name);
        let mut daemon = machine.daemons.remove(at.context("the daemon")?);
        daemon.process.kill().await?;
        Ok(())
    }

    /// Makes a node of a fabric whose datastore configures BGP a router: the neighbors are in its file, so it
    /// installs the routes of services.
    pub async fn make_router(&mut self, node: usize) -> Result<()> {
        self.kill(node, "bgp-client").await?;
        let of_store = std::mem::replace(&mut self.fabric.plan.bgp, Bgp::Files);
        let started = self
            .fabric
            .start_bgp_client(node, &program("cambric-bgp-client")?);
        self.fabric.plan.bgp = of_store;
        Ok(started?)
    }

    /// Returns the process of the controller.
    pub fn controller(&mut self, node: usize) -> Result<&Process> {
        let machine = self.fabric.nodes.get_mut(node).context("a node")?;
        Ok(&machine.daemon(NAME)?.process)
    }

    /// Waits until the controller has written everything.
    pub async fn controlled(&self, node: usize) -> Result<()> {
        let socket = self.fabric.node(node)?.control(NAME);
        netns_lab::until(FABRIC_WITHIN, "the controller is ready", async || {
            let status = status(&socket).await;
            anyhow::Ok(match status {
                Ok(status) if status.ready => Ok(()),
                other => Err(format!("{other:?}")),
            })
        })
        .await?;
        Ok(())
    }
}

async fn status(socket: &std::path::Path) -> Result<Status> {
    match client::call(socket, &Command::Status {}).await? {
        Reply::Status(status) => Ok(status),
        other => bail!("not a status: {other:?}"),
    }
}
