//! GTSM (RFC 5082) on incoming connections, with SYNs and data from too far away.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::support::{RawPeer, beside, host, neighbor, speaker};
use bgp_io::bgp_fsm::State;
use bgp_io::bgp_proto::MessageKind;
use bgp_io::bgp_speaker::{self, HandshakeFailure, PeerConfig};
use bgp_io::{Distance, Event, Io, IoConfig, Speaker};
use netns_lab::{Lab, VethEnd, in_lab};
use socket2::{Domain, Socket, Type};

const NEAR: u32 = 255;
const FAR: u32 = 64;

/// Time to wait for dropped data; loopback and veth deliver at once.
const WAIT: Duration = Duration::from_millis(500);

/// A neighbor of the speaker at `us` that must be on the link.
fn secured(them: IpAddr) -> PeerConfig {
    let mut peer = neighbor(1, them, None);
    peer.local = None;
    peer.ttl_security_hops = Some(1);
    peer
}

/// A speaker that listens at `us`.
fn listening(us: IpAddr, peers: Vec<PeerConfig>) -> Io {
    let config = speaker(1).with_peers(peers);
    let listen = vec![SocketAddr::from((us, 0))];
    Io::new(Speaker::new(config, 1), IoConfig::new(listen)).expect("it can listen")
}

fn set_ttl(socket: &Socket, ipv4: bool, ttl: u32) {
    let set = if ipv4 {
        socket.set_ttl_v4(ttl)
    } else {
        socket.set_unicast_hops_v6(ttl)
    };
    set.expect("an option");
}

/// A connection with packets of this TTL; the kernel of the other side completes it.
fn dial(from: IpAddr, to: SocketAddr, ttl: u32) -> Socket {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).expect("a socket");
    set_ttl(&socket, to.is_ipv4(), ttl);
    socket.set_tcp_nodelay(true).expect("an option");
    let from = SocketAddr::from((from, 0));
    socket.bind(&from.into()).expect("an address");
    let wait = Duration::from_secs(20);
    socket.connect_timeout(&to.into(), wait).expect("connected");
    socket
}

/// The events of the connections so far.
#[derive(Default)]
struct Seen {
    too_far: Vec<Distance>,
    reported: Vec<HandshakeFailure>,
}

impl Seen {
    fn note(&mut self, event: Event) {
        match event {
            Event::TooFar { why, .. } => self.too_far.push(why),
            Event::Speaker(bgp_speaker::Event::Handshakes { last, .. }) => self.reported.push(last),
            _ => {}
        }
    }
}

/// Number of messages that the speaker has received from the peer at an address, and the session's
/// state.
fn received(io: &Io, them: IpAddr) -> (u64, State) {
    let mut peers = io.speaker().peers();
    let peer = peers.find(|peer| peer.config.remote == them);
    let session = peer.expect("configured").session;
    (session.stats().received.total(), session.state())
}

/// A connection with a SYN from too far away is rejected, and reported to the operator.
async fn refuses(io: &mut Io, them: IpAddr, socket: Socket, ttl: u8) {
    let mut seen = Seen::default();
    let before = received(io, them);
    let mut peer = RawPeer::of(socket.into());
    let end = async { assert_eq!(peer.recv().await, None, "not a word") };
    beside(io, end, |event| seen.note(event)).await;
    assert_eq!(seen.too_far, [Distance::TooFar { ttl, least: 255 }]);
    assert_eq!(
        received(io, them),
        before,
        "the session has not heard of it"
    );
    let failure = HandshakeFailure::TtlSecurity {
        ttl: Some(ttl),
        least: 255,
    };
    let last = io.speaker().last_failure(them).map(|(_, failure)| failure);
    assert_eq!(last, Some(failure));
    assert_eq!(seen.reported, [failure], "the operator hears of it at once");
}

/// Data from too far away that arrives before the connection is accepted is dropped. The same data
/// with a high TTL, which TCP sends again, is accepted.
async fn takes_data_from_near_only(io: &mut Io, them: IpAddr, socket: Socket) {
    let ipv4 = them.is_ipv4();
    let knob = socket.try_clone().expect("a descriptor");
    set_ttl(&knob, ipv4, FAR);
    let mut peer = RawPeer::of(socket.into());
    peer.open(9).await;
    let answer = async {
        let open = peer.recv().await.expect("the speaker's OPEN");
        assert_eq!(open.kind, MessageKind::Open);
        tokio::time::sleep(WAIT).await;
    };
    beside(io, answer, |_| {}).await;
    assert_eq!(received(io, them), (0, State::OpenSent));
    set_ttl(&knob, ipv4, NEAR);
    let answer = async {
        let answer = peer.recv().await.expect("an answer to the OPEN");
        assert_eq!(answer.kind, MessageKind::Keepalive);
    };
    beside(io, answer, |_| {}).await;
    // It closes to free the place for the next one.
    peer.send(3, &[6, 2]).await;
    let gone = async { while peer.recv().await.is_some() {} };
    beside(io, gone, |_| {}).await;
}

const LOOPBACK: [(IpAddr, IpAddr); 2] = [
    (
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 150)),
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 151)),
    ),
    (
        IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ),
];

#[tokio::test]
async fn syn_from_too_far_is_refused_and_reported() {
    for (us, them) in LOOPBACK {
        let mut io = listening(us, vec![secured(them)]);
        let to = io.listening().next().expect("it listens");
        let far = dial(them, to, FAR);
        refuses(&mut io, them, far, 64).await;
    }
}

#[tokio::test]
async fn early_data_from_too_far_is_dropped() {
    for (us, them) in LOOPBACK {
        let mut io = listening(us, vec![secured(them)]);
        let to = io.listening().next().expect("it listens");
        let near = dial(them, to, NEAR);
        takes_data_from_near_only(&mut io, them, near).await;
    }
}

#[tokio::test]
async fn filter_too_long_for_kernel_drops_early_data_too() {
    let (us, them) = LOOPBACK[0];
    let others = (0..700_u32).map(|n| secured(Ipv4Addr::from(0x0a00_0001 + n).into()));
    let mut plain = secured(host(152).into());
    plain.ttl_security_hops = None;
    let peers = others.chain([secured(them), plain]).collect();
    let mut io = listening(us, peers);
    let to = io.listening().next().expect("it listens");
    let near = dial(them, to, NEAR);
    takes_data_from_near_only(&mut io, them, near).await;
    // A neighbor without GTSM is only delayed.
    let mut peer = RawPeer::of(dial(host(152).into(), to, FAR).into());
    peer.open(9).await;
    let answer = async {
        let kinds = [peer.recv().await, peer.recv().await].map(|frame| frame.expect("a message"));
        assert_eq!(kinds.map(|frame| frame.kind.0), [1, 4]);
    };
    beside(&mut io, answer, |_| {}).await;
}

#[tokio::test]
async fn data_before_ttl_security_was_configured_is_refused() {
    let (us, them) = LOOPBACK[0];
    let mut plain = secured(them);
    plain.ttl_security_hops = None;
    let mut io = listening(us, vec![plain]);
    let to = io.listening().next().expect("it listens");
    // It waits to be accepted, with an OPEN that no filter has checked.
    let socket = dial(them, to, NEAR);
    set_ttl(&socket, true, FAR);
    let mut peer = RawPeer::of(socket.into());
    peer.open(9).await;
    let mut config = io.speaker().config().clone();
    config.peers = vec![secured(them)];
    io.reconfigure(config).expect("the same speaker");
    let mut seen = Seen::default();
    let end = async { assert_eq!(peer.recv().await, None, "not a word") };
    beside(&mut io, end, |event| seen.note(event)).await;
    assert_eq!(seen.too_far, [Distance::Early]);
    // The next one passes the filter.
    let near = dial(them, to, NEAR);
    takes_data_from_near_only(&mut io, them, near).await;
}

/// Removes GTSM of the neighbor, and asserts that its packets from afar reach the speaker.
async fn takes_data_from_far_without_ttl_security(io: &mut Io, them: IpAddr, peer: &mut RawPeer) {
    let mut config = io.speaker().config().clone();
    config.peers[0].ttl_security_hops = None;
    io.reconfigure(config).expect("the same speaker");
    let before = received(io, them).0;
    let message = async {
        match before {
            0 => peer.open(9).await,
            _ => peer.send(4, &[]).await,
        }
        std::future::pending::<()>().await;
    };
    let mut message = std::pin::pin!(message);
    let arrived = async {
        loop {
            tokio::select! {
                _ = io.next() => {}
                () = &mut message => {}
            }
            if received(io, them).0 > before {
                return;
            }
        }
    };
    let arrived = tokio::time::timeout(Duration::from_secs(20), arrived).await;
    arrived.expect("the message arrives");
}

/// The connection has inherited the filter of the listening socket, which has none any more when it
/// is accepted.
#[tokio::test]
async fn waiting_connection_loses_filter_of_removed_ttl_security() {
    for (us, them) in LOOPBACK {
        let mut io = listening(us, vec![secured(them)]);
        let to = io.listening().next().expect("it listens");
        let socket = dial(them, to, NEAR);
        set_ttl(&socket, to.is_ipv4(), FAR);
        let mut peer = RawPeer::of(socket.into());
        takes_data_from_far_without_ttl_security(&mut io, them, &mut peer).await;
    }
}

#[tokio::test]
async fn removal_of_ttl_security_applies_to_a_session() {
    for (us, them) in LOOPBACK {
        let mut io = listening(us, vec![secured(them)]);
        let to = io.listening().next().expect("it listens");
        let socket = dial(them, to, NEAR);
        let knob = socket.try_clone().expect("a descriptor");
        let mut peer = RawPeer::of(socket.into());
        peer.open(9).await;
        let answers = async {
            for _ in 0..2 {
                peer.recv().await.expect("OPEN and KEEPALIVE");
            }
            peer.send(4, &[]).await;
            // Its End-of-RIB or KEEPALIVE: the session is up.
            peer.recv().await.expect("a message");
        };
        beside(&mut io, answers, |_| {}).await;
        assert_eq!(received(&io, them).1, State::Established);
        set_ttl(&knob, to.is_ipv4(), FAR);
        takes_data_from_far_without_ttl_security(&mut io, them, &mut peer).await;
    }
}

/// A router beside this host, and a host behind it.
async fn beyond_a_router(lab: &Lab) -> (netns_lab::Host, netns_lab::Host) {
    let router = lab.host("router").await.expect("a host");
    let far = lab.host("far").await.expect("a host");
    for (a, b) in [
        ((lab.root(), "r"), (&router, "us")),
        ((&router, "far"), (&far, "r")),
    ] {
        let end = |(host, name)| VethEnd {
            host,
            name,
            mac: None,
        };
        let links = a.0.links().expect("rtnetlink");
        links.add_veth(end(a), end(b)).await.expect("a link");
    }
    for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        router.sysctl(key, "1").expect("a sysctl");
    }
    let ends = [
        (lab.root(), "r", ["10.0.1.1/24", "fd00:1::1/64"]),
        (&router, "us", ["10.0.1.2/24", "fd00:1::2/64"]),
        (&router, "far", ["10.0.2.1/24", "fd00:2::1/64"]),
        (&far, "r", ["10.0.2.2/24", "fd00:2::2/64"]),
    ];
    for (host, name, addresses) in ends {
        let links = host.links().expect("rtnetlink");
        links.up(name).await.expect("up");
        for address in addresses {
            let address = address.parse().expect("an address");
            links.add_address(name, address).await.expect("added");
        }
    }
    let routes = [
        (
            lab.root(),
            ["10.0.2.0/24", "fd00:2::/64"],
            ["10.0.1.2", "fd00:1::2"],
        ),
        (
            &far,
            ["10.0.1.0/24", "fd00:1::/64"],
            ["10.0.2.1", "fd00:2::1"],
        ),
    ];
    for (host, nets, gateways) in routes {
        let links = host.links().expect("rtnetlink");
        for (net, gateway) in nets.into_iter().zip(gateways) {
            let net = net.parse().expect("a prefix");
            let gateway = Some(gateway.parse().expect("an address"));
            links.add_route(net, gateway, "r").await.expect("a route");
        }
    }
    (router, far)
}

#[test]
fn ttl_security_holds_beyond_router_with_syn_cookies() {
    in_lab("ttl_security_holds_beyond_router", async |lab| {
        let (router, far) = beyond_a_router(&lab).await;
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        for cookies in ["1", "2"] {
            let sysctl = lab.root().sysctl("net/ipv4/tcp_syncookies", cookies);
            sysctl.expect("a sysctl");
            for [us, near, distant] in [
                ["10.0.1.1", "10.0.1.2", "10.0.2.2"],
                ["fd00:1::1", "fd00:1::2", "fd00:2::2"],
            ] {
                let [us, near, distant] = [us, near, distant].map(address);
                let mut io = listening(us, vec![secured(near), secured(distant)]);
                let to = io.listening().next().expect("it listens");
                // The most that an attacker can send, one router away.
                let attacker = far.run(|| dial(distant, to, NEAR)).expect("a thread");
                refuses(&mut io, distant, attacker, 254).await;
                let honest = router.run(|| dial(near, to, NEAR)).expect("a thread");
                takes_data_from_near_only(&mut io, near, honest).await;
            }
        }
    });
}
