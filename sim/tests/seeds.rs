//! Whole fabrics, seed by seed. `CAMBRIC_SIM_SEED=7` runs one seed, `CAMBRIC_SIM_SEED=1..500` many;
//! `CAMBRIC_SIM_NODES` sets the size.

use std::ops::Range;

use sim::{Options, Outcome, Plants, demo, run};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}

fn chosen() -> Option<Range<u64>> {
    let text = std::env::var("CAMBRIC_SIM_SEED").ok()?;
    let (from, to) = text.split_once("..").unwrap_or((&text, ""));
    let from: u64 = from
        .parse()
        .expect("CAMBRIC_SIM_SEED is a number, or from..to");
    Some(from..to.parse().unwrap_or(from + 1))
}

fn good(seed: u64, nodes: u16) -> Outcome {
    match run(seed, Options::draw(seed, nodes), Plants::default()) {
        Ok(outcome) => outcome,
        Err(failure) => panic!("{failure}"),
    }
}

// Promise (BGP): After faults of any kind, a speaker's Adj-RIB-In has exactly the routes that the
// neighbor has sent, and nothing remains of a removed neighbor.
#[test]
fn chaos_then_calm() {
    let nodes = number("CAMBRIC_SIM_NODES").map_or(8, |nodes| u16::try_from(nodes).expect("few"));
    if let Some(seeds) = chosen() {
        for seed in seeds {
            println!("seed {seed}: {:?}", good(seed, nodes));
        }
        return;
    }
    for seed in 1..=12 {
        good(seed, 5);
    }
    // One seed that needs most of a fabric's size, and the seeds that have once found a fault, with the
    // faults of that time.
    for (seed, nodes) in [(6, 8), (22, 8), (55, 8), (220, 5)] {
        let options = Options {
            policies: [0; 4],
            ..Options::draw(seed, nodes)
        };
        if let Err(failure) = run(seed, options, Plants::default()) {
            panic!("{failure}");
        }
    }
}

/// Policies of all kinds change, are invalid, and packet filters are changed by other programs, among
/// faults of all kinds.
// Promise: as felix rules_read_back_are_equal_to_the_policies
#[test]
fn policies_among_all_faults() {
    for seed in 1..=3 {
        let options = Options {
            policies: [8, 3, 2, 1],
            ..Options::draw(seed, 4)
        };
        if let Err(failure) = run(seed, options, Plants::default()) {
            panic!("{failure}");
        }
    }
}

/// Nodes lie, among faults of all kinds. Reflectors enforce the records, and the state becomes
/// correct nevertheless.
// Promise: as bgp-daemon route_of_another_node_is_not_used_and_reported
#[test]
fn liars_among_all_faults() {
    for seed in 1..=4 {
        let options = Options {
            lies: 6,
            ..Options::draw(seed, 5)
        };
        if let Err(failure) = run(seed, options, Plants::default()) {
            panic!("{failure}");
        }
    }
}

/// Besides the fixed seeds, seeds that differ with every change of the repository: `CAMBRIC_SEED`
/// is derived from its content.
#[test]
fn drawn_seeds_end_well() {
    let drawn = number("CAMBRIC_SEED").unwrap_or(1);
    for seed in (drawn..).take(4) {
        println!("seed {seed}");
        good(seed, 5);
    }
}

#[test]
fn a_large_fabric() {
    if chosen().is_none() {
        good(1, 20);
    }
}

#[test]
fn the_same_seed_does_the_same() {
    assert_eq!(good(3, 4), good(3, 4));
    assert_ne!(good(3, 4).hash, good(4, 4).hash);
}

#[test]
fn the_story_of_the_demo() {
    let mut text = Vec::new();
    demo::run(&mut text).unwrap_or_else(|error| panic!("{error}"));
    let text = String::from_utf8(text).expect("text");
    for step in ["converged", "moved", "withdrawn", "killed", "at rest"] {
        assert!(text.contains(&format!("✓ {step}")), "{text}");
    }
}
