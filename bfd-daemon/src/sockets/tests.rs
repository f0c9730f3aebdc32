use std::net::UdpSocket;

use super::*;

const LOCAL: Ipv4Addr = Ipv4Addr::new(127, 33, 40, 1);

#[tokio::test]
async fn bind_waits_until_a_former_socket_is_closed() {
    let former = UdpSocket::bind((LOCAL, PORT_MULTIHOP)).expect("bound");
    let local = [LOCAL.into()];
    let error = Sockets::open(&local, |_| None, Duration::ZERO).await;
    let error = error.expect_err("the port is in use");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let opening = Sockets::open(&local, |_| None, Duration::from_secs(120));
    // The first bind fails before the former socket is closed.
    let (opened, ()) = tokio::join!(biased; opening, async { drop(former) });
    let sockets = opened.expect("the port is free again");
    assert_eq!(sockets.listening(), Sockets::wanted(&local));
}
