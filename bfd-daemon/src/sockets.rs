//! The UDP sockets.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bfd::limits::{PORT_MULTIHOP, PORT_SINGLE_HOP, SOURCE_PORTS, TTL_SINGLE_HOP};
use bfd::{Arrival, Discriminator, Hops, Instant, Random};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage,
    recvmmsg, sendmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use socket2::{Domain, Protocol, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::clock::arrival;
use crate::engine::Outgoing;
use crate::filter::of_this_link;
use crate::limits::{
    BIND_RETRY_EVERY, DESCRIPTORS_RESERVED, PACKETS_PER_CALL, PACKETS_PER_TURN, PAYLOAD_OCTETS_MAX,
    RECEIVE_OCTETS, RECEIVED_PACKET_OCTETS, SEND_OCTETS, SENDERS_MAX, SOURCE_PORT_TRIES,
};
use crate::random::SystemRandom;

/// The class of service of sent packets: network control (RFC 2474, CS6).
const CLASS: i32 = 0xc0;

/// All sockets of the daemon.
#[derive(Debug)]
pub struct Sockets {
    receivers: Vec<Receiver>,
    /// The sockets of sessions without one of their own.
    ipv4: Option<Sender>,
    ipv6: Option<Sender>,
    /// The socket of each session (RFC 5881 §4). The kernel charges packets that wait for the link-layer
    /// address of a neighbor to their socket. So they defer no packets to other neighbors.
    senders: BTreeMap<Discriminator, Sender>,
    senders_max: usize,
    /// The sessions that share a socket.
    sharing: BTreeSet<Discriminator>,
    /// Source ports in use.
    ports: BTreeSet<u16>,
    random: SystemRandom,
}

/// A socket for packets of one port.
#[derive(Debug)]
struct Receiver {
    socket: AsyncFd<socket2::Socket>,
    /// The granted size of its buffer.
    octets: usize,
    hops: Hops,
    /// Packets that the kernel has dropped: the time to live shows that they come from another link, or the
    /// buffer was full. It counts since the start of the first process with the socket, modulo 2^32.
    dropped: u32,
    /// When it was last found empty: what is read later arrived later.
    emptied_at: Instant,
}

/// A socket from which packets of one IP version are sent.
#[derive(Debug)]
struct Sender {
    socket: socket2::Socket,
    port: u16,
}

/// A received packet without its payload.
#[derive(Debug)]
struct Received {
    octets: usize,
    source: Option<IpAddr>,
    destination: Option<IpAddr>,
    interface: u32,
    ttl: Option<u8>,
    stamp: Option<Duration>,
    dropped: Option<u32>,
}

impl Sockets {
    /// Opens the sockets on these local addresses. Must be called inside a tokio runtime.
    ///
    /// `earlier` returns the socket of an earlier process with an address. If a port is in use, the bind is
    /// repeated for the time `retry`.
    ///
    /// # Errors
    ///
    /// An address cannot be listened on: another program uses the port, or the address is missing.
    pub async fn open(
        listen: &[IpAddr],
        mut earlier: impl FnMut(SocketAddr) -> Option<socket2::Socket>,
        retry: Duration,
    ) -> io::Result<Self> {
        let until = tokio::time::Instant::now() + retry;
        let mut sockets = Self {
            receivers: Vec::new(),
            ipv4: None,
            ipv6: None,
            senders: BTreeMap::new(),
            senders_max: senders_max(),
            sharing: BTreeSet::new(),
            ports: BTreeSet::new(),
            random: SystemRandom::open()?,
        };
        for &address in listen {
            match sockets.listen(address, &mut earlier, until).await {
                Err(error) if has_no_ipv6(address, &error) => {}
                Err(error) => {
                    let text = format!("cannot listen for BFD on {address}: {error}");
                    return Err(io::Error::new(error.kind(), text));
                }
                Ok(()) => {}
            }
        }
        Ok(sockets)
    }

    async fn listen(
        &mut self,
        address: IpAddr,
        earlier: &mut impl FnMut(SocketAddr) -> Option<socket2::Socket>,
        until: tokio::time::Instant,
    ) -> io::Result<()> {
        for (hops, at) in ports(address) {
            let receiver = match earlier(at) {
                Some(socket) => Receiver::of(socket, hops)?,
                None => Receiver::open(at, hops, until).await?,
            };
            self.receivers.push(receiver);
        }
        let sender = match address {
            IpAddr::V4(_) => &mut self.ipv4,
            IpAddr::V6(_) => &mut self.ipv6,
        };
        if sender.is_none() {
            let (ports, random) = (&mut self.ports, &mut self.random);
            *sender = Some(Sender::open(address.is_ipv4(), None, ports, random)?);
        }
        Ok(())
    }

    /// Returns the local addresses and ports of the receiving sockets for these addresses.
    #[must_use]
    pub fn wanted(listen: &[IpAddr]) -> Vec<SocketAddr> {
        let all = listen.iter().flat_map(|address| ports(*address));
        all.map(|(_, at)| at).collect()
    }

    /// Notes that all sockets of the earlier process were found empty at this time.
    pub fn were_empty_at(&mut self, at: Instant) {
        for receiver in &mut self.receivers {
            receiver.emptied_at = at;
        }
    }

    /// Returns the addresses on which packets are received.
    #[must_use]
    pub fn listening(&self) -> Vec<SocketAddr> {
        let addresses = self.receivers.iter().filter_map(|receiver| {
            let address = receiver.socket.get_ref().local_addr().ok()?;
            address.as_socket()
        });
        addresses.collect()
    }

    /// Returns the receiving sockets.
    pub fn receivers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let sockets = self.receivers.iter();
        sockets.map(|receiver| receiver.socket.get_ref().as_fd())
    }

    /// Returns when all receiving sockets were found empty.
    #[must_use]
    pub fn emptied_at(&self) -> Instant {
        let times = self.receivers.iter().map(|receiver| receiver.emptied_at);
        times.min().unwrap_or_default()
    }

    /// Returns the source port of a session with a socket of its own.
    #[must_use]
    pub fn port(&self, id: Discriminator) -> Option<u16> {
        self.senders.get(&id).map(|sender| sender.port)
    }

    /// Opens the socket of a session of an earlier process, if possible with the same source port.
    pub fn open_again(&mut self, id: Discriminator, is_ipv4: bool, port: u16) {
        let (ports, random) = (&mut self.ports, &mut self.random);
        if self.senders_max > 0
            && let Ok(own) = Sender::open(is_ipv4, Some(port), ports, random)
        {
            self.senders_max -= 1;
            self.senders.insert(id, own);
        }
    }

    /// Waits until a packet has arrived. Cancel-safe.
    pub async fn ready(&self) {
        poll_fn(|cx| {
            let mut ready = Poll::Pending;
            // All are polled, so that each wakes the task.
            for receiver in &self.receivers {
                if receiver.socket.poll_read_ready(cx).is_ready() {
                    ready = Poll::Ready(());
                }
            }
            ready
        })
        .await;
    }

    /// Passes the packets that have arrived before `now` to `take`. Returns whether more may wait.
    pub fn receive(&mut self, now: Instant, mut take: impl FnMut(&Arrival, &[u8])) -> bool {
        let mut has_more = false;
        for receiver in &mut self.receivers {
            has_more |= receiver.receive(now, &mut take);
        }
        has_more
    }

    /// Sends a packet.
    ///
    /// # Errors
    ///
    /// The kernel does not send it: there is no route or no such local address, for example.
    pub fn send(&mut self, outgoing: &Outgoing) -> io::Result<()> {
        let is_ipv4 = outgoing.way.remote.is_ipv4();
        let shared = match is_ipv4 {
            true => &self.ipv4,
            false => &self.ipv6,
        };
        let Some(shared) = shared else {
            return Err(ErrorKind::Unsupported.into());
        };
        let sender = match self.senders.entry(outgoing.id) {
            Entry::Occupied(own) => own.into_mut(),
            // A session keeps its source port (RFC 5881 §4).
            Entry::Vacant(_) if self.sharing.contains(&outgoing.id) => shared,
            Entry::Vacant(place) => {
                let has_room = self.senders_max > 0;
                let (ports, random) = (&mut self.ports, &mut self.random);
                match has_room.then(|| Sender::open(is_ipv4, None, ports, random)) {
                    Some(Ok(own)) => {
                        self.senders_max -= 1;
                        place.insert(own)
                    }
                    _ => {
                        self.sharing.insert(outgoing.id);
                        shared
                    }
                }
            }
        };
        sender.send(outgoing)
    }

    /// Closes the sockets of ended sessions, if there are more than sessions.
    pub fn close_ended(&mut self, sessions: usize, exists: impl Fn(Discriminator) -> bool) {
        if self.senders.len() + self.sharing.len() <= sessions {
            return;
        }
        let (ports, before) = (&mut self.ports, self.senders.len());
        self.senders.retain(|id, sender| {
            let is_kept = exists(*id);
            if !is_kept {
                ports.remove(&sender.port);
            }
            is_kept
        });
        self.senders_max += before - self.senders.len();
        self.sharing.retain(|id| exists(*id));
    }

    /// Returns the packets that the kernel has dropped before they were read, as of the last packet of each
    /// socket.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let receivers = self.receivers.iter();
        receivers.map(|receiver| u64::from(receiver.dropped)).sum()
    }

    /// Returns a note if sessions share a socket.
    #[must_use]
    pub fn sharing(&self) -> Option<String> {
        let count = self.sharing.len();
        (count > 0).then(|| {
            format!(
                "{count} sessions share a sending socket: packets to dead neighbors can delay those of these \
                 sessions; raise the limit of open files (LimitNOFILE) and restart the daemon"
            )
        })
    }

    /// Returns a note if the kernel stores fewer received packets than arrive within one detection time.
    #[must_use]
    pub fn short_of_memory(&self, packets: u64) -> Option<String> {
        let octets = self
            .receivers
            .iter()
            .map(|receiver| receiver.octets)
            .min()?;
        let stored = octets as u64 / RECEIVED_PACKET_OCTETS;
        (stored < packets).then(|| {
            format!(
                "a receiving socket stores some {stored} packets, fewer than the {packets} of one detection \
                 time of all sessions: if the daemon is stopped for longer, sessions fail; raise the sysctl \
                 net.core.rmem_max, up to {RECEIVE_OCTETS}, and restart the daemon"
            )
        })
    }
}

/// Returns the number of sending sockets that the limit of open files allows.
fn senders_max() -> usize {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((0, 0));
    let soft = usize::try_from(soft).unwrap_or(usize::MAX);
    soft.saturating_sub(DESCRIPTORS_RESERVED).min(SENDERS_MAX)
}

/// Returns whether a host without IPv6 rejects the address for all of it.
fn has_no_ipv6(address: IpAddr, error: &io::Error) -> bool {
    let reasons = [libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL];
    let is_reason = error
        .raw_os_error()
        .is_some_and(|code| reasons.contains(&code));
    address == IpAddr::V6(Ipv6Addr::UNSPECIFIED) && is_reason
}

/// Returns the local address and port for each kind of session.
fn ports(address: IpAddr) -> [(Hops, SocketAddr); 2] {
    let at = |port| SocketAddr::new(address, port);
    [
        (Hops::Single, at(PORT_SINGLE_HOP)),
        (Hops::Multi, at(PORT_MULTIHOP)),
    ]
}

fn socket(is_ipv4: bool) -> io::Result<socket2::Socket> {
    let domain = if is_ipv4 { Domain::IPV4 } else { Domain::IPV6 };
    let kind = Type::DGRAM.cloexec().nonblocking();
    let socket = socket2::Socket::new(domain, kind, Some(Protocol::UDP))?;
    if !is_ipv4 {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

impl Receiver {
    async fn open(at: SocketAddr, hops: Hops, until: tokio::time::Instant) -> io::Result<Self> {
        let socket = socket(at.is_ipv4())?;
        Self::set_options(&socket, at.is_ipv4())?;
        loop {
            match socket.bind(&at.into()) {
                Err(error)
                    if error.kind() == ErrorKind::AddrInUse
                        && tokio::time::Instant::now() < until =>
                {
                    tokio::time::sleep(BIND_RETRY_EVERY).await;
                }
                bound => break bound?,
            }
        }
        Self::of(socket, hops)
    }

    /// Sets what is set before packets arrive: each has its time, its destination and its time to live.
    fn set_options(socket: &socket2::Socket, is_ipv4: bool) -> io::Result<()> {
        setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
        setsockopt(socket, sockopt::RxqOvfl, &1)?;
        if is_ipv4 {
            setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?;
            setsockopt(socket, sockopt::Ipv4RecvTtl, &true)?;
        } else {
            setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?;
            setsockopt(socket, sockopt::Ipv6RecvHopLimit, &true)?;
        }
        Ok(())
    }

    fn of(socket: socket2::Socket, hops: Hops) -> io::Result<Self> {
        socket.set_recv_buffer_size(RECEIVE_OCTETS)?;
        if hops == Hops::Single {
            let is_ipv4 = socket.local_addr()?.is_ipv4();
            socket.attach_filter(&of_this_link(is_ipv4))?;
        }
        Ok(Self {
            dropped: 0,
            octets: socket.recv_buffer_size()?,
            socket: bfd_client::register(socket)?,
            hops,
            emptied_at: Instant::ZERO,
        })
    }

    fn receive(&mut self, now: Instant, take: &mut impl FnMut(&Arrival, &[u8])) -> bool {
        let of_day = SystemTime::now();
        let mut payloads = [[0; PAYLOAD_OCTETS_MAX]; PACKETS_PER_CALL];
        for _ in 0..PACKETS_PER_TURN / PACKETS_PER_CALL {
            let read = |socket: &socket2::Socket| read(socket, &mut payloads);
            let batch = match bfd_client::now(&self.socket, Interest::READABLE, read) {
                Ok(batch) => batch,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.emptied_at = now;
                    return false;
                }
                // An error of an earlier packet, which the kernel reports once.
                Err(_) => continue,
            };
            let mut has_newer = false;
            for (received, payload) in batch.iter().zip(&payloads) {
                let stamp = received.stamp;
                self.dropped = received.dropped.unwrap_or(self.dropped);
                has_newer |= stamp.is_some_and(|stamp| SystemTime::UNIX_EPOCH + stamp > of_day);
                if let (Some(source), Some(destination), Some(ttl)) =
                    (received.source, received.destination, received.ttl)
                {
                    let (hops, interface) = (self.hops, received.interface);
                    let arrived = Arrival::new(hops, interface, source, destination, ttl);
                    let arrived = arrived.with(|arrived| {
                        arrived.arrived_at =
                            stamp.map(|stamp| arrival(now, of_day, stamp, self.emptied_at));
                    });
                    let octets = payload.get(..received.octets).unwrap_or_default();
                    take(&arrived, octets);
                }
            }
            // A flood does not defer the timers.
            if has_newer {
                return true;
            }
        }
        true
    }
}

/// Reads as many packets as wait and have room, with one system call.
fn read(
    socket: &socket2::Socket,
    payloads: &mut [[u8; PAYLOAD_OCTETS_MAX]],
) -> io::Result<Vec<Received>> {
    // Made for each call: the kernel replaces the lengths of the buffers by those of the packets.
    let space = cmsg_space!(TimeSpec, libc::in6_pktinfo, libc::c_int, u32);
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(payloads.len(), Some(space));
    let slices = payloads.iter_mut();
    let mut slices: Vec<_> = slices.map(|payload| [IoSliceMut::new(payload)]).collect();
    let (fd, flags) = (socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
    let messages = recvmmsg(fd, &mut headers, slices.iter_mut(), flags, None)?;
    Ok(messages.map(|message| received(&message)).collect())
}

fn received(message: &RecvMsg<'_, '_, SockaddrStorage>) -> Received {
    let mut received = Received {
        octets: message.bytes,
        source: message.address.as_ref().and_then(ip),
        destination: None,
        interface: 0,
        ttl: None,
        stamp: None,
        dropped: None,
    };
    for attached in message.cmsgs().into_iter().flatten() {
        match attached {
            ControlMessageOwned::ScmTimestampns(at) => received.stamp = Some(at.into()),
            ControlMessageOwned::RxqOvfl(dropped) => received.dropped = Some(dropped),
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                let address = Ipv4Addr::from_bits(u32::from_be(info.ipi_addr.s_addr));
                received.destination = Some(address.into());
                received.interface = u32::try_from(info.ipi_ifindex).unwrap_or_default();
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                received.destination = Some(address.into());
                received.interface = info.ipi6_ifindex;
            }
            ControlMessageOwned::Ipv4Ttl(ttl) | ControlMessageOwned::Ipv6HopLimit(ttl) => {
                received.ttl = u8::try_from(ttl).ok();
            }
            _ => {}
        }
    }
    received
}

impl Sender {
    /// Opens a socket with the preferred source port, or a random one. Sessions may have the same one if all
    /// are in use: no system distinguishes sessions by it.
    fn open(
        is_ipv4: bool,
        preferred: Option<u16>,
        used: &mut BTreeSet<u16>,
        random: &mut impl Random,
    ) -> io::Result<Self> {
        let socket = socket(is_ipv4)?;
        // Nothing is read from it: the kernel stores as little as it can.
        socket.set_recv_buffer_size(0)?;
        socket.set_send_buffer_size(SEND_OCTETS)?;
        let any: IpAddr = match is_ipv4 {
            true => Ipv4Addr::UNSPECIFIED.into(),
            false => Ipv6Addr::UNSPECIFIED.into(),
        };
        let ttl = u32::from(TTL_SINGLE_HOP);
        match is_ipv4 {
            true => {
                socket.set_ttl_v4(ttl)?;
                setsockopt(&socket, sockopt::Ipv4Tos, &CLASS)?;
            }
            false => {
                socket.set_unicast_hops_v6(ttl)?;
                setsockopt(&socket, sockopt::Ipv6TClass, &CLASS)?;
            }
        }
        socket.set_reuse_address(true)?;
        let count = u64::from(SOURCE_PORTS.end() - SOURCE_PORTS.start()) + 1;
        let mut last = io::Error::from(ErrorKind::AddrInUse);
        for attempt in 1..=SOURCE_PORT_TRIES {
            let above = u16::try_from(random.next_u64() % count).unwrap_or_default();
            let preferred = preferred.filter(|_| attempt == 1);
            let port = preferred.unwrap_or(SOURCE_PORTS.start() + above);
            if used.contains(&port) && attempt < SOURCE_PORT_TRIES {
                continue;
            }
            match socket.bind(&SocketAddr::new(any, port).into()) {
                Ok(()) => {
                    used.insert(port);
                    return Ok(Self { socket, port });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn send(&self, outgoing: &Outgoing) -> io::Result<()> {
        let way = &outgoing.way;
        let port = match way.path.hops() {
            Hops::Single => PORT_SINGLE_HOP,
            Hops::Multi => PORT_MULTIHOP,
        };
        let to = SockaddrStorage::from(SocketAddr::new(way.remote, port));
        match way.local {
            IpAddr::V4(local) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: i32::try_from(way.interface).unwrap_or_default(),
                    ipi_spec_dst: libc::in_addr {
                        s_addr: local.to_bits().to_be(),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                self.send_with(outgoing, &ControlMessage::Ipv4PacketInfo(&info), &to)
            }
            IpAddr::V6(local) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: local.octets(),
                    },
                    ipi6_ifindex: way.interface,
                };
                self.send_with(outgoing, &ControlMessage::Ipv6PacketInfo(&info), &to)
            }
        }
    }

    fn send_with(
        &self,
        outgoing: &Outgoing,
        info: &ControlMessage<'_>,
        to: &SockaddrStorage,
    ) -> io::Result<()> {
        let slices = [IoSlice::new(outgoing.packet.octets())];
        let flags = MsgFlags::MSG_DONTWAIT;
        let attached = std::slice::from_ref(info);
        loop {
            match sendmsg(self.socket.as_raw_fd(), &slices, attached, flags, Some(to)) {
                Err(Errno::EINTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

#[cfg(test)]
mod tests;
