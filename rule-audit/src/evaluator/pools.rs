//! Pools of addresses.

use serde_json::Value;

use crate::packet::Family;
use crate::ranges::{Ranges, parse_network};

/// The pools of the fabric. A disabled pool counts too: its addresses may be in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools {
    all: Vec<(Family, (u128, u128))>,
    outgoing: Vec<(Family, (u128, u128))>,
}

impl Pools {
    pub(super) fn read<'s>(stored: impl Iterator<Item = &'s Value>) -> Self {
        let mut pools = Self::default();
        for value in stored {
            let spec = &value["spec"];
            let net = spec["cidr"].as_str().and_then(parse_network);
            pools.all.extend(net);
            if spec["natOutgoing"] == true {
                pools.outgoing.extend(net);
            }
        }
        pools
    }

    /// Returns the addresses of all pools.
    pub(super) fn all(&self, family: Family) -> Ranges {
        of(&self.all, family)
    }

    /// Returns the addresses of the pools with `natOutgoing`.
    pub(super) fn outgoing(&self, family: Family) -> Ranges {
        of(&self.outgoing, family)
    }
}

fn of(nets: &[(Family, (u128, u128))], family: Family) -> Ranges {
    let own = nets.iter().filter(|(of, _)| *of == family);
    Ranges::of(own.map(|(_, range)| *range))
}
