//! The weights of next hops by their bandwidth (RFC 10005).

use std::collections::BTreeMap;

use fib_sync::Hop;

use crate::limits::WEIGHT_MAX;

/// Returns the hops of all next hops, each of which has its gateways and its bandwidth. Several next hops with
/// bandwidths have weights by them. The gateways of a single one keep the weights of the kernel.
pub(super) fn join(mut ways: Vec<(Vec<Hop>, Option<u64>)>) -> Vec<Hop> {
    ways.retain(|(hops, _)| !hops.is_empty());
    let shares = ways
        .iter()
        .flat_map(|(hops, bandwidth)| bandwidth.iter().flat_map(|all| divide(*all, hops)));
    let shares: Vec<u128> = shares.collect();
    let is_single = ways.len() == 1;
    let hops: Vec<Hop> = ways.into_iter().flat_map(|(hops, _)| hops).collect();
    match is_single || shares.is_empty() {
        true => hops,
        false => weigh(&hops, &shares),
    }
}

/// Returns the share of each hop in the bandwidth of their next hop.
fn divide(bandwidth: u64, hops: &[Hop]) -> impl Iterator<Item = u128> {
    let all: u128 = hops.iter().map(|hop| u128::from(hop.weight)).sum();
    // A finer unit than octets per second: a hop has at least 1 of it, if there is any bandwidth.
    let unit = u128::from(bandwidth) << 16;
    hops.iter()
        .map(move |hop| unit * u128::from(hop.weight) / all.max(1))
}

/// Returns each gateway once, with a weight in proportion to its shares. The largest one is at most
/// [`WEIGHT_MAX`], and none is below 1. Equal shares have weight 1.
fn weigh(hops: &[Hop], shares: &[u128]) -> Vec<Hop> {
    let mut sums: BTreeMap<Hop, u128> = BTreeMap::new();
    for (hop, share) in hops.iter().zip(shares) {
        let sum = sums.entry(hop.weighted(1)).or_default();
        *sum = sum.saturating_add(*share);
    }
    let largest = sums.values().copied().max().unwrap_or_default().max(1);
    let weight = |share: u128| {
        let weight = (share * u128::from(WEIGHT_MAX) + largest / 2) / largest;
        u16::try_from(weight).unwrap_or(WEIGHT_MAX).max(1)
    };
    let hops: Vec<Hop> = sums
        .into_iter()
        .map(|(hop, share)| hop.weighted(weight(share)))
        .collect();
    let common = hops
        .iter()
        .fold(0, |common, hop| divisor(common, hop.weight));
    hops.into_iter()
        .map(|hop| hop.weighted(hop.weight / common.max(1)))
        .collect()
}

/// Returns the greatest common divisor.
fn divisor(a: u16, b: u16) -> u16 {
    match b {
        0 => a,
        b => divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn hop(last: u8) -> Hop {
        Hop::via(std::net::Ipv4Addr::new(10, 0, 0, last).into()).on(2)
    }

    fn weights(of: &[(u8, u64)]) -> Vec<u16> {
        let hops: Vec<Hop> = of.iter().map(|(last, _)| hop(*last)).collect();
        let shares = of.iter().zip(&hops);
        let shares =
            shares.flat_map(|((_, bandwidth), hop)| divide(*bandwidth, slice::from_ref(hop)));
        let shares: Vec<u128> = shares.collect();
        weigh(&hops, &shares).iter().map(|hop| hop.weight).collect()
    }

    #[test]
    fn weights_are_in_proportion_to_bandwidths() {
        const GIGABIT: u64 = 125_000_000;
        for (bandwidths, expected) in [
            ([GIGABIT, GIGABIT], [1, 1]),
            ([10 * GIGABIT, GIGABIT], [10, 1]),
            ([GIGABIT, 3 * GIGABIT], [33, 100]),
            ([0, 0], [1, 1]),
            ([0, GIGABIT], [1, 100]),
            ([u64::MAX, 1], [100, 1]),
            ([u64::MAX, u64::MAX], [1, 1]),
        ] {
            let [a, b] = bandwidths;
            assert_eq!(weights(&[(1, a), (2, b)]), expected, "{bandwidths:?}");
        }
        assert_eq!(weights(&[(1, GIGABIT), (1, GIGABIT), (2, GIGABIT)]), [2, 1]);
    }

    #[test]
    fn gateways_of_a_next_hop_share_its_bandwidth() {
        let under = vec![hop(1).weighted(3), hop(2)];
        let hops = join(vec![(under, Some(100)), (vec![hop(3)], Some(100))]);
        let weights: Vec<u16> = hops.iter().map(|hop| hop.weight).collect();
        assert_eq!(weights, [3, 1, 4]);
    }

    #[test]
    fn gateways_of_a_single_next_hop_keep_their_weights() {
        for weights in [[3, 1], [200, 1], [2, 4]] {
            let [a, b] = weights;
            let under = vec![hop(1).weighted(a), hop(2).weighted(b)];
            let single = join(vec![(under.clone(), Some(100))]);
            assert_eq!(single, under);
            // The other next hop has no gateway here.
            let single = join(vec![(under.clone(), Some(100)), (Vec::new(), Some(200))]);
            assert_eq!(single, under);
            // No bandwidth is given.
            let several = join(vec![(under.clone(), None), (vec![hop(3)], None)]);
            assert_eq!(several, [under.as_slice(), &[hop(3)]].concat());
        }
    }

    #[test]
    fn weights_are_within_their_range() {
        let edges = [0, 1, 99, 12_500_000, 125_000_000, u64::MAX / 2, u64::MAX];
        for a in edges {
            for b in edges {
                let all = weights(&[(1, a), (2, b), (3, 125_000_000), (1, b)]);
                assert_eq!(all.len(), 3);
                assert!(
                    all.iter().all(|weight| (1..=WEIGHT_MAX).contains(weight)),
                    "{all:?}"
                );
            }
        }
    }
}
