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
            .send_to(&payload, (local, PORT_MULTIHOP))
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

/// Packets from another link do not reach the process: a flood of them costs no turn.
#[tokio::test]
async fn kernel_drops_packets_that_a_router_has_forwarded() {
    for local in [
        Ipv4Addr::new(127, 33, 40, 4).into(),
        IpAddr::from(Ipv6Addr::LOCALHOST),
    ] {
        let sockets = Sockets::open(&[local], |_| None, Duration::from_secs(60)).await;
        let mut sockets = sockets.expect("opened");
        let sender = UdpSocket::bind((local, 0)).expect("bound");
        let sender = socket2::Socket::from(sender);
        let send = |ttl: u32, payload: u8, port| {
            match local.is_ipv4() {
                true => sender.set_ttl_v4(ttl),
                false => sender.set_unicast_hops_v6(ttl),
            }
            .expect("set");
            let to = SocketAddr::new(local, port);
            sender.send_to(&[payload], &to.into()).expect("sent");
        };
        // Over routers, any value is accepted here: the session has the limit.
        for (number, ttl) in [254, 64, 1, 0xff].into_iter().enumerate() {
            let number = number as u8;
            if ttl != 0xff {
                send(ttl, number, PORT_MULTIHOP);
            }
            send(ttl, 10 + number, PORT_SINGLE_HOP);
        }
        let mut seen = Vec::new();
        let now = Instant::from_secs(1_000);
        while seen.len() < 4 {
            sockets.ready().await;
            sockets.receive(now, |arrival, payload| {
                seen.push((arrival.hops, arrival.ttl, payload[0]));
            });
        }
        seen.sort();
        let multi = |ttl, payload| (Hops::Multi, ttl, payload);
        let expected = [
            (Hops::Single, 255, 13),
            multi(1, 2),
            multi(64, 1),
            multi(254, 0),
        ];
        assert_eq!(seen, expected);
        assert_eq!(sockets.dropped(), 3);
    }
}
