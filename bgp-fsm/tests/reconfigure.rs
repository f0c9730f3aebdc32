//! Another configuration of a running session.

mod support;

use bgp_fsm::{Input, Output, State};
use bgp_proto::{Family, Notification};
use support::{Exchange, Msg, config, peer_open};

#[test]
fn new_keepalive_interval_takes_effect_at_once() {
    let mut peer = Exchange::established(config(), peer_open());
    let often = config().with(|config| {
        config.keepalive_s = Some(5);
        config.hold_time_s = 240;
    });
    peer.reconfigure(often);
    let keepalives = |peer: &mut Exchange, seconds| {
        let mut keepalives = 0;
        for _ in 0..seconds {
            peer.pass(1);
            send!(peer, Msg::Keepalive);
            while peer.recv().is_some() {
                keepalives += 1;
            }
        }
        keepalives
    };
    assert!((19..=27).contains(&keepalives(&mut peer, 100)));
    assert_eq!(peer.session.state(), State::Established);
    let settled = peer.session.params().map(|params| params.hold_time_s);
    assert_eq!(settled, Some(90), "what is settled stays so");
    // Never less often than the hold time requires.
    peer.reconfigure(config().with(|config| config.keepalive_s = Some(1_000)));
    assert!((3..=5).contains(&keepalives(&mut peer, 100)));
}

#[test]
fn an_attempt_under_another_configuration_starts_over() {
    let mut peer = Exchange::connected(config());
    recv!(peer, Msg::Open(_));
    let other = config().with(|config| {
        config.families = Family::IPV6_UNICAST.into();
        config.hold_time_s = 30;
    });
    peer.reconfigure(other.clone());
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 6,
            subcode: 6,
            ..
        })
    );
    assert!(
        peer.outputs()
            .iter()
            .any(|output| matches!(output, Output::Close(_)))
    );
    peer.connect().expect("wanted at once");
    let Some(Msg::Open(open)) = peer.recv() else {
        panic!("an OPEN");
    };
    assert_eq!(open.hold_time, 30);
    // A stopped session stays stopped.
    peer.handle(Input::Stop(Notification::cease(2)));
    peer.reconfigure(config());
    assert!(peer.connect().is_err());
    // A session that dials, dials again at once.
    let mut peer = Exchange::start(config());
    peer.outputs();
    peer.reconfigure(config().with(|config| config.passive = false));
    assert!(
        peer.outputs()
            .iter()
            .any(|output| matches!(output, Output::Dial))
    );
}
