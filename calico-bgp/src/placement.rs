//! The route reflectors of a client: weighted rendezvous hashing, in distinct zones.
//!
//! Every client computes its choice alone, from the existing reflectors; any other host computes
//! the same result for it. The score of a client and a reflector depends on these two only. So a
//! reflector that is added, removed or drained moves only the clients that choose or chose it, and
//! each of them by one session.
//!
//! `docs/design/placement.md` has the reasons, and the definition for other implementations; the
//! test vectors are in `placement/tests.rs`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

mod score;
#[cfg(test)]
mod tests;

use self::score::{Score, fnv1a, mix};

/// A reflector that a client can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its name, unique in the fabric.
    pub name: &'a str,
    /// Its failure domain.
    pub zone: &'a str,
    /// Its share of the clients; a reflector of weight 0 is chosen only if no other is available.
    pub weight: u32,
}

/// Returns the `k` reflectors that a client peers with, the best first: each in a zone of its own
/// while there are unused zones, then the best of the others.
pub fn choose<'a>(
    client: &str,
    candidates: impl IntoIterator<Item = Candidate<'a>>,
    k: usize,
) -> Vec<&'a str> {
    let mut candidates: Vec<Candidate<'a>> = candidates.into_iter().collect();
    if candidates.iter().any(|one| one.weight > 0) {
        candidates.retain(|one| one.weight > 0);
    }
    let ranked = candidates.into_iter();
    let mut ranked: Vec<(Score, Candidate<'a>)> = ranked
        .map(|one| (Score::of(client, one.name, one.weight.max(1)), one))
        .collect();
    ranked.sort_by(|(a, one), (b, other)| a.cmp(b).then_with(|| one.name.cmp(other.name)));
    let mut zones = BTreeSet::new();
    let (first, others): (Vec<_>, Vec<_>) = ranked
        .into_iter()
        .partition(|(_, candidate)| zones.insert(candidate.zone));
    let chosen = first.into_iter().chain(others).take(k);
    chosen.map(|(_, candidate)| candidate.name).collect()
}

/// Returns the cluster IDs that a reflector tries to claim, in this order: its BGP identifier, as
/// RFC 4456 §7 suggests, then hashes of its name. The sequence is infinite and never yields
/// 0.0.0.0.
pub fn cluster_ids(name: &str, router_id: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> + use<> {
    let seed = fnv1a(&[name.as_bytes()]);
    let others = (1_u64..).map(move |nth| Ipv4Addr::from((mix(seed ^ mix(nth)) >> 32) as u32));
    std::iter::once(router_id)
        .chain(others)
        .filter(|id| !id.is_unspecified())
}
