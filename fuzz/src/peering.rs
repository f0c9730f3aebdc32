//! A whole speaker with two established peers: one sends the fuzzer's UPDATEs, the other must have
//! no routes once the first has no session.

use std::time::Duration;

use bgp_fsm::PeerAs;
use bgp_proto::{AddPathMode, Asn, Capability, Family, FamilySet, MessageKind, Notification, Open};
use bgp_speaker::rib::{Policy, Role};
use bgp_speaker::{Input, SpeakerConfig};
use testkit::fixture::{address, open, speaker_config};
use testkit::{Keepalive, Network, Raw, Scripted};

use crate::octets::Octets;

/// The speaker, the peer that the fuzzer plays, and the peer that receives.
const SPEAKER: usize = 1;
const SENDER: usize = 2;
const LISTENER: usize = 3;

/// After this time an ended session may be opened again.
const IDLE_HOLD_OVER: Duration = Duration::from_secs(300);

/// Sends UPDATE bodies from the octets, each preceded by a length.
pub fn speaker(data: &[u8]) {
    let mut octets = Octets(data);
    let mut network = Network::new(0);
    network.start(SPEAKER, address(SPEAKER).into(), config());
    let mut sender = establish(&mut network, SENDER).expect("the first session");
    let listener = establish(&mut network, LISTENER).expect("the first session");
    for _ in 0..200 {
        if octets.is_empty() {
            break;
        }
        let body = usize::from(octets.octet()) + usize::from(octets.octet());
        network.send_only(sender, Raw(MessageKind::Update.0, octets.take(body)));
        if octets.flag() {
            check(&mut network, listener);
        }
        if !network.is_open(sender) {
            // An UPDATE has reset the session: the fuzzer continues in the next one.
            network.advance(IDLE_HOLD_OVER);
            match establish(&mut network, SENDER) {
                Some(again) => sender = again,
                None => break,
            }
        }
    }
    if let Some((_, peer, _)) = network.end_of(sender) {
        let why = Notification::administrative_shutdown("fuzz");
        let (now, stop) = (network.now(), bgp_fsm::Input::Stop(why));
        let speaker = network.speaker_mut(SPEAKER);
        speaker.handle(now, Input::Session(peer, stop));
    }
    check(&mut network, listener);
    for family in FamilySet::UNICAST.iter() {
        let paths = network.speaker(SPEAKER).rib().prefixes(family).count();
        assert_eq!(paths, 0, "{family}: a path outlived its peer");
    }
}

fn config() -> SpeakerConfig {
    let mut config = speaker_config(SPEAKER);
    config.multipath_max = 2;
    config.own_next_hop_v6 = Some("fd00::1".parse().expect("an address"));
    for (host, role) in [(SENDER, Role::Client), (LISTENER, Role::External)] {
        let mut peer = config.neighbor(address(host).into(), role);
        peer.session.peer_asn = PeerAs::Any;
        peer.session.passive = true;
        peer.session.add_path_send = FamilySet::UNICAST;
        peer.import = Policy::AcceptAll;
        peer.export = Policy::AcceptAll;
        config.peers.push(peer);
    }
    config
}

/// Establishes a session; `None` while the speaker rejects another one.
fn establish(network: &mut Network, host: usize) -> Option<Scripted> {
    let to = address(SPEAKER).into();
    let peer = network.dial(address(host).into(), to).ok()?;
    let asn = Asn(if host == SENDER { 64_512 } else { 64_513 });
    let capabilities = vec![
        Capability::MultiProtocol(Family::IPV4_UNICAST),
        Capability::MultiProtocol(Family::IPV6_UNICAST),
        Capability::FourOctetAsn(asn),
        // Several paths of IPv4 prefixes, one of IPv6 ones.
        Capability::AddPath(vec![(Family::IPV4_UNICAST, AddPathMode::Receive)]),
    ];
    network.send(
        peer,
        Open {
            asn,
            // Time passes without KEEPALIVEs.
            hold_time: 0,
            capabilities,
            ..open(host)
        },
    );
    network.send(peer, Keepalive);
    let up = network.established(SPEAKER).contains(&address(host).into());
    assert!(up, "host {host} is up");
    Some(peer)
}

/// Processes everything that is pending; the listener receives complete messages, and no error.
fn check(network: &mut Network, listener: Scripted) {
    for frame in network.frames(listener) {
        assert_ne!(
            frame.kind,
            MessageKind::Notification,
            "the listener gets no error"
        );
    }
    assert!(network.is_open(listener), "the listener keeps its session");
    assert!(!network.has_rest(listener), "whole messages only");
}
