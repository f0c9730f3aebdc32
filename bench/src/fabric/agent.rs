//! Felix of a node: its start and its counts; and writes to the datastore.

use anyhow::{Context, Result, bail};
use calico_store::{Op, Put, Store, Txn};
use daemon_common::report::{EndpointFigures, Status};
use daemon_common::{Command, Reply, client};

use super::{Ground, program};
use crate::limits::{FABRIC_WITHIN, RECORDS_OF_TXN, STARTED_WITHIN};

impl Ground {
    /// Starts Felix at a node.
    pub fn start_felix(&mut self, node: usize) -> Result<()> {
        self.fabric.start_felix(node, &program("cambric-felix")?)?;
        Ok(())
    }

    /// Waits until so many endpoints of a node are up with their rules.
    pub async fn programmed(&self, node: usize, local: u32) -> Result<()> {
        let socket = self.fabric.node(node)?.control("felix");
        let there = async || anyhow::Ok(socket.exists().then_some(()).ok_or(String::new()));
        netns_lab::until(STARTED_WITHIN, "Felix has started", there).await?;
        self.until(node, "all endpoints are up", |now| {
            now.up == u64::from(local) && now.rules_in_sync
        })
        .await
    }

    /// Waits for a condition of the counts of a node's Felix.
    pub async fn until(
        &self,
        node: usize,
        what: &str,
        is: impl Fn(&EndpointFigures) -> bool,
    ) -> Result<()> {
        netns_lab::until(FABRIC_WITHIN, what, async || {
            anyhow::Ok(match self.figures(node).await {
                Ok(now) if is(&now) => Ok(()),
                Ok(now) => Err(format!("{now:?}")),
                // A busy Felix may answer too late.
                Err(error) => Err(format!("{error:#}")),
            })
        })
        .await?;
        Ok(())
    }

    /// Returns the counts of a node's Felix.
    pub async fn figures(&self, node: usize) -> Result<EndpointFigures> {
        let counts = self.status(node).await?.endpoints;
        Ok(*counts.context("a status of Felix")?)
    }

    /// Returns how many records the flow log of a node has received.
    pub async fn flow_records(&self, node: usize) -> Result<u64> {
        let flows = self.status(node).await?.flows;
        Ok(flows.context("the flow log is off")?.records)
    }

    async fn status(&self, node: usize) -> Result<Status> {
        let socket = self.fabric.node(node)?.control("felix");
        match client::call(socket, &Command::Status {}).await? {
            Reply::Status(status) => Ok(status),
            other => bail!("not a status: {other:?}"),
        }
    }
}

/// Writes one key.
pub async fn put(store: &dyn Store, key: String, value: Vec<u8>) -> Result<()> {
    fill(store, vec![(key, value)]).await
}

/// Writes keys in transactions of a bounded size.
pub async fn fill(store: &dyn Store, puts: Vec<(String, Vec<u8>)>) -> Result<()> {
    for puts in puts.chunks(RECORDS_OF_TXN) {
        let puts = puts.iter().cloned();
        let then = puts.map(|(key, value)| Op::Put(Put::new(key, value)));
        let txn = Txn {
            then: then.collect(),
            ..Txn::default()
        };
        store.txn(txn).await?;
    }
    Ok(())
}
