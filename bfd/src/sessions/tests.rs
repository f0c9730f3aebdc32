use core::net::{IpAddr, Ipv4Addr};
use std::vec::Vec;

use super::*;
use crate::client::{Liveness, Side};
use crate::due::count::comparisons;
use crate::limits::TTL_SINGLE_HOP;
use crate::path::Family;
use crate::random::Seeded;
use crate::table::State;

mod operations;

type Set = Sessions<Seeded>;

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn host(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))
}

fn single(interface: u32, remote: u32) -> Path {
    let remote = host(remote);
    Path::SingleHop { interface, remote }
}

fn multi(local: u32, remote: u32) -> Path {
    Path::Multihop {
        table: 0,
        local: host(local),
        remote: host(remote),
        ttl_min: 250,
    }
}

/// The arrival of a packet from `source` to `destination` on interface 1.
fn arrival(hops: Hops, source: u32, destination: u32) -> Arrival {
    Arrival {
        hops,
        interface: 1,
        table: 0,
        source: host(source),
        destination: host(destination),
        ttl: TTL_SINGLE_HOP,
        arrived_at: None,
    }
}

/// Does all work that is due at `now`, and moves the packets between two sets of sessions with
/// paths of the same order. Returns the changes.
struct World {
    sets: [Set; 2],
    /// Whether packets are lost.
    is_cut: bool,
    now: Instant,
    changes: Vec<(usize, Change)>,
    packets: u64,
}

impl World {
    fn new(sessions_max: usize) -> Self {
        let set = |seed| Sessions::new(Seeded::new(seed), sessions_max);
        Self {
            sets: [set(1), set(2)],
            is_cut: false,
            now: Instant::ZERO,
            changes: Vec::new(),
            packets: 0,
        }
    }

    /// Adds a multihop session between host `number` of each side.
    fn add(&mut self, number: u32) -> [Discriminator; 2] {
        let [one, other] = [number, number + 0x10_0000];
        let config = SessionConfig::default;
        [
            self.sets[0].add(self.now, multi(one, other), config()),
            self.sets[1].add(self.now, multi(other, one), config()),
        ]
        .map(|id| id.expect("there is room"))
    }

    fn run_until(&mut self, end: Instant) {
        loop {
            for side in 0..2 {
                while let Some(step) = self.sets[side].step(self.now) {
                    match step {
                        Step::Changed { change, .. } => self.changes.push((side, change)),
                        Step::Send { path, packet, .. } => self.send(side, path, &packet),
                    }
                }
            }
            let times = self.sets.iter().filter_map(Sessions::poll_timeout);
            match times.min() {
                Some(next) if next <= end => self.now = next.max(self.now),
                _ => break,
            }
        }
        self.now = end;
    }

    fn send(&mut self, side: usize, path: Path, packet: &Encoded) {
        self.packets += 1;
        if self.is_cut {
            return;
        }
        let Path::Multihop { local, remote, .. } = path else {
            panic!("all paths are multihop");
        };
        let arrival = Arrival {
            source: local,
            destination: remote,
            ..arrival(Hops::Multi, 0, 0)
        };
        let other = 1 - side;
        let received = self.sets[other].receive(self.now, &arrival, packet.octets());
        if let Ok((_, Some(change))) = received {
            self.changes.push((other, change));
        }
    }

    fn visits(&self) -> u64 {
        self.sets[0].visits + self.sets[1].visits
    }
}

#[test]
fn packets_find_their_session_by_path_then_by_discriminator() {
    let mut world = World::new(10);
    for number in 1..=4 {
        world.add(number);
    }
    world.run_until(at(5000));
    for (session, _) in world.sets[0].iter().chain(world.sets[1].iter()) {
        assert_eq!(session.state(), State::Up);
        assert_eq!(session.stats().discarded, 0);
    }
    assert_eq!(
        world.sets[0].find(multi(1, 0x10_0001)).map(Session::state),
        Some(State::Up)
    );
}

#[test]
fn packet_without_session_or_from_another_path_is_discarded() {
    let mut set: Set = Sessions::new(Seeded::new(1), 10);
    let id = set
        .add(at(0), single(1, 2), SessionConfig::default())
        .expect("room");
    let far = set
        .add(at(0), multi(1, 3), SessionConfig::default())
        .expect("room");
    let packet = |yours: Option<Discriminator>| {
        let mut remote: Set = Sessions::new(Seeded::new(9), 1);
        remote
            .add(at(0), single(1, 1), SessionConfig::default())
            .expect("room");
        let Some(Step::Send { packet, .. }) = remote.step(at(0)) else {
            panic!("the first packet is due");
        };
        let mut octets = Vec::from(packet.octets());
        octets[8..12].copy_from_slice(&yours.map_or(0, Discriminator::get).to_be_bytes());
        octets
    };
    let near = arrival(Hops::Single, 2, 1);
    let mut receive = |arrival: Arrival, yours| {
        let result = set.receive(at(1), &arrival, &packet(yours));
        result.map(|(id, _)| id)
    };
    assert_eq!(
        receive(arrival(Hops::Single, 7, 1), None),
        Err(Discard::NoSession)
    );
    assert_eq!(
        receive(
            Arrival {
                interface: 2,
                ..near
            },
            None
        ),
        Err(Discard::NoSession)
    );
    let unknown = Discriminator::new(id.get() ^ 1);
    assert_eq!(receive(near, unknown), Err(Discard::NoSession));
    // The discriminator alone is no proof: packets over routers must not reach a single hop.
    assert_eq!(
        receive(arrival(Hops::Multi, 2, 1), Some(id)),
        Err(Discard::Path)
    );
    assert_eq!(
        receive(
            Arrival {
                interface: 2,
                ..near
            },
            Some(id)
        ),
        Err(Discard::Path)
    );
    assert_eq!(
        receive(arrival(Hops::Single, 3, 1), Some(far)),
        Err(Discard::Path)
    );
    let (ttl, ttl_min) = (254, 255);
    let forwarded = Err(Discard::TimeToLive { ttl, ttl_min });
    assert_eq!(receive(Arrival { ttl, ..near }, None), forwarded);
    let (ttl, ttl_min) = (249, 250);
    let too_far = Err(Discard::TimeToLive { ttl, ttl_min });
    let over_routers = arrival(Hops::Multi, 3, 1);
    assert_eq!(
        receive(
            Arrival {
                ttl,
                ..over_routers
            },
            None
        ),
        too_far
    );
    assert_eq!(
        receive(
            Arrival {
                ttl: 250,
                ..over_routers
            },
            None
        ),
        Ok(far)
    );
    assert_eq!(receive(near, None), Ok(id));
    assert_eq!(receive(near, Some(id)), Ok(id));
    let discarded = [id, far].map(|id| set.get(id).expect("a session").stats().discarded);
    assert_eq!(discarded, [3, 2], "known sessions count them");
}

#[test]
fn paths_differ_by_family_and_by_routing_table() {
    let mut set: Set = Sessions::new(Seeded::new(1), 10);
    let mut add = |path| {
        let added = set.add(at(0), path, SessionConfig::default());
        added.expect("another path")
    };
    let [v4, v6] = [Family::Ipv4, Family::Ipv6].map(|family| {
        add(Path::PointToPoint {
            interface: 1,
            family,
        })
    });
    let mapped = |number: u32| {
        let IpAddr::V4(address) = host(number) else {
            panic!("an IPv4 address");
        };
        IpAddr::V6(address.to_ipv6_mapped())
    };
    let far = [0, 7].map(|table| {
        add(Path::Multihop {
            table,
            local: mapped(1),
            remote: mapped(2),
            ttl_min: 250,
        })
    });
    assert_eq!(
        set.path(far[0]),
        Some(multi(1, 2)),
        "addresses are canonical"
    );
    let Some(Step::Send { packet, .. }) = set.step(at(0)) else {
        panic!("the first packet is due");
    };
    let mut receive = |arrival: Arrival| {
        let result = set.receive(at(1), &arrival, packet.octets());
        result.map(|(id, _)| id)
    };
    let near = arrival(Hops::Single, 9, 1);
    assert_eq!(receive(near), Ok(v4));
    let source = mapped(9);
    assert_eq!(receive(Arrival { source, ..near }), Ok(v4));
    let source = "fe80::9".parse().expect("an address");
    assert_eq!(receive(Arrival { source, ..near }), Ok(v6));
    let over_routers = arrival(Hops::Multi, 2, 1);
    for (table, id) in [(0, far[0]), (7, far[1])] {
        assert_eq!(
            receive(Arrival {
                table,
                ..over_routers
            }),
            Ok(id)
        );
    }
    let table = 8;
    let elsewhere = Arrival {
        table,
        ..over_routers
    };
    assert_eq!(receive(elsewhere), Err(Discard::NoSession));
}

#[test]
fn source_of_a_point_to_point_link_is_not_used() {
    let mut set: Set = Sessions::new(Seeded::new(1), 10);
    let (interface, family) = (1, Family::Ipv4);
    let path = Path::PointToPoint { interface, family };
    let id = set
        .add(at(0), path, SessionConfig::default())
        .expect("room");
    let Some(Step::Send { packet, .. }) = set.step(at(0)) else {
        panic!("the first packet is due");
    };
    for source in [2, 77] {
        let arrival = arrival(Hops::Single, source, 1);
        let result = set.receive(at(1), &arrival, packet.octets());
        assert_eq!(result.map(|(id, _)| id), Ok(id));
    }
}

#[test]
fn set_is_bounded_and_each_path_has_one_session() {
    let mut set: Set = Sessions::new(Seeded::new(1), 2);
    let config = SessionConfig::default;
    let id = set.add(at(0), multi(1, 2), config()).expect("room");
    // The time to live does not distinguish two paths.
    let same = Path::Multihop {
        table: 0,
        local: host(1),
        remote: host(2),
        ttl_min: 1,
    };
    assert_eq!(set.add(at(0), same, config()), Err(AddError::PathInUse(id)));
    set.add(at(0), multi(1, 3), config()).expect("room");
    assert_eq!(
        set.add(at(0), multi(1, 4), config()),
        Err(AddError::Full(2))
    );
    assert!(set.remove(at(0), id).is_some());
    assert!(set.remove(at(0), id).is_none());
    set.add(at(0), multi(1, 4), config())
        .expect("room after a removal");
    assert_eq!(set.len(), 2);
}

#[test]
fn passive_session_needs_a_path_over_routers() {
    let mut set: Set = Sessions::new(Seeded::new(1), 10);
    let passive = SessionConfig::default().with(|config| config.role = Role::Passive);
    let rejected = AddError::Config(ConfigError::PassiveSingleHop);
    assert_eq!(set.add(at(0), single(1, 2), passive.clone()), Err(rejected));
    let id = set.add(at(0), multi(1, 2), passive.clone()).expect("valid");
    assert_eq!(set.configure(at(0), id, SessionConfig::default()), Ok(true));
    let id = set
        .add(at(0), single(1, 2), SessionConfig::default())
        .expect("valid");
    let result = set.configure(at(0), id, passive);
    assert_eq!(result, Err(ConfigError::PassiveSingleHop));
}

#[test]
fn discriminators_are_distinct_even_if_the_source_repeats() {
    /// A broken source.
    struct Same;
    impl Random for Same {
        fn next_u64(&mut self) -> u64 {
            u64::from(u32::MAX - 1)
        }
    }
    let mut set = Sessions::new(Same, 4);
    let ids: Vec<u32> = (2..6)
        .map(|remote| set.add(at(0), multi(1, remote), SessionConfig::default()))
        .map(|id| id.expect("room").get())
        .collect();
    assert_eq!(ids, [u32::MAX - 1, u32::MAX, 1, 2]);
}

#[test]
fn removed_session_sends_admin_down_for_a_detection_time() {
    let mut world = World::new(10);
    let [id, _] = world.add(1);
    world.run_until(at(5000));
    world.changes.clear();
    let change = world.sets[0].remove(world.now, id).expect("a session");
    assert_eq!((change.from, change.to), (State::Up, State::AdminDown));
    assert!(world.sets[0].get(id).is_none());
    assert_eq!(world.sets[0].len(), 1);
    world.run_until(at(5100));
    let [(1, change)] = world.changes[..] else {
        panic!("one change: {:?}", world.changes);
    };
    assert_eq!(change.liveness, Liveness::Disabled(Side::Remote));
    world.run_until(at(20_000));
    assert!(world.sets[0].is_empty());
    assert_eq!(world.changes.len(), 1, "no failure follows");
}

#[test]
fn removed_session_makes_room_for_the_same_path() {
    let mut world = World::new(1);
    let [id, _] = world.add(1);
    world.run_until(at(5000));
    world.sets[0].remove(world.now, id).expect("a session");
    let path = multi(1, 0x10_0001);
    let config = SessionConfig::default();
    let again = world.sets[0]
        .add(world.now, path, config)
        .expect("the path is free");
    assert_eq!(again, id, "the session that still sends continues");
    let session = world.sets[0].get(id).expect("a session");
    assert!(!session.was_up());
    world.run_until(at(15_000));
    let states = world
        .sets
        .each_ref()
        .map(|set| set.iter().next().map(|(one, _)| one.state()));
    assert_eq!(states, [Some(State::Up); 2]);
    let mut changes = world.changes.iter();
    let is_failure = |change: &Change| matches!(change.liveness, Liveness::Failed { .. });
    assert!(!changes.any(|(side, change)| *side == 1 && is_failure(change)));
}

#[test]
fn replaced_sessions_of_a_full_set_send_admin_down_first() {
    let mut world = World::new(3);
    let ids: Vec<_> = (1..=3).map(|number| world.add(number)[0]).collect();
    world.run_until(at(5000));
    let add = |world: &mut World, remote| {
        let config = SessionConfig::default();
        world.sets[0].add(world.now, multi(9, remote), config)
    };
    // All are replaced before any packet is sent, twice: the second time there is no room.
    for id in ids {
        world.sets[0].remove(world.now, id).expect("a session");
    }
    let ids: Vec<_> = (1..=3)
        .filter_map(|remote| add(&mut world, remote).ok())
        .collect();
    assert_eq!(ids.len(), 3);
    assert_eq!(world.sets[0].len(), 6);
    assert_eq!(add(&mut world, 4), Err(AddError::Full(3)));
    world.changes.clear();
    world.run_until(at(5010));
    let disabled = Liveness::Disabled(Side::Remote);
    let noticed = world
        .changes
        .iter()
        .filter(|(side, change)| *side == 1 && change.liveness == disabled);
    assert_eq!(noticed.count(), 3);
}

#[test]
fn remote_packet_does_not_extend_the_time_of_a_removed_session() {
    let mut world = World::new(1);
    let [id, _] = world.add(1);
    world.run_until(at(5000));
    let slow = SessionConfig::default().with(|config| config.required_min_rx_us = u32::MAX);
    let other = world.sets[1]
        .iter()
        .next()
        .map(|(one, _)| one.local_discriminator());
    let other = other.expect("a session");
    assert_eq!(world.sets[1].configure(world.now, other, slow), Ok(true));
    world.run_until(at(8000));
    world.sets[0].remove(world.now, id).expect("a session");
    world.run_until(at(8000) + LEAVING_TIME_MAX);
    assert!(world.sets[0].is_empty());
}

/// Returns the looks at sessions and the comparisons of deadlines for each packet.
fn work(sessions: u32) -> (f64, f64, u64) {
    let mut world = World::new(sessions as usize);
    for number in 1..=sessions {
        world.add(number);
    }
    world.run_until(at(4000));
    let up = |set: &Set| set.iter().all(|(session, _)| session.state() == State::Up);
    assert!(world.sets.iter().all(up));
    let (packets, visits, compared) = (world.packets, world.visits(), comparisons());
    world.run_until(at(6000));
    let packets = world.packets - packets;
    let visits = world.visits() - visits;
    let compared = comparisons() - compared;
    world.is_cut = true;
    world.run_until(at(8000));
    let downs = world
        .changes
        .iter()
        .filter(|(_, change)| change.from == State::Up);
    assert_eq!(
        downs.count(),
        2 * sessions as usize,
        "each end has failed once"
    );
    let each = |count: u64| count as f64 / packets as f64;
    (each(visits), each(compared), packets)
}

#[test]
fn work_for_each_packet_grows_with_the_logarithm_of_sessions() {
    let (visits_small, compared_small, packets_small) = work(1_000);
    let (visits_large, compared_large, packets_large) = work(10_000);
    // A packet is one look at its sender and one at its receiver.
    assert!(
        visits_small <= 2.1 && visits_large <= 2.1,
        "{visits_small} {visits_large}"
    );
    // Ten times the sessions send ten times the packets, within the jitter.
    let packets = packets_large as f64 / packets_small as f64;
    assert!((9.0..11.0).contains(&packets), "{packets}");
    // Deadlines are compared 23 and 30 times for each packet: log2(10) is 3.3.
    assert!(compared_small <= 40.0, "{compared_small}");
    assert!(
        compared_large <= compared_small + 14.0,
        "{compared_small} {compared_large}"
    );
}

#[test]
fn set_restores_a_session_unless_its_place_is_taken() {
    let mut world = World::new(2);
    let [id, _] = world.add(1);
    world.run_until(at(5000));
    let path = multi(1, 0x10_0001);
    let snapshot = world.sets[0]
        .get(id)
        .expect("a session")
        .snapshot(world.now);
    let mut set: Set = Sessions::new(Seeded::new(8), 2);
    let restore =
        |set: &mut Set, path| set.restore(at(5000), path, SessionConfig::default(), &snapshot);
    assert_eq!(restore(&mut set, path), Ok(id));
    assert_eq!(restore(&mut set, path), Err(AddError::PathInUse(id)));
    let in_use = Err(AddError::DiscriminatorInUse(id));
    assert_eq!(restore(&mut set, multi(1, 7)), in_use);
    let mut full: Set = Sessions::new(Seeded::new(8), 0);
    assert_eq!(restore(&mut full, path), Err(AddError::Full(0)));
    world.changes.clear();
    world.sets[0] = set;
    world.run_until(at(15_000));
    assert_eq!(world.changes, []);
}

#[test]
fn debug_text_of_a_set_has_no_state_of_its_random_source() {
    let mut set: Set = Sessions::new(Seeded::new(77_777), 2);
    let id = set
        .add(at(0), multi(1, 2), SessionConfig::default())
        .expect("room");
    let text = std::format!("{set:?}");
    assert!(text.contains(&std::format!("{id}")));
    assert!(!text.contains(&std::format!("{:?}", set.random)), "{text}");
}
