//! Which reflectors a client peers with: weighted rendezvous hashing, in distinct zones.
//!
//! Every client works its choice out alone, from the reflectors that there are, and comes to the
//! same result as anybody who works it out for it. Each pair of a client and a reflector has a
//! score that depends on these two only. So a reflector that comes, goes or is drained moves those
//! clients only that choose it, or chose it, and each of them by one session.
//!
//! `docs/design/placement.md` has the reasons, and the definition for other implementations; the
//! test vectors stand in `placement/tests.rs`.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

mod score;
#[cfg(test)]
mod tests;

use self::score::{Score, fnv1a, mix};

/// A reflector that could be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its name, unique in the fabric.
    pub name: &'a str,
    /// What it shares its fate with.
    pub zone: &'a str,
    /// How large a share of the clients it takes; 0 takes none while another takes any.
    pub weight: u32,
}

/// The `k` reflectors that a client peers with, the best first: each in a zone of its own as long
/// as there are zones left, then the best of the others.
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

/// The cluster ids that a reflector would have, in the order in which it asks for them: its BGP
/// identifier, as RFC 4456 §7 has it, then numbers out of its name. Without end, and never 0.0.0.0.
pub fn cluster_ids(name: &str, router_id: Ipv4Addr) -> impl Iterator<Item = Ipv4Addr> + use<> {
    let seed = fnv1a(&[name.as_bytes()]);
    let others = (1_u64..).map(move |nth| Ipv4Addr::from((mix(seed ^ mix(nth)) >> 32) as u32));
    std::iter::once(router_id)
        .chain(others)
        .filter(|id| !id.is_unspecified())
}
