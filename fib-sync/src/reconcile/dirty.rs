//! The keys to process, and their order.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::limits::WRITE_PASSES;
use crate::route::RouteKey;

/// A set of keys, returned in [`WRITE_PASSES`] passes over the address space instead of one.
///
/// The kernel's IPv4 table is a trie of wide nodes. Deleting a table from its start leaves such a
/// node with empty first slots, and for each further route the kernel scans over them
/// (`update_suffix` in `net/ipv4/fib_trie.c`): the time grows with the square of the table. The
/// kernel also grows and shrinks the nodes at the end of the table repeatedly. Routes spread over
/// the whole table avoid both costs. Each pass is in ascending order, so that entries of
/// neighboring keys are close in memory.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    passes: [BTreeSet<RouteKey>; WRITE_PASSES],
}

impl Dirty {
    pub(super) fn insert(&mut self, key: RouteKey) {
        if let Some(pass) = self.passes.get_mut(pass_of(&key)) {
            pass.insert(key);
        }
    }

    pub(super) fn remove(&mut self, key: &RouteKey) {
        if let Some(pass) = self.passes.get_mut(pass_of(key)) {
            pass.remove(key);
        }
    }

    pub(super) fn pop(&mut self) -> Option<RouteKey> {
        self.passes.iter_mut().find_map(BTreeSet::pop_first)
    }

    pub(super) fn clear(&mut self) {
        self.passes.iter_mut().for_each(BTreeSet::clear);
    }
}

/// Returns the pass of a key: neighboring prefixes are in different passes (Fibonacci hashing).
fn pass_of(key: &RouteKey) -> usize {
    let bits = match key.prefix.network() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let [high, low] = [address.to_bits() >> 64, address.to_bits()].map(|half| half as u64);
            high ^ low.rotate_left(32)
        }
    };
    let scattered = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    scattered as usize % WRITE_PASSES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::TABLE_MAIN;

    fn key(prefix: &str) -> RouteKey {
        RouteKey::new(TABLE_MAIN, prefix.parse().expect("a prefix"), 1024, 0)
    }

    #[test]
    fn every_pass_takes_its_share_from_all_over_the_table() {
        let table = (0..=255_u32).flat_map(|a| (0..16).map(move |b| (a, b)));
        let keys = |form: &dyn Fn((u32, u32)) -> String| -> Vec<_> {
            table.clone().map(|at| key(&form(at))).collect()
        };
        for keys in [
            keys(&|(a, b)| format!("20.{a}.{b}.0/24")),
            keys(&|(a, b)| format!("20.0.{a}.{b}/32")),
            keys(&|(a, b)| format!("20.{b}.{a}.64/26")),
            keys(&|(a, b)| format!("fd00:{a:x}:{b:x}::/64")),
            keys(&|(a, b)| format!("fd00::{a:x}:{b:x}/128")),
        ] {
            let mut dirty = Dirty::default();
            keys.iter().for_each(|key| dirty.insert(*key));
            dirty.remove(&keys[7]);
            let order: Vec<_> = std::iter::from_fn(|| dirty.pop()).collect();
            assert_eq!(order.len(), keys.len() - 1);
            // Of the first quarter returned, a fair share lies in the last half of the table.
            let first = &order[..order.len() / 4];
            let middle = keys.iter().max().expect("keys").prefix;
            let half = keys.iter().filter(|key| key.prefix < middle).count() / 2;
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            let late = first.iter().filter(|key| **key > sorted[half]).count();
            assert!(
                (first.len() / 3..first.len() * 2 / 3).contains(&late),
                "{late}"
            );
        }
    }
}
