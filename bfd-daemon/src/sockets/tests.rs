use std::net::UdpSocket;

use super::*;

const LOCAL: Ipv4Addr = Ipv4Addr::new(127, 33, 40, 1);

#[tokio::test]
async fn bind_waits_until_a_former_socket_is_closed() {
    let former = UdpSocket::bind((LOCAL, PORT_MULTIHOP)).expect("bound");
    let open = |retry| Sockets::open(&[LOCAL.into()], |_| None, retry);
    let error = open(Duration::ZERO).expect_err("the port is in use");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let closing = std::thread::spawn(move || {
        std::thread::sleep(4 * BIND_RETRY_EVERY);
        drop(former);
    });
    let sockets = open(Duration::from_secs(120)).expect("the port is free again");
    closing.join().expect("closed");
    assert_eq!(sockets.listening(), Sockets::wanted(&[LOCAL.into()]));
}
