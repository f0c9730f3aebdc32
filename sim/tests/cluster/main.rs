//! A cluster of reflectors and its clients in one process, by seed: reflectors are killed and
//! drained, machines are cut off from the datastore, and leases expire in the datastore. At all
//! times every client has every route; in a stable state each has its two sessions; and only the
//! clients move that must. `CAMBRIC_SIM_SEED=7` runs one seed, `CAMBRIC_SIM_SEED=1..50` many;
//! `CAMBRIC_SIM_NODES` sets the number of clients.

mod machine;
mod world;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;

use bgp_speaker::Speaker;
use calico_bgp::placement::{Candidate, choose};
use sim::Chance;

use world::World;

/// A fault or a change of the cluster; reflectors are identified by their number.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// It is killed, and restarted after so many seconds, before its lease expires.
    Restart(usize, u64),
    /// It is killed until its registration has expired, then restarted.
    Lose(usize),
    /// The same, but when it comes back the next one is killed, with the clients that it had taken
    /// over, and restarted after so many seconds.
    Relieve(usize, u64),
    /// All are killed, and after so many seconds restarted one after the other, so many seconds
    /// apart.
    RestartAll(u64, u64),
    /// It is drained, and the drain is canceled.
    Drain(usize),
    /// The same, while every n-th client is cut off from the datastore for so many seconds.
    DrainApart(usize, usize, u64),
    /// It is cut off from the datastore for so long that it no longer counts, although its sessions
    /// are up.
    Hide(usize),
    /// All reflectors are cut off from the datastore for so many seconds, then reconnect one after
    /// the other.
    HideAll(u64),
    /// All machines are cut off from the datastore for so many seconds; leases expire.
    StoreAway(u64),
    /// The datastore is locked for so many seconds, and lacks the pool and the Node of every n-th
    /// machine until it is unlocked.
    Lock(usize, u64),
    /// Every n-th machine, from the first number on, is cut off from the datastore for so many
    /// seconds.
    Partition(usize, usize, u64),
}

impl Act {
    fn draw(chance: &mut Chance, reflectors: usize) -> Self {
        let nth = chance.below(reflectors);
        match chance.below(11) {
            0 => Self::Restart(nth, chance.within(1..=10)),
            1 => Self::Lose(nth),
            2 => Self::Drain(nth),
            3 => Self::StoreAway(chance.within(5..=90)),
            4 => Self::Hide(nth),
            5 => Self::HideAll(chance.within(5..=150)),
            6 => Self::DrainApart(nth, 1 + chance.below(4), chance.within(5..=90)),
            7 => Self::Relieve(nth, chance.within(1..=30)),
            9 => Self::Lock(1 + chance.below(4), chance.within(1..=60)),
            8 => Self::RestartAll(chance.within(1..=60), chance.within(0..=5)),
            _ => Self::Partition(chance.below(3), 1 + chance.below(4), chance.within(5..=45)),
        }
    }
}

/// The longest time until the cluster is stable.
const REST_S: u64 = 30;

/// Returns the reflectors with which a client must have sessions.
fn chosen(world: &World, client: usize, without: Option<usize>) -> BTreeSet<IpAddr> {
    let reflectors = world.machines().skip(world.clients).enumerate();
    let there: Vec<_> = reflectors
        .filter(|(nth, _)| Some(*nth) != without)
        .collect();
    let candidates = there.iter().map(|(_, machine)| Candidate {
        name: &machine.name,
        zone: &machine.name,
        weight: 100,
    });
    let names = choose(&world.machine(client).name, candidates, 2);
    let chosen = there
        .iter()
        .filter(|(_, machine)| names.contains(&machine.name.as_str()));
    chosen.map(|(_, machine)| machine.address.into()).collect()
}

/// Asserts that every client has the sessions of its choice, and that since the last stable state
/// only the necessary sessions have ended: those with the reflector of the act, and those of
/// clients that move back to it.
fn rest(
    world: &mut World,
    about: Option<usize>,
    without: Option<usize>,
    what: &dyn std::fmt::Debug,
) {
    world.pass(REST_S);
    assert!(world.whole, "{what:?}: routes are missing");
    for machine in world.machines() {
        let awaited = machine.speaker().map(Speaker::awaited);
        let nothing_awaited = awaited.is_none_or(|awaited| awaited.is_empty());
        assert!(
            nothing_awaited,
            "{what:?}: {} is still restarting",
            machine.name
        );
    }
    let target = about.map(|nth| IpAddr::from(world.machine(world.reflector(nth)).address));
    for client in 0..world.clients {
        let wanted = chosen(world, client, without);
        let machine = world.machine(client);
        assert_eq!(machine.sessions(), wanted, "{what:?}: {}", machine.name);
    }
    for (client, ended) in world.take_downs() {
        let wanted = chosen(world, client, without);
        let returns = target.is_some_and(|target| wanted.contains(&target));
        let must = Some(ended) == target || (returns && !wanted.contains(&ended));
        let name = &world.machine(client).name;
        assert!(must, "{what:?}: {name} has lost {ended} without need");
    }
}

/// Asserts that a client that has not seen a drain keeps its sessions, possibly except the one with
/// the drained reflector: that one need not wait for clients with other known sessions.
fn keep(world: &World, drained: usize, apart: &[usize], what: &dyn std::fmt::Debug) {
    let drained = IpAddr::from(world.machine(world.reflector(drained)).address);
    let others = |mut sessions: BTreeSet<IpAddr>| {
        sessions.remove(&drained);
        sessions
    };
    for &client in apart {
        let machine = world.machine(client);
        let wanted = others(chosen(world, client, None));
        assert_eq!(
            others(machine.sessions()),
            wanted,
            "{what:?}: {}",
            machine.name
        );
    }
}

fn befall(world: &mut World, act: Act) {
    match act {
        Act::Restart(nth, seconds) => {
            let at = world.reflector(nth);
            world.kill(at);
            world.pass(seconds);
            world.start(at);
            rest(world, Some(nth), None, &act);
        }
        Act::Lose(nth) => {
            let at = world.reflector(nth);
            world.kill(at);
            world.pass(20);
            rest(world, Some(nth), Some(nth), &act);
            world.start(at);
            rest(world, Some(nth), None, &act);
        }
        Act::Relieve(nth, seconds) => relieve(world, nth, seconds, &act),
        Act::RestartAll(seconds, apart) => restart_all(world, seconds, apart, &act),
        Act::Drain(nth) => {
            world.drain(nth, true);
            rest(world, Some(nth), Some(nth), &act);
            world.drain(nth, false);
            rest(world, Some(nth), None, &act);
        }
        Act::DrainApart(nth, step, seconds) => drain_apart(world, nth, step, seconds, &act),
        Act::Hide(nth) => {
            let at = world.reflector(nth);
            world.cut([at].into_iter());
            world.pass(90);
            rest(world, Some(nth), Some(nth), &act);
            world.mend();
            rest(world, Some(nth), None, &act);
        }
        Act::HideAll(seconds) => {
            world.cut(world.clients..world.len());
            world.pass(seconds);
            for at in world.clients..world.len() {
                world.reach(at);
                world.pass(8);
            }
            rest(world, None, None, &act);
        }
        Act::StoreAway(seconds) => {
            world.cut(0..world.len());
            world.pass(seconds);
            world.mend();
            rest(world, None, None, &act);
        }
        Act::Lock(step, seconds) => lock(world, step, seconds, &act),
        Act::Partition(first, step, seconds) => {
            world.cut((first..world.len()).step_by(step));
            world.pass(seconds);
            world.mend();
            rest(world, None, None, &act);
        }
    }
}

/// Keeps a reflector down, and kills the next one as it comes back.
fn relieve(world: &mut World, nth: usize, seconds: u64, act: &Act) {
    let at = world.reflector(nth);
    let next = world.reflector((nth + 1) % (world.len() - world.clients));
    world.kill(at);
    world.pass(20);
    rest(world, Some(nth), Some(nth), act);
    world.kill(next);
    world.start(at);
    world.pass(seconds);
    world.start(next);
    world.pass(REST_S);
    world.take_downs(); // The clients of two reflectors have moved.
    rest(world, None, None, act);
}

/// Kills all reflectors, and restarts them one after another.
fn restart_all(world: &mut World, seconds: u64, apart: u64, act: &Act) {
    let all = world.clients..world.len();
    all.clone().for_each(|at| world.kill(at));
    world.pass(seconds);
    for at in all {
        world.start(at);
        world.pass(apart);
    }
    world.pass(REST_S);
    world.take_downs(); // All clients have moved.
    rest(world, None, None, act);
}

/// Drains a reflector while some clients do not see the drain.
fn drain_apart(world: &mut World, nth: usize, step: usize, seconds: u64, act: &Act) {
    let apart: Vec<usize> = (0..world.clients).step_by(step).collect();
    world.cut(apart.iter().copied());
    world.drain(nth, true);
    world.pass(seconds);
    keep(world, nth, &apart, act);
    world.mend();
    rest(world, Some(nth), Some(nth), act);
    world.drain(nth, false);
    rest(world, Some(nth), None, act);
}

/// Locks the datastore while it lacks much of its data.
fn lock(world: &mut World, step: usize, seconds: u64, act: &Act) {
    world.lock(true);
    let lost = (0..world.len()).step_by(step);
    world.delete_pool();
    lost.clone().for_each(|at| world.delete_node(at));
    world.pass(seconds);
    world.write_pool();
    lost.for_each(|at| world.write_node(at, None));
    world.lock(false);
    rest(world, None, None, act);
}

fn begin(clients: usize, reflectors: usize) -> World {
    let mut world = World::new(clients, reflectors);
    world.pass(30);
    world.take_downs();
    rest(&mut world, None, None, &"the beginning");
    world
}

fn run(seed: u64, clients: usize, acts: usize) {
    let mut chance = Chance::new(seed);
    let reflectors = 3 + chance.below(3);
    let mut world = begin(clients, reflectors);
    for _ in 0..acts {
        let act = Act::draw(&mut chance, reflectors);
        println!("seed {seed}, {reflectors} reflectors: {act:?}");
        befall(&mut world, act);
    }
}

/// Returns the seeds of `CAMBRIC_SIM_SEED=7`, or `1..50`.
fn asked() -> Option<Range<u64>> {
    let text = std::env::var("CAMBRIC_SIM_SEED").ok()?;
    let (from, to) = text.split_once("..").unwrap_or((&text, ""));
    let from: u64 = from.parse().expect("a number, or from..to");
    Some(from..to.parse().unwrap_or(from + 1))
}

/// Returns the number of clients from `CAMBRIC_SIM_NODES`.
fn clients() -> usize {
    let text = std::env::var("CAMBRIC_SIM_NODES").ok();
    text.map_or(24, |text| text.parse().expect("a number"))
}

#[test]
fn clients_without_need_do_not_move_and_no_route_is_lost() {
    for seed in asked().unwrap_or(1..7) {
        run(seed, clients(), 6);
    }
}

/// Besides the fixed seeds, seeds that differ with every change of the repository: `CAMBRIC_SEED`
/// is derived from its content.
#[test]
fn drawn_seeds_end_well() {
    let drawn = std::env::var("CAMBRIC_SEED").map_or(1, |text| text.parse().expect("a number"));
    for seed in (drawn..).take(2) {
        run(seed, clients(), 6);
    }
}

/// Two acts per seed: each takes up to half a minute in an unoptimized build.
#[test]
fn five_hundred_clients() {
    for seed in asked().unwrap_or(2..3) {
        run(seed, 500, 2);
    }
}

/// Acts that have once found a fault: these do not depend on a seed.
#[test]
fn reflectors_relieve_each_other_and_the_store_is_locked() {
    let mut world = begin(clients(), 3);
    let acts = [
        Act::Relieve(0, 5),
        Act::Relieve(1, 20),
        Act::RestartAll(10, 0),
        Act::RestartAll(40, 5),
        Act::Lock(1, 30),
        Act::Lock(3, 3),
    ];
    for act in acts {
        befall(&mut world, act);
    }
}

// Promise: as bgp-daemon change_from_mesh_to_reflectors_and_back_loses_no_route
/// Reflectors by a label, which moves from one to the other while some machines are cut off from
/// the datastore. No reflector is one of the fabric's own.
#[test]
fn a_label_moves_and_no_route_is_lost() {
    for (step, seconds) in [(100, 1), (1, 7), (2, 20), (3, 45), (5, 60)] {
        let mut world = World::labeled(clients(), 2);
        let [old, new] = [world.reflector(0), world.reflector(1)];
        world.write_node(old, Some(true));
        world.write_node(new, Some(false));
        world.pass(30);
        assert!(world.whole);
        let all = world.len();
        world.cut((0..all).skip(1).step_by(step));
        world.write_node(new, Some(true));
        world.write_node(old, Some(false));
        world.pass(seconds);
        world.mend();
        world.pass(30);
        let wanted = BTreeSet::from([IpAddr::from(world.machine(new).address)]);
        for at in 0..world.clients {
            let sessions = world.machine(at).sessions();
            assert_eq!(sessions, wanted, "{step}, {seconds}: node {at}");
        }
        assert_eq!(world.machine(old).sessions(), wanted);
    }
}
