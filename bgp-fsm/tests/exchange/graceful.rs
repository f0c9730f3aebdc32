//! Graceful restart (RFC 4724, RFC 8538): retention over a restart and over an end.

use super::*;

pub(super) fn graceful() -> (SessionConfig, Open) {
    let ours = GracefulRestartConfig::new(60);
    let theirs = GracefulRestart {
        families: vec![(Family::IPV4_UNICAST, true), (Family::L2VPN_EVPN, true)],
        time_s: 120,
        ..GracefulRestart::default()
    };
    let mut open = peer_open();
    open.capabilities.push(Capability::GracefulRestart(theirs));
    (
        config().with(|config| config.graceful_restart = Some(ours)),
        open,
    )
}

#[test]
fn families_of_restart_are_those_of_the_session() {
    let (config, open) = graceful();
    let peer = Exchange::established(config, open);
    let kept = &peer.session.params().expect("up").peer_graceful;
    assert_eq!(
        kept.as_ref().map(|g| g.families.as_slice()),
        Some([(Family::IPV4_UNICAST, true)].as_slice())
    );
}

#[test]
fn open_has_restart_state_until_the_restart_ends() {
    let (config, open) = graceful();
    let mut peer = Exchange::start(config);
    peer.session.set_restarting(true);
    let flag = |peer: &mut Exchange| {
        peer.connect().expect("admitted");
        let Some(Msg::Open(open)) = peer.recv() else {
            panic!("no OPEN")
        };
        open.capabilities.iter().find_map(|c| match c {
            Capability::GracefulRestart(graceful) => {
                Some((graceful.restart_state, graceful.time_s))
            }
            _ => None,
        })
    };
    assert_eq!(flag(&mut peer), Some((true, 60)));
    send!(peer, Msg::Open(open), Msg::Keepalive);
    peer.session.set_restarting(false);
    peer.handle(Input::Closed(Conn::Inbound));
    assert_eq!(flag(&mut peer), Some((false, 60)));
}

/// Returns an OPEN of a peer with graceful restart, with or without the N bit.
fn graceful_peer(notification: bool) -> Open {
    let mut open = peer_open();
    open.capabilities
        .push(Capability::GracefulRestart(GracefulRestart {
            notification,
            families: vec![(Family::IPV4_UNICAST, true)],
            ..GracefulRestart::default()
        }));
    open
}

#[test]
fn session_stopped_for_a_restart_sends_no_cease() {
    let bye = Notification::administrative_shutdown("upgrade");
    let (config, _) = graceful();
    // RFC 4724 §4.2: any NOTIFICATION would end the retention.
    let mut peer = Exchange::established(config.clone(), graceful_peer(false));
    peer.handle(Input::StopForRestart(bye.clone()));
    recv!(peer, nothing);
    let outputs = peer.outputs();
    assert!(outputs.iter().any(|o| matches!(o, Output::Close(_))));
    assert!(
        outputs
            .iter()
            .any(|o| matches!(o, Output::Down(DownReason::LocalRestart)))
    );
    assert!(peer.connect().is_err(), "left, not just down");
    // RFC 8538 §3: a Cease without a hard reset; a peer that is not a helper receives the usual
    // NOTIFICATION.
    for open in [graceful_peer(true), peer_open()] {
        let mut peer = Exchange::established(config.clone(), open);
        peer.handle(Input::StopForRestart(bye.clone()));
        assert_eq!(peer.recv(), Some(Msg::Notification(bye.clone())));
        assert_eq!(downs(&mut peer), [DownReason::Sent(bye.clone())]);
    }
}

/// RFC 8538 §4
#[test]
fn session_stopped_for_good_sends_cease() {
    let (config, _) = graceful();
    for (subcode, hard) in [
        (cease::ADMINISTRATIVE_SHUTDOWN, true),
        (cease::PEER_DECONFIGURED, true),
        (cease::OTHER_CONFIGURATION_CHANGE, false),
    ] {
        let bye = Notification::cease(subcode);
        let mut peer = Exchange::established(config.clone(), graceful_peer(true));
        peer.handle(Input::Stop(bye.clone()));
        let expected = if hard {
            Notification::hard_reset(&bye)
        } else {
            bye.clone()
        };
        assert_eq!(peer.recv(), Some(Msg::Notification(expected)));
        let mut peer = Exchange::established(config.clone(), graceful_peer(false));
        peer.handle(Input::Stop(bye.clone()));
        assert_eq!(peer.recv(), Some(Msg::Notification(bye)));
    }
    let limit = Notification::cease(cease::MAXIMUM_PREFIXES_REACHED);
    let mut peer = Exchange::established(config, graceful_peer(true));
    peer.handle(Input::Rejected(limit.clone()));
    assert_eq!(
        downs(&mut peer),
        [DownReason::Sent(Notification::hard_reset(&limit))]
    );
}

/// The peer may have received the KEEPALIVE, and be in Established, before its first one is
/// received.
#[test]
fn unestablished_session_stopped_for_good_sends_cease() {
    let (config, _) = graceful();
    for (n_bit, subcode) in [
        (true, cease::PEER_DECONFIGURED),
        (true, cease::OTHER_CONFIGURATION_CHANGE),
        (false, cease::PEER_DECONFIGURED),
    ] {
        let bye = Notification::cease(subcode);
        let mut peer = Exchange::connected(config.clone());
        recv!(peer, Msg::Open(_));
        peer.send(&Msg::Open(graceful_peer(n_bit)));
        recv!(peer, Msg::Keepalive);
        assert_eq!(peer.session.state(), State::OpenConfirm);
        peer.handle(Input::Stop(bye.clone()));
        let expected = match n_bit && subcode == cease::PEER_DECONFIGURED {
            true => Notification::hard_reset(&bye),
            false => bye,
        };
        assert_eq!(peer.recv(), Some(Msg::Notification(expected)));
    }
}

#[test]
fn routes_are_kept_after_graceful_ends_only() {
    // RFC 4724 §4.2, RFC 8538 §3
    let reset = Notification::cease(cease::HARD_RESET);
    let bye = Notification::cease(cease::ADMINISTRATIVE_RESET);
    assert!(DownReason::TransportLost.is_graceful(false));
    assert!(!DownReason::Received(bye.clone()).is_graceful(false));
    assert!(DownReason::Received(bye).is_graceful(true));
    assert!(!DownReason::Received(reset).is_graceful(true));
}

#[test]
fn session_is_abandoned_once_its_connection_is_lost() {
    let mut peer = Exchange::start(config());
    assert!(!peer.session.is_abandoned(), "no connection yet");
    peer.session.admit(peer.now).expect("admitted");
    assert!(!peer.session.is_abandoned(), "one is coming");
    peer.connect().expect("admitted");
    assert!(!peer.session.is_abandoned());
    // Lost before its OPEN: the machine waits in Active, without a dial.
    peer.handle(Input::Closed(Conn::Inbound));
    assert_eq!(peer.session.state(), State::Active);
    assert!(peer.session.is_abandoned());
    peer.connect().expect("back again");
    peer.connect().expect("replaced by the new one");
    assert!(!peer.session.is_abandoned());
}
