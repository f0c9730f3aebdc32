use proptest::prelude::*;

use super::score::log2;
use super::*;

const fn of(name: &'static str, zone: &'static str, weight: u32) -> Candidate<'static> {
    Candidate { name, zone, weight }
}

const FOUR: [Candidate<'static>; 4] = [
    of("rr-1", "a", 100),
    of("rr-2", "a", 100),
    of("rr-3", "b", 100),
    of("rr-4", "b", 300),
];

/// Test vectors that another program computed from the definition in docs/design/placement.md.
#[test]
fn hashes_logarithms_and_choices_are_those_of_the_definition() {
    let hash = |client: &str, name: &str| mix(fnv1a(&[client.as_bytes(), &[0], name.as_bytes()]));
    for (client, name, hashed, distance) in [
        ("node-1", "rr-1", 0x6d23_2a16_4429_65fe, 5_282_804_392),
        ("node-1", "rr-2", 0x2730_2ea5_95ae_05bb, 11_629_277_491),
        ("node-1", "rr-3", 0xd593_3059_4eef_e15e, 1_122_710_128),
        (
            "compute-17.rack4",
            "rr-1",
            0x153f_2bd0_22d6_10cc,
            15_422_492_666,
        ),
    ] {
        assert_eq!(hash(client, name), hashed, "{client} {name}");
        assert_eq!((64_u64 << 32) - log2(hashed), distance, "{client} {name}");
    }
    assert_eq!([1, 2, 3].map(log2), [0, 1 << 32, 6_807_362_105]);
    assert_eq!(log2(u64::MAX), 274_877_906_943);

    for (client, two, third) in [
        ("node-1", ["rr-3", "rr-1"], "rr-4"),
        ("node-2", ["rr-4", "rr-2"], "rr-3"),
        ("node-3", ["rr-3", "rr-2"], "rr-4"),
        ("node-4", ["rr-2", "rr-3"], "rr-4"),
        ("node-5", ["rr-1", "rr-3"], "rr-2"),
        ("node-6", ["rr-4", "rr-2"], "rr-1"),
    ] {
        assert_eq!(choose(client, FOUR, 2), two, "{client}");
        assert_eq!(choose(client, FOUR, 3), [two[0], two[1], third], "{client}");
    }
}

#[test]
fn cluster_ids_begin_with_the_identifier_and_go_on_for_ever() {
    let asked: Vec<Ipv4Addr> = cluster_ids("rr-1", Ipv4Addr::new(10, 0, 0, 1))
        .take(100)
        .collect();
    let documented = ["10.0.0.1", "19.55.80.184", "171.43.226.206"];
    assert_eq!(
        asked[..3],
        documented.map(|id| id.parse::<Ipv4Addr>().unwrap())
    );
    assert_eq!(asked.iter().collect::<BTreeSet<_>>().len(), 100);
}

#[test]
fn reflector_without_weight_is_not_selected() {
    let candidates = [of("rr-1", "a", 0), of("rr-2", "b", 1)];
    assert_eq!(choose("node-1", candidates, 2), ["rr-2"]);
    let unselected = [of("rr-1", "a", 0), of("rr-2", "b", 0)];
    assert_eq!(
        choose("node-1", unselected, 2).len(),
        2,
        "there is no other"
    );
    assert!(choose("node-1", [], 2).is_empty());
}

/// The share of each reflector among many clients is within five standard deviations of its
/// weight's.
#[test]
fn weights_are_respected() {
    let one_zone = FOUR.map(|candidate| Candidate {
        zone: "",
        ..candidate
    });
    let clients = 60_000_u32;
    let total: u32 = one_zone.iter().map(|candidate| candidate.weight).sum();
    let mut counts = [0_u32; 4];
    for client in 0..clients {
        let chosen = choose(&format!("host{client}"), one_zone, 1)[0];
        let at = one_zone.iter().position(|one| one.name == chosen).unwrap();
        counts[at] += 1;
    }
    for (candidate, count) in one_zone.iter().zip(counts) {
        let share = f64::from(candidate.weight) / f64::from(total);
        let expected = f64::from(clients) * share;
        let deviation = (expected * (1.0 - share)).sqrt();
        let off = (f64::from(count) - expected).abs() / deviation;
        assert!(off < 5.0, "{}: {count}, not {expected}", candidate.name);
    }
}

/// Generates reflectors by number: the zone and the weight of each.
fn fleet() -> impl Strategy<Value = Vec<(String, String, u32)>> {
    prop::collection::vec((0_u8..4, 0_u32..1000), 1..12).prop_map(|all| {
        let named = all.into_iter().enumerate();
        named
            .map(|(at, (zone, weight))| (format!("rr-{at}"), format!("zone-{zone}"), weight))
            .collect()
    })
}

fn candidates(fleet: &[(String, String, u32)]) -> Vec<Candidate<'_>> {
    fleet
        .iter()
        .map(|(name, zone, weight)| Candidate {
            name,
            zone,
            weight: *weight,
        })
        .collect()
}

fn set<'a>(chosen: &[&'a str]) -> BTreeSet<&'a str> {
    chosen.iter().copied().collect()
}

proptest! {
    // Promise (Route reflectors): A new, lost or drained reflector moves only the clients that
    // must move.
    /// Addition and removal are the same change in opposite directions: only clients that chose the
    /// removed reflector move, and each by one session.
    #[test]
    fn only_clients_move_that_must(fleet in fleet(), client in "[a-z]{1,6}", k in 0_usize..5, gone in any::<prop::sample::Index>()) {
        let gone = gone.index(fleet.len());
        let all = candidates(&fleet);
        let rest: Vec<Candidate<'_>> = all.iter().copied().filter(|one| one.name != fleet[gone].0).collect();
        let before = set(&choose(&client, all, k));
        let after = set(&choose(&client, rest, k));
        if before.contains(fleet[gone].0.as_str()) {
            prop_assert!(before.difference(&after).eq([&fleet[gone].0.as_str()]));
            prop_assert!(after.difference(&before).count() <= 1);
        } else {
            prop_assert_eq!(before, after);
        }
    }

    /// A higher weight attracts clients, and moves none away.
    #[test]
    fn more_weight_moves_clients_only_towards_it(mut fleet in fleet(), client in "[a-z]{1,6}", k in 1_usize..4, at in any::<prop::sample::Index>(), more in 1_u32..1000) {
        let at = at.index(fleet.len());
        let name = fleet[at].0.clone();
        let before: BTreeSet<String> = choose(&client, candidates(&fleet), k).iter().map(ToString::to_string).collect();
        fleet[at].2 += more;
        let after: BTreeSet<String> = choose(&client, candidates(&fleet), k).iter().map(ToString::to_string).collect();
        prop_assert!(after.difference(&before).all(|new| *new == name));
        prop_assert!(before.difference(&after).count() <= 1);
    }

    #[test]
    fn zones_are_distinct_while_there_are_so_many(fleet in fleet(), client in "[a-z]{1,6}", k in 0_usize..6) {
        let all = candidates(&fleet);
        let chosen = choose(&client, all.iter().copied(), k);
        let weighted = all.iter().any(|one| one.weight > 0);
        let able: Vec<_> = all.iter().filter(|one| one.weight > 0 || !weighted).collect();
        prop_assert_eq!(chosen.len(), k.min(able.len()));
        let zone = |name: &&str| all.iter().find(|one| one.name == *name).unwrap().zone;
        let zones: BTreeSet<_> = chosen.iter().map(zone).collect();
        let there: BTreeSet<_> = able.iter().map(|one| one.zone).collect();
        prop_assert_eq!(zones.len(), k.min(there.len()));
    }

    #[test]
    fn the_order_they_are_given_in_changes_nothing(fleet in fleet(), client in "[a-z]{1,6}", k in 0_usize..5) {
        let all = candidates(&fleet);
        let backwards = all.iter().rev().copied();
        prop_assert_eq!(choose(&client, backwards, k), choose(&client, all.iter().copied(), k));
    }
}
