//! Hosts that die, and daemons that only restart, in fabrics with BFD, seed by seed. `CAMBRIC_SIM_SEED=7` runs
//! one seed, `CAMBRIC_SIM_SEED=1..500` many.

use bfd_client::Liveness;
use bgp_speaker::BfdGraceful;
use sim::{Chance, Failure, Options, Plants, Trouble, troubled};

/// Returns the fabric and the troubles of a seed.
fn drawn(seed: u64) -> (Options, Vec<Trouble>) {
    let mut chance = Chance::new(seed ^ 0xBFD0_BFD0_BFD0_BFD0);
    let mesh = chance.strikes(300);
    let reflectors = *chance.pick(&[2, 2, 3]).expect("some");
    let times = [(50, 3), (100, 3), (300, 3), (300, 3), (1000, 5)];
    let options = Options {
        nodes: 4,
        reflectors,
        mesh,
        workloads: 8,
        bfd: chance.pick(&times).copied(),
        ..Options::default()
    };
    let troubles = (0..3).filter_map(|_| chance.pick(&Trouble::ALL).copied());
    (options, troubles.collect())
}

fn run(seed: u64) -> Result<(), Failure> {
    let (options, troubles) = drawn(seed);
    println!(
        "seed {seed}: {troubles:?}, mesh {}, {:?}",
        options.mesh, options.bfd
    );
    troubled(seed, options, Plants::default(), &troubles).map(drop)
}

// Promise (BGP): With BFD, no kernel has a route to a dead host for longer than its death can be detected, and
// no route is lost to a host that only restarts its daemons, or because reflectors die.
#[test]
fn dead_hosts_lose_their_routes_and_no_others_do() {
    let chosen = std::env::var("CAMBRIC_SIM_SEED").ok();
    let chosen = chosen.map(|text| {
        let (from, to) = text.split_once("..").unwrap_or((&text, ""));
        let from: u64 = from.parse().expect("a seed");
        from..to.parse().unwrap_or(from + 1)
    });
    for seed in chosen.unwrap_or(1..8) {
        if let Err(failure) = run(seed) {
            panic!("{failure}");
        }
    }
}

/// Every planted fault is found within so many seeds.
const SEEDS: u64 = 3;

fn fabric(mesh: bool) -> Options {
    Options {
        nodes: 4,
        mesh,
        workloads: 8,
        bfd: Some((300, 3)),
        ..Options::default()
    }
}

/// Returns the first oracle that finds the fault in this trouble. Without the fault, it finds none.
fn found(mesh: bool, trouble: Trouble, plants: impl Fn() -> Plants) -> &'static str {
    for seed in 1..=SEEDS {
        if let Err(failure) = troubled(seed, fabric(mesh), Plants::default(), &[trouble]) {
            panic!("without a fault: {failure}");
        }
        match troubled(seed, fabric(mesh), plants(), &[trouble]) {
            Err(Failure::Violation(found)) => {
                println!("seed {seed}: {}: {}", found.oracle, found.what);
                return found.oracle;
            }
            Err(failure) => panic!("{failure}"),
            Ok(_) => {}
        }
    }
    panic!("the fault is not found");
}

fn with_path(path: sim::PathPlant) -> Plants {
    Plants {
        path: Some(path),
        ..Plants::default()
    }
}

#[test]
fn ignored_c_bit_is_found() {
    let plants = || {
        with_path(|_, state| {
            state.control_plane_independent = false;
            true
        })
    };
    assert_eq!(found(false, Trouble::DeathWithoutBgp, plants), "dead");
}

#[test]
fn ignored_failure_of_a_path_is_found() {
    let plants = || with_path(|_, state| state.liveness != Liveness::Failed);
    assert_eq!(found(false, Trouble::Death, plants), "dead");
}

#[test]
fn ignored_failure_before_a_start_is_found() {
    let plants = || with_path(|is_first, state| !is_first || state.liveness != Liveness::Failed);
    assert_eq!(found(true, Trouble::DeathUnseen, plants), "dead");
}

#[test]
fn admin_down_that_counts_as_a_failure_is_found() {
    let plants = || {
        with_path(|_, state| {
            if state.liveness == Liveness::DisabledThere {
                (state.liveness, state.failures) = (Liveness::Failed, 1);
            }
            true
        })
    };
    let oracle = found(false, Trouble::BfdStopped, plants);
    assert!(["kept", "unfailed"].contains(&oracle), "{oracle}");
}

#[test]
fn reflected_routes_that_die_with_their_reflector_are_found() {
    let plants = || Plants {
        config: Some(|_, speaker| {
            for peer in &mut speaker.peers {
                peer.bfd_graceful = BfdGraceful::Never;
            }
        }),
        ..Plants::default()
    };
    assert_eq!(found(false, Trouble::Reflectors, plants), "kept");
}

#[test]
fn sessions_that_end_with_their_client_are_found() {
    let plants = || Plants {
        bfd_ends_with_client: true,
        ..Plants::default()
    };
    assert_eq!(found(false, Trouble::DeathWithoutBgp, plants), "dead");
}

#[test]
fn lost_state_of_a_killed_process_is_found() {
    let plants = || Plants {
        bfd_forgets: true,
        ..Plants::default()
    };
    let oracle = found(false, Trouble::BfdKilled, plants);
    assert!(["kept", "unfailed"].contains(&oracle), "{oracle}");
}
