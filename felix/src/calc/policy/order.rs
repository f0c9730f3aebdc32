//! Tiers, and the order of policies.

use std::collections::BTreeMap;

use calico_model::{Action, DEFAULT_TIER, TierSpec};

use super::read::{Policy, place};
use crate::render::{Compiled, Direction};

/// The order of the tier `default` if it is not stored (as in Calico).
const DEFAULT_TIER_ORDER: f64 = 1_000_000.0;

/// Replaces the tier of a policy with an unknown tier: no tier has this name.
pub(super) const BEFORE_ALL: &str = "";

/// The stored tiers, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tiers(BTreeMap<String, Tier>);

/// A tier.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tier {
    order: f64,
    /// Whether traffic that none of its policies decides is dropped.
    denies: bool,
}

/// The policies of one tier that apply to an endpoint, in order.
#[derive(Debug)]
pub(crate) struct Asked<'p> {
    pub(crate) tier: &'p str,
    pub(crate) denies: bool,
    /// The tier is not stored.
    pub(crate) unknown: bool,
    pub(crate) policies: Vec<&'p Compiled>,
}

impl Tiers {
    /// Returns the number of stored tiers.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Records a tier; returns whether it changed.
    pub(crate) fn put(&mut self, name: &str, spec: Option<&TierSpec>) -> bool {
        let tier = spec.map(|spec| Tier {
            order: place(spec.order.as_ref()),
            denies: spec.default_action != Some(Action::Pass),
        });
        let old = match tier {
            Some(tier) => self.0.insert(name.to_owned(), tier),
            None => self.0.remove(name),
        };
        old != tier
    }

    /// Returns a tier. A tier that is not stored is the last, and denies: its policies still apply,
    /// both allowing and denying ones.
    fn get(&self, name: &str) -> (Tier, bool) {
        match self.0.get(name) {
            Some(tier) => (*tier, false),
            None if name == BEFORE_ALL => {
                let tier = Tier {
                    order: f64::NEG_INFINITY,
                    denies: true,
                };
                (tier, false)
            }
            None => {
                let known = name == DEFAULT_TIER;
                let order = if known {
                    DEFAULT_TIER_ORDER
                } else {
                    f64::INFINITY
                };
                let tier = Tier {
                    order,
                    denies: true,
                };
                (tier, !known)
            }
        }
    }

    /// Returns the policies that apply to the direction, by tier, all in order.
    pub(crate) fn asked<'p>(
        &self,
        direction: Direction,
        policies: impl Iterator<Item = (&'p str, &'p Policy)>,
    ) -> Vec<Asked<'p>> {
        let mut all: Vec<(Tier, bool, &str, &Policy, &Compiled)> = policies
            .filter_map(|(key, policy)| {
                let side = policy.side(direction)?;
                let (tier, unknown) = self.get(&policy.tier);
                Some((tier, unknown, key, policy, side))
            })
            .collect();
        all.sort_by(
            |(a_tier, a_unknown, a_key, a, _), (b_tier, b_unknown, b_key, b, _)| {
                // Tiers that are not stored come last, even after those without an order.
                let tiers = a_unknown.cmp(b_unknown);
                let tiers = tiers.then_with(|| a_tier.order.total_cmp(&b_tier.order));
                let tiers = tiers.then_with(|| a.tier.cmp(&b.tier));
                let policies = || a.order.total_cmp(&b.order).then_with(|| a.tie.cmp(&b.tie));
                tiers.then_with(policies).then_with(|| a_key.cmp(b_key))
            },
        );
        let mut asked: Vec<Asked<'p>> = Vec::new();
        for (tier, unknown, _, policy, side) in all {
            match asked.last_mut() {
                Some(last) if last.tier == policy.tier => last.policies.push(side),
                _ => asked.push(Asked {
                    tier: &policy.tier,
                    denies: tier.denies,
                    unknown,
                    policies: vec![side],
                }),
            }
        }
        asked
    }
}
