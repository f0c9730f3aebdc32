//! The scripted peer over TCP: two of them, so that each is the other's speaker.

use std::time::Duration;

use bgp_proto::{MessageKind, Notification};
use testkit::fixture::open;
use testkit::{Keepalive, Octets, Raw, Received, TcpPeer, Update, notification};
use tokio::net::{TcpListener, TcpStream};

async fn pair() -> [TcpPeer; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = listener.local_addr().expect("an address");
    let (dialed, accepted) = tokio::join!(TcpStream::connect(to), listener.accept());
    [dialed.expect("connected"), accepted.expect("connected").0].map(TcpPeer::new)
}

#[tokio::test]
async fn scripted_session_is_established_and_ended() {
    let [mut one, mut two] = pair().await;
    let first = open(1);
    let (established, ()) = tokio::join!(one.establish(&first), async {
        two.expect(Received::Open(open(1))).await;
        two.send(open(2)).await.expect("sent");
        two.expect(MessageKind::Keepalive).await;
        two.send(Keepalive).await.expect("sent");
    });
    assert_eq!(established.expect("up"), open(2));
    one.keep_alive(Duration::from_millis(1));
    one.send(Update::unreach(["10.65.0.2/32"]))
        .await
        .expect("sent");
    one.send(Update::reach(["10.65.0.1/32"]))
        .await
        .expect("sent");
    two.expect(Received::Unreach(vec!["10.65.0.2/32".into()]))
        .await;
    two.expect(Received::Reach(vec!["10.65.0.1/32".into()]))
        .await;
    two.expect(Received::Keepalive).await;
    two.send(Notification::new(6, 2)).await.expect("sent");
    one.expect(notification(6, 2)).await;
    drop(two);
    one.expect(Received::Closed).await;
}

#[tokio::test]
async fn refused_session_is_an_error_with_its_reason() {
    let [mut one, mut two] = pair().await;
    two.send(Notification::new(6, 5)).await.expect("sent");
    let refused = one.establish(&open(1)).await.expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "NOTIFICATION 6/5 (Cease/Connection Rejected)"
    );
}

/// Each side sends more than both sockets hold before it reads.
#[tokio::test]
async fn two_that_send_at_once_do_not_block_each_other() {
    const MESSAGES: usize = 4000;
    let flood: Vec<_> = (0..MESSAGES).map(|_| Raw(2, &[0; 4000])).collect();
    let exchange = async |peer: &mut TcpPeer| {
        peer.send(&flood[..]).await.expect("sent");
        for _ in 0..MESSAGES {
            let frame = peer.frame().await.expect("a message");
            assert_eq!(frame.expect("a message").body.len(), 4000);
        }
    };
    let [mut one, mut two] = pair().await;
    tokio::join!(exchange(&mut one), exchange(&mut two));
    drop(two);
    assert_eq!(one.frame().await.expect("the end"), None);
}

#[tokio::test]
#[should_panic(expected = "expected OPEN\n  came: malformed octets: Message Header Error")]
async fn failure_shows_octets_that_are_no_message() {
    let [mut one, mut two] = pair().await;
    one.send(Octets(b"GET / HTTP/1.1\r\n\r\n"))
        .await
        .expect("sent");
    two.expect(MessageKind::Open).await;
}
