//! The pools of the fabric, in the form that the packet filter needs.

use std::collections::BTreeMap;

use calico_model::{EncapsulationMode, IpPoolSpec};
use ipnet::IpNet;

use super::types::Problem;
use crate::render::{self, Family};

/// All pools, by key, including disabled ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Pools(BTreeMap<String, Pool>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pool {
    range: IpNet,
    nat_outgoing: bool,
    ipip: EncapsulationMode,
    vxlan: EncapsulationMode,
    /// The prefix length of its blocks.
    block_size: u8,
}

impl Pools {
    /// Records the value of a key. Returns whether anything changed.
    pub(super) fn put(&mut self, key: &str, spec: Option<&IpPoolSpec>) -> Result<bool, Problem> {
        let Some(spec) = spec else {
            return Ok(self.0.remove(key).is_some());
        };
        let missing = || Problem::new(key, "spec.cidr", "is missing");
        let pool = Pool {
            range: spec.cidr.ok_or_else(missing)?.0.trunc(),
            nat_outgoing: spec.nat_outgoing,
            ipip: spec.ipip_mode,
            vxlan: spec.vxlan_mode,
            block_size: spec.effective_block_size().ok_or_else(missing)?,
        };
        Ok(self.0.insert(key.to_owned(), pool) != Some(pool))
    }

    /// Returns whether traffic to one of them uses IP in IP between hosts.
    pub(super) fn use_ipip(&self) -> bool {
        let mut pools = self.0.values();
        pools.any(|pool| pool.ipip != EncapsulationMode::Never)
    }

    /// Returns whether traffic to one of them uses VXLAN between hosts.
    pub(super) fn use_vxlan(&self) -> bool {
        Family::ALL
            .into_iter()
            .any(|family| self.use_vxlan_of(family))
    }

    /// Returns whether traffic to one of a family uses VXLAN between hosts.
    pub(super) fn use_vxlan_of(&self, family: Family) -> bool {
        let mut pools = self.0.values();
        pools.any(|pool| {
            pool.vxlan != EncapsulationMode::Never && family == Family::of(pool.range.addr())
        })
    }

    /// Returns whether a block or an address is in a pool without encapsulation.
    pub(super) fn is_plain(&self, net: IpNet) -> bool {
        let pool = self.of(net);
        let modes = pool.map(|pool| [pool.ipip, pool.vxlan]);
        modes == Some([EncapsulationMode::Never; 2])
    }

    /// Returns when traffic to a block or an address uses IP in IP.
    pub(super) fn ipip_mode_of(&self, net: IpNet) -> EncapsulationMode {
        self.of(net)
            .map_or(EncapsulationMode::Never, |pool| pool.ipip)
    }

    /// Returns when traffic to a block or an address uses VXLAN.
    pub(super) fn vxlan_mode_of(&self, net: IpNet) -> EncapsulationMode {
        self.of(net)
            .map_or(EncapsulationMode::Never, |pool| pool.vxlan)
    }

    /// Returns the prefix length of the blocks of the pool with a block or an address.
    pub(super) fn block_size_of(&self, net: IpNet) -> Option<u8> {
        self.of(net).map(|pool| pool.block_size)
    }

    /// Returns the pool with a block or an address. Pools do not overlap; of overlapping ones, the
    /// smallest counts.
    fn of(&self, net: IpNet) -> Option<&Pool> {
        let pools = self.0.values().filter(|pool| pool.range.contains(&net));
        pools.max_by_key(|pool| pool.range.prefix_len())
    }

    /// Returns their ranges.
    pub(super) fn ranges(&self) -> render::Pools {
        let hidden = self.0.values().filter(|pool| pool.nat_outgoing);
        render::Pools {
            all: self.0.values().map(|pool| pool.range).collect(),
            nat_outgoing: hidden.map(|pool| pool.range).collect(),
        }
    }
}
