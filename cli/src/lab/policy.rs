//! A policy that closes a pair of workloads, and its removal, seen by TCP connections between them.

use std::net::{IpAddr, SocketAddr, TcpListener};

use anyhow::{Context, Result, ensure};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use netns_lab::fabric::Workload;
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::limits::{CLOSED_FOR, CONVERGE, FLOW_PERIOD};

/// The name of the policy.
pub(super) const NAME: &str = "demo-closed-pair";

/// Any port without another use in the workloads.
const PORT: u16 = 8080;

/// Returns the policy: one workload may not connect to the other, and all else passes.
pub(super) fn closed(from: &Workload, to: &Workload) -> Value {
    let pairs = from.nets().zip(to.nets());
    let denials = pairs.map(|(from, to)| {
        json!({"action": "Deny", "source": {"nets": [from]}, "destination": {"nets": [to]}})
    });
    let rules: Vec<Value> = denials.chain([json!({"action": "Allow"})]).collect();
    json!({"kind": "GlobalNetworkPolicy", "metadata": {"name": NAME},
        "spec": {"order": 1, "types": ["Ingress"], "ingress": rules}})
}

/// A workload that listens, and one that connects to it.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    from: &'a Workload,
    to: Vec<IpAddr>,
    listeners: Vec<JoinHandle<()>>,
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        self.listeners.iter().for_each(JoinHandle::abort);
    }
}

impl<'a> Pair<'a> {
    /// Opens the listening sockets.
    pub(super) fn open(from: &'a Workload, to: &Workload) -> Result<Self> {
        let mut pair = Pair {
            from,
            to: to.addresses().collect(),
            listeners: Vec::new(),
        };
        for address in &pair.to {
            let listener = to.host.run(|| TcpListener::bind((*address, PORT)))?;
            let listener = listener.with_context(|| format!("listening at {address}"))?;
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let accept = async move { while listener.accept().await.is_ok() {} };
            pair.listeners.push(tokio::spawn(accept));
        }
        Ok(pair)
    }

    /// Waits until no connection is answered any more, in either family. Returns when the first one
    /// without an answer began.
    pub(super) async fn closes(&self) -> Result<Instant> {
        let each = self.to.iter().map(|&address| self.closes_at(address));
        let began = try_join_all(each).await?;
        began.into_iter().max().context("no address")
    }

    async fn closes_at(&self, address: IpAddr) -> Result<Instant> {
        let limit = Instant::now() + CONVERGE;
        loop {
            let began = Instant::now();
            ensure!(began < limit, "connections to {address} are still answered");
            if timeout(CLOSED_FOR, self.connect(address)).await.is_err() {
                return Ok(began);
            }
            sleep(FLOW_PERIOD / 10).await;
        }
    }

    /// Waits until connections in both families are answered. Returns when the answer came.
    pub(super) async fn opens(&self) -> Result<Instant> {
        for &address in &self.to {
            let attempts = async {
                let mut open = FuturesUnordered::new();
                loop {
                    open.push(self.connect(address));
                    tokio::select! {
                        Some(result) = open.next() => return result,
                        () = sleep(FLOW_PERIOD) => {}
                    }
                }
            };
            let answered = timeout(CONVERGE, attempts).await;
            answered.with_context(|| format!("connections to {address} are not answered"))??;
        }
        Ok(Instant::now())
    }

    /// Opens a connection and closes it.
    async fn connect(&self, to: IpAddr) -> Result<()> {
        let socket = self.from.host.run(|| match to {
            IpAddr::V4(_) => TcpSocket::new_v4(),
            IpAddr::V6(_) => TcpSocket::new_v6(),
        })??;
        socket.connect(SocketAddr::new(to, PORT)).await?;
        Ok(())
    }
}
