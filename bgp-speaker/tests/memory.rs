//! The memory cost of a client for a reflector, as stated in `docs/numbers.md`: each further client
//! takes at most so many octets, beside octets that wait for sockets and announced routes.

#[path = "../../bgp-proto/tests/counting/mod.rs"]
mod counting;

use std::net::{Ipv4Addr, SocketAddr};

use bgp_fsm::{Conn, Instant, State};
use bgp_proto::{
    Asn, Attributes, Capability, EncodeParams, Family, Ipv4Prefix, Net, NextHop, Nlri, Open,
    RouterId, UpdateWriter, next_frame,
};
use bgp_speaker::limits::FEED_KEPT;
use bgp_speaker::{Input, RangeConfig, Speaker, SpeakerConfig};
use bytes::BytesMut;
use rib::{Budget, PeerId, Progress, Role};

/// The limit in octets for an established client that has taken everything, including the spare
/// capacity of growing tables of clients.
const CLIENT: usize = 4608;

const ASN: Asn = Asn(64_512);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NOW: Instant = Instant(1_000_000_000);

/// Returns a reflector that accepts any client.
fn reflector(clients: usize) -> Speaker {
    let mut config = SpeakerConfig::new(ASN, RouterId(OURS));
    let limit = u16::try_from(clients).expect("not so many");
    let template = config.neighbor(Ipv4Addr::UNSPECIFIED.into(), Role::Client);
    let prefix = "10.0.0.0/8".parse().expect("a prefix");
    config
        .ranges
        .push(RangeConfig::new(prefix, limit, template));
    let mut speaker = Speaker::new(config, 7);
    speaker.start(NOW);
    speaker
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a01_0000 + u32::try_from(number).expect("not so many"))
}

fn say(speaker: &mut Speaker, peer: PeerId, encode: impl FnOnce(&mut BytesMut)) {
    let mut octets = BytesMut::new();
    encode(&mut octets);
    let frame = next_frame(&mut octets, 4096).expect("a message");
    let received = bgp_fsm::Input::Received {
        conn: Conn::Inbound,
        frame: frame.expect("a whole message"),
    };
    speaker.handle(NOW, Input::Session(peer, received));
}

/// Dials from a client, and establishes its session.
fn connect(speaker: &mut Speaker, number: usize) -> PeerId {
    let local = SocketAddr::from((OURS, 179));
    let remote = SocketAddr::from((address(number), 40_000));
    let (peer, conn) = speaker.accept(NOW, local, remote).expect("admitted");
    let opened = bgp_fsm::Input::Opened {
        conn,
        local,
        remote,
    };
    speaker.handle(NOW, Input::Session(peer, opened));
    let open = Open {
        asn: ASN,
        hold_time: 90,
        id: RouterId(address(number)),
        capabilities: vec![
            Capability::MultiProtocol(Family::IPV4_UNICAST),
            Capability::MultiProtocol(Family::IPV6_UNICAST),
            Capability::RouteRefresh,
            Capability::FourOctetAsn(ASN),
        ],
    };
    say(speaker, peer, |out| open.encode(out));
    say(speaker, peer, UpdateWriter::keepalive);
    peer
}

/// Announces routes of a client.
fn announce(speaker: &mut Speaker, peer: PeerId, count: u32) {
    let attributes = Attributes {
        local_pref: Some(100),
        next_hop: Some(NextHop::V4(address(1))),
        ..Attributes::default()
    };
    let params = EncodeParams {
        as4: true,
        add_path: false,
        octets_max: 4096,
    };
    let mut block = Vec::new();
    attributes.encode(true, &mut block);
    let all: Vec<u32> = (0..count).collect();
    for some in all.chunks(500) {
        say(speaker, peer, |out| {
            let next_hop = attributes.next_hop.as_ref();
            let mut writer =
                UpdateWriter::reach(out, Family::IPV4_UNICAST, &block, next_hop, &params);
            for number in some {
                let net = Net::V4(Ipv4Prefix::host(Ipv4Addr::from(0x0a80_0000 + number)));
                writer.push(&Nlri::new(net)).expect("room");
            }
            writer.finish();
        });
    }
}

/// Performs everything that needs no time; every client takes its octets. Returns the number of
/// octets taken.
fn settle(speaker: &mut Speaker) -> usize {
    let mut taken = 0;
    loop {
        while speaker.poll_output().is_some() {}
        let mut busy = speaker.run(NOW, Budget(1000)) == Progress::More;
        while let Some(peer) = speaker.poll_writable() {
            while speaker.wants_write(peer, Conn::Inbound) {
                let mut slices = Vec::new();
                speaker.fill(peer, Conn::Inbound, &mut slices, 64 << 10);
                let octets = slices.iter().map(|slice| slice.len()).sum();
                speaker.sent(peer, Conn::Inbound, octets);
                taken += octets;
                busy = true;
            }
        }
        if !busy {
            return taken;
        }
    }
}

/// Returns the octets that a speaker holds when so many clients have taken the routes of one of
/// them.
fn held(clients: usize, routes: u32) -> usize {
    let before = counting::live();
    let mut speaker = reflector(clients);
    let peers: Vec<PeerId> = (1..=clients)
        .map(|number| connect(&mut speaker, number))
        .collect();
    settle(&mut speaker);
    announce(&mut speaker, peers[0], routes);
    let taken = settle(&mut speaker);
    assert!(
        taken > (clients - 1) * routes as usize * 5,
        "{clients} clients took {taken} octets"
    );
    let up = speaker
        .peers()
        .filter(|peer| peer.session.state() == State::Established);
    assert_eq!(up.count(), clients);
    // The octets kept for further new members are dropped.
    let later = NOW + 2 * FEED_KEPT;
    assert_eq!(speaker.run(later, Budget(1000)), Progress::Done);
    assert_eq!(speaker.ring_octets(), 0, "nothing waits");
    drop(peers);
    counting::live().wrapping_sub(before)
}

/// Adds this many peers one by one; returns how often the last one allocates.
fn allocations_of_last(peers: usize) -> usize {
    let config = SpeakerConfig::new(ASN, RouterId(OURS));
    let mut speaker = Speaker::new(config.clone(), 7);
    speaker.start(NOW);
    let mut allocations = 0;
    for number in 1..=peers {
        let peer = config.neighbor(address(number).into(), Role::Client);
        let before = counting::allocations();
        let done = speaker.set_peer(NOW, peer);
        allocations = counting::allocations() - before;
        assert_eq!(done.added.len(), 1);
        while speaker.poll_output().is_some() {}
    }
    assert_eq!(speaker.peers().count(), peers);
    allocations
}

/// Vectors grow at powers of two, and maps split a few nodes: neither of these is among the last.
#[test]
fn work_of_a_new_peer_does_not_grow_with_their_number() {
    let (few, many) = (allocations_of_last(20), allocations_of_last(3000));
    println!("{few} allocations for peer 20, {many} for peer 3000");
    assert!(many <= few + 4, "{few} for peer 20, {many} for peer 3000");
}

#[test]
fn memory_of_a_client_matches_the_formula() {
    for routes in [100, 20_000] {
        for clients in [100, 250, 500] {
            let (few, many) = (held(clients, routes), held(2 * clients, routes));
            let each = (many - few) / clients;
            println!("{routes} routes, {clients} clients more: {each} octets each");
            assert!(
                each <= CLIENT,
                "{each} octets for each of {clients} clients more, {CLIENT} at most"
            );
            assert!(
                each * 5 > CLIENT * 2,
                "{each} octets a client: the formula's {CLIENT} says nothing"
            );
        }
    }
}
