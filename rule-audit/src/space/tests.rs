//! The comparison of programs finds the differences that an enumeration of packets finds.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::packet::{Family, Packet};

/// A program as a value.
#[derive(Clone, Debug)]
struct Tree(Vec<(Vec<Test>, Leaf)>);

#[derive(Clone, Debug)]
enum Test {
    In(Field, Vec<(u128, u128)>, bool),
    Rows(Vec<[(u128, u128); 3]>, bool),
    Unknown,
}

#[derive(Clone, Debug)]
enum Leaf {
    Act(Act),
    Call(Box<Tree>, bool),
}

const ROW: [Field; 3] = [Field::Source, Field::Protocol, Field::DestinationPort];
/// Values beyond all ranges of a test, and protocols of each kind.
const PROTOCOLS: [u128; 6] = [1, 6, 17, 47, 58, 132];
const VALUES: std::ops::RangeInclusive<u128> = 0..=6;

fn range(last: u128) -> impl Strategy<Value = (u128, u128)> {
    (0..=last, 0..=2_u128).prop_map(|(first, more)| (first, first + more))
}

fn protocol() -> impl Strategy<Value = u128> {
    prop::sample::select(PROTOCOLS.to_vec())
}

fn test() -> impl Strategy<Value = Test> {
    let field = prop::sample::select(vec![
        Field::Source,
        Field::DestinationPort,
        Field::IcmpType,
        Field::State,
    ]);
    let ranges = prop::collection::vec(range(3), 0..3);
    let row = (range(3), protocol(), range(3)).prop_map(|(a, p, b)| [a, (p, p), b]);
    prop_oneof![
        6 => (field, ranges, any::<bool>()).prop_map(|(f, r, is)| Test::In(f, r, is)),
        4 => (protocol(), any::<bool>())
            .prop_map(|(p, is)| Test::In(Field::Protocol, vec![(p, p)], is)),
        3 => (prop::collection::vec(row, 0..4), any::<bool>())
            .prop_map(|(rows, is)| Test::Rows(rows, is)),
        1 => Just(Test::Unknown),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    let act = prop::sample::select(vec![
        Act::Accept,
        Act::Accept,
        Act::Drop,
        Act::Drop,
        Act::Return,
        Act::Either,
    ]);
    let leaf = act.clone().prop_map(Leaf::Act);
    let tests = || prop::collection::vec(test(), 0..3);
    let flat = prop::collection::vec((tests(), leaf), 0..4).prop_map(Tree);
    flat.prop_recursive(2, 16, 4, move |inner| {
        let call =
            (inner, any::<bool>()).prop_map(|(inner, tail)| Leaf::Call(Box::new(inner), tail));
        let leaf = prop_oneof![act.clone().prop_map(Leaf::Act), call];
        prop::collection::vec((tests(), leaf), 0..4).prop_map(Tree)
    })
}

fn build(space: &mut Space, tree: &Tree) -> ProgramId {
    let mut steps = Vec::new();
    for (tests, leaf) in &tree.0 {
        let mut conditions = Vec::new();
        for test in tests {
            conditions.push(match test {
                Test::In(field, ranges, is) => {
                    space.is_in(*field, Ranges::of(ranges.iter().copied()), *is)
                }
                Test::Rows(rows, is) => {
                    let rows = rows.iter().map(|row| row.to_vec()).collect();
                    space.has_row(ROW.to_vec(), rows, *is)
                }
                Test::Unknown => space.unknown(),
            });
        }
        let act = match leaf {
            Leaf::Act(act) => *act,
            Leaf::Call(inner, false) => Act::Call(build(space, inner)),
            Leaf::Call(inner, true) => Act::Tail(build(space, inner)),
        };
        let place = Place::default();
        steps.push(Step {
            conditions,
            act,
            place,
        });
    }
    space.program(steps)
}

/// Returns the outcomes of a program as written: an unknown condition may hold or not.
fn outcomes(tree: &Tree, packet: &Packet) -> BTreeSet<Outcome> {
    let mut found = BTreeSet::new();
    for (tests, leaf) in &tree.0 {
        let holds: Vec<Option<bool>> = tests.iter().map(|test| holds(test, packet)).collect();
        if holds.contains(&Some(false)) {
            continue;
        }
        let (mut of_leaf, is_call) = match leaf {
            Leaf::Act(Act::Accept) => (BTreeSet::from([Outcome::Accept]), false),
            Leaf::Act(Act::Drop) => (BTreeSet::from([Outcome::Drop]), false),
            Leaf::Act(Act::Either) => (BTreeSet::from([Outcome::Either]), false),
            Leaf::Act(_) => (BTreeSet::from([Outcome::Undecided]), false),
            Leaf::Call(inner, is_tail) => (outcomes(inner, packet), !is_tail),
        };
        let continues = is_call && of_leaf.remove(&Outcome::Undecided);
        found.extend(of_leaf);
        if !continues && !holds.contains(&None) {
            return found;
        }
    }
    found.insert(Outcome::Undecided);
    found
}

fn holds(test: &Test, packet: &Packet) -> Option<bool> {
    let number = packet.get(Field::Protocol);
    let within =
        |field: Field, (first, last): &(u128, u128)| (*first..=*last).contains(&packet.get(field));
    let has_ports = matches!(number, 6 | 17 | 33 | 132 | 136);
    match test {
        Test::In(Field::DestinationPort, ..) if !has_ports => None,
        Test::In(Field::IcmpType, ..) if !matches!(number, 1 | 58) => None,
        Test::In(field, ranges, is) => {
            Some(ranges.iter().any(|range| within(*field, range)) == *is)
        }
        Test::Rows(rows, is) if !has_ports => {
            let may_match = |row: &[(u128, u128); 3]| {
                within(Field::Source, &row[0]) && within(Field::Protocol, &row[1])
            };
            (!rows.iter().any(may_match) && *is).then_some(false)
        }
        Test::Rows(rows, is) => {
            let matches = |row: &[(u128, u128); 3]| {
                ROW.into_iter()
                    .zip(row)
                    .all(|(field, range)| within(field, range))
            };
            Some(rows.iter().any(matches) == *is)
        }
        Test::Unknown => None,
    }
}

fn packets() -> impl Iterator<Item = Packet> {
    let states = 0..=4_u128;
    let numbers = PROTOCOLS.into_iter().filter(|number| *number != 58);
    numbers.flat_map(move |number| {
        states.clone().flat_map(move |state| {
            VALUES.flat_map(move |source| {
                VALUES.map(move |other| {
                    Packet::new(Family::V4)
                        .with(Field::Protocol, number)
                        .with(Field::State, state)
                        .with(Field::Source, source)
                        .with(Field::DestinationPort, other)
                        .with(Field::IcmpType, other)
                })
            })
        })
    })
}

/// Returns the outcome, if it is the same whether unknown conditions hold or not.
fn certain(tree: &Tree, packet: &Packet) -> Option<Outcome> {
    let all = outcomes(tree, packet);
    all.first().copied().filter(|_| all.len() == 1)
}

proptest! {
    #[test]
    fn program_decides_as_its_steps_are_written(tree in tree()) {
        let mut space = Space::new();
        let program = build(&mut space, &tree);
        for packet in packets() {
            let found = space.run(program, &packet).0;
            if found != Outcome::Unknown {
                prop_assert_eq!(Some(found), certain(&tree, &packet), "{}", packet);
            }
            if found == Outcome::Unknown {
                prop_assert!(is_blocked(&tree, &packet), "{}", packet);
            }
        }
    }

    #[test]
    fn comparison_finds_what_an_enumeration_finds(one in tree(), other in tree(), same: bool) {
        let mut space = Space::new();
        let other = if same { one.clone() } else { other };
        let (wanted, found) = (build(&mut space, &one), build(&mut space, &other));
        let result = compare(&mut space, Packet::new(Family::V4), wanted, found);
        let sides = |packet: &Packet| (certain(&one, packet), certain(&other, packet));
        let differ = |(wanted, found): (Option<Outcome>, Option<Outcome>)| {
            let is_open = wanted == Some(Outcome::Either);
            !is_open && wanted.is_some() && found.is_some() && wanted != found
        };
        match result {
            Comparison::Different(difference) => {
                let sides = sides(&difference.packet);
                prop_assert!(differ(sides), "{} {:?}", difference.packet, sides);
                prop_assert_eq!(Some(difference.wanted.outcome), sides.0);
                prop_assert_eq!(Some(difference.found.outcome), sides.1);
            }
            Comparison::Unknown(_) => {
                for packet in packets() {
                    let is_blocked = is_blocked(&one, &packet) || is_blocked(&other, &packet);
                    prop_assert!(is_blocked || !differ(sides(&packet)), "{}", packet);
                }
            }
            Comparison::Equal => {
                for packet in packets() {
                    let (wanted, found) = sides(&packet);
                    let is_open = wanted == Some(Outcome::Either);
                    prop_assert!(is_open || wanted.is_some() && wanted == found, "{}", packet);
                }
            }
            Comparison::TooLarge => prop_assert!(false, "too large"),
        }
    }
}

/// Returns whether a condition of a program is unknown for a packet.
fn is_blocked(tree: &Tree, packet: &Packet) -> bool {
    tree.0.iter().any(|(tests, leaf)| {
        let is_inside = match leaf {
            Leaf::Call(inner, _) => is_blocked(inner, packet),
            Leaf::Act(_) => false,
        };
        is_inside || tests.iter().any(|test| holds(test, packet).is_none())
    })
}

#[test]
fn program_without_effect_is_empty() {
    let mut space = Space::new();
    let place = space.place("rule".into());
    let some = space.is(Field::Protocol, 6);
    let step = |conditions, act| Step {
        conditions,
        act,
        place,
    };
    let returns = space.program([step(vec![some], Act::Return)]);
    assert_eq!(
        space.constant(returns),
        Some((Outcome::Undecided, Place::default()))
    );
    let program = space.program([
        step(vec![], Act::Call(returns)),
        step(vec![], Act::Drop),
        step(vec![], Act::Accept),
    ]);
    assert_eq!(space.constant(program), Some((Outcome::Drop, place)));
    assert_eq!(space.text(place), "rule");
}
