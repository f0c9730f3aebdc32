//! Assigns interfaces and addresses that several endpoints may want.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;

use super::desired::Placement;
use super::types::{Endpoint, EndpointId, Problem};
use crate::render::Part;

/// The position of an endpoint: of two that want the same thing, the lower one gets it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    pub(super) id: EndpointId,
    pub(super) key: String,
}

/// A resource that an endpoint may want.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    Interface(String),
    Address(IpAddr),
}

/// The placement of an endpoint.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub(super) placement: Placement,
    /// Whether it has its interface.
    pub(super) has_interface: bool,
    /// Its part of the packet filter.
    pub(super) part: Part,
    /// Its problems, and those of resources that it needs.
    pub(super) problems: BTreeSet<Problem>,
}

impl Assignment {
    /// Returns the endpoint, with what it gets, if it has its interface.
    pub(super) fn holder(&self) -> Option<&Endpoint> {
        self.has_interface.then_some(&self.placement.endpoint)
    }

    /// Returns what it has taken, with the interface of all of it.
    pub(super) fn takes(&self) -> BTreeMap<Claim, String> {
        let holder = self.holder();
        let taken = holder.into_iter().flat_map(|endpoint| {
            let interface = Claim::Interface(endpoint.interface.clone());
            let addresses = endpoint.routes().map(Claim::Address);
            let claims = addresses.chain([interface]);
            claims.map(|claim| (claim, endpoint.interface.clone()))
        });
        taken.collect()
    }
}

/// All endpoints of this host, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Assignments {
    assignments: BTreeMap<Order, Assignment>,
    /// The position of each key, and what it wants.
    claims: BTreeMap<String, (EndpointId, BTreeSet<Claim>)>,
    claimants: BTreeMap<Claim, BTreeSet<Order>>,
    /// Number of endpoints with each problem; zero counts are removed.
    problems: BTreeMap<Problem, usize>,
    /// Rejected values, by key.
    pub(super) refused: BTreeMap<String, Problem>,
    /// Rejected values of endpoints of this host, with their resources.
    pub(super) refused_here: BTreeMap<Order, String>,
}

impl Assignments {
    /// Records what a key's endpoint wants. Returns its previous and its new position.
    pub(super) fn claim(&mut self, key: &str, endpoint: Option<&Endpoint>) -> Vec<Order> {
        let mut turns = Vec::new();
        if let Some((id, claims)) = self.claims.remove(key) {
            let key = key.to_owned();
            let order = Order { id, key };
            for claim in claims {
                if let Some(claimants) = self.claimants.get_mut(&claim) {
                    claimants.remove(&order);
                    if claimants.is_empty() {
                        self.claimants.remove(&claim);
                    }
                }
            }
            turns.push(order);
        }
        if let Some(endpoint) = endpoint {
            let (id, key) = (endpoint.id.clone(), key.to_owned());
            let mut claims: BTreeSet<Claim> = endpoint.routes().map(Claim::Address).collect();
            claims.insert(Claim::Interface(endpoint.interface.clone()));
            self.claims
                .insert(key.clone(), (id.clone(), claims.clone()));
            let order = Order { id, key };
            for claim in claims {
                let claimants = self.claimants.entry(claim).or_default();
                claimants.insert(order.clone());
            }
            turns.push(order);
        }
        turns
    }

    /// Returns the positions of keys.
    pub(super) fn orders<'k>(
        &self,
        keys: impl Iterator<Item = &'k String>,
    ) -> impl Iterator<Item = Order> {
        keys.filter_map(|key| {
            let (id, _) = self.claims.get(key)?;
            let (id, key) = (id.clone(), key.clone());
            Some(Order { id, key })
        })
    }

    /// Returns the later positions that want one of the claims.
    pub(super) fn after<'c>(
        &self,
        order: &Order,
        claims: impl Iterator<Item = (&'c Claim, &'c String)>,
    ) -> BTreeSet<Order> {
        let later = (Bound::Excluded(order), Bound::Unbounded);
        let claimants = claims.filter_map(|(claim, _)| self.claimants.get(claim));
        claimants
            .flat_map(|claimants| claimants.range::<Order, _>(later))
            .cloned()
            .collect()
    }

    /// Returns the endpoint before `order` that has the claim.
    pub(super) fn holder(&self, order: &Order, claim: &Claim) -> Option<&Endpoint> {
        let earlier = (Bound::Unbounded, Bound::Excluded(order));
        let mut claimants = self.claimants.get(claim)?.range::<Order, _>(earlier);
        claimants.find_map(|order| {
            let endpoint = self.assignments.get(order)?.holder()?;
            let has = match claim {
                Claim::Interface(_) => true,
                Claim::Address(address) => endpoint.routes().any(|one| one == *address),
            };
            has.then_some(endpoint)
        })
    }

    pub(super) fn get(&self, order: &Order) -> Option<&Assignment> {
        self.assignments.get(order)
    }

    /// Replaces an assignment. Returns the previous one.
    pub(super) fn exchange(
        &mut self,
        order: &Order,
        new: Option<Assignment>,
    ) -> Option<Assignment> {
        match new {
            Some(assignment) => self.assignments.insert(order.clone(), assignment),
            None => self.assignments.remove(order),
        }
    }

    /// Returns the last assignment of an id; there are several only if two keys have the same id.
    pub(super) fn last(
        &self,
        id: &EndpointId,
        from: (Bound<&Order>, Bound<&Order>),
    ) -> Option<&Assignment> {
        let assignments = self.assignments.range::<Order, _>(from);
        let assignments = assignments.take_while(|(order, _)| order.id == *id);
        assignments.last().map(|(_, assignment)| assignment)
    }

    /// Updates the counts of problems.
    pub(super) fn count_problems(
        &mut self,
        gone: &BTreeSet<Problem>,
        come: &BTreeSet<Problem>,
        all: &mut BTreeSet<Problem>,
    ) {
        for problem in come {
            let count = self.problems.entry(problem.clone()).or_default();
            *count += 1;
            if *count == 1 {
                all.insert(problem.clone());
            }
        }
        for problem in gone {
            let Some(count) = self.problems.get_mut(problem) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.problems.remove(problem);
                all.remove(problem);
            }
        }
    }
}
