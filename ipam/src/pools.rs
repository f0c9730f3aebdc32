//! Pools, and the blocks that they can be cut into.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use model::{IpPoolSpec, Selector};

/// Labels, of a node or a namespace.
type Labels = BTreeMap<String, String>;

/// A pool that addresses can be taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// The range.
    pub cidr: IpNet,
    /// Prefix length of its blocks.
    pub block_size: u8,
}

impl Pool {
    /// The pool of a spec, if it has a range that can be cut into blocks.
    pub fn of(spec: &IpPoolSpec) -> Option<Self> {
        let (cidr, block_size) = (spec.cidr?.0.trunc(), spec.effective_block_size()?);
        let fits = (cidr.prefix_len()..=cidr.max_prefix_len()).contains(&block_size);
        fits.then_some(Self { cidr, block_size })
    }

    /// The pools of one family that a workload on this node, in this namespace, takes addresses
    /// from without naming one.
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
                let uses = &spec.allowed_uses;
                !spec.disabled
                    && matches!(spec.assignment_mode.as_str(), "" | "Automatic")
                    && (uses.is_empty() || uses.iter().any(|allowed| allowed == "Workload"))
                    && selects(&spec.node_selector, Some(node))
                    && selects(&spec.namespace_selector, namespace)
            })
            .filter_map(Self::of)
            .filter(|pool| pool.cidr.addr().is_ipv6() == ipv6)
            .collect()
    }
}

/// The blocks of a pool, each once, from a place on that the host's name tells: hosts that start at
/// the same time hardly meet.
pub fn blocks_of(pool: Pool, host: &str) -> impl Iterator<Item = IpNet> {
    let bits = u32::from(pool.block_size - pool.cidr.prefix_len());
    let last = match bits {
        0 => 0,
        bits => u128::MAX >> (128 - bits),
    };
    let start = u128::from(fnv(host)) & last;
    (0..=last).filter_map(move |at| nth(pool, (start + at) & last))
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

/// FNV-1a: the same on every host and in every version.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pool(cidr: &str, block_size: u8) -> Pool {
        Pool {
            cidr: cidr.parse().expect("a range"),
            block_size,
        }
    }

    #[test]
    fn every_block_of_a_pool_comes_once() {
        for host in ["a", "b", "node-17"] {
            for (pool, count) in [
                (pool("10.65.0.0/24", 26), 4),
                (pool("10.65.0.0/24", 32), 256),
                (pool("fd65::/120", 122), 4),
                (pool("10.65.0.0/26", 26), 1),
            ] {
                let blocks: Vec<IpNet> = blocks_of(pool, host).collect();
                let unique: BTreeSet<&IpNet> = blocks.iter().collect();
                assert_eq!((blocks.len(), unique.len()), (count, count));
                assert!(blocks.iter().all(|block| pool.cidr.contains(block)));
            }
        }
        assert_eq!(blocks_of(pool("::/0", 128), "a").take(3).count(), 3);
        assert_eq!(blocks_of(pool("fd65::/48", 122), "a").take(3).count(), 3);
    }

    #[test]
    fn hosts_begin_in_different_places() {
        let first = |host: &str| blocks_of(pool("10.65.0.0/16", 26), host).next();
        let places: BTreeSet<_> = (0..100).map(|at| first(&format!("node-{at}"))).collect();
        assert!(places.len() > 80, "{}", places.len());
    }

    #[test]
    fn a_workload_takes_from_pools_that_are_for_it() {
        let spec = |json: &str| serde_json::from_str::<IpPoolSpec>(json).expect("a spec");
        let pools = [
            spec(r#"{"cidr": "10.1.0.0/16", "disabled": true}"#),
            spec(r#"{"cidr": "10.2.0.0/16", "assignmentMode": "Manual"}"#),
            spec(r#"{"cidr": "10.3.0.0/16", "allowedUses": ["Tunnel"]}"#),
            spec(r#"{"cidr": "10.4.0.0/16", "nodeSelector": "rack == 'r2'"}"#),
            spec(r#"{"cidr": "10.5.0.0/16", "namespaceSelector": "env == 'prod'"}"#),
            spec(r#"{"cidr": "10.6.0.0/16", "nodeSelector": "rack == 'r1'"}"#),
            spec(r#"{"cidr": "fd65::/48"}"#),
        ];
        let labels =
            |label: &str, value: &str| Labels::from([(label.to_owned(), value.to_owned())]);
        let node = labels("rack", "r1");
        let chosen = |ipv6, namespace| {
            let chosen = Pool::for_workload(&pools, ipv6, &node, namespace);
            chosen
                .iter()
                .map(|pool| pool.cidr.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen(false, None), ["10.6.0.0/16"]);
        let prod = labels("env", "prod");
        assert_eq!(chosen(false, Some(&prod)), ["10.5.0.0/16", "10.6.0.0/16"]);
        assert_eq!(chosen(true, None), ["fd65::/48"]);
    }
}
