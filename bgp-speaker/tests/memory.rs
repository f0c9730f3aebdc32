//! The memory cost of a client for a reflector, as stated in `docs/numbers.md`: each further client
//! takes at most so many octets, beside octets that wait for sockets and announced routes.

#[path = "../../bgp-proto/tests/counting/mod.rs"]
mod counting;

use std::net::{Ipv4Addr, SocketAddr};

use bgp_fsm::{Conn, Instant, State};
use bgp_proto::{
    Asn, Attributes, Capability, Community, EncodeParams, Family, FamilySet, Ipv4Prefix, Net,
    NextHop, Nlri, Open, RouterId, UpdateWriter, next_frame,
};
use bgp_speaker::limits::{
    FEED_KEPT, FEED_OCTETS_MAX, PIECE_OCTETS, RING_OCTETS_MAX, SESSION_OCTETS_MAX, STEP_OCTETS_MAX,
};
use bgp_speaker::{
    Event, Input, MemoryAction, Output, PrefixLimitsOut, RangeConfig, Speaker, SpeakerConfig,
};
use bytes::BytesMut;
use rib::{Budget, PeerId, Progress, Role};

/// The limit in octets for an established client that has taken everything, including the spare
/// capacity of growing tables of clients.
const CLIENT: usize = 4864;

/// A limit of all accounts that no load reaches. They are measured after changes by a 256th of it.
const MEMORY_MAX: usize = 256 << 20;

const ASN: Asn = Asn(64_512);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NOW: Instant = Instant(1_000_000_000);

/// Returns a reflector that accepts any client, and messages of up to 65,535 octets if that is
/// negotiated.
fn reflector(clients: usize) -> Speaker {
    let families = SpeakerConfig::new(ASN, RouterId(OURS)).families;
    reflector_with(clients, families, PrefixLimitsOut::default())
}

fn reflector_with(clients: usize, families: FamilySet, limits: PrefixLimitsOut) -> Speaker {
    let mut config = SpeakerConfig::new(ASN, RouterId(OURS));
    config.families = families;
    let limit = u16::try_from(clients).expect("not so many");
    let mut template = config.neighbor(Ipv4Addr::UNSPECIFIED.into(), Role::Client);
    template.session.extended_messages = true;
    template.prefix_limits_out = limits;
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

fn receive(speaker: &mut Speaker, peer: PeerId, encode: impl FnOnce(&mut BytesMut)) {
    let mut octets = BytesMut::new();
    encode(&mut octets);
    let frame = next_frame(&mut octets, 65_535).expect("a message");
    let received = bgp_fsm::Input::Received {
        conn: Conn::Inbound,
        frame: frame.expect("a whole message"),
    };
    speaker.handle(NOW, Input::Session(peer, received));
}

/// Dials from a client, and establishes its session.
fn connect(speaker: &mut Speaker, number: usize) -> PeerId {
    connect_with(speaker, number, false)
}

fn connect_with(speaker: &mut Speaker, number: usize, extended: bool) -> PeerId {
    let local = SocketAddr::from((OURS, 179));
    let remote = SocketAddr::from((address(number), 40_000));
    let (peer, conn) = speaker.accept(NOW, local, remote).expect("admitted");
    let opened = bgp_fsm::Input::Opened {
        conn,
        local,
        remote,
    };
    speaker.handle(NOW, Input::Session(peer, opened));
    let mut open = Open {
        asn: ASN,
        hold_time: 90,
        id: RouterId(address(number)),
        capabilities: vec![
            Capability::MultiProtocol(Family::IPV4_UNICAST),
            Capability::MultiProtocol(Family::IPV6_UNICAST),
            Capability::MultiProtocol(Family::IPV4_VPN),
            Capability::RouteRefresh,
            Capability::FourOctetAsn(ASN),
        ],
    };
    if extended {
        open.capabilities.push(Capability::ExtendedMessage);
    }
    receive(speaker, peer, |out| open.encode(out));
    receive(speaker, peer, UpdateWriter::keepalive);
    peer
}

/// Announces routes of a client.
fn announce(speaker: &mut Speaker, peer: PeerId, count: u32) {
    announce_in(speaker, peer, Family::IPV4_UNICAST, count);
}

fn announce_in(speaker: &mut Speaker, peer: PeerId, family: Family, count: u32) {
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
    for some in all.chunks(200) {
        receive(speaker, peer, |out| {
            let next_hop = attributes.next_hop.as_ref();
            let mut writer = UpdateWriter::reach(out, family, &block, next_hop, &params);
            for number in some {
                let address = Ipv4Addr::from(0x0a80_0000 + number);
                // A label, a route distinguisher, and a host route.
                let mut vpn = vec![120, 0, 6, 0x41, 0, 0, 0xfc, 0, 0, 0, 0, 1];
                vpn.extend(address.octets());
                let net = match family {
                    Family::IPV4_VPN => Net::Opaque(&vpn),
                    _ => Net::V4(Ipv4Prefix::host(address)),
                };
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

/// Returns the octets of the list of sent paths for each path of a client: measured, and in the
/// account.
fn listed(family: Family) -> (usize, usize) {
    const CLIENTS: usize = 6;
    const ROUTES: u32 = 20_000;
    let held = |limits: PrefixLimitsOut| {
        let before = counting::live();
        let mut speaker = reflector_with(CLIENTS, FamilySet::from(family), limits);
        let peers: Vec<PeerId> = (1..=CLIENTS)
            .map(|number| connect(&mut speaker, number))
            .collect();
        settle(&mut speaker);
        announce_in(&mut speaker, peers[0], family, ROUTES);
        settle(&mut speaker);
        // The rest for new members is dropped.
        assert_eq!(
            speaker.run(NOW + 2 * FEED_KEPT, Budget(1000)),
            Progress::Done
        );
        let accounts = speaker.peers().map(|peer| peer.octets.sent);
        (
            counting::live().wrapping_sub(before),
            accounts.sum::<usize>(),
        )
    };
    let (shared, _) = held(PrefixLimitsOut::default());
    let (own, account) = held(PrefixLimitsOut::of_all(1_000_000));
    let paths = (CLIENTS - 1) * ROUTES as usize;
    ((own - shared) / paths, account / paths)
}

/// The values are those of `docs/operate/install.md`.
#[test]
fn list_of_sent_paths_takes_what_the_formula_states() {
    for (family, octets_max) in [(Family::IPV4_UNICAST, 60), (Family::IPV4_VPN, 100)] {
        let (each, account) = listed(family);
        println!("{family}: {each} octets each, {account} in the account");
        assert!(each <= octets_max, "{family}: {each} octets each");
        assert!(each * 2 > octets_max, "{family}: {each} octets each");
        let difference = each.abs_diff(account);
        assert!(
            difference * 10 <= each,
            "{family}: {each} octets each, {account} in the account"
        );
    }
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
                "{each} octets a client: the formula's {CLIENT} is too much"
            );
        }
    }
}

/// Clients that do not read.
const SLOW: usize = 50;

/// Octets that the socket of each takes, and how many at once.
const SLOW_OCTETS: usize = 700_000;
const SLOW_OCTETS_AT_ONCE: usize = 30_000;

/// The routes that the sender advertises while others do not read.
#[derive(Clone, Copy, Debug)]
struct Load {
    routes: u32,
    /// Octets of communities of each route.
    octets: u32,
    /// Whether each route has communities of its own.
    own: bool,
    /// Whether messages have up to 65,535 octets (RFC 8654).
    extended: bool,
}

const LOADS: [Load; 5] = [
    Load {
        routes: 3000,
        octets: 3960,
        own: true,
        extended: false,
    },
    Load {
        routes: 5000,
        octets: 3960,
        own: false,
        extended: false,
    },
    Load {
        routes: 300,
        octets: 64_000,
        own: true,
        extended: true,
    },
    Load {
        routes: 1000,
        octets: 64_000,
        own: false,
        extended: true,
    },
    Load {
        routes: 10_000,
        octets: 40,
        own: true,
        extended: true,
    },
];

impl Load {
    fn encode(self, number: u32, out: &mut BytesMut) {
        self.encode_for(number, number, out);
    }

    /// Encodes the `number`th attributes for the `route`th prefix.
    fn encode_for(self, route: u32, number: u32, out: &mut BytesMut) {
        let first = if self.own { number << 14 } else { 0 };
        let communities = (first..first + self.octets / 4).map(Community);
        let attributes = Attributes {
            local_pref: Some(100),
            communities: communities.collect(),
            ..Attributes::default()
        };
        let mut block = Vec::new();
        attributes.encode(true, &mut block);
        let params = EncodeParams {
            as4: true,
            add_path: false,
            octets_max: if self.extended { 65_535 } else { 4096 },
        };
        let next_hop = NextHop::V4(address(1));
        let mut writer = UpdateWriter::reach(out, Family::IPV4_UNICAST, &block, &next_hop, &params);
        let net = Net::V4(Ipv4Prefix::host(Ipv4Addr::from(0x0a80_0000 + route)));
        writer.push(&Nlri::new(net)).expect("room");
        writer.finish();
    }
}

/// A reflector with one client that reads, one that sends, and others that do not read: after a third
/// of the load, one by one, their sockets take a few octets and then none.
struct Stalled {
    speaker: Speaker,
    reader: PeerId,
    sender: PeerId,
    /// The others with the turn from which on they take octets, and how many they still take.
    slow: Vec<(PeerId, usize, usize)>,
    turns: usize,
    /// The actions because of the limit of all accounts.
    actions: Vec<(PeerId, MemoryAction)>,
}

impl Stalled {
    fn new(slow: usize, load: Load) -> Self {
        let mut speaker = reflector(slow + 2);
        speaker.limit_memory(Some(MEMORY_MAX));
        let mut peer = |number| connect_with(&mut speaker, number, load.extended);
        let (reader, sender) = (peer(1), peer(2));
        let third = load.routes as usize / 3;
        let from = |at| third + at * third / SLOW;
        let slow = (0..slow).map(|at| (peer(at + 3), from(at), SLOW_OCTETS));
        let slow = slow.collect();
        settle(&mut speaker);
        Self {
            speaker,
            reader,
            sender,
            slow,
            turns: 0,
            actions: Vec::new(),
        }
    }

    /// Lets the socket of a client take some octets; returns their number.
    fn take(speaker: &mut Speaker, peer: PeerId, octets_max: usize) -> usize {
        if octets_max == 0 || !speaker.wants_write(peer, Conn::Inbound) {
            return 0;
        }
        let mut slices = Vec::new();
        speaker.fill(peer, Conn::Inbound, &mut slices, 256 << 10);
        let octets = slices.iter().map(|slice| slice.len()).sum::<usize>();
        drop(slices);
        let taken = octets.min(octets_max);
        speaker.sent(peer, Conn::Inbound, taken);
        taken
    }

    fn turn(&mut self) {
        let Self {
            speaker,
            reader,
            sender,
            slow,
            turns,
            actions,
        } = self;
        *turns += 1;
        let mut progress = Progress::More;
        while progress == Progress::More {
            while let Some(output) = speaker.poll_output() {
                if let Output::Event(Event::MemoryLimit { peer, action, .. }) = output {
                    actions.push((peer, action));
                }
            }
            progress = speaker.run(NOW, Budget(8192));
            while speaker.poll_writable().is_some() {}
            for peer in [*reader, *sender] {
                while Self::take(speaker, peer, usize::MAX) > 0 {}
            }
        }
        for (peer, from, left) in slow {
            if *from <= *turns {
                *left -= Self::take(speaker, *peer, (*left).min(SLOW_OCTETS_AT_ONCE));
            }
        }
    }

    /// Sends everything; returns what the process holds more than before, after each message.
    fn run(&mut self, load: Load, before: usize) -> Vec<usize> {
        let each = (0..load.routes).map(|number| {
            receive(&mut self.speaker, self.sender, |out| {
                load.encode(number, out);
            });
            self.turn();
            counting::live().wrapping_sub(before)
        });
        each.collect()
    }
}

/// Returns the octets of a speaker with so many slow clients, after each message of a load.
fn stalled(slow: usize, load: Load) -> Vec<usize> {
    let before = counting::live();
    let mut stalled = Stalled::new(slow, load);
    let held = stalled.run(load, before);
    assert_accounts(&stalled, counting::live().wrapping_sub(before));
    let up = stalled
        .speaker
        .peers()
        .filter(|peer| peer.session.state() == State::Established);
    assert_eq!(up.count(), slow + 2);
    held
}

/// The accounts of a speaker have the octets that it holds, within a factor. Octets that wait for
/// several clients at once are in each of their accounts.
fn assert_accounts(stalled: &Stalled, held: usize) {
    let Stalled { speaker, slow, .. } = stalled;
    let usage = speaker.usage();
    let octets = |peer| speaker.peer(peer).expect("up").octets;
    for (peer, ..) in slow {
        assert!(octets(*peer).queued <= SESSION_OCTETS_MAX);
        assert_eq!(octets(*peer).received, 0);
    }
    let (peers, groups) = (usage.octets.peers, usage.octets.groups);
    let received = octets(stalled.sender).received;
    assert_eq!(received, peers.received);
    assert!(usage.ring_octets.peak <= RING_OCTETS_MAX, "{usage:?}");
    assert!(usage.feed_octets.peak <= FEED_OCTETS_MAX, "{usage:?}");
    assert!(usage.session_octets.peak <= SESSION_OCTETS_MAX, "{usage:?}");
    let clients = CLIENT * (slow.len() + 2);
    let all = received + peers.queued + groups + clients;
    println!(
        "{held} octets held, {received} received, {} queued, {groups} of groups",
        peers.queued
    );
    assert!(held <= 2 * all, "{held} octets are held: {usage:?}");
    // Shared octets are in the sum once.
    let sum = usage.memory.expect("a limit").octets.now;
    assert!(
        sum + MEMORY_MAX / 256 >= received + groups,
        "{sum}: {usage:?}"
    );
    let accounted = sum + MEMORY_MAX / 256 + clients;
    assert!(held <= 2 * accounted, "{held} octets are held: {usage:?}");
    assert!(sum <= 2 * held, "{held} octets are held: {usage:?}");
    assert!(held >= received / 2, "{held} octets are held: {usage:?}");
}

/// The paths of the sender change: it holds few octets, and the clients that do not read hold more
/// and more.
#[test]
fn readers_with_the_most_waiting_octets_give_way() {
    let load = Load {
        routes: 0,
        octets: 3000,
        own: true,
        extended: false,
    };
    let mut stalled = Stalled::new(2, load);
    for (.., left) in &mut stalled.slow {
        *left = 0;
    }
    stalled.speaker.limit_memory(Some(600_000));
    for number in 0..1000 {
        receive(&mut stalled.speaker, stalled.sender, |out| {
            load.encode_for(number % 4, number, out);
        });
        stalled.turn();
    }
    let [(first, ..), (second, ..)] = stalled.slow[..] else {
        panic!("two slow readers")
    };
    let actions =
        [first, second].map(|peer| [(peer, MemoryAction::Reject), (peer, MemoryAction::End)]);
    assert_eq!(stalled.actions, actions.concat());
    for peer in [stalled.sender, stalled.reader] {
        let view = stalled.speaker.peer(peer).expect("up");
        assert_eq!(view.session.state(), State::Established);
        assert!(!view.capped);
    }
}

// Promise (BGP): Queued octets stay below the limits of `show limits`, however long messages are.
#[test]
fn slow_readers_of_long_updates_take_what_limits_state() {
    // Of the group and family, and of each client. Octets are allocated in pieces.
    let shared = RING_OCTETS_MAX + FEED_OCTETS_MAX + STEP_OCTETS_MAX + (2 << 20);
    let most = shared + SLOW * (SESSION_OCTETS_MAX + PIECE_OCTETS + 2 * CLIENT);
    for load in LOADS {
        let (alone, slow) = (stalled(0, load), stalled(SLOW, load));
        let for_slow = slow
            .iter()
            .zip(&alone)
            .map(|(slow, alone)| slow.saturating_sub(*alone));
        let peak = for_slow.max().unwrap_or_default();
        println!("{load:?}: {peak} octets for {SLOW} slow clients, {most} at most");
        assert!(peak <= most, "{load:?}: {peak} octets, {most} at most");
        assert!(peak > 512 << 10, "{load:?}: {peak} octets: none was slow");
    }
}
