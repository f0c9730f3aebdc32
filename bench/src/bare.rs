//! The fastest way into the kernel's table: a loop that only sends requests that were encoded
//! beforehand, with a concurrent listener to the kernel's notifications.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, sync::Arc};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// Requests in one system call; only the last one is answered.
const BATCH: usize = 256;
/// Octets read at once, of answers and notifications.
const READ_OCTETS: usize = 64 << 10;
/// Receive buffer of the listener's socket: as large as a daemon requests.
const LISTEN_OCTETS: usize = 16 << 20;

// linux/netlink.h and linux/rtnetlink.h
const NLMSG_ERROR: u16 = 2;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const RTA_DST: u16 = 1;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
/// The group of IPv4 routes.
pub const RTMGRP_IPV4_ROUTE: u32 = 0x40;

/// The operation on routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `RTM_NEWROUTE`, exclusive.
    Add,
    /// `RTM_DELROUTE`.
    Delete,
}

/// Sends all routes (/24 with one gateway) and returns how long it took. Must be called in the
/// namespace of the table.
pub fn run(verb: Verb, prefixes: &[Ipv4Addr], gateway: Ipv4Addr, metric: u32) -> Result<Duration> {
    let batches: Vec<_> = prefixes
        .chunks(BATCH)
        .map(|prefixes| encode(verb, prefixes, gateway, metric))
        .collect();
    let listener = Listener::start(SockProtocol::NetlinkRoute, RTMGRP_IPV4_ROUTE, |_, _| {})?;
    let requests = open(SockProtocol::NetlinkRoute, 0)?;
    let mut answer = vec![0; READ_OCTETS];
    let began = Instant::now();
    for batch in &batches {
        send(requests.as_raw_fd(), batch, MsgFlags::empty()).context("netlink send")?;
        let octets = recv(requests.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        check(answer.get(..octets).unwrap_or_default())?;
    }
    let took = began.elapsed();
    drop(listener);
    Ok(took)
}

fn encode(verb: Verb, prefixes: &[Ipv4Addr], gateway: Ipv4Addr, metric: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(prefixes.len() * 52);
    for (at, prefix) in prefixes.iter().enumerate() {
        let (kind, flags) = match verb {
            Verb::Add => (RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL),
            Verb::Delete => (RTM_DELROUTE, 0),
        };
        let last = at + 1 == prefixes.len();
        let ack = if last { NLM_F_ACK } else { 0 };
        out.extend_from_slice(&52_u32.to_ne_bytes());
        out.extend_from_slice(&kind.to_ne_bytes());
        out.extend_from_slice(&(NLM_F_REQUEST | flags | ack).to_ne_bytes());
        out.extend_from_slice(&(at as u32 + 1).to_ne_bytes());
        out.extend_from_slice(&[0; 4]);
        // struct rtmsg: family, lengths, tos, table main, protocol static, scope, type unicast
        out.extend_from_slice(&[2, 24, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0]);
        attribute(RTA_DST, prefix.octets(), &mut out);
        attribute(RTA_GATEWAY, gateway.octets(), &mut out);
        attribute(RTA_PRIORITY, metric.to_ne_bytes(), &mut out);
    }
    out
}

fn attribute(kind: u16, value: [u8; 4], out: &mut Vec<u8>) {
    out.extend_from_slice(&8_u16.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&value);
}

/// Checks that the first answer reports success.
fn check(answer: &[u8]) -> Result<()> {
    let kind = answer.get(4..6).and_then(|octets| octets.first_chunk());
    ensure!(kind.copied().map(u16::from_ne_bytes) == Some(NLMSG_ERROR));
    let errno = answer.get(16..20).and_then(|octets| octets.first_chunk());
    let errno = errno.copied().map_or(0, i32::from_ne_bytes);
    ensure!(errno == 0, "{}", io::Error::from_raw_os_error(-errno));
    Ok(())
}

fn open(protocol: SockProtocol, groups: u32) -> Result<OwnedFd> {
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        protocol,
    )?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(fd)
}

/// A thread that reads all notifications of a group; it ends when this is dropped.
#[derive(Debug)]
pub struct Listener {
    thread: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl Listener {
    /// Starts to listen in the namespace of the calling thread, and passes on each datagram with
    /// the instant of its reading.
    pub fn start(
        protocol: SockProtocol,
        groups: u32,
        mut on_message: impl FnMut(&[u8], Instant) + Send + 'static,
    ) -> Result<Self> {
        let fd = open(protocol, groups)?;
        // Without the privilege the buffer may overrun, as a daemon's may.
        let _ = setsockopt(&fd, sockopt::RcvBufForce, &LISTEN_OCTETS);
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(0, 50_000))?;
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; READ_OCTETS];
            while !stop.load(Ordering::Relaxed) {
                match recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                    Ok(octets) => {
                        on_message(buffer.get(..octets).unwrap_or_default(), Instant::now())
                    }
                    Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => {}
                    Err(_) => return,
                }
            }
        });
        Ok(Self {
            thread: Some(thread),
            over,
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It may have panicked; the reader of its channel has noticed.
            let _ = thread.join();
        }
    }
}
