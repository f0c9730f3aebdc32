use std::sync::Arc;

use super::*;
use crate::render::{Chain, Family, Set, SetKind};

const NOW: Instant = Instant(0);

/// Returns a filter with these chains, of which the last ones are `touched`.
fn chains(names: std::ops::Range<u32>) -> (Ruleset, Touched) {
    let name = |n| format!("chain-{n}");
    let one = |n| (name(n), Arc::new(Chain::default()));
    let ruleset = Ruleset {
        chains: names.clone().map(one).collect(),
        ..Ruleset::default()
    };
    let touched = Touched {
        chains: names.map(name).collect(),
        ..Touched::default()
    };
    (ruleset, touched)
}

fn order(rules: &mut RuleSync, wanted: &Ruleset) -> Option<(u64, Vec<Change>)> {
    let mut orders = Orders::default();
    rules.write(NOW, wanted, Vec::new(), &mut orders);
    orders.pop().map(|(number, command)| match command {
        HostCommand::WriteRules(steps) => (number, steps),
        other => panic!("{other:?}"),
    })
}

fn answer(rules: &mut RuleSync, number: u64, outcome: Result<(), &str>) {
    let outcome = outcome.map_err(|reason| Failed(reason.into()));
    let event = HostEvent::RulesWritten(outcome);
    rules.answer(NOW, number, event, &mut Orders::default());
}

/// Returns a value that has written an empty filter.
fn begun() -> RuleSync {
    let mut rules = RuleSync::new(NOW);
    let (number, steps) = order(&mut rules, &Ruleset::default()).unwrap();
    assert_eq!(steps.first(), Some(&Change::AddTable));
    answer(&mut rules, number, Ok(()));
    assert!(rules.in_sync());
    rules
}

#[test]
fn rules_are_written_though_preparation_never_ends() {
    let mut rules = begun();
    rules.at_once = 1;
    let mut prepared = 0;
    for last in 2.. {
        // New chains arrive all the time.
        let (wanted, touched) = chains(0..2 * last);
        rules.touch(touched);
        let (number, _) = order(&mut rules, &wanted).unwrap();
        let ends = matches!(rules.work, Some((_, Work::Write(_))));
        answer(&mut rules, number, Ok(()));
        assert_eq!(rules.is_preparing(), !ends);
        if ends {
            break;
        }
        prepared += 1;
    }
    assert_eq!(prepared, PREPARATIONS_PER_WRITE_MAX);
    assert!(rules.in_sync());
}

/// Returns a filter with a new chain and a new set of ranges for each number.
fn ranges(last: u32) -> (Ruleset, Touched) {
    let (mut ruleset, mut touched) = chains(0..last);
    for n in 0..last {
        let name = format!("ports-{n}");
        let set = Set::of(SetKind::Ports, [Key::Ports(1, 2)]);
        ruleset.sets.insert(name.clone(), set);
        touched.sets.insert(name, [Key::Ports(1, 2)].into());
    }
    (ruleset, touched)
}

/// Returns the number of sets and chains that a transaction adds.
fn added(steps: &[Change]) -> (usize, usize) {
    let is_set = |step: &&Change| matches!(step, Change::AddSet(..));
    let is_chain = |step: &&Change| matches!(step, Change::AddChain(..));
    (
        steps.iter().filter(is_set).count(),
        steps.iter().filter(is_chain).count(),
    )
}

#[test]
fn new_ranges_never_share_a_transaction_with_rules() {
    for always_new in [false, true] {
        let mut rules = begun();
        rules.at_once = 1;
        let mut last = 10_000;
        let mut transactions = 0;
        loop {
            let (wanted, touched) = ranges(last);
            if always_new || transactions == 0 {
                rules.touch(touched);
            }
            let (number, steps) = order(&mut rules, &wanted).unwrap();
            let is_whole = steps.first() == Some(&Change::AddTable);
            let (sets, chains) = added(&steps);
            assert!(is_whole || sets == 0 || chains == 0, "{sets} {chains}");
            transactions += 1;
            let ends = matches!(rules.work, Some((_, Work::Write(_) | Work::Replace(_))));
            answer(&mut rules, number, Ok(()));
            if ends {
                assert_eq!(is_whole, always_new);
                break;
            }
            last += u32::from(always_new);
        }
        let of_ranges = if always_new {
            PREPARATIONS_OF_RANGES_MAX
        } else {
            1
        };
        assert_eq!(transactions, PREPARATIONS_PER_WRITE_MAX + of_ranges + 1);
        assert!(rules.in_sync());
    }
}

#[test]
fn refused_change_is_followed_by_a_replacement() {
    let mut rules = begun();
    let (wanted, touched) = chains(0..2);
    rules.touch(touched);
    let (number, steps) = order(&mut rules, &wanted).unwrap();
    assert_ne!(steps.first(), Some(&Change::AddTable));
    assert!(order(&mut rules, &wanted).is_none(), "one at a time");
    answer(&mut rules, number, Err("changed by another program"));
    assert_eq!((rules.foreign_edits(), rules.problem()), (1, None));
    let (number, steps) = order(&mut rules, &wanted).unwrap();
    assert_eq!(steps, creation(&wanted));
    answer(&mut rules, number, Err("no nftables"));
    assert_eq!(rules.problem(), Some("no nftables"));
    assert!(order(&mut rules, &wanted).is_none(), "it waits");
    assert!(rules.timeout() > Some(NOW) && !rules.in_sync());
}

#[test]
fn answer_to_another_command_is_ignored() {
    let mut rules = begun();
    let (wanted, touched) = chains(0..2);
    rules.touch(touched);
    let (number, _) = order(&mut rules, &wanted).unwrap();
    answer(&mut rules, number + 1, Ok(()));
    assert!(!rules.in_sync());
    answer(&mut rules, number, Ok(()));
    assert!(rules.in_sync());
}

#[test]
fn changes_during_a_transaction_are_written_after_it() {
    let mut rules = begun();
    let (wanted, touched) = chains(0..1);
    rules.touch(touched);
    let (number, _) = order(&mut rules, &wanted).unwrap();
    let (wanted, touched) = chains(0..2);
    rules.touch(touched);
    answer(&mut rules, number, Ok(()));
    assert!(!rules.in_sync());
    let (number, steps) = order(&mut rules, &wanted).unwrap();
    assert_eq!(steps, [Change::AddChain("chain-1".into(), None)]);
    answer(&mut rules, number, Ok(()));
    assert!(rules.in_sync());
}

#[test]
fn table_that_the_kernel_may_refuse_is_not_held() {
    let mut rules = begun();
    assert_eq!(rules.held(), Some(&Ruleset::default()));
    rules.at_once = 1;
    let (wanted, touched) = chains(0..3);
    rules.touch(touched);
    let mut prepared = 0;
    let last = loop {
        let (number, _) = order(&mut rules, &wanted).unwrap();
        assert_eq!(rules.held(), None, "no answer yet");
        if matches!(rules.work, Some((_, Work::Write(_)))) {
            break number;
        }
        answer(&mut rules, number, Ok(()));
        prepared += 1;
        assert!(rules.held().is_some_and(|held| *held != wanted));
    };
    assert!(prepared > 0 && rules.is_preparing());
    answer(&mut rules, last, Err("out of memory"));
    assert_eq!(rules.held(), None, "refused");
    let (number, _) = order(&mut rules, &wanted).unwrap();
    answer(&mut rules, number, Ok(()));
    assert_eq!(rules.held(), Some(&wanted));
}

#[test]
fn replaced_table_lacks_withheld_elements() {
    let ruleset = |kind, keys: &[Key]| {
        let sets = [
            ("held".to_owned(), Set::of(SetKind::Ports, keys.to_vec())),
            ("reshaped".to_owned(), Set::of(kind, [])),
        ];
        Ruleset {
            sets: sets.into(),
            ..Ruleset::default()
        }
    };
    let mut rules = begun();
    let before = ruleset(SetKind::Ports, &[]);
    rules.touch(Touched::between(&Ruleset::default(), &before));
    while let Some((number, _)) = order(&mut rules, &before) {
        answer(&mut rules, number, Ok(()));
    }
    let keys = [Key::Ports(1, 2), Key::Ports(3, 4)];
    let wanted = ruleset(SetKind::Nets(Family::V4), &keys);
    rules.touch(Touched::between(&before, &wanted));
    let mut orders = Orders::default();
    let withheld = vec![("held", keys[1].clone())];
    rules.write(NOW, &wanted, withheld, &mut orders);
    let Some((number, HostCommand::WriteRules(steps))) = orders.pop() else {
        panic!("no transaction");
    };
    assert_eq!(steps.first(), Some(&Change::AddTable), "it is replaced");
    let added = steps.iter().find_map(|step| match step {
        Change::AddElements(name, _, elements) if name == "held" => Some(elements.clone()),
        _ => None,
    });
    assert_eq!(added, Some(vec![(keys[0].clone(), None)]));
    answer(&mut rules, number, Ok(()));
    assert!(!rules.in_sync() && rules.has("held", &keys[0]) && !rules.has("held", &keys[1]));
    let (number, steps) = order(&mut rules, &wanted).unwrap();
    assert_eq!(steps.len(), 1, "{steps:?}");
    answer(&mut rules, number, Ok(()));
    assert!(rules.in_sync());
}
