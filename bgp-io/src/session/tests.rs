//! Sessions over a transport within the process, in virtual time.

use std::net::Ipv4Addr;

use bgp_speaker::bgp_fsm::{DownReason, GracefulRestartConfig, PeerAs, State};
use bgp_speaker::bgp_proto::notification::{cease, code};
use bgp_speaker::bgp_proto::{
    Asn, Attributes, Capability, Family, FamilySet, Frame, MessageKind, Net, NextHop, Nlri, Open,
    RefreshSubtype, RouteRefresh, RouterId,
};
use bytes::BufMut;

use super::*;
use crate::Memory;
use crate::limits::{MEMORY_OCTETS_MAX, SESSION_QUEUE_OCTETS_MAX, SESSION_QUEUE_PIECES_MAX};

const FAMILY: Family = Family::IPV4_UNICAST;

fn config(last: u8) -> SessionConfig {
    SessionConfig::new(Asn(64512), id(last)).with(|config| {
        config.peer_asn = PeerAs::Internal;
        config.families = FamilySet::UNICAST;
    })
}

fn id(last: u8) -> RouterId {
    RouterId(Ipv4Addr::new(192, 0, 2, last))
}

fn ends() -> [Memory; 2] {
    Memory::pair([1, 2].map(|last| SocketAddr::from(([192, 0, 2, last], 179))))
}

fn stream(memory: Memory, last: u8) -> SessionStream<Memory> {
    SessionStream::new(memory, config(last)).expect("an open transport")
}

/// The other end of a session, with messages that the test writes.
struct Peer {
    memory: Memory,
    buffer: BytesMut,
}

impl Peer {
    fn new(memory: Memory) -> Self {
        let buffer = BytesMut::new();
        Self { memory, buffer }
    }

    async fn write(&mut self, octets: &[u8]) {
        let mut octets = Bytes::copy_from_slice(octets);
        while !octets.is_empty() {
            let slices = [octets.clone()];
            let written = poll_fn(|cx| self.memory.poll_write(cx, &slices)).await;
            octets = octets.slice(written.expect("the session reads")..);
        }
    }

    async fn send(&mut self, kind: u8, body: &[u8]) {
        self.write(&message(kind, body)).await;
    }

    /// The next message, or the end.
    async fn recv(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = next_frame(&mut self.buffer, 65_535).expect("messages") {
                return Some(frame);
            }
            self.buffer.reserve(4096);
            let read = poll_fn(|cx| self.memory.poll_read(cx, &mut self.buffer)).await;
            if read.expect("octets or the end") == 0 {
                return None;
            }
        }
    }

    async fn expect(&mut self, kind: MessageKind) -> Frame {
        let frame = self.recv().await.expect("a message");
        assert_eq!(frame.kind, kind);
        frame
    }

    /// The next NOTIFICATION, behind whatever else the session sends.
    async fn notification(&mut self) -> (u8, u8) {
        loop {
            let frame = self.recv().await.expect("a NOTIFICATION");
            if frame.kind == MessageKind::Notification {
                let parsed = Notification::parse(&frame.body).expect("a NOTIFICATION");
                return (parsed.code, parsed.subcode);
            }
        }
    }
}

fn message(kind: u8, body: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_slice(&[0xff; 16]);
    out.put_u16(u16::try_from(19 + body.len()).expect("short"));
    out.put_u8(kind);
    out.put_slice(body);
    out
}

fn open() -> BytesMut {
    let mut out = BytesMut::new();
    let capabilities = vec![
        Capability::MultiProtocol(FAMILY),
        Capability::FourOctetAsn(Asn(64512)),
    ];
    Open {
        asn: Asn(64512),
        hold_time: 90,
        id: id(2),
        capabilities,
    }
    .encode(&mut out);
    out
}

/// An established session, and its peer.
async fn established() -> (SessionStream<Memory>, Peer) {
    let [one, two] = ends();
    let (mut session, mut peer) = (stream(one, 1), Peer::new(two));
    peer.write(&open()).await;
    peer.send(4, &[]).await;
    assert!(matches!(
        session.next().await,
        Some(SessionEvent::Established(_))
    ));
    peer.expect(MessageKind::Open).await;
    peer.expect(MessageKind::Keepalive).await;
    (session, peer)
}

fn net(number: u32) -> Nlri<'static> {
    let address = Ipv4Addr::from_bits(0x0a00_0000 + (number << 8));
    let prefix = bgp_speaker::bgp_proto::Ipv4Prefix::new(address, 24);
    Nlri::new(Net::V4(prefix.expect("a prefix")))
}

fn attributes() -> Attributes {
    Attributes {
        next_hop: Some(NextHop::V4(Ipv4Addr::new(192, 0, 2, 1))),
        local_pref: Some(100),
        ..Attributes::default()
    }
}

/// The body of an UPDATE that announces 10.0.0.0/24 with these octets as its attributes.
fn update(attributes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(attributes.len()).expect("short");
    [
        &[0, 0],
        &length.to_be_bytes()[..],
        attributes,
        &[24, 10, 0, 0],
    ]
    .concat()
}

/// ORIGIN, AS_PATH, NEXT_HOP and LOCAL_PREF.
const VALID: [u8; 21] = [
    0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 3, 4, 192, 0, 2, 2, 0x40, 5, 4, 0, 0, 0, 100,
];

#[tokio::test(start_paused = true)]
async fn messages_arrive_as_events_in_their_order() {
    let [one, two] = ends();
    let (mut one, mut two) = (stream(one, 1), stream(two, 2));
    let sender = async {
        let Some(SessionEvent::Established(params)) = one.next().await else {
            panic!("not established");
        };
        assert_eq!(params.peer_id, id(2));
        one.announce(FAMILY, &attributes(), (0..3000).map(net))
            .expect("queued");
        one.withdraw(FAMILY, [net(7)]).expect("queued");
        one.end_of_rib(FAMILY).expect("queued");
        one.request_refresh(FAMILY).expect("queued");
        assert!(matches!(one.next().await, Some(SessionEvent::AllSent)));
        one.close(Notification::cease(cease::ADMINISTRATIVE_RESET))
            .await;
    };
    let receiver = async {
        assert!(matches!(
            two.next().await,
            Some(SessionEvent::Established(_))
        ));
        let (mut announced, mut withdrawn) = (Vec::new(), Vec::new());
        while let Some(SessionEvent::Update(update)) = two.next().await {
            assert!(update.faults().is_empty());
            for routes in update.routes() {
                assert_eq!(routes.family, FAMILY);
                let mut sent = attributes();
                sent.next_hop = routes.attributes.and_then(|a| a.next_hop.clone());
                assert!(routes.attributes.is_none_or(|a| *a == sent));
                announced.extend(routes.announced().map(|nlri| nlri.net.to_string()));
                withdrawn.extend(routes.withdrawn().map(|nlri| nlri.net.to_string()));
            }
        }
        // The End-of-RIB has ended the loop.
        let expected: Vec<String> = (0..3000).map(|n| net(n).net.to_string()).collect();
        assert_eq!(announced, expected);
        assert_eq!(withdrawn, ["10.0.7.0/24"]);
        let Some(SessionEvent::Refresh(refresh)) = two.next().await else {
            panic!("no ROUTE-REFRESH");
        };
        assert_eq!(refresh, RouteRefresh::request(FAMILY));
        let Some(SessionEvent::Down(DownReason::Received(why))) = two.next().await else {
            panic!("the session is not down");
        };
        assert_eq!((why.code, why.subcode), (code::CEASE, 4));
        assert!(two.next().await.is_none());
    };
    tokio::join!(sender, receiver);
}

#[tokio::test(start_paused = true)]
async fn silent_peer_ends_the_handshake_after_15_seconds() {
    let [one, two] = ends();
    let (mut session, mut peer) = (stream(one, 1), Peer::new(two));
    let began = tokio::time::Instant::now();
    let Some(SessionEvent::Down(DownReason::Sent(why))) = session.next().await else {
        panic!("the session is not down");
    };
    assert_eq!(began.elapsed().as_secs(), 15);
    assert_eq!(why, Notification::hold_timer_expired());
    assert_eq!(peer.notification().await, (why.code, why.subcode));
    drop(peer);
    assert!(session.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn session_without_keepalives_ends() {
    let (mut session, mut peer) = established().await;
    let began = tokio::time::Instant::now();
    let peer = async {
        for _ in 0..10 {
            peer.expect(MessageKind::Keepalive).await;
            peer.send(4, &[]).await;
        }
        peer.notification().await
    };
    let session = async { (session.next().await, session.next().await) };
    let ((down, end), sent) = tokio::join!(session, peer);
    assert!(matches!(
        down,
        Some(SessionEvent::Down(DownReason::Sent(_)))
    ));
    assert!(end.is_none());
    assert_eq!(sent, (code::HOLD_TIMER_EXPIRED, 0));
    // Ten times 22 to 30 seconds, then the hold time.
    assert!((310..=390).contains(&began.elapsed().as_secs()));
}

#[tokio::test(start_paused = true)]
async fn malformed_attribute_withdraws_its_routes_only() {
    let (mut session, mut peer) = established().await;
    let mut origin = VALID;
    origin[3] = 9;
    peer.send(2, &update(&origin)).await;
    peer.send(2, &update(&VALID)).await;
    let mut next = async || match session.next().await {
        Some(SessionEvent::Update(update)) => update,
        other => panic!("{other:?}"),
    };
    let withdrawn = next().await;
    assert_eq!(withdrawn.faults().len(), 1);
    let routes = withdrawn.routes().next().expect("one family");
    let counts = (routes.announced().count(), routes.withdrawn().count());
    assert_eq!((counts, routes.attributes), ((0, 1), None));
    let valid = next().await;
    assert!(valid.faults().is_empty());
    assert_eq!(valid.body()[..], update(&VALID));
    let routes = valid.routes().next().expect("one family");
    assert_eq!(routes.announced().collect::<Vec<_>>(), [net(0)]);
    assert_eq!(
        routes.attributes.and_then(|found| found.local_pref),
        Some(100)
    );
}

#[tokio::test(start_paused = true)]
async fn malformed_prefix_resets_the_session() {
    let (mut session, mut peer) = established().await;
    let mut body = update(&VALID);
    body.extend([33, 10, 0, 0, 0, 0]);
    peer.send(2, &body).await;
    let Some(SessionEvent::Down(DownReason::Sent(why))) = session.next().await else {
        panic!("the session is not down");
    };
    assert_eq!(why.code, code::UPDATE_MESSAGE);
    assert_eq!(peer.notification().await, (why.code, why.subcode));
}

/// A stream of random numbers (xorshift), the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).expect("small")
    }
}

#[tokio::test(start_paused = true)]
async fn damaged_octets_never_panic_and_always_end() {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let valid = [
        open(),
        message(4, &[]),
        message(2, &update(&VALID)),
        message(2, &[0, 0, 0, 0]),
        message(5, &[0, 1, 0, 1]),
        message(2, &update(&VALID)),
    ];
    let valid: Vec<u8> = valid.concat();
    let mut reached = [false; 2];
    for _ in 0..3000 {
        let [one, two] = ends();
        let (mut session, mut peer) = (stream(one, 1), Peer::new(two));
        let mut octets = valid.clone();
        for _ in 0..=numbers.below(3) {
            let at = numbers.below(octets.len());
            octets[at] = u8::try_from(numbers.below(256)).expect("an octet");
        }
        octets.truncate(octets.len() - numbers.below(40));
        peer.write(&octets).await;
        drop(peer);
        let mut last = None;
        while let Some(event) = session.next().await {
            if let SessionEvent::Update(update) = &event {
                reached[1] |= !update.faults().is_empty();
                assert!(update.routes().count() <= 3);
            }
            last = Some(event);
        }
        assert!(matches!(last, Some(SessionEvent::Down(_))), "{octets:?}");
        reached[0] |= matches!(last, Some(SessionEvent::Down(DownReason::Sent(_))));
    }
    assert_eq!(reached, [true; 2], "both kinds of errors occurred");
}

#[tokio::test(start_paused = true)]
async fn next_that_is_dropped_at_any_point_loses_nothing() {
    let (mut session, mut peer) = established().await;
    let octets = message(2, &update(&VALID));
    let mut updates = 0;
    for octet in octets.iter().chain(&octets).chain(&octets) {
        peer.write(&[*octet]).await;
        let polled = poll_fn(|cx| Poll::Ready(pin!(session.next()).poll(cx))).await;
        updates += usize::from(matches!(polled, Poll::Ready(Some(SessionEvent::Update(_)))));
    }
    assert_eq!(updates, 3);
}

#[tokio::test(start_paused = true)]
async fn queue_is_bounded_for_a_peer_that_does_not_read() {
    let (mut session, mut peer) = established().await;
    let part = message(2, &[0; 4000]);
    let mut queued = 0;
    while session.send(part.clone()).is_ok() {
        queued += part.len();
    }
    assert_eq!(session.send(part.clone()), Err(SendError::Full));
    assert!(queued <= SESSION_QUEUE_OCTETS_MAX && queued > SESSION_QUEUE_OCTETS_MAX / 2);
    let short = message(2, &[0; 4]);
    let (mut session_of_short, _peer) = established().await;
    let pieces = (0..).take_while(|_| session_of_short.send(short.clone()).is_ok());
    assert_eq!(pieces.count(), SESSION_QUEUE_PIECES_MAX);
    // Reading makes room again.
    let read = async {
        let mut octets = 0;
        while octets < queued {
            octets += 19 + peer.recv().await.expect("a message").body.len();
        }
    };
    let (event, ()) = tokio::join!(session.next(), read);
    assert!(matches!(event, Some(SessionEvent::AllSent)));
    assert_eq!(session.send(part), Ok(()));
}

/// RFC 9687: its KEEPALIVEs alone do not keep the session up.
#[tokio::test(start_paused = true)]
async fn peer_that_does_not_read_ends_after_the_send_hold_time() {
    let (mut session, mut peer) = established().await;
    while session.send(message(2, &[0; 4000])).is_ok() {}
    let began = tokio::time::Instant::now();
    let beats = async {
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_secs(20)).await;
            peer.send(4, &[]).await;
        }
    };
    let event = tokio::select! {
        event = session.next() => event,
        () = beats => None,
    };
    let Some(SessionEvent::Down(DownReason::Sent(sent))) = event else {
        panic!("{event:?}");
    };
    assert_eq!(sent, Notification::send_hold_timer_expired());
    // Eight minutes, counted from the first input at which nothing could be written.
    assert!((480..=510).contains(&began.elapsed().as_secs()));
}

#[tokio::test(start_paused = true)]
async fn invalid_messages_are_rejected_with_their_reason() {
    let [one, _two] = ends();
    let mut early = stream(one, 1);
    assert_eq!(early.send(message(4, &[])), Err(SendError::NotEstablished));
    let (mut session, _peer) = established().await;
    let kind = |kind| Err(SendError::Kind(kind));
    assert_eq!(session.send(message(4, &[])), kind(MessageKind::Keepalive));
    assert_eq!(session.send(open()), kind(MessageKind::Open));
    assert_eq!(
        session.send(vec![0xff; 18]),
        Err(SendError::Incomplete),
        "a part of a header"
    );
    let mut cut = message(2, &[0; 4]);
    cut.truncate(22);
    assert_eq!(session.send(cut), Err(SendError::Incomplete));
    assert!(matches!(
        session.send(vec![0; 19]),
        Err(SendError::Header(_))
    ));
    let long = message(2, &[0; 4078]);
    assert!(matches!(session.send(long), Err(SendError::Header(_))));
    let family = Family::IPV6_UNICAST;
    assert_eq!(session.end_of_rib(family), Err(SendError::Family(family)));
    let refresh = session.request_refresh(FAMILY);
    assert_eq!(refresh, Err(SendError::RefreshUnsupported));
    let many = message(2, &[0; 4]).repeat(SESSION_QUEUE_OCTETS_MAX / 23 + 1);
    assert_eq!(session.send(many), Err(SendError::TooMuch));
    let endless = (0..).map(|number| net(number & 0xffff));
    let announced = session.announce(FAMILY, &attributes(), endless);
    assert_eq!(announced, Err(SendError::TooMuch));
    let mut long = attributes();
    long.communities = (0..1100).map(bgp_speaker::bgp_proto::Community).collect();
    let announced = session.announce(FAMILY, &long, [net(1)]);
    assert_eq!(announced, Err(SendError::AttributesTooLong));
    assert_eq!(
        session.session().queued_octets(),
        0,
        "nothing of it is sent"
    );
}

#[tokio::test(start_paused = true)]
async fn close_waits_no_longer_than_the_linger_time() {
    let (mut session, peer) = established().await;
    let part = message(2, &[0; 4000]);
    while session.send(part.clone()).is_ok() {}
    // The transport is full, and the peer does not read.
    let blocked = tokio::time::timeout(Duration::from_secs(1), session.next()).await;
    assert!(blocked.is_err());
    let began = tokio::time::Instant::now();
    session
        .close(Notification::cease(cease::PEER_DECONFIGURED))
        .await;
    assert_eq!(began.elapsed().as_secs(), LINGER.as_secs());
    drop(peer);
}

#[tokio::test(start_paused = true)]
async fn notification_follows_a_message_that_is_partly_written() {
    let (mut session, mut peer) = established().await;
    let part = message(2, &[0; 4000]);
    while session.send(part.clone()).is_ok() {}
    let blocked = tokio::time::timeout(Duration::from_secs(1), session.next()).await;
    assert!(blocked.is_err());
    let close = session.close(Notification::cease(cease::PEER_DECONFIGURED));
    let ((), notification) = tokio::join!(close, async {
        let mut read = 0;
        loop {
            let frame = peer.recv().await.expect("a NOTIFICATION");
            if frame.kind == MessageKind::Notification {
                assert_eq!(peer.recv().await, None, "nothing follows");
                drop(peer);
                return (frame, read);
            }
            read += 19 + frame.body.len();
        }
    });
    let (frame, read) = notification;
    assert_eq!(frame.body[..], [code::CEASE, cease::PEER_DECONFIGURED]);
    assert!(read < MEMORY_OCTETS_MAX + part.len(), "UPDATEs are dropped");
}

#[tokio::test(start_paused = true)]
async fn dropped_session_sends_a_cease() {
    let (mut session, mut peer) = established().await;
    session.end_of_rib(FAMILY).expect("room");
    drop(session);
    let expected = (code::CEASE, cease::ADMINISTRATIVE_SHUTDOWN);
    assert_eq!(peer.notification().await, expected);
    assert_eq!(peer.recv().await, None, "nothing follows");
}

#[tokio::test(start_paused = true)]
async fn dropped_session_with_graceful_restart_is_silent() {
    let [one, two] = ends();
    let config =
        config(1).with(|config| config.graceful_restart = Some(GracefulRestartConfig::default()));
    let mut session = SessionStream::new(one, config).expect("an open transport");
    let mut peer = Peer::new(two);
    peer.write(&open()).await;
    peer.send(4, &[]).await;
    let up = session.next().await;
    assert!(matches!(up, Some(SessionEvent::Established(_))));
    drop(session);
    peer.expect(MessageKind::Open).await;
    peer.expect(MessageKind::Keepalive).await;
    assert_eq!(peer.recv().await, None, "the transport is closed");
}

/// A transport whose peer sends KEEPALIVEs as fast as they are read.
struct Flood(Memory);

impl Transport for Flood {
    fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        self.0.ends()
    }

    fn poll_read(&mut self, _: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<usize>> {
        let keepalive = message(4, &[]);
        buffer.extend_from_slice(&keepalive);
        Poll::Ready(Ok(keepalive.len()))
    }

    fn poll_write(&mut self, _: &mut Context<'_>, slices: &[Bytes]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(slices.iter().map(Bytes::len).sum()))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn flood_without_events_leaves_other_tasks_their_turn() {
    let [one, _two] = ends();
    let mut session = SessionStream::new(Flood(one), config(1)).expect("open");
    session.buffer.extend_from_slice(&open());
    assert!(matches!(
        session.next().await,
        Some(SessionEvent::Established(_))
    ));
    let other = tokio::spawn(async {});
    tokio::select! {
        biased;
        event = session.next() => panic!("{event:?}"),
        done = other => done.expect("no panic"),
    }
    assert_eq!(session.session().state(), State::Established);
}

#[tokio::test(start_paused = true)]
async fn refresh_marks_of_the_peer_are_events() {
    let (mut session, mut peer) = established().await;
    peer.send(5, &[0, 1, 1, 1]).await;
    let Some(SessionEvent::Refresh(refresh)) = session.next().await else {
        panic!("no ROUTE-REFRESH");
    };
    assert_eq!(refresh.subtype, RefreshSubtype::Begin);
    // The End-of-RIB of a family that was not negotiated is a fault.
    peer.send(2, &[0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1]).await;
    let Some(SessionEvent::Update(update)) = session.next().await else {
        panic!("no UPDATE");
    };
    assert_eq!((update.routes().count(), update.faults().len()), (0, 1));
    peer.send(2, &[0, 0, 0, 0]).await;
    assert!(matches!(
        session.next().await,
        Some(SessionEvent::EndOfRib(FAMILY))
    ));
    drop(peer);
    assert!(matches!(
        session.next().await,
        Some(SessionEvent::Down(DownReason::TransportLost))
    ));
    assert!(session.next().await.is_none());
}
