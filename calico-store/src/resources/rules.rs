//! Rules that cannot be checked on a single resource.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calico_model::{DEFAULT_TIER, IpPoolSpec, IpamKey, Kind, Network, ResourceKey, encode_over};
use serde_json::Value;

use super::initialize::{TIERS, is_tier_of_ours};
use super::{ResourceError, Resources, is_default_profile, named};
use crate::kv::{KeyRange, Query};

/// Prefix of the names of policies generated from Kubernetes.
const KUBERNETES_POLICIES: &str = "knp.default.";

/// The resources of one manifest on which rules for other resources depend, and the tiers that
/// [`Resources::initialize`] creates before them.
#[derive(Debug, Default)]
pub struct Planned {
    pools: Vec<(ResourceKey, Network)>,
    tiers: BTreeSet<String>,
}

impl Planned {
    /// Collects these from resources that are to be written in this order. Invalid ones are
    /// skipped: the checks of [`Resources`] report them.
    pub fn new<'v>(resources: impl IntoIterator<Item = &'v Value>) -> Self {
        let mut planned = Self {
            tiers: TIERS.iter().map(|(name, ..)| (*name).to_owned()).collect(),
            ..Self::default()
        };
        for resource in resources {
            let kind = resource["kind"].as_str().and_then(Kind::from_name);
            if !matches!(kind, Some(Kind::IpPool | Kind::Tier)) {
                continue;
            }
            let Ok((key, value)) = encode_over(resource.clone(), resource) else {
                continue;
            };
            if key.kind() == Kind::Tier {
                planned.tiers.insert(key.name().to_owned());
            } else if let Some(range) = pool(&value).and_then(|spec| spec.cidr) {
                planned.pools.push((key, range));
            }
        }
        planned
    }

    /// Returns the pools that are written before this one.
    fn pools_before(&self, key: &ResourceKey) -> impl Iterator<Item = &(ResourceKey, Network)> {
        self.pools.iter().take_while(move |(other, _)| other != key)
    }
}

/// Returns whether rules of this kind depend on other resources, or on stored ones.
pub(super) fn depend_on_others(kind: Kind) -> bool {
    kind == Kind::IpPool || kind.is_policy()
}

/// Rejects resources that no user may write.
pub(super) fn to_write(key: &ResourceKey) -> Result<(), ResourceError> {
    let refused = match key.kind() {
        Kind::ClusterInformation => "the daemons look after it; it is only read here",
        Kind::NetworkPolicy if key.name().starts_with(KUBERNETES_POLICIES) => {
            "policies of Kubernetes are written through Kubernetes"
        }
        Kind::Profile if is_default_profile(key) => {
            "the profile exists by itself; it is neither written nor deleted"
        }
        _ => return Ok(()),
    };
    Err(ResourceError::refused(key, refused))
}

/// Checks a new resource.
pub(super) async fn to_create(
    all: &Resources,
    key: &ResourceKey,
    value: &Value,
    planned: &Planned,
) -> Result<(), ResourceError> {
    match key.kind() {
        Kind::IpPool => new_pool(all, key, value, planned).await,
        kind if kind.is_policy() => {
            let tier = match value["spec"]["tier"].as_str() {
                None | Some("") => DEFAULT_TIER,
                Some(tier) => tier,
            };
            if planned.tiers.contains(tier) {
                return Ok(());
            }
            match all.get(&key_of(key, Kind::Tier, tier)?).await {
                Ok(_) => return Ok(()),
                Err(error @ ResourceError::Store(_)) => return Err(error),
                Err(_) => {}
            }
            let reason = format!("spec.tier: there is no tier \"{tier}\"");
            Err(ResourceError::refused(key, reason))
        }
        _ => Ok(()),
    }
}

fn key_of(near: &ResourceKey, kind: Kind, name: &str) -> Result<ResourceKey, ResourceError> {
    ResourceKey::new(kind, None, name)
        .map_err(|error| ResourceError::refused(near, error.to_string()))
}

fn pool(value: &Value) -> Option<IpPoolSpec> {
    serde_json::from_value(value.get("spec")?.clone()).ok()
}

/// Checks that pools do not overlap, and that existing blocks in them have their block size.
async fn new_pool(
    all: &Resources,
    key: &ResourceKey,
    value: &Value,
    planned: &Planned,
) -> Result<(), ResourceError> {
    let Some((range, size)) =
        pool(value).and_then(|spec| Some((spec.cidr?, spec.effective_block_size()?)))
    else {
        return Ok(());
    };
    let stored = all.list(Kind::IpPool, None).await?.items;
    let stored = stored
        .iter()
        .filter_map(|item| Some((&item.key, pool(&item.value)?.cidr?)));
    let planned = planned.pools_before(key).map(|(key, taken)| (key, *taken));
    let others = stored.chain(planned).filter(|(other, _)| *other != key);
    for (other, taken) in others {
        if overlap(range, taken) {
            let other = named(other);
            let reason = format!("spec.cidr: {range} overlaps with {taken} of {other}");
            return Err(ResourceError::refused(key, reason));
        }
    }
    let mut blocks = Query::new(KeyRange::prefix(IpamKey::BLOCKS));
    blocks.keys_only = true;
    for block in all.store().range(blocks).await?.items {
        let text = String::from_utf8_lossy(&block.key);
        if let Ok(IpamKey::Block(block)) = text.parse()
            && overlap(range, Network(block))
            && block.prefix_len() != size
        {
            let reason = format!(
                "spec.blockSize: there is a block {block} in the pool's range already; blocks of \
                 one range have one size"
            );
            return Err(ResourceError::refused(key, reason));
        }
    }
    Ok(())
}

fn overlap(a: Network, b: Network) -> bool {
    let contains = |net: Network, address: IpAddr| net.0.contains(&address);
    contains(a, b.0.network()) || contains(b, a.0.network())
}

/// Checks that immutable fields are unchanged.
pub(super) fn to_replace(
    key: &ResourceKey,
    stored: &Value,
    value: &Value,
) -> Result<(), ResourceError> {
    if key.kind() != Kind::IpPool {
        return Ok(());
    }
    let (Some(was), Some(is)) = (pool(stored), pool(value)) else {
        return Ok(());
    };
    let range = |pool: &IpPoolSpec| pool.cidr.map(|cidr| cidr.0.trunc());
    let reason = if range(&was) != range(&is) {
        "spec.cidr: the range of a pool cannot be changed; make another pool"
    } else if was.effective_block_size() != is.effective_block_size() {
        "spec.blockSize: the size of a pool's blocks cannot be changed; make another pool"
    } else {
        return Ok(());
    };
    Err(ResourceError::refused(key, reason))
}

/// Checks that a resource may be deleted.
pub(super) async fn to_delete(all: &Resources, key: &ResourceKey) -> Result<(), ResourceError> {
    to_write(key)?;
    if key.kind() != Kind::Tier {
        return Ok(());
    }
    if is_tier_of_ours(key) {
        return Err(ResourceError::refused(key, "the tier is always there"));
    }
    for kind in Kind::ALL.iter().filter(|kind| kind.is_policy()) {
        for policy in all.list(*kind, None).await?.items {
            if policy.value["spec"]["tier"].as_str() == Some(key.name()) {
                let reason = format!("{} is in the tier", named(&policy.key));
                return Err(ResourceError::refused(key, reason));
            }
        }
    }
    Ok(())
}
