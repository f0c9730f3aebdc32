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
    ipip: bool,
    vxlan: EncapsulationMode,
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
            ipip: spec.ipip_mode != EncapsulationMode::Never,
            vxlan: spec.vxlan_mode,
        };
        Ok(self.0.insert(key.to_owned(), pool) != Some(pool))
    }

    /// Returns whether traffic to one of them uses IP in IP between hosts.
    pub(super) fn use_ipip(&self) -> bool {
        self.0.values().any(|pool| pool.ipip)
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

    /// Returns when traffic to a block or an address uses VXLAN. Pools do not overlap; of
    /// overlapping ones, the smallest counts.
    pub(super) fn vxlan_mode_of(&self, net: IpNet) -> EncapsulationMode {
        let pools = self.0.values().filter(|pool| pool.range.contains(&net));
        let pool = pools.max_by_key(|pool| pool.range.prefix_len());
        pool.map_or(EncapsulationMode::Never, |pool| pool.vxlan)
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
