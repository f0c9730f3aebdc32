//! The cluster ID of a reflector.
//!
//! Two reflectors of one cluster drop each other's routes (RFC 4456 §8). Operators may want that
//! for reflectors with the same clients, and configure the same ID for them; a reflector never
//! claims the ID of another one by itself.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use calico_model::FabricKey;

use crate::fault::Fault;
use crate::own::Own;

/// The cluster ID that a reflector wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterWish {
    /// The statically configured one, possibly shared with other reflectors.
    Given(Ipv4Addr),
    /// A claimed one: the one that it already holds, or else the first that is free.
    Own {
        /// Its BGP identifier, which it tries to claim first.
        router_id: Ipv4Addr,
        /// The cluster ID that it holds, if known.
        held: Option<Ipv4Addr>,
        /// Cluster IDs that others use without a claim: statically configured ones of nodes, and
        /// those of reflectors that are registered under an ID of which this reflector has no
        /// claim.
        avoid: BTreeSet<Ipv4Addr>,
    },
}

impl ClusterWish {
    pub(crate) fn of(own: &Own<'_>) -> Self {
        if let Some(id) = own.node.cluster_id {
            return Self::Given(id);
        }
        let avoid = others(own);
        Self::Own {
            router_id: own.router_id.0,
            held: held(own, &avoid),
            avoid,
        }
    }

    /// Returns the cluster ID that is already certain. An ID that must be given up is kept until
    /// another one is claimed.
    pub(crate) const fn certain(&self) -> Option<Ipv4Addr> {
        match self {
            Self::Given(id) => Some(*id),
            Self::Own { held, .. } => *held,
        }
    }

    /// Returns whether a reflector may keep a cluster ID that it has.
    pub fn allows(&self, id: Ipv4Addr) -> bool {
        match self {
            Self::Given(given) => *given == id,
            Self::Own { avoid, .. } => !avoid.contains(&id),
        }
    }

    /// Returns a fault for the operator if another reflector uses the ID that this one holds.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let held = self.certain().filter(|held| !self.allows(*held))?;
        let reason = "a node is given this cluster id, or another reflector is registered under it: \
                      this reflector gives it up for one that is free";
        Some(Fault::new(FabricKey::Cluster(held).to_string(), "", reason))
    }
}

/// Returns the cluster IDs that others use without a claim.
fn others(own: &Own<'_>) -> BTreeSet<Ipv4Addr> {
    let name = own.host.name.as_str();
    let nodes = own.view.nodes.iter().filter(|(other, _)| *other != name);
    let given = nodes.filter_map(|(_, node)| node.cluster_id);
    let fleet = &own.view.fleet;
    let registered = fleet.all().filter(|(other, _)| *other != name);
    let registered = registered.map(|(_, registration)| registration.cluster_id);
    let registered = registered.filter(|id| !fleet.claims_of(name).any(|claimed| claimed == *id));
    given.chain(registered).collect()
}

/// Returns one of the cluster IDs that this reflector has claimed: preferably one that it may keep,
/// then the one of its registration, then the lowest.
fn held(own: &Own<'_>, avoid: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
    let (name, fleet) = (own.host.name.as_str(), &own.view.fleet);
    let mut all = fleet.all();
    let registered = all
        .find(|(of, _)| *of == name)
        .map(|(_, registration)| registration.cluster_id);
    fleet
        .claims_of(name)
        .min_by_key(|id| (avoid.contains(id), Some(*id) != registered, *id))
}
