//! Endpoints that do not fit their node. Roles of etcd separate the keys of nodes, not the values:
//! the credentials of one node can write endpoints with other nodes' addresses. Nothing here reads
//! or writes the datastore.

use std::fmt;
use std::net::IpAddr;

use calico_model::EndpointName;

use crate::inventory::{Inventory, NODE};
use crate::read::possible;

/// An endpoint that does not fit its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Misfit {
    /// Namespace and name of the endpoint.
    pub endpoint: String,
    /// The node in its `spec.node`.
    pub node: String,
    /// The mismatch.
    pub why: Why,
}

/// Why an endpoint does not fit its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Its name is that of an endpoint of another node.
    Name,
    /// There is no such node.
    NoNode,
    /// Its address was allocated on another node.
    Allocated {
        /// The address.
        address: IpAddr,
        /// The node of the allocation.
        on: String,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, node, .. } = self;
        match &self.why {
            Why::Name => write!(
                f,
                "endpoint {endpoint} has spec.node {node}, but not its name"
            ),
            Why::NoNode => write!(
                f,
                "endpoint {endpoint} has spec.node {node}, which does not exist"
            ),
            Why::Allocated { address, on } => {
                write!(
                    f,
                    "endpoint {endpoint} of node {node} has {address}, allocated on node {on}"
                )
            }
        }
    }
}

/// Returns the endpoints that do not fit their node.
pub fn misfits(inventory: &Inventory) -> Vec<Misfit> {
    let mut found = Vec::new();
    for placed in &inventory.placed {
        let misfit = |why| Misfit {
            endpoint: placed.endpoint.clone(),
            node: placed.node.clone(),
            why,
        };
        if !EndpointName::is_of_node(&placed.name, &placed.node) {
            found.push(misfit(Why::Name));
        }
        if !inventory.nodes.contains(&placed.node) {
            found.push(misfit(Why::NoNode));
        }
        let elsewhere = placed.addresses.iter().filter_map(|address| {
            let on = allocated_on(inventory, *address).filter(|on| *on != placed.node)?;
            Some(misfit(Why::Allocated {
                address: *address,
                on,
            }))
        });
        found.extend(elsewhere);
    }
    found
}

/// Returns the node on which an address was allocated, if the allocation has one.
fn allocated_on(inventory: &Inventory, address: IpAddr) -> Option<String> {
    let block = possible(address).find_map(|cidr| inventory.blocks.get(&cidr))?;
    block.holder(address)?.attributes.get(NODE).cloned()
}
