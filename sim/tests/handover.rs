//! Packets to workloads that move and are evicted, and to nodes of which the daemons start.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use sim::{Failure, Handovers, Options, Plants, RulesPlant, Violation, handovers};

/// Fabrics, and the changes and starts of each. In a long run these are 10,000 and 1,000 in all.
const FABRICS: u64 = 10;
const OF_A_LONG_RUN: (u64, u64) = (1000, 100);
const FABRICS_OF_A_SHORT_RUN: u64 = 4;
const OF_A_SHORT_RUN: (u64, u64) = (60, 6);
/// Minimum number of packets for each change.
const PACKETS_MIN: u64 = 10;

fn options() -> Options {
    Options {
        nodes: 4,
        reflectors: 2,
        workloads: 8,
        ..Options::default()
    }
}

/// Runs each second fabric, and checks that there was enough to see.
fn run(first: u64) {
    let (fabrics, (changes, starts)) = match std::env::var_os("CAMBRIC_SOAK") {
        Some(_) => (FABRICS, OF_A_LONG_RUN),
        None => (FABRICS_OF_A_SHORT_RUN, OF_A_SHORT_RUN),
    };
    let drawn = std::env::var("CAMBRIC_SEED").map_or(1, |text| text.parse().expect("a number"));
    for fabric in (first..fabrics).step_by(2) {
        let seed = fabric.wrapping_add(FABRICS.wrapping_mul(drawn));
        let run = handovers(seed, &options(), Plants::default(), (changes, starts));
        let run = run.unwrap_or_else(|failure| match failure {
            Failure::Violation(Violation { what, trace, .. }) => {
                panic!("CAMBRIC_SEED={drawn}, fabric {fabric}: {what}\nevents before:\n{trace}")
            }
            Failure::Setup(error) => panic!("{error}"),
        });
        println!("seed {seed}: {run:?}");
        let Handovers {
            moves,
            evictions,
            starts: started,
            packets,
        } = run;
        assert!(moves + evictions >= changes && started >= starts);
        assert!(packets >= PACKETS_MIN * changes, "{run:?}");
    }
}

// Promise (Felix): A route of a workload is removed after the other hosts have received its withdrawal, so
// that no packet between ready nodes is lost when a workload moves or is evicted.
#[test]
fn drawn_moves_and_evictions_lose_no_packet() {
    run(0);
}

#[test]
fn drawn_starts_among_further_moves_lose_no_packet() {
    run(1);
}

/// Runs until a packet is lost.
fn expect_lost(options: &Options, plants: Plants, reason: &str) {
    let lost = handovers(1, options, plants, OF_A_LONG_RUN);
    let Err(Failure::Violation(violation)) = lost else {
        panic!("no packet is lost: {lost:?}");
    };
    let text = violation.to_string();
    assert!(
        violation.oracle == "arrival" && text.contains(reason),
        "{text}"
    );
}

#[test]
fn routes_removed_without_a_mark_lose_packets() {
    let options = Options {
        answers: false,
        ..options()
    };
    expect_lost(&options, Plants::default(), "has no route but");
}

#[test]
fn routes_added_before_their_rules_lose_packets() {
    // The kernel acknowledges each transaction, and carries it out with the next one.
    let held: RefCell<BTreeMap<String, Vec<_>>> = RefCell::default();
    let plant: RulesPlant = Rc::new(move |machine, steps| {
        let mut held = held.borrow_mut();
        std::mem::swap(held.entry(machine.to_owned()).or_default(), steps);
    });
    let plants = Plants {
        rules: Some(plant),
        ..Plants::default()
    };
    expect_lost(&options(), plants, "has no rules for it");
}
