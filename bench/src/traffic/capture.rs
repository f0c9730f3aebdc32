//! The packets that arrive at a workload, with the kernel's times.

use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use netns_lab::Host;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol as Number, Socket, Type};

use crate::limits::{CAPTURE_OCTETS, CAPTURE_TURN};

/// `ETH_P_IP` in network byte order.
const ETHERTYPE_IPV4: i32 = 0x0008;
/// Octets of a packet that are read: its headers.
const HEADERS: usize = 64;

/// The packets of one class.
#[derive(Debug, Default)]
pub struct Seen {
    count: AtomicU64,
    last_ns: AtomicU64,
}

impl Seen {
    /// Returns the number of packets.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns the milliseconds from an instant until the last packet arrived.
    pub fn last_after(&self, instant: SystemTime) -> f64 {
        let last = Duration::from_nanos(self.last_ns.load(Ordering::Acquire));
        let since = instant.duration_since(SystemTime::UNIX_EPOCH);
        last.saturating_sub(since.unwrap_or_default()).as_secs_f64() * 1e3
    }

    fn enter(&self, at: TimeSpec) {
        let at = Duration::from(at).as_nanos();
        self.last_ns
            .fetch_max(u64::try_from(at).unwrap_or(u64::MAX), Ordering::AcqRel);
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}

/// A thread that reads the IPv4 packets of a host, those that it sends included. The times are those of
/// the kernel, so a late reading changes nothing.
#[derive(Debug)]
pub struct Capture {
    thread: Option<JoinHandle<Result<()>>>,
    over: Arc<AtomicBool>,
}

impl Capture {
    /// Starts to read. `class` gets each packet from its IP header on.
    pub fn start(
        host: &Host,
        class: impl Fn(&[u8]) -> Option<Arc<Seen>> + Send + 'static,
    ) -> Result<Self> {
        let socket = host.run(|| {
            Socket::new(
                Domain::PACKET,
                Type::DGRAM,
                Some(Number::from(ETHERTYPE_IPV4)),
            )
        })??;
        setsockopt(&socket, sockopt::RcvBufForce, &CAPTURE_OCTETS)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        socket.set_read_timeout(Some(CAPTURE_TURN))?;
        let over = Arc::<AtomicBool>::default();
        let stop = Arc::clone(&over);
        let thread = thread::spawn(move || read(&socket, &stop, class));
        Ok(Self {
            thread: Some(thread),
            over,
        })
    }

    /// Ends the thread. Returns an error if the kernel discarded packets.
    pub fn stop(mut self) -> Result<()> {
        self.over.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(done)) => done,
            _ => anyhow::bail!("the capture panicked"),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The error that ended the measurement is the one of interest.
            let _ = thread.join();
        }
    }
}

fn read(
    socket: &Socket,
    stop: &AtomicBool,
    class: impl Fn(&[u8]) -> Option<Arc<Seen>>,
) -> Result<()> {
    let mut control = nix::cmsg_space!(TimeSpec, u32);
    while !stop.load(Ordering::Relaxed) {
        let mut octets = [0; HEADERS];
        let mut slices = [IoSliceMut::new(&mut octets)];
        let flags = MsgFlags::empty();
        let received = recvmsg::<()>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags);
        let received = match received {
            Ok(received) => received,
            Err(Errno::EAGAIN | Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let (mut at, mut lost) = (None, 0);
        for message in received.cmsgs()? {
            match message {
                ControlMessageOwned::ScmTimestampns(time) => at = Some(time),
                ControlMessageOwned::RxqOvfl(count) => lost = count,
                _ => {}
            }
        }
        ensure!(lost == 0, "the capture lost {lost} packets");
        if let Some(at) = at
            && let Some(seen) = class(&octets)
        {
            seen.enter(at);
        }
    }
    Ok(())
}
