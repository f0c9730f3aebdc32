//! Probes of readiness, which the main loop of Felix answers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use netns_lab::Host;

use crate::limits::{FLOW_OPENED_WITHIN, PROBE_TURN};

const PORT: u16 = 9099;
const REQUEST: &[u8] = b"GET /readiness HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// A thread that sends one probe after the other.
#[derive(Debug)]
pub struct Probes {
    /// Dropped to end it.
    ends: SyncSender<()>,
    thread: JoinHandle<Result<Vec<f64>>>,
}

impl Probes {
    /// Starts to probe the Felix of a host.
    pub fn start(host: &Host) -> Self {
        let host = host.clone();
        let (ends, ended) = sync_channel::<()>(1);
        let thread = thread::spawn(move || {
            host.run(move || {
                let mut times = vec![];
                while ended.recv_timeout(PROBE_TURN) == Err(RecvTimeoutError::Timeout) {
                    times.push(probe()?);
                }
                Ok(times)
            })?
        });
        Self { ends, thread }
    }

    /// Ends it, and returns the milliseconds of all answers.
    pub fn stop(self) -> Result<Vec<f64>> {
        drop(self.ends);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the probes panicked"))?
    }
}

/// Returns the milliseconds of one answer. Must be called in the namespaces of the host.
fn probe() -> Result<f64> {
    let began = Instant::now();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).context("a probe")?;
    stream.set_read_timeout(Some(FLOW_OPENED_WITHIN))?;
    stream.write_all(REQUEST)?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer)?;
    ensure!(answer.starts_with(b"HTTP/1.1 "), "no answer to a probe");
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// Returns whether the Felix of a host answers probes.
pub fn answers(host: &Host) -> Result<bool> {
    Ok(host.run(probe)?.is_ok())
}
