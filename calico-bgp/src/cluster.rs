//! Which cluster id a reflector has.
//!
//! Two reflectors of one cluster drop each other's routes (RFC 4456 §8). Operators may want that of
//! reflectors that serve the same clients, and give them the same id; nobody takes it by himself.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use calico_model::FabricKey;

use crate::fault::Fault;
use crate::own::Own;

/// Which cluster id a reflector would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterWish {
    /// The one that the operator gave it, perhaps together with others.
    Given(Ipv4Addr),
    /// One of its own: the one that it holds already, or else the first that is free.
    Own {
        /// Its BGP identifier, which it asks for first.
        router_id: Ipv4Addr,
        /// The one that it holds, as far as is known.
        held: Option<Ipv4Addr>,
        /// Those that others have without having claimed them: nodes that were given one, and
        /// reflectors that are registered under one that is not ours.
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

    /// The cluster id that is certain already. One that has to be given up is kept until there is
    /// another.
    pub(crate) const fn certain(&self) -> Option<Ipv4Addr> {
        match self {
            Self::Given(id) => Some(*id),
            Self::Own { held, .. } => *held,
        }
    }

    /// Whether a reflector may go on with a cluster id that it has.
    pub fn allows(&self, id: Ipv4Addr) -> bool {
        match self {
            Self::Given(given) => *given == id,
            Self::Own { avoid, .. } => !avoid.contains(&id),
        }
    }

    /// What an operator should know: that the one that it holds is another's, too.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let held = self.certain().filter(|held| !self.allows(*held))?;
        let reason = "a node is given this cluster id, or another reflector is registered under it: \
                      this reflector gives it up for one that is free";
        Some(Fault::new(FabricKey::Cluster(held).to_string(), "", reason))
    }
}

/// The cluster ids that are others' without a claim.
fn others(own: &Own<'_>) -> BTreeSet<Ipv4Addr> {
    let name = own.host.name.as_str();
    let nodes = own.view.nodes.iter().filter(|(other, _)| *other != name);
    let given = nodes.filter_map(|(_, node)| node.cluster_id);
    let fleet = &own.view.fleet;
    let registered = fleet.all().filter(|(other, _)| *other != name);
    let registered = registered.map(|(_, said)| said.cluster_id);
    let registered = registered.filter(|id| !fleet.claims_of(name).any(|claimed| claimed == *id));
    given.chain(registered).collect()
}

/// Of the cluster ids that it has claimed the one that it is registered under, or else the least;
/// one that it need not give up goes before one that it must.
fn held(own: &Own<'_>, avoid: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
    let (name, fleet) = (own.host.name.as_str(), &own.view.fleet);
    let mut all = fleet.all();
    let registered = all
        .find(|(of, _)| *of == name)
        .map(|(_, said)| said.cluster_id);
    fleet
        .claims_of(name)
        .min_by_key(|id| (avoid.contains(id), Some(*id) != registered, *id))
}
