//! A whole speaker with two peers up: one sends what the fuzzer likes, the other must end with
//! nothing once the first is gone.

use std::net::{Ipv4Addr, SocketAddr};

use bgp_fsm::{Conn, Instant, PeerAs};
use bgp_proto::{
    AddPathMode, Asn, Capability, Family, FamilySet, MessageKind, Notification, Open, RouterId,
    UpdateWriter, next_frame,
};
use bgp_speaker::{
    Input, Speaker, SpeakerConfig,
    rib::{Budget, PeerId, Policy, Progress, Role},
};
use bytes::BytesMut;

use crate::octets::Octets;

const ORIGIN: Instant = Instant(0);

/// UPDATE bodies drawn from the octets, each with a length in front.
pub fn speaker(data: &[u8]) {
    let mut octets = Octets(data);
    let mut speaker = Speaker::new(config(), 1);
    speaker.start(ORIGIN);
    let (sender, listener) = (establish(&mut speaker, 2), establish(&mut speaker, 3));
    for _ in 0..200 {
        if octets.is_empty() {
            break;
        }
        let body = usize::from(octets.octet()) + usize::from(octets.octet());
        deliver(
            &mut speaker,
            sender,
            MessageKind::Update.0,
            octets.take(body),
        );
        if octets.flag() {
            run(&mut speaker);
            told(&mut speaker, listener);
        }
    }
    let why = Notification::administrative_shutdown("fuzz");
    speaker.handle(ORIGIN, Input::Session(sender, bgp_fsm::Input::Stop(why)));
    run(&mut speaker);
    told(&mut speaker, listener);
    for family in FamilySet::UNICAST.iter() {
        assert_eq!(
            speaker.rib().prefixes(family).count(),
            0,
            "{family}: a path outlived its peer"
        );
    }
}

fn config() -> SpeakerConfig {
    let mut config = SpeakerConfig::new(Asn(64512), RouterId(address(1)));
    config.multipath_max = 2;
    config.own_next_hop_v6 = Some("fd00::1".parse().expect("an address"));
    for (host, role) in [(2, Role::Client), (3, Role::External)] {
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

fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

fn establish(speaker: &mut Speaker, host: u8) -> PeerId {
    let end = |host, port| SocketAddr::from((address(host), port));
    let (local, remote) = (end(1, 179), end(host, 40_000));
    let (peer, conn) = speaker
        .accept(ORIGIN, local, remote)
        .expect("a configured peer");
    let opened = bgp_fsm::Input::Opened {
        conn,
        local,
        remote,
    };
    speaker.handle(ORIGIN, Input::Session(peer, opened));
    let mut open = BytesMut::new();
    let asn = if host == 2 { Asn(64512) } else { Asn(64513) };
    Open {
        asn,
        hold_time: 90,
        id: RouterId(address(host)),
        capabilities: vec![
            Capability::MultiProtocol(Family::IPV4_UNICAST),
            Capability::MultiProtocol(Family::IPV6_UNICAST),
            Capability::FourOctetAsn(asn),
            // Several paths of IPv4 prefixes, one of IPv6 ones.
            Capability::AddPath(vec![(Family::IPV4_UNICAST, AddPathMode::Receive)]),
        ],
    }
    .encode(&mut open);
    UpdateWriter::keepalive(&mut open);
    receive(speaker, peer, open);
    assert!(
        speaker
            .peers()
            .any(|view| view.id == peer && view.params.is_some()),
        "host {host} is up"
    );
    peer
}

fn deliver(speaker: &mut Speaker, peer: PeerId, kind: u8, body: &[u8]) {
    let mut stream = BytesMut::from(&[0xff; 16][..]);
    let length = u16::try_from(19 + body.len()).expect("a short body");
    stream.extend_from_slice(&length.to_be_bytes());
    stream.extend_from_slice(&[kind]);
    stream.extend_from_slice(body);
    receive(speaker, peer, stream);
}

fn receive(speaker: &mut Speaker, peer: PeerId, mut stream: BytesMut) {
    while let Ok(Some(frame)) = next_frame(&mut stream, 4096) {
        let conn = Conn::Inbound;
        speaker.handle(
            ORIGIN,
            Input::Session(peer, bgp_fsm::Input::Received { conn, frame }),
        );
        while speaker.poll_output().is_some() {}
    }
}

fn run(speaker: &mut Speaker) {
    while speaker.run(ORIGIN, Budget(100)) != Progress::Done {}
    while speaker.poll_output().is_some() {}
}

/// Takes all that a peer is sent; it must be whole messages.
fn told(speaker: &mut Speaker, peer: PeerId) {
    let mut stream = BytesMut::new();
    loop {
        let mut slices = vec![];
        speaker.fill(peer, Conn::Inbound, &mut slices, 1 << 16);
        let octets: usize = slices.iter().map(bytes::Bytes::len).sum();
        if octets == 0 {
            break;
        }
        slices
            .iter()
            .for_each(|slice| stream.extend_from_slice(slice));
        speaker.sent(peer, Conn::Inbound, octets);
    }
    while let Some(frame) = next_frame(&mut stream, 4096).expect("our own octets") {
        assert_ne!(
            frame.kind,
            MessageKind::Notification,
            "the listener is told of no error"
        );
    }
    assert!(stream.is_empty(), "whole messages only");
}
