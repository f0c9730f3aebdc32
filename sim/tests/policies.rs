//! Tests that the oracles of policies find faults: these are planted between Felix and its host, or
//! between Felix and the datastore, never in the code under test.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use cambric_felix::render::{Action, Change, End, Match, SetKind, Verdict};
use sim::{Comparison, Failure, Options, Plants, RulesPlant, UpdatePlant, run};

/// Every planted fault is found within so many seeds.
const SEEDS: u64 = 4;

/// Runs without a planted fault.
const FAULTLESS: u64 = 2;

/// Changes of policies and of endpoints, without other faults.
fn changes() -> Options {
    Options {
        nodes: 3,
        reflectors: 1,
        workloads: 6,
        chaos: Duration::from_secs(20),
        pause: Duration::from_secs(1),
        churn: [1, 1, 2, 0],
        crashes: [0; 5],
        cuts: [0; 3],
        stalls: [0; 4],
        policies: [8, 4, 2, 0],
        ..Options::default()
    }
}

/// Returns the first oracle that finds the fault. All but this one and those of routes are disabled.
fn found(options: &Options, oracle: &str, plants: impl Fn() -> Plants) -> String {
    let all: [&'static str; 3] = ["closed", "kernel", "rules"];
    let blind: Vec<&'static str> = all.into_iter().filter(|one| *one != oracle).collect();
    let blind: &'static [&'static str] = blind.leak();
    let found = (1..=SEEDS).find_map(|seed| {
        let plants = Plants { blind, ..plants() };
        match run(seed, options.clone(), plants) {
            Err(Failure::Violation(violation)) => Some((seed, violation)),
            Err(failure) => panic!("{failure}"),
            Ok(_) => None,
        }
    });
    let (seed, violation) = found.expect("the fault is found");
    println!("seed {seed}: {}: {}", violation.oracle, violation.what);
    assert_eq!(violation.oracle, oracle, "{}", violation.what);
    violation.what
}

fn of_transactions(change: impl Fn(&str, &mut Vec<Change>) + 'static) -> Plants {
    let plant: RulesPlant = Rc::new(change);
    Plants {
        rules: Some(plant),
        ..Plants::default()
    }
}

fn of_updates(passes: impl Fn(&str, &str, Option<&[u8]>) -> bool + 'static) -> Plants {
    let plant: UpdatePlant = Rc::new(passes);
    Plants {
        update: Some(plant),
        ..Plants::default()
    }
}

/// Returns whether a chain has rules of a policy, a tier or a profile.
fn is_of_policies(chain: &str) -> bool {
    let mut prefixes = ["pi-", "po-", "ti-", "te-"].iter();
    prefixes.any(|prefix| chain.starts_with(prefix))
}

/// Changes the rules of policies in all transactions.
fn each_rule(steps: &mut [Change], change: impl Fn(&mut cambric_felix::render::Rule)) {
    for step in steps {
        if let Change::AddRule(chain, rule) = step
            && is_of_policies(chain)
        {
            change(rule);
        }
    }
}

#[test]
fn policies_without_planted_fault_have_no_violation() {
    for seed in 1..=FAULTLESS {
        if let Err(failure) = run(seed, changes(), Plants::default()) {
            panic!("{failure}");
        }
    }
}

#[test]
fn left_out_rule_is_found() {
    let plants = || {
        of_transactions(|_, steps| {
            let is_rule =
                |step: &Change| matches!(step, Change::AddRule(chain, _) if is_of_policies(chain));
            if let Some(at) = steps.iter().rposition(is_rule) {
                steps.remove(at);
            }
        })
    };
    found(&changes(), "rules", plants);
}

#[test]
fn stale_member_of_a_set_is_found() {
    let plants = || {
        of_transactions(|_, steps| {
            steps.retain(|step| {
                !matches!(
                    step,
                    Change::DeleteElements(_, SetKind::Address(_) | SetKind::Nets(_), _)
                )
            });
        })
    };
    found(&changes(), "rules", plants);
}

fn turned(steps: &mut [Change]) {
    each_rule(steps, |rule| {
        for one in &mut rule.matches {
            if let Match::InSet(end, ..) | Match::InNet(end, ..) = one {
                *end = match end {
                    End::Source => End::Destination,
                    End::Destination => End::Source,
                };
            }
        }
    });
}

#[test]
fn wrong_end_of_a_condition_is_found() {
    let plants = || of_transactions(|_, steps| turned(steps));
    found(&changes(), "rules", plants);
    found(&changes(), "closed", plants);
}

#[test]
fn chain_of_a_deleted_policy_is_found() {
    let plants =
        || of_updates(|_, key, value| value.is_some() || !key.contains("networkpolicies/"));
    found(&changes(), "rules", plants);
}

#[test]
fn profile_that_is_not_updated_is_found() {
    let plants = || {
        let seen: RefCell<BTreeSet<(String, String)>> = RefCell::default();
        of_updates(move |machine, key, _| {
            let place = (machine.to_owned(), key.to_owned());
            !key.contains("/profiles/") || seen.borrow_mut().insert(place)
        })
    };
    found(&changes(), "rules", plants);
}

#[test]
fn adoption_of_a_changed_chain_is_found() {
    let options = Options {
        churn: [0; 4],
        crashes: [0, 4, 0, 0, 0],
        policies: [0, 0, 0, 8],
        ..changes()
    };
    for seed in 1..=FAULTLESS {
        if let Err(failure) = run(seed, options.clone(), Plants::default()) {
            panic!("{failure}");
        }
    }
    let plants = || Plants {
        comparison: Comparison::Trusting,
        ..Plants::default()
    };
    found(&options, "rules", plants);
}

#[test]
fn denial_that_is_lost_is_found_at_its_commit() {
    let plants = || {
        of_transactions(|_, steps| {
            each_rule(steps, |rule| {
                if rule.action == Action::Verdict(Verdict::Drop) {
                    rule.action = Action::Verdict(Verdict::Accept);
                }
            });
        })
    };
    found(&changes(), "closed", plants);
}

#[test]
fn route_without_a_packet_filter_is_found() {
    let plants = || {
        of_transactions(|_, steps| {
            if steps.first() == Some(&Change::AddTable) {
                steps.clear();
            }
        })
    };
    found(&changes(), "guarded", plants);
}

#[test]
fn transaction_that_the_kernel_rejects_is_found() {
    let plants = || {
        of_transactions(|_, steps| {
            let is_set = |step: &Change| matches!(step, Change::AddSet(_, SetKind::Address(_)));
            if let Some(at) = steps.iter().position(is_set) {
                steps.remove(at);
            }
        })
    };
    found(&changes(), "kernel", plants);
}

#[test]
fn repeated_transactions_at_rest_are_found() {
    let plants = || Plants {
        comparison: Comparison::Doubting,
        ..Plants::default()
    };
    let what = found(&changes(), "idle", plants);
    assert!(what.contains("transactions"), "{what}");
}
