//! Established flows between two workloads.

use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use netns_lab::Host;
use socket2::Socket;

use crate::fabric::Workload;
use crate::limits::{FLOW_OPENED_WITHIN, SENDER_TURN};

/// The protocol of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// Returns its number in the IP header.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// Established flows.
#[derive(Debug)]
pub struct Flows {
    clients: Vec<Socket>,
    /// The far ends of UDP. They are full, and discard what arrives.
    servers: Vec<Socket>,
}

impl Flows {
    /// Opens so many flows, one after the other, to these ports: with TCP those of a sink.
    pub fn open(
        protocol: Protocol,
        [from, to]: [&Workload; 2],
        count: usize,
        ports: impl Iterator<Item = u16> + Clone,
    ) -> Result<Self> {
        let mut flows = Self {
            clients: Vec::with_capacity(count),
            servers: vec![],
        };
        match protocol {
            Protocol::Tcp => flows.open_tcp([from, to], count, ports)?,
            Protocol::Udp => flows.open_udp([from, to], count, ports)?,
        }
        for socket in &flows.clients {
            socket.set_nonblocking(true)?;
        }
        Ok(flows)
    }

    /// Connects to a sink.
    fn open_tcp(
        &mut self,
        [from, to]: [&Workload; 2],
        count: usize,
        ports: impl Iterator<Item = u16>,
    ) -> Result<()> {
        let ports: Vec<_> = ports.collect();
        self.clients = from.host.run(|| {
            let ports = ports.iter().cycle().take(count);
            ports
                .map(|port| {
                    let target = (to.address(), *port).into();
                    let client = TcpStream::connect_timeout(&target, FLOW_OPENED_WITHIN)?;
                    client.set_nodelay(true)?;
                    let client = Socket::from(client);
                    // Its end leaves no segments and no states.
                    client.set_linger(Some(Duration::ZERO))?;
                    anyhow::Ok(client)
                })
                .collect::<Result<Vec<_>>>()
        })??;
        Ok(())
    }

    fn open_udp(
        &mut self,
        [from, to]: [&Workload; 2],
        count: usize,
        ports: impl Iterator<Item = u16>,
    ) -> Result<()> {
        let servers: Vec<_> = ports
            .map(|port| udp(&to.host, to.address(), port))
            .collect::<Result<_>>()?;
        let clients = from.host.run(|| {
            servers
                .iter()
                .cycle()
                .take(count)
                .map(|server| {
                    let client = UdpSocket::bind((from.address(), 0))?;
                    client.set_read_timeout(Some(FLOW_OPENED_WITHIN))?;
                    client.connect(server.local_addr()?)?;
                    client.send(&[0])?;
                    let (_, source) = server.recv_from(&mut [0]).context("the first packet")?;
                    server.send_to(&[0], source)?;
                    client.recv(&mut [0]).context("the first answer")?;
                    anyhow::Ok(Socket::from(client))
                })
                .collect::<Result<Vec<_>>>()
        })??;
        self.clients = clients;
        self.servers = servers.into_iter().map(Socket::from).collect();
        Ok(())
    }

    /// Sends one octet in each flow in turn, at this rate for all.
    pub fn send(self, per_second: u32) -> Sender {
        let (ends, ended) = sync_channel::<()>(1);
        let sent = Arc::<AtomicU64>::default();
        let count = Arc::clone(&sent);
        let flows = self.clients.len() as u64;
        let burst = (f64::from(per_second) * SENDER_TURN.as_secs_f64()).ceil() as usize;
        let thread = thread::spawn(move || {
            // The far ends live as long as the flows.
            let _far = &self.servers;
            let mut turn = 0..self.clients.len();
            while ended.recv_timeout(SENDER_TURN) == Err(RecvTimeoutError::Timeout) {
                for _ in 0..burst {
                    let at = turn.next().unwrap_or_else(|| {
                        turn = 1..self.clients.len();
                        0
                    });
                    self.send_in(at);
                    count.fetch_add(1, Ordering::AcqRel);
                }
            }
        });
        Sender {
            ends,
            sent,
            flows,
            thread,
        }
    }

    fn send_in(&self, at: usize) {
        if let Some(client) = self.clients.get(at) {
            // A cut connection has a full buffer, and ends after some time.
            let _ = client.send(&[0]);
        }
    }
}

/// A thread that sends in flows until this is stopped.
#[derive(Debug)]
pub struct Sender {
    /// Dropped to end it.
    ends: SyncSender<()>,
    sent: Arc<AtomicU64>,
    flows: u64,
    thread: JoinHandle<()>,
}

impl Sender {
    /// Returns how often it has sent in every flow.
    pub fn rounds(&self) -> u64 {
        self.sent.load(Ordering::Acquire) / self.flows.max(1)
    }

    /// Ends it, and closes all flows.
    pub fn stop(self) -> Result<()> {
        drop(self.ends);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the sender panicked"))
    }
}

/// Opens a socket of a host.
pub(super) fn udp(host: &Host, address: Ipv4Addr, port: u16) -> Result<UdpSocket> {
    let socket = host.run(|| UdpSocket::bind((address, port)))??;
    socket.set_read_timeout(Some(FLOW_OPENED_WITHIN))?;
    Ok(socket)
}
