//! Exchanges with one peer: its messages, the session's answers, and their times.

mod alive;
mod ends;
mod graceful;
mod held;
mod refused;
#[path = "../support/mod.rs"]
mod support;

use bgp_fsm::{
    Conn, DownReason, Duration, GracefulRestartConfig, HeldEnd, Input, Output, Probed,
    SessionConfig, State,
};
use bgp_proto::notification::{cease, open};
use bgp_proto::{
    Asn, Capability, Family, GracefulRestart, Notification, Open, RefreshSubtype, RouteRefresh,
};
use bytes::{Bytes, BytesMut};
use support::{Exchange, Msg, config, end, id, peer_open, raw};

const CEASE: u8 = 6;

fn downs(exchange: &mut Exchange) -> Vec<DownReason> {
    let outputs = exchange.outputs().into_iter();
    outputs
        .filter_map(|o| {
            if let Output::Down(reason) = o {
                Some(reason)
            } else {
                None
            }
        })
        .collect()
}

fn notified(code: u8, subcode: u8) -> Vec<DownReason> {
    vec![DownReason::Sent(Notification::new(code, subcode))]
}

#[test]
fn a_session_opens_step_by_step() {
    let mut peer = Exchange::start(config());
    recv!(peer, nothing);
    peer.connect().expect("admitted");
    assert_eq!(peer.session.state(), State::OpenSent);
    recv!(
        peer,
        Msg::Open(Open {
            asn: Asn(64512),
            hold_time: 90,
            ..
        })
    );
    send!(peer, Msg::Open(peer_open()));
    assert_eq!(peer.session.state(), State::OpenConfirm);
    recv!(peer, Msg::Keepalive);
    assert!(peer.session.params().is_none(), "not before it is up");
    send!(peer, Msg::Keepalive);
    recv!(peer, nothing);
    let params = peer.session.params().expect("up").clone();
    assert_eq!(
        (params.peer_asn, params.hold_time_s, params.as4),
        (Asn(64513), 90, true)
    );
    assert_eq!(peer.session.peer_open(), Some(&peer_open()));
    assert_eq!(peer.session.ends(Conn::Inbound), Some((end(1), end(2))));
    let outputs: Vec<Output> = peer.outputs();
    let states: Vec<State> = outputs
        .iter()
        .filter_map(|o| {
            if let Output::State(s) = o {
                Some(*s)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(
        states,
        [
            State::Active,
            State::OpenSent,
            State::OpenConfirm,
            State::Established
        ]
    );
    assert_eq!(
        outputs
            .iter()
            .filter(|o| matches!(o, Output::Established(_)))
            .count(),
        1
    );
    let stats = peer.session.stats();
    assert_eq!((stats.sent.open, stats.sent.keepalive), (1, 1));
    assert_eq!((stats.received.open, stats.received.keepalive), (1, 1));
}

#[test]
fn updates_are_handed_on_and_written_in_order() {
    let mut peer = Exchange::established(config(), peer_open());
    send!(
        peer,
        Msg::Update(&[0, 0, 0, 0]),
        Msg::Keepalive,
        Msg::Update(&[0, 0, 0, 0, 24, 10, 0, 0])
    );
    let bodies: Vec<usize> = peer
        .outputs()
        .iter()
        .filter_map(|o| {
            if let Output::Update(body) = o {
                Some(body.len())
            } else {
                None
            }
        })
        .collect();
    assert_eq!(bodies, [4, 8]);
    peer.session.queue(
        [Msg::Update(&[1; 4]).encode(), Msg::Update(&[2; 5]).encode()]
            .concat()
            .into(),
    );
    assert_eq!(peer.session.queued_octets(), 23 + 24);
    peer.session.queue(Msg::Update(&[3; 6]).encode());
    recv!(
        peer,
        Msg::Update([1, ..]),
        Msg::Update([2, ..]),
        Msg::Update([3, ..])
    );
    assert_eq!(
        (
            peer.session.queued_octets(),
            peer.session.stats().sent.update
        ),
        (0, 3)
    );
}

#[test]
fn a_refresh_is_handed_on_and_a_malformed_one_ends_the_session() {
    let mut peer = Exchange::established(config(), peer_open());
    let request = RouteRefresh::request(Family::IPV6_UNICAST);
    let begin = RouteRefresh {
        family: Family::IPV4_UNICAST,
        subtype: RefreshSubtype::Begin,
    };
    send!(peer, Msg::Refresh(request), Msg::Refresh(begin));
    let outputs = peer.outputs();
    let refreshes = outputs.iter().filter_map(|o| {
        if let Output::Refresh(r) = o {
            Some(*r)
        } else {
            None
        }
    });
    assert_eq!(refreshes.collect::<Vec<_>>(), [request, begin]);
    // RFC 7313 §5: a refresh marker with octets after it.
    let mut octets = BytesMut::new();
    raw(&mut octets, 5, &[0, 1, 1, 1, 9]);
    peer.send_octets(&octets);
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 7,
            subcode: 1,
            ..
        })
    );
}

#[test]
fn an_open_may_be_delayed() {
    let delayed = config().with(|config| config.open_delay_s = 10);
    // The peer's OPEN is received first.
    let mut peer = Exchange::connected(delayed.clone());
    recv!(peer, nothing);
    send!(peer, Msg::Open(peer_open()));
    recv!(peer, Msg::Open(_), Msg::Keepalive);
    assert_eq!(peer.session.state(), State::OpenConfirm);
    // It is not received.
    let mut peer = Exchange::connected(delayed);
    peer.pass(10);
    recv!(peer, Msg::Open(_));
    assert_eq!(peer.session.state(), State::OpenSent);
}
