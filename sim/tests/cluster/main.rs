//! A cluster of reflectors and its clients in one process, by seed: reflectors are killed and
//! drained, machines are cut off from the store, and the store forgets. At all times every client
//! has every route; at rest each has its two sessions; and only those move that must.
//! `CAMBRIC_SIM_SEED=7` runs one seed with 500 clients.

mod machine;
mod world;

use std::collections::BTreeSet;
use std::net::IpAddr;

use intent::placement::{Candidate, choose};
use sim::Chance;

use world::World;

/// Something that befalls the cluster; a reflector is told by its number.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// It is killed, and back after so many seconds, within the life of its lease.
    Restart(usize, u64),
    /// It is killed and stays away until its registration is gone, then it comes back.
    Lose(usize),
    /// It is drained, and undrained.
    Drain(usize),
    /// Nobody reaches the store for so many seconds; leases run out.
    StoreAway(u64),
    /// These do not reach the store for so many seconds: every n-th machine, beginning here.
    Partition(usize, usize, u64),
}

impl Act {
    fn draw(chance: &mut Chance, reflectors: usize) -> Self {
        let nth = chance.below(reflectors);
        match chance.below(5) {
            0 => Self::Restart(nth, chance.within(1..=10)),
            1 => Self::Lose(nth),
            2 => Self::Drain(nth),
            3 => Self::StoreAway(chance.within(5..=90)),
            _ => Self::Partition(chance.below(3), 1 + chance.below(4), chance.within(5..=45)),
        }
    }
}

/// How long it takes at most until everybody rests.
const REST_S: u64 = 30;

/// The reflectors that a client is to have sessions with.
fn chosen(world: &World, client: usize, without: Option<usize>) -> BTreeSet<IpAddr> {
    let reflectors = world.machines[world.clients..].iter().enumerate();
    let there: Vec<_> = reflectors
        .filter(|(nth, _)| Some(*nth) != without)
        .collect();
    let candidates = there.iter().map(|(_, machine)| Candidate {
        name: &machine.name,
        zone: &machine.name,
        weight: 100,
    });
    let names = choose(&world.machines[client].name, candidates, 2);
    let chosen = there
        .iter()
        .filter(|(_, machine)| names.contains(&machine.name.as_str()));
    chosen.map(|(_, machine)| machine.address.into()).collect()
}

/// Everybody has the sessions of their choice, and since the last rest those sessions only have
/// ended that had to: with the one that it is about, and at those who move back to it.
fn rest(
    world: &mut World,
    about: Option<usize>,
    without: Option<usize>,
    what: &dyn std::fmt::Debug,
) {
    world.pass(REST_S);
    assert!(world.whole, "{what:?}: routes are missing");
    let target = about.map(|nth| IpAddr::from(world.machines[world.reflector(nth)].address));
    for client in 0..world.clients {
        let wanted = chosen(world, client, without);
        let machine = &world.machines[client];
        assert_eq!(machine.sessions(), wanted, "{what:?}: {}", machine.name);
    }
    for (client, ended) in std::mem::take(&mut world.downs) {
        let wanted = chosen(world, client, without);
        let returns = target.is_some_and(|target| wanted.contains(&target));
        let must = Some(ended) == target || (returns && !wanted.contains(&ended));
        let name = &world.machines[client].name;
        assert!(must, "{what:?}: {name} has lost {ended} without need");
    }
}

fn befall(world: &mut World, act: Act) {
    match act {
        Act::Restart(nth, seconds) => {
            let at = world.reflector(nth);
            world.kill(at);
            world.pass(seconds);
            world.machines[at].start();
            rest(world, Some(nth), None, &act);
        }
        Act::Lose(nth) => {
            let at = world.reflector(nth);
            world.kill(at);
            world.pass(20);
            rest(world, Some(nth), Some(nth), &act);
            world.machines[at].start();
            rest(world, Some(nth), None, &act);
        }
        Act::Drain(nth) => {
            world.drain(nth, true);
            rest(world, Some(nth), Some(nth), &act);
            world.drain(nth, false);
            rest(world, Some(nth), None, &act);
        }
        Act::StoreAway(seconds) => {
            world
                .machines
                .iter_mut()
                .for_each(|machine| machine.cut = true);
            world.pass(seconds);
            world
                .machines
                .iter_mut()
                .for_each(|machine| machine.cut = false);
            rest(world, None, None, &act);
        }
        Act::Partition(first, step, seconds) => {
            let some = world.machines.iter_mut().skip(first).step_by(step);
            some.for_each(|machine| machine.cut = true);
            world.pass(seconds);
            world
                .machines
                .iter_mut()
                .for_each(|machine| machine.cut = false);
            rest(world, None, None, &act);
        }
    }
}

fn begin(clients: usize, reflectors: usize) -> World {
    let mut world = World::new(clients, reflectors);
    world.pass(30);
    world.downs.clear();
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

#[test]
fn only_those_move_that_must_and_no_route_is_lost() {
    let asked = std::env::var("CAMBRIC_SIM_SEED").ok();
    if let Some(seed) = asked.and_then(|seed| seed.parse().ok()) {
        return run(seed, 500, 12);
    }
    for seed in 1..=6 {
        run(seed, 24, 6);
    }
}

#[test]
fn five_hundred_clients() {
    if std::env::var_os("CAMBRIC_SIM_SEED").is_none() {
        run(1, 500, 2);
    }
}
