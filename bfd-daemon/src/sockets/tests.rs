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

#[tokio::test]
async fn packets_of_several_calls_are_read_in_their_order() {
    const COUNT: u8 = 3 * PACKETS_PER_CALL as u8 + 1;
    let local = Ipv4Addr::new(127, 33, 40, 2);
    let sockets = Sockets::open(&[local.into()], |_| None, Duration::ZERO).await;
    let mut sockets = sockets.expect("opened");
    let sender = UdpSocket::bind((Ipv4Addr::new(127, 33, 40, 3), 0)).expect("bound");
    sender.set_ttl(77).expect("set");
    for number in 0..COUNT {
        let payload = vec![number; usize::from(number)];
        sender
            .send_to(&payload, (local, PORT_SINGLE_HOP))
            .expect("sent");
    }
    let mut seen = Vec::new();
    let start = std::time::Instant::now();
    let now = || Instant::from_secs(1_000) + start.elapsed();
    let mut last = Instant::ZERO;
    while seen.len() < usize::from(COUNT) {
        sockets.ready().await;
        let now = now();
        sockets.receive(now, |arrival, payload| {
            assert_eq!(arrival.source, IpAddr::from([127, 33, 40, 3]));
            assert_eq!((arrival.destination, arrival.ttl), (local.into(), 77));
            let arrived_at = arrival.arrived_at.expect("a time");
            assert!((last..=now).contains(&arrived_at), "{arrived_at:?}");
            last = arrived_at;
            seen.push(payload.to_vec());
        });
    }
    let sent = (0..COUNT).map(|number| vec![number; usize::from(number)]);
    assert!(seen.into_iter().eq(sent));
    assert!(!sockets.receive(now(), |_, _| panic!("a packet")));
}
