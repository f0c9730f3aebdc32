//! Sessions without a speaker, over TCP on loopback.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{PATIENCE, RawPeer, host, prefix, stall};
use bgp_io::bgp_fsm::{DownReason, PeerAs, SessionConfig};
use bgp_io::bgp_proto::{
    Asn, Attributes, Family, FamilySet, MessageKind, Net, NextHop, Nlri, Notification, RouterId,
};
use bgp_io::{
    AcceptError, Connector, Distance, IoError, Listener, Neighbor, Security, SessionEvent,
    SessionStream,
};
use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

type Tcp = SessionStream<TcpStream>;

fn config(last: u8) -> SessionConfig {
    SessionConfig::new(Asn(64512), RouterId(host(last))).with(|config| {
        config.peer_asn = PeerAs::Internal;
        config.families = FamilySet::UNICAST;
        config.connect_retry_s = 60;
    })
}

/// A listener at 127.0.0.`us` for the neighbor at 127.0.0.`them`.
fn listen(us: u8, them: u8, security: Security) -> Result<Listener, IoError> {
    let neighbor = Neighbor::new(host(them).into(), config(us)).with_security(security);
    Listener::bind((host(us), 0).into(), [neighbor])
}

/// The listener, unless this kernel has no TCP-MD5.
fn signed_listener(us: u8, them: u8, password: &str) -> Option<Listener> {
    match listen(us, them, Security::new().with_password(password)) {
        Ok(listener) => Some(listener),
        Err(error @ IoError::Key { .. }) => {
            println!("skipped: the kernel has no TCP-MD5: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn connector(last: u8) -> Connector {
    Connector::new(config(last)).with_local(host(last).into())
}

/// A connector that does not wait long for an answer.
fn impatient(last: u8) -> Connector {
    let config = config(last).with(|config| config.connect_retry_s = 1);
    Connector::new(config).with_local(host(last).into())
}

/// Dials and accepts; both sessions are established.
async fn pair(connector: &Connector, listener: &mut Listener) -> [Tcp; 2] {
    let to = listener.local();
    let (one, other) = tokio::join!(connector.connect(to), listener.accept());
    let mut pair = [one.expect("connected"), other.expect("accepted")];
    let [one, other] = &mut pair;
    for event in <[_; 2]>::from(tokio::join!(one.next(), other.next())) {
        assert!(
            matches!(event, Some(SessionEvent::Established(_))),
            "{event:?}"
        );
    }
    pair
}

/// The other end reads one route.
async fn exchange([one, other]: &mut [Tcp; 2], number: u32) {
    let attributes = Attributes {
        // An address of loopback would be malformed.
        next_hop: Some(NextHop::V4([192, 0, 2, 1].into())),
        local_pref: Some(100),
        ..Attributes::default()
    };
    let route = Nlri::new(Net::V4(prefix(number)));
    one.announce(Family::IPV4_UNICAST, &attributes, [route])
        .expect("queued");
    let (sent, received) = tokio::join!(one.next(), other.next());
    assert!(matches!(sent, Some(SessionEvent::AllSent)));
    let Some(SessionEvent::Update(update)) = received else {
        panic!("{received:?}");
    };
    let routes = update.routes().next().expect("one family");
    assert_eq!(routes.announced().collect::<Vec<_>>(), [route]);
}

#[tokio::test]
async fn dialed_session_meets_the_accepted_one() {
    let mut listener = listen(180, 181, Security::new()).expect("it listens");
    let mut pair = pair(&connector(181), &mut listener).await;
    exchange(&mut pair, 1).await;
    let [one, mut other] = pair;
    assert_eq!(other.ends().map(|(local, _)| local), Some(listener.local()));
    let why = Notification::cease(4);
    let (down, ()) = tokio::join!(
        async { [other.next().await, other.next().await] },
        one.close(why.clone())
    );
    assert!(
        matches!(&down, [Some(SessionEvent::Down(DownReason::Received(n))), None] if *n == why),
        "{down:?}"
    );
}

#[tokio::test]
async fn password_admits_the_same_and_rejects_another() {
    let Some(mut listener) = signed_listener(182, 183, "secret") else {
        return;
    };
    let secret = Security::new().with_password("secret");
    let good = connector(183).with_security(secret);
    let mut good = pair(&good, &mut listener).await;
    exchange(&mut good, 1).await;
    let to = listener.local();
    let another = Security::new().with_password("another");
    for bad in [impatient(183).with_security(another), impatient(183)] {
        let dialed = tokio::select! {
            accepted = listener.accept() => panic!("{accepted:?}"),
            dialed = bad.connect(to) => dialed,
        };
        let Err(IoError::Dial { error, .. }) = dialed else {
            panic!("the connection is open");
        };
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
}

#[tokio::test]
async fn range_admits_its_addresses_with_one_password() {
    let range = Neighbor::range("127.0.0.184/29".parse().expect("a prefix"), config(192))
        .with_security(Security::new().with_password("secret"));
    let [open, inside] = [200, 186].map(|last| Neighbor::new(host(last).into(), config(192)));
    let mut listener = match Listener::bind((host(192), 0).into(), [open, inside, range]) {
        Err(IoError::Key { .. }) => return println!("skipped: the kernel has no TCP-MD5"),
        other => other.expect("it listens"),
    };
    let signed = Security::new().with_password("secret");
    // The neighbor 186 has no key of its own.
    for last in [184, 186, 191] {
        let member = connector(last).with_security(signed.clone());
        exchange(&mut pair(&member, &mut listener).await, last.into()).await;
    }
    let mut unsigned = pair(&connector(200), &mut listener).await;
    exchange(&mut unsigned, 1).await;
    let (unsigned, to) = (impatient(186), listener.local());
    let dialed = tokio::select! {
        accepted = listener.accept() => panic!("{accepted:?}"),
        dialed = unsigned.connect(to) => dialed,
    };
    assert!(matches!(dialed, Err(IoError::Dial { .. })), "{dialed:?}");
}

#[tokio::test]
async fn unknown_neighbor_reads_its_notification() {
    let mut listener = listen(201, 202, Security::new()).expect("it listens");
    let mut stranger = RawPeer::dial(203, listener.local(), None).await;
    stranger.open(203).await;
    let refused = listener.accept().await;
    assert!(
        matches!(refused, Err(AcceptError::Unknown { remote }) if remote.ip() == host(203)),
        "{refused:?}"
    );
    // A connection that is closed already would be reset, and the NOTIFICATION dropped.
    stranger.send(4, &[]).await;
    let reads = async {
        let frame = stranger.recv().await.expect("a NOTIFICATION");
        assert_eq!(
            (frame.kind, &frame.body[..]),
            (MessageKind::Notification, &[6, 5][..])
        );
        let reset = stranger.stream.take_error().expect("a socket");
        assert!(reset.is_none(), "{reset:?}");
        assert_eq!(stranger.recv().await, None);
    };
    tokio::select! {
        accepted = listener.accept() => panic!("{accepted:?}"),
        () = reads => {}
    }
}

/// A connection from 127.0.0.`last` whose packets leave with this TTL.
fn dial(last: u8, to: SocketAddr, ttl: u32) -> RawPeer {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_ttl_v4(ttl).expect("an option");
    let from = SocketAddr::from((host(last), 0));
    socket.bind(&from.into()).expect("an address");
    socket.connect(&to.into()).expect("connected");
    RawPeer::of(socket.into())
}

#[tokio::test]
async fn ttl_security_admits_neighbors_on_the_link_only() {
    let security = Security::new().with_ttl_security(1);
    let mut listener = listen(204, 205, security.clone()).expect("it listens");
    let mut far = dial(205, listener.local(), 64);
    let refused = listener.accept().await;
    let why = Distance::TooFar {
        ttl: 64,
        least: 255,
    };
    assert!(
        matches!(refused, Err(AcceptError::TooFar { why: found, .. }) if found == why),
        "{refused:?}"
    );
    assert_eq!(far.recv().await, None, "no message");
    let near = connector(205).with_security(security.clone());
    exchange(&mut pair(&near, &mut listener).await, 1).await;
    // The other way round: the answers of a listener without GTSM come with the greatest TTL, those
    // of another program do not.
    let plain = tokio::net::TcpListener::bind((host(206), 0)).await;
    let plain = plain.expect("it listens");
    let to = plain.local_addr().expect("an address");
    let dialed = impatient(207).with_security(security).connect(to).await;
    assert!(matches!(dialed, Err(IoError::Dial { .. })), "{dialed:?}");
}

#[tokio::test]
async fn dial_that_fails_has_a_reason_without_the_secret() {
    let closed = listen(208, 209, Security::new()).expect("it listens");
    let to = closed.local();
    drop(closed);
    let refused = connector(209).connect(to).await.expect_err("closed");
    assert!(
        refused
            .to_string()
            .starts_with(&format!("cannot connect to {to}: "))
    );
    for password in [String::new(), "s3cret".repeat(20)] {
        let security = Security::new().with_password(password);
        let connector = connector(209).with_security(security.clone());
        let dialed = connector.connect(to).await.expect_err("invalid");
        let listened = listen(208, 209, security).expect_err("invalid");
        for error in [dialed, listened] {
            assert!(matches!(error, IoError::KeyLength { .. }), "{error:?}");
            assert!(!format!("{error} {error:?} {connector:?}").contains("s3cret"));
        }
    }
}

#[tokio::test]
async fn keepalive_that_lies_unread_counts_after_a_stall() {
    let mut listener = listen(210, 211, Security::new()).expect("it listens");
    let mut peer = RawPeer::dial(211, listener.local(), None).await;
    peer.open(211).await;
    peer.send(4, &[]).await;
    let mut session = listener.accept().await.expect("accepted");
    let up = session.next().await;
    assert!(matches!(up, Some(SessionEvent::Established(_))), "{up:?}");
    // Until the runtime reports something, the session finds nothing to read.
    let event = timeout(Duration::from_millis(50), session.next()).await;
    assert!(event.is_err(), "{event:?}");
    let mut peer = peer.stream.into_std().expect("a socket");
    // Longer than the hold time. The runtime has not seen the KEEPALIVE when the timer is looked at.
    stall(Duration::from_secs(100)).await;
    let mut keepalive = [0xff; 19];
    (keepalive[16], keepalive[17], keepalive[18]) = (0, 19, 4);
    peer.write_all(&keepalive).expect("it is open");
    let deadline = Instant::now() + PATIENCE;
    while session.session().stats().received.keepalive < 2 {
        let event = timeout(Duration::from_millis(50), session.next()).await;
        assert!(event.is_err(), "{event:?}");
        assert!(Instant::now() < deadline, "the KEEPALIVE is not read");
    }
    // A peer that stays silent is lost.
    stall(Duration::from_secs(100)).await;
    let down = timeout(PATIENCE, session.next()).await;
    assert!(
        matches!(
            down,
            Ok(Some(SessionEvent::Down(DownReason::Sent(ref why))))
                if *why == Notification::hold_timer_expired()
        ),
        "{down:?}"
    );
}
