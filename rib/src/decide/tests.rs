use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use bgp_proto::{Asn, RouterId};
use proptest::prelude::*;

use super::steps::{Candidate, DecisionRules, Step};
use super::{compare, select};

/// Returns the base of all candidates, which differ from it in one input each.
fn plain(peer: u8) -> Candidate {
    Candidate {
        eligible: true,
        long_lived_stale: false,
        local: false,
        local_pref: 100,
        as_path_length: 3,
        origin: 0,
        neighbor_as: Asn(64_501),
        med: 0,
        external: true,
        igp_cost: 10,
        id: RouterId(Ipv4Addr::new(10, 0, 0, 1)),
        cluster_list_length: 0,
        address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, peer)),
        path_id: 0,
        next_hop: 0,
    }
}

fn steps_of(paths: &[Candidate], rules: &DecisionRules) -> (Option<usize>, Vec<Option<Step>>) {
    let mut lost = alloc::vec![None; paths.len()];
    let selection = select(paths, rules, 1, &mut |at, step| {
        assert_eq!(lost[at].replace(step), None, "a path loses once");
    });
    (selection.best, lost)
}

/// Returns a path that is worse in exactly this step.
fn worse_in(step: Step) -> Candidate {
    let mut path = plain(1);
    match step {
        Step::Ineligible => path.eligible = false,
        Step::LongLivedStale => path.long_lived_stale = true,
        Step::Local => {}
        Step::LocalPref => path.local_pref = 99,
        Step::AsPathLength => path.as_path_length = 4,
        Step::Origin => path.origin = 1,
        Step::Med => path.med = 1,
        Step::EbgpOverIbgp => path.external = false,
        Step::IgpCost => path.igp_cost = 11,
        Step::BgpIdentifier => path.id = RouterId(Ipv4Addr::new(10, 0, 0, 2)),
        Step::ClusterListLength => path.cluster_list_length = 1,
        Step::PeerAddress => path.address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
        _ => path.path_id = 1,
    }
    path
}

// Promise: as rib the_order_of_paths_does_not_matter
#[test]
fn every_step_decides_and_is_reported() {
    for step in Step::ALL {
        let mut better = plain(1);
        better.local = step == Step::Local;
        let paths = [worse_in(step), better];
        assert_eq!(
            steps_of(&paths, &DecisionRules::default()),
            (Some(1), alloc::vec![Some(step), None])
        );
    }
}

#[test]
fn earlier_steps_outweigh_all_later_ones() {
    let skipped = [Step::Ineligible, Step::Local];
    let steps = Step::ALL.iter().enumerate();
    for (at, &step) in steps.filter(|(_, step)| !skipped.contains(step)) {
        // Worse in this step alone, compared with one that is worse in every later step.
        let mut other = plain(1);
        for &later in &Step::ALL[at + 1..] {
            let worse = worse_in(later);
            let pairs: [(&mut u32, u32); 3] = [
                (&mut other.as_path_length, worse.as_path_length),
                (&mut other.igp_cost, worse.igp_cost),
                (&mut other.cluster_list_length, worse.cluster_list_length),
            ];
            for (field, value) in pairs {
                *field = (*field).max(value);
            }
            other.local_pref = other.local_pref.min(worse.local_pref);
            other.origin = other.origin.max(worse.origin);
            other.med = other.med.max(worse.med);
            other.external &= worse.external;
            other.id = other.id.max(worse.id);
            other.address = other.address.max(worse.address);
            other.path_id = other.path_id.max(worse.path_id);
        }
        let paths = [worse_in(step), other];
        assert_eq!(
            steps_of(&paths, &DecisionRules::default()).0,
            Some(1),
            "{step:?}"
        );
    }
}

/// The example in which the outcome of pairwise comparison depends on the order of arrival (RFC
/// 4451 §2.2 describes such cases).
#[test]
fn med_is_compared_within_an_as_before_anything_later() {
    let of = |peer, asn, med, id| Candidate {
        neighbor_as: Asn(asn),
        med,
        id: RouterId(Ipv4Addr::new(0, 0, 0, id)),
        ..plain(peer)
    };
    // A beats B by MED; B would beat C, and C beats A, by identifier.
    let paths = [of(1, 1, 10, 3), of(2, 1, 20, 1), of(3, 2, 0, 2)];
    let (best, lost) = steps_of(&paths, &DecisionRules::default());
    assert_eq!(best, Some(2));
    assert_eq!(
        lost,
        alloc::vec![Some(Step::BgpIdentifier), Some(Step::Med), None]
    );
    let always = DecisionRules {
        always_compare_med: true,
    };
    assert_eq!(steps_of(&paths, &always).1[1], Some(Step::Med));
    let unknown = [of(1, 0, 10, 1), of(2, 0, 5, 2)];
    assert_eq!(
        steps_of(&unknown, &DecisionRules::default()).0,
        Some(0),
        "no AS, no comparison"
    );
    let compared = compare(&unknown[0], &unknown[1], &DecisionRules::default());
    assert!(compared.is_lt(), "nor between two");
}

#[test]
fn multipath_ends_at_the_cost_of_the_next_hop() {
    let of = |peer, next_hop| Candidate {
        next_hop,
        ..plain(peer)
    };
    let mut far = of(5, 5);
    far.igp_cost = 11;
    let paths = [of(4, 4), of(2, 2), far, of(3, 2), of(1, 1)];
    let chosen = |max| select(&paths, &DecisionRules::default(), max, &mut |_, _| {}).multipath;
    assert_eq!(chosen(1).as_slice(), [4]);
    assert_eq!(chosen(2).as_slice(), [4, 1]);
    assert_eq!(
        chosen(8).as_slice(),
        [4, 1, 0],
        "one path a next hop, the far one not"
    );
}

fn candidate() -> impl Strategy<Value = Candidate> {
    let head = (
        prop::bool::weighted(0.9),
        0..2u32,
        1..3u32,
        0..2u8,
        0..3u32,
        0..3u32,
    );
    let tail = (
        any::<bool>(),
        0..2u32,
        1..3u8,
        0..2u32,
        0..3u32,
        prop::bool::weighted(0.3),
    );
    (head, tail).prop_map(|((eligible, pref, length, origin, asn, med), tail)| {
        let (external, igp_cost, id, cluster_list_length, next_hop, long_lived_stale) = tail;
        Candidate {
            eligible,
            long_lived_stale,
            local_pref: 100 + pref,
            as_path_length: length,
            origin,
            neighbor_as: Asn(asn),
            med,
            external,
            igp_cost,
            id: RouterId(Ipv4Addr::new(10, 0, 0, id)),
            cluster_list_length,
            next_hop,
            ..plain(0)
        }
    })
}

/// Generates distinct candidates, and the same in another order.
fn shuffled() -> impl Strategy<Value = (Vec<Candidate>, Vec<usize>)> {
    prop::collection::vec(candidate(), 1..12).prop_flat_map(|mut paths| {
        for (path, peer) in paths.iter_mut().zip(1..) {
            path.address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, peer));
        }
        let order: Vec<usize> = (0..paths.len()).collect();
        (Just(paths), Just(order).prop_shuffle())
    })
}

proptest! {
    // Promise (BGP): The decision process does not depend on the order of paths, and reports the
    // step at which each path lost.
    #[test]
    fn the_order_of_paths_does_not_matter(
        (paths, order) in shuffled(), always in any::<bool>(), max in 1..4u16,
    ) {
        let rules = DecisionRules { always_compare_med: always };
        let other: Vec<_> = order.iter().map(|&at| paths[at]).collect();
        let (best, lost) = steps_of(&paths, &rules);
        let (other_best, other_lost) = steps_of(&other, &rules);
        prop_assert_eq!(best, other_best.map(|at| order[at]));
        for (at, step) in other_lost.into_iter().enumerate() {
            prop_assert_eq!(step, lost[order[at]]);
        }
        let used = select(&paths, &rules, max, &mut |_, _| {}).multipath;
        let other_used = select(&other, &rules, max, &mut |_, _| {}).multipath;
        let other_used: Vec<_> = other_used.iter().map(|&at| order[usize::from(at)] as u16).collect();
        prop_assert_eq!(used.as_slice(), other_used.as_slice());
    }

    #[test]
    fn best_path_is_unchanged_by_removal_of_a_loser(
        (paths, order) in shuffled(), always in any::<bool>(),
    ) {
        // Not every loser: one that lost by MED may have eliminated none, one that beat another by
        // MED may have eliminated a worse one. Without MED every loser may be removed.
        let rules = DecisionRules { always_compare_med: always };
        let paths: Vec<_> = paths.iter().map(|path| Candidate { med: 0, ..*path }).collect();
        let Some(best) = steps_of(&paths, &rules).0 else { return Ok(()) };
        let gone = order[0];
        prop_assume!(gone != best);
        let mut left = paths.clone();
        left.remove(gone);
        let again = steps_of(&left, &rules).0;
        prop_assert_eq!(again.map(|at| left[at].address), Some(paths[best].address));
    }

    #[test]
    fn comparing_pairs_is_enough_where_med_does_not_differ(
        (paths, _) in shuffled(), always in any::<bool>(),
    ) {
        let rules = DecisionRules { always_compare_med: always };
        let paths: Vec<_> = paths
            .iter()
            .map(|path| Candidate { med: if always { path.med } else { 7 }, ..*path })
            .collect();
        let eligible: Vec<_> = paths.iter().filter(|path| path.eligible).collect();
        let least = eligible.iter().copied().min_by(|one, two| compare(one, two, &rules));
        let best = steps_of(&paths, &rules).0;
        prop_assert_eq!(best.map(|at| paths[at]), least.copied());
    }
}
