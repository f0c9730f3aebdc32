//! A scripted peer of BFD with many addresses, in a process of its own. It sends at its interval, reports its
//! own lateness, and judges the daemon by the kernel's times of arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::num::NonZeroU8;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bfd::limits::PORT_SINGLE_HOP;
use bfd::{Diagnostic, Discriminator, Packet, State};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use nix::sys::time::TimeSpec;

use crate::chance::Chance;
use crate::limits::PEER_REPORT_EVERY;

/// The report of a peer, as it prints it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sessions that are up.
    pub up: u64,
    /// Sessions that the daemon has declared down.
    pub failed: u64,
    /// Gaps between packets of the daemon that exceed the detection time.
    pub gaps: u64,
    /// The longest of its own delays, in microseconds.
    pub late_us: u64,
    /// Its own gaps that exceed the detection time: the daemon is right to find a failure.
    pub own_gaps: u64,
}

impl Report {
    /// Parses the last line of a peer's output.
    pub fn parse(text: &str) -> Result<Self> {
        let line = text.lines().next_back().context("no report of the peer")?;
        let words = line.split_whitespace().map(str::parse);
        let words: Vec<u64> = words.collect::<Result<_, _>>().context("a report")?;
        let [up, failed, gaps, late_us, own_gaps] = *words else {
            anyhow::bail!("not a report: {line}");
        };
        Ok(Self {
            up,
            failed,
            gaps,
            late_us,
            own_gaps,
        })
    }
}

/// One session.
struct Session {
    address: Ipv4Addr,
    packet: Packet,
    /// When its last packet was sent, while it is up.
    sent: Option<Instant>,
    /// When the last packet of the daemon arrived, by the kernel, while it is up.
    arrived: Option<Duration>,
}

struct Peer {
    socket: UdpSocket,
    daemon: SocketAddrV4,
    first: u32,
    interval: Duration,
    detection: Duration,
    sessions: Vec<Session>,
    report: Report,
}

/// Answers at the addresses until the process is ended.
pub fn run(
    daemon: Ipv4Addr,
    (first, count): (Ipv4Addr, u32),
    (interval_ms, multiplier): (u32, u8),
) -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT_SINGLE_HOP))?;
    socket.set_ttl(255)?;
    socket.set_nonblocking(true)?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
    setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20))?;
    let interval = Duration::from_millis(interval_ms.into());
    let multiplier = NonZeroU8::new(multiplier).context("a multiplier of 0")?;
    let session = |number: u32| Session {
        address: Ipv4Addr::from_bits(first.to_bits() + number),
        packet: Packet {
            diagnostic: Diagnostic::NONE,
            state: State::Down,
            poll: false,
            is_final: false,
            control_plane_independent: true,
            demand: false,
            detect_multiplier: multiplier,
            my_discriminator: Discriminator::new(number + 1).unwrap_or(Discriminator::MIN),
            your_discriminator: None,
            desired_min_tx_us: interval_ms * 1000,
            required_min_rx_us: interval_ms * 1000,
            required_min_echo_rx_us: 0,
            auth: None,
        },
        sent: None,
        arrived: None,
    };
    let peer = Peer {
        socket,
        daemon: SocketAddrV4::new(daemon, PORT_SINGLE_HOP),
        first: first.to_bits(),
        interval,
        detection: interval * u32::from(multiplier.get()),
        sessions: (0..count).map(session).collect(),
        report: Report::default(),
    };
    peer.serve()
}

impl Peer {
    fn serve(mut self) -> Result<()> {
        let mut chance = Chance::new(1);
        let began = Instant::now();
        let mut report_at = began + PEER_REPORT_EVERY;
        // Spread over one interval.
        let count = u32::try_from(self.sessions.len())?;
        let starts = (0..self.sessions.len()).zip(0u32..);
        let mut due: BinaryHeap<_> = starts
            .map(|(at, number)| Reverse((began + self.interval * number / count, at)))
            .collect();
        loop {
            self.receive()?;
            let mut now = Instant::now();
            while let Some(&Reverse((at, index))) = due.peek().filter(|Reverse((at, _))| *at <= now)
            {
                due.pop();
                self.send(index, at, now)?;
                // RFC 5880 §6.8.7: up to a quarter less.
                let percent = u32::try_from(75 + chance.below(26)).unwrap_or(100);
                due.push(Reverse((
                    at.max(now - self.interval) + self.interval * percent / 100,
                    index,
                )));
                now = Instant::now();
            }
            if now >= report_at {
                report_at = now + PEER_REPORT_EVERY;
                self.print();
            }
            let next = due.peek().map_or(report_at, |Reverse((at, _))| *at);
            let wait = next.saturating_duration_since(Instant::now());
            let mut polled = [PollFd::new(
                std::os::fd::AsFd::as_fd(&self.socket),
                PollFlags::POLLIN,
            )];
            let wait = PollTimeout::try_from(wait.as_millis()).unwrap_or(PollTimeout::ZERO);
            poll(&mut polled, wait)?;
        }
    }

    fn print(&mut self) {
        let up = |one: &&Session| one.packet.state == State::Up;
        self.report.up = self.sessions.iter().filter(up).count() as u64;
        let Report {
            up,
            failed,
            gaps,
            late_us,
            own_gaps,
        } = self.report;
        println!("{up} {failed} {gaps} {late_us} {own_gaps}");
    }

    /// Sends a packet that was due at an instant.
    fn send(&mut self, index: usize, due: Instant, now: Instant) -> Result<()> {
        let Some(session) = self.sessions.get_mut(index) else {
            return Ok(());
        };
        if session.packet.state == State::Up {
            let late = u64::try_from((now - due).as_micros()).unwrap_or(u64::MAX);
            self.report.late_us = self.report.late_us.max(late);
            let before = session.sent.replace(now);
            self.report.own_gaps +=
                u64::from(before.is_some_and(|before| now - before > self.detection));
        } else {
            session.sent = None;
        }
        self.put(index)
    }

    fn put(&self, index: usize) -> Result<()> {
        let Some(session) = self.sessions.get(index) else {
            return Ok(());
        };
        let info = libc::in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: libc::in_addr {
                s_addr: session.address.to_bits().to_be(),
            },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        let encoded = session.packet.encode();
        let slices = [IoSlice::new(encoded.octets())];
        let attached = [ControlMessage::Ipv4PacketInfo(&info)];
        let to = SockaddrIn::from(self.daemon);
        let (socket, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        match sendmsg(socket, &slices, &attached, flags, Some(&to)) {
            // The daemon may not listen yet.
            Ok(_) | Err(Errno::ECONNREFUSED | Errno::EAGAIN | Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("sending"),
        }
    }

    /// Reads all packets that have arrived.
    fn receive(&mut self) -> Result<()> {
        let mut octets = [0; 128];
        loop {
            let mut space = cmsg_space!(TimeSpec, libc::in_pktinfo);
            let mut slices = [IoSliceMut::new(&mut octets)];
            let (socket, flags) = (self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
            let read = recvmsg::<SockaddrIn>(socket, &mut slices, Some(&mut space), flags);
            let message = match read {
                Ok(message) => message,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR | Errno::ECONNREFUSED) => continue,
                Err(error) => return Err(error).context("receiving"),
            };
            let (mut index, mut stamp) = (None, Duration::ZERO);
            for attached in message.cmsgs()? {
                match attached {
                    ControlMessageOwned::ScmTimestampns(at) => stamp = at.into(),
                    ControlMessageOwned::Ipv4PacketInfo(info) => {
                        let own = u32::from_be(info.ipi_addr.s_addr);
                        index = own.checked_sub(self.first);
                    }
                    _ => {}
                }
            }
            let length = message.bytes;
            let packet = Packet::decode(octets.get(..length).unwrap_or_default());
            if let (Some(index), Ok(packet)) = (index, packet) {
                self.take(index as usize, stamp, &packet)?;
            }
        }
    }

    fn take(&mut self, index: usize, stamp: Duration, received: &Packet) -> Result<()> {
        let Some(session) = self.sessions.get_mut(index) else {
            return Ok(());
        };
        let own = &mut session.packet;
        own.your_discriminator = Some(received.my_discriminator);
        let former = own.state;
        own.state = match (own.state, received.state) {
            (State::Down, State::Down) => State::Init,
            (State::Down | State::Init, State::Init) | (State::Init, State::Up) => State::Up,
            (State::Up, State::Down | State::AdminDown) => State::Down,
            (state, _) => state,
        };
        self.report.failed += u64::from((former, own.state) == (State::Up, State::Down));
        let is_up = own.state == State::Up;
        let before = session.arrived.take();
        session.arrived = is_up.then_some(stamp);
        if let Some(before) = before.filter(|_| is_up) {
            self.report.gaps += u64::from(stamp.saturating_sub(before) > self.detection);
        }
        if received.poll {
            session.packet.is_final = true;
            self.put(index)?;
            if let Some(session) = self.sessions.get_mut(index) {
                session.packet.is_final = false;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_parsed_and_other_text_is_an_error() {
        let report = Report::parse("1 0 0 0 0\n50 2 1 1500 3\n").unwrap();
        assert_eq!((report.up, report.failed, report.gaps), (50, 2, 1));
        assert_eq!((report.late_us, report.own_gaps), (1500, 3));
        for text in ["", "1 2 3", "a b c d e"] {
            assert!(Report::parse(text).is_err(), "{text}");
        }
    }
}
