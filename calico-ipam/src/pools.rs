//! Pools, and their division into blocks.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use calico_model::{IpPoolSpec, Selector};
use ipnet::IpNet;

/// Labels, of a node or a namespace.
type Labels = BTreeMap<String, String>;

/// A pool from which addresses can be assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// The range.
    pub cidr: IpNet,
    /// Prefix length of its blocks.
    pub block_size: u8,
}

impl Pool {
    /// Returns the pool of a spec, if its range can be divided into blocks.
    pub fn of(spec: &IpPoolSpec) -> Option<Self> {
        let (cidr, block_size) = (spec.cidr?.0.trunc(), spec.effective_block_size()?);
        let fits = (cidr.prefix_len()..=cidr.max_prefix_len()).contains(&block_size);
        fits.then_some(Self { cidr, block_size })
    }

    /// Returns the block of the pool that contains an address.
    pub fn block_of(&self, address: IpAddr) -> Option<IpNet> {
        let block = IpNet::new(address, self.block_size).ok()?.trunc();
        self.cidr.contains(&address).then_some(block)
    }

    /// Returns the pools of one family for a workload on this node, in this namespace, that names
    /// no pool.
    pub fn for_workload<'a>(
        pools: impl IntoIterator<Item = &'a IpPoolSpec>,
        ipv6: bool,
        node: &Labels,
        namespace: Option<&Labels>,
    ) -> Vec<Self> {
        let selects = |selector: &Option<Selector>, labels: Option<&Labels>| match selector {
            None => true,
            Some(selector) => selector.matches(labels.unwrap_or(&Labels::new())),
        };
        pools
            .into_iter()
            .filter(|spec| {
                !spec.disabled
                    && matches!(spec.assignment_mode.as_str(), "" | "Automatic")
                    && is_for_workloads(spec)
                    && selects(&spec.node_selector, Some(node))
                    && selects(&spec.namespace_selector, namespace)
            })
            .filter_map(Self::of)
            .filter(|pool| pool.cidr.addr().is_ipv6() == ipv6)
            .collect()
    }
}

/// Returns whether the allowed uses of a pool contain workloads, as they do by default.
pub(crate) fn is_for_workloads(spec: &IpPoolSpec) -> bool {
    let uses = &spec.allowed_uses;
    uses.is_empty() || uses.iter().any(|allowed| allowed == "Workload")
}

/// Returns each block of a pool once, starting at a position derived from the host's name: hosts
/// that start at the same time rarely choose the same block.
pub fn blocks_of(pool: Pool, host: &str) -> impl Iterator<Item = IpNet> {
    let bits = u32::from(pool.block_size - pool.cidr.prefix_len());
    let last = match bits {
        0 => 0,
        bits => u128::MAX >> (128 - bits),
    };
    let start = u128::from(fnv(host)) & last;
    (0..=last).filter_map(move |at| nth(pool, (start + at) & last))
}

/// Returns a position below `count`, derived from the host's name.
pub(crate) fn place_of(host: &str, count: usize) -> usize {
    let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
    usize::try_from(fnv(host) % count).unwrap_or_default()
}

fn nth(pool: Pool, at: u128) -> Option<IpNet> {
    let host_bits = u32::from(pool.cidr.max_prefix_len() - pool.block_size);
    let offset = at.checked_shl(host_bits).unwrap_or_default();
    let address = match pool.cidr.network() {
        IpAddr::V4(first) => {
            let offset = u32::try_from(offset).ok()?;
            IpAddr::V4(Ipv4Addr::from(u32::from(first).checked_add(offset)?))
        }
        IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from(u128::from(first).checked_add(offset)?)),
    };
    IpNet::new(address, pool.block_size).ok()
}

/// Computes the FNV-1a hash: the same on every host and in every version.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
