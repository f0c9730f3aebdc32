//! A pinger without external programs: echo requests from a host over raw sockets, IPv4 and IPv6.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, bind, socket,
};
use tokio::net::UdpSocket;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

use crate::icmp;
use crate::limits::{FLOW_LINGER, ICMP_OCTETS_MAX};
use crate::{Error, Host};

/// Sends echo requests from one host and measures the round-trip times.
#[derive(Debug)]
pub struct Pinger {
    shared: Arc<Shared>,
    readers: [JoinHandle<()>; 2],
}

#[derive(Debug)]
struct Shared {
    v4: UdpSocket,
    v6: UdpSocket,
    state: Mutex<State>,
}

/// Pending requests, by destination and sequence number.
#[derive(Debug, Default)]
struct State {
    sequence: u16,
    waiting: BTreeMap<(IpAddr, u16), oneshot::Sender<Instant>>,
}

/// One identifier serves all pingers: their sockets are in different network namespaces, or they
/// filter by their own sequence numbers and destinations.
const IDENTIFIER: u16 = 0xca3b;

impl Drop for Pinger {
    fn drop(&mut self) {
        self.readers.iter().for_each(JoinHandle::abort);
    }
}

impl Pinger {
    /// Opens the sockets in `host`; the requests have these source addresses. Needs a running tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// If raw sockets are forbidden or an address is not the host's.
    pub fn open(host: &Host, v4: Ipv4Addr, v6: Ipv6Addr) -> Result<Self, Error> {
        let fail = |e| Error::system("raw socket", host.name(), e);
        let (four, six) = host.run(|| open_sockets(v4, v6))?.map_err(fail)?;
        // A raw socket is read and written with the calls of a UDP socket; its port is zero.
        let register = |fd: OwnedFd| {
            UdpSocket::from_std(fd.into()).map_err(|e| Error::io("watching", host.name(), e))
        };
        let shared = Arc::new(Shared {
            v4: register(four)?,
            v6: register(six)?,
            state: Mutex::default(),
        });
        let readers = [
            tokio::spawn(read(shared.clone(), true)),
            tokio::spawn(read(shared.clone(), false)),
        ];
        Ok(Self { shared, readers })
    }

    /// Sends one request; returns the round-trip time, or `None` without an answer within `limit`.
    pub async fn ping(&self, to: IpAddr, limit: Duration) -> Option<Duration> {
        self.shared.clone().ping(to, limit).await
    }

    /// Sends a request to `to` every `period` until the flow is stopped.
    pub fn flow(&self, to: IpAddr, period: Duration) -> Flow {
        let (stop, stopped) = oneshot::channel();
        let (count, sent) = watch::channel(0);
        let task = tokio::spawn(send_flow(self.shared.clone(), to, period, stopped, count));
        Flow { stop, sent, task }
    }
}

/// A running series of requests.
#[derive(Debug)]
pub struct Flow {
    /// Ends it; the value is the time to wait for pending answers.
    stop: oneshot::Sender<Duration>,
    sent: watch::Receiver<u32>,
    task: JoinHandle<FlowReport>,
}

/// The result of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowReport {
    /// The destination.
    pub to: IpAddr,
    /// Requests sent.
    pub sent: u32,
    /// Answers received.
    pub received: u32,
    /// The longest round trip of answered requests.
    pub slowest: Duration,
    /// The longest time between two answered requests, less the period: how long the destination
    /// was unreachable.
    pub gap: Duration,
}

impl FlowReport {
    /// Requests without an answer.
    pub const fn lost(&self) -> u32 {
        self.sent.saturating_sub(self.received)
    }
}

impl Flow {
    /// Waits until this many more requests have been sent since the call.
    pub async fn sends(&mut self, more: u32) {
        let until = *self.sent.borrow() + more;
        // The sender ends only with the flow, and `stop` reports its end.
        let _ = self.sent.wait_for(|sent| *sent >= until).await;
    }

    /// Stops sending, waits for pending answers, and reports.
    pub async fn stop(self) -> FlowReport {
        self.stop_within(FLOW_LINGER).await
    }

    /// Does the same as `stop`, but waits at most this long for pending answers.
    pub async fn stop_within(self, linger: Duration) -> FlowReport {
        let _ = self.stop.send(linger);
        self.task
            .await
            .unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
    }
}

async fn send_flow(
    shared: Arc<Shared>,
    to: IpAddr,
    period: Duration,
    mut stopped: oneshot::Receiver<Duration>,
    sent: watch::Sender<u32>,
) -> FlowReport {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut requests = Vec::new();
    let linger = loop {
        tokio::select! {
            linger = &mut stopped => break linger.unwrap_or(FLOW_LINGER),
            _ = ticks.tick() => {
                let at = Instant::now();
                requests.push((at, tokio::spawn(shared.clone().ping(to, FLOW_LINGER))));
                sent.send_modify(|sent| *sent += 1);
            }
        }
    };
    let until = Instant::now() + linger;
    let mut report = FlowReport {
        to,
        sent: 0,
        received: 0,
        slowest: Duration::ZERO,
        gap: Duration::ZERO,
    };
    let mut answered = None;
    for (at, request) in requests {
        report.sent += 1;
        let Ok(Ok(Some(time))) = timeout_at(until, request).await else {
            continue;
        };
        report.received += 1;
        report.slowest = report.slowest.max(time);
        if let Some(before) = answered.replace(at) {
            report.gap = report.gap.max((at - before).saturating_sub(period));
        }
    }
    report
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ping(self: Arc<Self>, to: IpAddr, limit: Duration) -> Option<Duration> {
        let (sender, answer) = oneshot::channel();
        let sequence = {
            let mut state = self.lock();
            state.sequence = state.sequence.wrapping_add(1);
            let sequence = state.sequence;
            state.waiting.insert((to, sequence), sender);
            sequence
        };
        let sent = Instant::now();
        let time = if self.send(to, sequence).await {
            timeout(limit, answer)
                .await
                .ok()
                .and_then(Result::ok)
                .map(|at| at - sent)
        } else {
            None
        };
        self.lock().waiting.remove(&(to, sequence));
        time
    }

    /// Sends a request; one that the kernel rejects (no route, a full buffer) counts as lost.
    async fn send(&self, to: IpAddr, sequence: u16) -> bool {
        let message = icmp::request(to, IDENTIFIER, sequence);
        let socket = if to.is_ipv4() { &self.v4 } else { &self.v6 };
        socket
            .send_to(&message, SocketAddr::new(to, 0))
            .await
            .is_ok()
    }

    fn answered(&self, from: IpAddr, sequence: u16) {
        let waiting = self.lock().waiting.remove(&(from, sequence));
        if let Some(sender) = waiting {
            let _ = sender.send(Instant::now());
        }
    }
}

async fn read(shared: Arc<Shared>, v4: bool) {
    let socket = if v4 { &shared.v4 } else { &shared.v6 };
    let mut buffer = [0_u8; ICMP_OCTETS_MAX];
    // An error concerns one packet, such as a received ICMP unreachable.
    loop {
        let Ok((octets, from)) = socket.recv_from(&mut buffer).await else {
            continue;
        };
        let message = buffer.get(..octets).unwrap_or_default();
        let reply = if v4 {
            icmp::reply_v4(message)
        } else {
            icmp::reply_v6(message)
        };
        if let Some((IDENTIFIER, sequence)) = reply {
            shared.answered(from.ip(), sequence);
        }
    }
}

fn open_sockets(v4: Ipv4Addr, v6: Ipv6Addr) -> nix::Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let four = socket(
        AddressFamily::Inet,
        SockType::Raw,
        flags,
        SockProtocol::Icmp,
    )?;
    bind(
        four.as_raw_fd(),
        &SockaddrIn::from(SocketAddrV4::new(v4, 0)),
    )?;
    let six = socket(
        AddressFamily::Inet6,
        SockType::Raw,
        flags,
        SockProtocol::IcmpV6,
    )?;
    bind(
        six.as_raw_fd(),
        &SockaddrIn6::from(SocketAddrV6::new(v6, 0, 0, 0)),
    )?;
    Ok((four, six))
}
