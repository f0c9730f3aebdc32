//! New flows, one after the other.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};

use super::flows::udp;
use crate::fabric::Workload;
use crate::limits::OPENER_TURN;

/// A thread that sends one packet of UDP after the other, each from a port of its own.
#[derive(Debug)]
pub struct Opener {
    /// Dropped to end it.
    ends: SyncSender<()>,
    sent: Arc<AtomicU64>,
    thread: JoinHandle<Result<()>>,
    /// Receives the packets, so that no error answers them.
    _server: UdpSocket,
}

impl Opener {
    /// Starts to send to a port.
    pub fn start([from, to]: [&Workload; 2], port: u16) -> Result<Self> {
        let server = udp(&to.host, to.address(), port)?;
        let (host, target) = (from.host.clone(), server.local_addr()?);
        let (ends, ended) = sync_channel::<()>(1);
        let sent = Arc::<AtomicU64>::default();
        let count = Arc::clone(&sent);
        let thread = thread::spawn(move || {
            host.run(move || {
                while ended.recv_timeout(OPENER_TURN) == Err(RecvTimeoutError::Timeout) {
                    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
                    // A full queue on the way loses a packet.
                    let _ = socket.send_to(&[0], target);
                    count.fetch_add(1, Ordering::AcqRel);
                }
                Ok(())
            })?
        });
        Ok(Self {
            ends,
            sent,
            thread,
            _server: server,
        })
    }

    /// Returns how many packets it has sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Ends it.
    pub fn stop(self) -> Result<()> {
        drop(self.ends);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the opener panicked"))?
    }
}
