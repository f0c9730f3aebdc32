//! Speakers on loopback addresses, and a scripted peer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bgp_io::bgp_fsm::State;
use bgp_io::bgp_proto::{
    Asn, Attributes, Capability, Family, Frame, Ipv4Prefix, Net, NextHop, Open, RouterId,
    next_frame,
};
use bgp_io::bgp_speaker::{PeerConfig, SpeakerConfig};
use bgp_io::rib::Role;
use bgp_io::{Event, Input, Io, IoConfig, Speaker, bgp_speaker};
use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

/// How long a test waits for an event that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How long a test waits to be sure that an event does not happen.
pub(crate) const DOUBT: Duration = Duration::from_millis(1_500);

pub(crate) fn host(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

/// A speaker of AS 64512 at 127.0.0.`last`, without peers.
pub(crate) fn speaker(last: u8) -> SpeakerConfig {
    SpeakerConfig::new(Asn(64512), RouterId(host(last)))
}

/// The neighbor at `remote` of the speaker at 127.0.0.`last`: it waits for the neighbor's
/// connection unless `port` is given.
pub(crate) fn neighbor(last: u8, remote: IpAddr, port: Option<u16>) -> PeerConfig {
    let mut peer = speaker(last).neighbor(remote, Role::Internal);
    peer.name = format!("n-{remote}");
    peer.port = port.unwrap_or(peer.port);
    peer.local = remote.is_ipv4().then_some(IpAddr::V4(host(last)));
    peer.session.passive = port.is_none();
    peer.session.connect_retry_s = 1;
    peer
}

/// A port that is free on all addresses, and so is the next one. They are below the kernel's
/// ephemeral ports, so that no other socket gets them later.
pub(crate) fn two_ports() -> u16 {
    const PAIRS: u16 = 10_000;
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % u32::from(PAIRS)).expect("small");
    let is_free = |port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
    let mut ports = (0..PAIRS).map(|_| {
        let nth = TRIED.fetch_add(1, Ordering::Relaxed);
        10_000 + 2 * ((process + nth) % PAIRS)
    });
    let free = ports.find(|port| is_free(*port) && is_free(port + 1));
    free.expect("two free ports")
}

/// Suspends the process for this long, while octets arrive in its sockets.
pub(crate) async fn stall(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// A driver that listens at 127.0.0.`last` on any free port.
pub(crate) fn io(last: u8, config: SpeakerConfig) -> Io {
    let listen = vec![SocketAddr::from((host(last), 0))];
    Io::new(Speaker::new(config, u64::from(last)), IoConfig::new(listen)).expect("it can listen")
}

/// The port of a driver.
pub(crate) fn port(io: &Io) -> u16 {
    io.listening().next().expect("it listens").port()
}

/// A passive driver at `b` and one at `a` that connects to it; `change` is applied to the neighbor
/// of each.
pub(crate) fn pair(a: u8, b: u8, change: impl Fn(u8, &mut PeerConfig)) -> [Io; 2] {
    let make = |us: u8, them: u8, port| {
        let mut peer = neighbor(us, host(them).into(), port);
        change(us, &mut peer);
        io(us, speaker(us).with_peer(peer))
    };
    let passive = make(b, a, None);
    let active = make(a, b, Some(port(&passive)));
    [active, passive]
}

/// Drives both until `done` returns true for them and an event of one (0 or 1); panics after the
/// timeout.
pub(crate) async fn until(
    pair: &mut [Io; 2],
    mut done: impl FnMut(&[Io; 2], Option<(usize, &Event)>) -> bool,
) {
    let within = run(pair, PATIENCE, &mut done).await;
    let states: Vec<_> = pair
        .iter()
        .flat_map(|io| io.speaker().peers())
        .map(|p| p.session.state())
        .collect();
    assert!(within, "it has not come: {states:?}");
}

/// Drives both for a while; returns whether `done` returned true.
pub(crate) async fn run(
    pair: &mut [Io; 2],
    time: Duration,
    done: &mut impl FnMut(&[Io; 2], Option<(usize, &Event)>) -> bool,
) -> bool {
    let deadline = Instant::now() + time;
    loop {
        let [a, b] = &mut *pair;
        let (at, events) = tokio::select! {
            events = a.next() => (0, events),
            events = b.next() => (1, events),
            () = tokio::time::sleep_until(deadline) => return false,
        };
        if events.iter().any(|event| done(pair, Some((at, event)))) || done(pair, None) {
            return true;
        }
    }
}

/// Whether the first session of each is Established.
pub(crate) fn up(pair: &[Io; 2], _: Option<(usize, &Event)>) -> bool {
    pair.iter().all(is_up)
}

pub(crate) fn is_up(io: &Io) -> bool {
    io.speaker()
        .peers()
        .any(|peer| peer.session.state() == State::Established)
}

pub(crate) fn prefix(number: u32) -> Ipv4Prefix {
    Ipv4Prefix::new(Ipv4Addr::from(0x0a00_0000 + (number << 8)), 24).expect("a prefix")
}

/// Announces prefix `number` with a MED of the same number.
pub(crate) fn announce(io: &mut Io, number: u32) {
    // A next hop in 127.0.0.0/8 would be rejected by the peer.
    let next_hop = Some(NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let attributes = Attributes {
        med: Some(number),
        next_hop,
        ..Attributes::default()
    };
    local(io, number, Some(attributes));
}

pub(crate) fn local(io: &mut Io, number: u32, attributes: Option<Attributes>) {
    let (family, net) = (Family::IPV4_UNICAST, Net::V4(prefix(number)));
    io.handle(Input::Local {
        family,
        net,
        attributes,
        interface: None,
    });
}

/// The MED with which a driver's speaker holds prefix `number`.
pub(crate) fn med(io: &Io, number: u32) -> Option<u32> {
    let rib = io.speaker().rib();
    let route = rib.lookup(Family::IPV4_UNICAST, Net::V4(prefix(number)))?;
    route.paths.first()?.received.med
}

/// Number of paths of a driver's speaker from its peers.
pub(crate) fn held(io: &Io) -> usize {
    let counters = io.speaker().peers().flat_map(|peer| peer.families);
    counters.map(|(_, counters)| counters.paths as usize).sum()
}

/// The reason of a `Down` event.
pub(crate) fn down(event: &Event) -> Option<&bgp_io::bgp_fsm::DownReason> {
    match event {
        Event::Speaker(bgp_speaker::Event::Down { reason, .. }) => Some(reason),
        _ => None,
    }
}

/// A scripted peer.
pub(crate) struct RawPeer {
    pub(crate) stream: TcpStream,
    buffer: BytesMut,
}

impl RawPeer {
    /// Connects from 127.0.0.`last`, with a receive buffer of this size if given.
    pub(crate) async fn dial(last: u8, to: SocketAddr, receive_octets: Option<u32>) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        if let Some(octets) = receive_octets {
            socket.set_recv_buffer_size(octets).expect("a buffer");
        }
        socket.bind((host(last), 0).into()).expect("an address");
        let stream = socket.connect(to).await.expect("somebody listens");
        // Its octets are sent at once, also behind unread ones.
        stream.set_nodelay(true).expect("an option");
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// A connection that was made otherwise.
    pub(crate) fn of(stream: std::net::TcpStream) -> Self {
        stream.set_nonblocking(true).expect("an option");
        Self {
            stream: TcpStream::from_std(stream).expect("a runtime"),
            buffer: BytesMut::new(),
        }
    }

    pub(crate) async fn send(&mut self, kind: u8, body: &[u8]) {
        let mut out = BytesMut::new();
        out.put_slice(&[0xff; 16]);
        out.put_u16(u16::try_from(19 + body.len()).expect("short"));
        out.put_u8(kind);
        out.put_slice(body);
        self.stream.write_all(&out).await.expect("it listens");
    }

    pub(crate) async fn open(&mut self, last: u8) {
        let capabilities = vec![
            Capability::MultiProtocol(Family::IPV4_UNICAST),
            Capability::FourOctetAsn(Asn(64512)),
        ];
        let open = Open {
            asn: Asn(64512),
            hold_time: 90,
            id: RouterId(host(last)),
            capabilities,
        };
        let mut out = BytesMut::new();
        open.encode(&mut out);
        self.stream.write_all(&out).await.expect("it listens");
    }

    /// The next message, or `None` at the end.
    pub(crate) async fn recv(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = next_frame(&mut self.buffer, 4096).expect("messages") {
                return Some(frame);
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

/// Drives a driver while a future of the test runs; passes the events to `each`.
pub(crate) async fn beside<T>(
    io: &mut Io,
    test: impl Future<Output = T>,
    mut each: impl FnMut(Event),
) -> T {
    let mut test = std::pin::pin!(test);
    let deadline = Instant::now() + PATIENCE;
    loop {
        tokio::select! {
            result = &mut test => return result,
            events = io.next() => events.into_iter().for_each(&mut each),
            () = tokio::time::sleep_until(deadline) => panic!("it has not come"),
        }
    }
}
