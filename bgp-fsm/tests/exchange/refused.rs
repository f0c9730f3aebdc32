//! Rejected messages: OPENs, headers, and messages at the wrong time.

use super::*;

#[test]
fn bad_opens_are_refused_by_name() {
    let good = peer_open;
    let bad = [
        (
            open::BAD_PEER_AS,
            Open {
                asn: Asn(1),
                capabilities: vec![],
                ..good()
            },
        ),
        (
            open::BAD_BGP_IDENTIFIER,
            Open {
                id: id(1),
                asn: Asn(64512),
                capabilities: vec![],
                ..good()
            },
        ),
        (
            open::UNACCEPTABLE_HOLD_TIME,
            Open {
                hold_time: 2,
                ..good()
            },
        ),
        (
            open::UNSUPPORTED_CAPABILITY,
            Open {
                capabilities: vec![
                    Capability::MultiProtocol(Family::L2VPN_EVPN),
                    Capability::FourOctetAsn(Asn(64513)),
                ],
                ..good()
            },
        ),
    ];
    for (subcode, open) in bad {
        let peer_asn = match subcode {
            open::BAD_PEER_AS => bgp_fsm::PeerAs::Exactly(Asn(64513)),
            _ => bgp_fsm::PeerAs::Any,
        };
        let mut peer = Exchange::connected(config().with(|config| config.peer_asn = peer_asn));
        recv!(peer, Msg::Open(_));
        send!(peer, Msg::Open(open));
        let answer = peer.recv();
        let Some(Msg::Notification(answer)) = answer else {
            panic!("{subcode}: {answer:?}")
        };
        assert_eq!((answer.code, answer.subcode), (2, subcode));
        if subcode == open::UNSUPPORTED_CAPABILITY {
            // RFC 5492 §5: the missing capabilities.
            assert_eq!(answer.data, [1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 0, 1].as_slice());
        }
        assert_eq!(peer.session.state(), State::Idle);
        assert!(
            peer.outputs()
                .iter()
                .any(|o| matches!(o, Output::Close(Conn::Inbound)))
        );
        assert!(downs(&mut peer).is_empty(), "never up, never down");
    }
}

#[test]
fn another_version_and_broken_headers_are_refused() {
    let mut octets = BytesMut::new();
    raw(&mut octets, 1, &[5, 0, 1, 0, 90, 192, 0, 2, 2, 0]);
    let mut peer = Exchange::connected(config());
    recv!(peer, Msg::Open(_));
    peer.send_octets(&octets);
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 2,
            subcode: 1,
            ..
        })
    );

    let mut peer = Exchange::established(config(), peer_open());
    peer.send_octets(&[0; 19]);
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 1,
            subcode: 1,
            ..
        })
    );
    assert_eq!(downs(&mut peer), notified(1, 1));
}

#[test]
fn messages_at_the_wrong_time_are_errors_of_the_machine() {
    // RFC 6608 §3
    let mut peer = Exchange::connected(config());
    recv!(peer, Msg::Open(_));
    send!(peer, Msg::Update(&[0, 0, 0, 0]));
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 5,
            subcode: 1,
            ..
        })
    );

    let mut peer = Exchange::connected(config());
    send!(peer, Msg::Open(peer_open()), Msg::Update(&[0, 0, 0, 0]));
    recv!(
        peer,
        Msg::Open(_),
        Msg::Keepalive,
        Msg::Notification(Notification {
            code: 5,
            subcode: 2,
            ..
        })
    );

    let mut peer = Exchange::established(config(), peer_open());
    send!(peer, Msg::Open(peer_open()));
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 5,
            subcode: 3,
            ..
        })
    );
    assert_eq!(downs(&mut peer), notified(5, 3));
    send!(peer, Msg::Update(&[0, 0, 0, 0]));
    assert!(
        peer.outputs().is_empty(),
        "what comes after the end is ignored"
    );
}
