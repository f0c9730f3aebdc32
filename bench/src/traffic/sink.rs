//! The far ends of TCP flows, in a process of their own: one process may not have all open files.

use std::net::Ipv4Addr;
use std::ops::Range;

use anyhow::{Context, Result};
use netns_lab::{Process, Program};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::fabric::Workload;
use crate::limits::STARTED_WITHIN;

/// `TCP_LISTEN` in `/proc/net/tcp`.
const LISTEN: &str = " 0A ";

/// Starts a process at a workload that accepts connections to these ports, and reads them.
pub async fn start(at: &Workload, ports: Range<u16>) -> Result<Process> {
    let program = Program::new(std::env::current_exe()?)
        .args(["sink", &at.address().to_string()])
        .args([ports.start.to_string(), ports.len().to_string()]);
    let process = at.host.spawn("sink", &program)?;
    netns_lab::until(STARTED_WITHIN, "the sink listens", async || {
        let sockets = || std::fs::read_to_string("/proc/thread-self/net/tcp");
        let sockets = at.host.run(sockets)??;
        let count = sockets.matches(LISTEN).count();
        anyhow::Ok(
            (count >= ports.len())
                .then_some(())
                .ok_or_else(|| count.to_string()),
        )
    })
    .await?;
    Ok(process)
}

/// Accepts connections to so many ports and reads them, until the process is ended.
pub fn run(address: Ipv4Addr, first: u16, count: u16) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut listeners = JoinSet::new();
        for port in (first..).take(usize::from(count)) {
            let listener = TcpListener::bind((address, port)).await?;
            listeners.spawn(accept(listener));
        }
        let ended = listeners.join_next().await.context("no port")?;
        ended?
    })
}

/// Reads all connections of a listener: there is a task for each, up to the limit of open files.
async fn accept(listener: TcpListener) -> Result<()> {
    let mut readers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (mut stream, _) = accepted?;
                readers.spawn(async move {
                    let mut octets = [0; 64];
                    while matches!(stream.read(&mut octets).await, Ok(1..)) {}
                });
            }
            Some(_) = readers.join_next() => {}
        }
    }
}
