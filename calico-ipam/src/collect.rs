//! Finds unused and inconsistent objects. Nothing here reads or writes the datastore.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use calico_model::{AffinityOwner, AffinityState, IpamKey};
use calico_store::Revision;
use ipnet::IpNet;

use crate::block::{Block, Given};
use crate::inventory::{Inventory, Use};

/// An object that needs repair, with its exact state: if any of it changes, it is another finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// An address that is allocated but not used.
    Leak {
        /// The address, and the sequence number of its allocation.
        given: Given,
        /// The handle of the allocation.
        handle: Option<String>,
        /// Why it counts as unused.
        why: Use,
    },
    /// Addresses that have cooled down, in a block without affinity.
    Cooled {
        /// The block.
        block: IpNet,
        /// Revision of the block.
        written: Revision,
    },
    /// An empty block of a host that has other blocks.
    Surplus {
        /// The host.
        owner: AffinityOwner,
        /// The block.
        block: IpNet,
        /// Its sequence number.
        sequence: u64,
    },
    /// A block of a deleted node.
    Orphan {
        /// The node.
        host: String,
        /// The block.
        block: IpNet,
    },
    /// The IPAM host key of a deleted node.
    Host(String),
    /// An affinity to a block that does not exist, or that has another affinity.
    Unfounded {
        /// The owner.
        owner: AffinityOwner,
        /// The block.
        block: IpNet,
        /// Revision of the affinity.
        written: Revision,
        /// Revision of the block; zero if it does not exist.
        block_written: Revision,
    },
    /// A block whose owner has no affinity key for it, or an unconfirmed one.
    Unconfirmed {
        /// The owner.
        owner: AffinityOwner,
        /// The block.
        block: IpNet,
        /// Revision of the affinity; zero if it does not exist.
        written: Revision,
        /// Revision of the block.
        block_written: Revision,
    },
    /// A handle without addresses.
    Idle {
        /// The handle.
        handle: String,
        /// Revision of the handle.
        written: Revision,
    },
    /// A handle whose count differs from the allocations in the block.
    Miscount {
        /// The handle.
        handle: String,
        /// The block.
        block: IpNet,
        /// Number of addresses of the handle in the block.
        holds: u32,
        /// Revision of the handle; zero if it does not exist.
        written: Revision,
        /// Revision of the block; zero if it does not exist.
        block_written: Revision,
    },
}

/// Why the datastore cannot prove that a node or endpoint was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// `datastoreReady` is not set, or the data that lists nodes and endpoints is missing.
    #[error("the datastore is not set ready, or has no nodes: nothing is collected")]
    Silent,
    /// Its `clusterGUID` differs from the one of earlier looks.
    #[error("the store's clusterGUID is not that of the store before: nothing is collected")]
    Other,
}

/// Compares repeated inventories, and returns the findings that have persisted long enough.
#[derive(Debug)]
pub struct Collector {
    grace: Duration,
    /// Time of the first look in which each finding was seen.
    suspects: BTreeMap<Finding, Instant>,
    /// The `clusterGUID` of the datastore, empty if it has none.
    cluster_guid: String,
}

impl Collector {
    /// Returns a collector that requires a finding to be seen at least twice, over the grace
    /// period.
    pub const fn new(grace: Duration) -> Self {
        Self {
            grace,
            suspects: BTreeMap::new(),
            cluster_guid: String::new(),
        }
    }

    /// Evaluates an inventory. Returns the findings that were also in an earlier look, at least the
    /// grace period ago, and in all looks since.
    pub fn look(&mut self, now: Instant, inventory: &Inventory) -> Result<Vec<Finding>, NotReady> {
        self.look_at(now, inventory, |_| true)
    }

    /// Evaluates an inventory as [`Self::look`] does, for the findings that a second source also proves
    /// at this look. A finding without this proof starts again with a new grace period.
    pub fn look_at(
        &mut self,
        now: Instant,
        inventory: &Inventory,
        is_proven: impl Fn(&Finding) -> bool,
    ) -> Result<Vec<Finding>, NotReady> {
        if let Err(why) = self.admits(inventory) {
            self.suspects.clear();
            return Err(why);
        }
        let guid = inventory.cluster_guid();
        if !guid.is_empty() {
            guid.clone_into(&mut self.cluster_guid);
        }
        let mut before = std::mem::take(&mut self.suspects);
        let mut confirmed = Vec::new();
        for finding in findings(inventory).into_iter().filter(is_proven) {
            let since = before.remove(&finding);
            let old = since.is_some_and(|since| now.duration_since(since) >= self.grace);
            if old {
                confirmed.push(finding.clone());
            }
            self.suspects.insert(finding, since.unwrap_or(now));
        }
        Ok(confirmed)
    }

    /// Checks whether the inventory can prove that an object was deleted. As a daemon does, the
    /// collector accepts only one datastore during its life.
    fn admits(&self, inventory: &Inventory) -> Result<(), NotReady> {
        let guids = [&self.cluster_guid, inventory.cluster_guid()];
        match inventory.ready {
            false => Err(NotReady::Silent),
            true if guids[0] == guids[1] || guids.iter().any(|guid| guid.is_empty()) => Ok(()),
            true => Err(NotReady::Other),
        }
    }

    /// Forgets the findings of all looks: a look was not possible.
    pub fn forget(&mut self) {
        self.suspects.clear();
    }

    /// Sets the grace period.
    pub const fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Returns the findings of the last look.
    pub fn suspects(&self) -> impl Iterator<Item = &Finding> {
        self.suspects.keys()
    }
}

/// Returns everything that needs repair at this moment, including transient states. In the order of
/// repair.
pub fn findings(inventory: &Inventory) -> BTreeSet<Finding> {
    let mut found = BTreeSet::new();
    for (cidr, block) in &inventory.blocks {
        found.extend(leaks(inventory, block));
        let written = inventory.written(&IpamKey::Block(*cidr));
        let mut cooled = block.clone();
        cooled.collect(inventory.at, inventory.config.ip_cooldown_seconds);
        if block.owner().is_none() && (cooled != *block || cooled.is_empty()) {
            let block = *cidr;
            found.insert(Finding::Cooled { block, written });
        }
    }
    found.extend(surplus(inventory));
    found.extend(of_gone_nodes(inventory));
    found.extend(affinities(inventory));
    found.extend(miscounts(inventory));
    found
}

fn leaks(inventory: &Inventory, block: &Block) -> Vec<Finding> {
    let taken = block.value().taken().filter_map(|(address, known)| {
        let (holder, known) = (block.holder(address)?, known?);
        let why = inventory.use_of(block, address, known);
        matches!(why, Use::NoEndpoint | Use::NodeGone).then_some(Finding::Leak {
            given: holder.given,
            handle: holder.handle,
            why,
        })
    });
    taken.collect()
}

/// Returns the empty blocks of existing hosts, except one of each family if all are empty.
fn surplus(inventory: &Inventory) -> Vec<Finding> {
    let mut by_host: BTreeMap<(String, bool), Vec<(IpNet, &Block)>> = BTreeMap::new();
    for (cidr, block) in &inventory.blocks {
        if let Some(AffinityOwner::Host(host)) = block.owner()
            && inventory.nodes.contains(&host)
        {
            let ipv6 = cidr.addr().is_ipv6();
            by_host
                .entry((host, ipv6))
                .or_default()
                .push((*cidr, block));
        }
    }
    let mut found = Vec::new();
    for ((host, _), blocks) in by_host {
        let (empty, used): (Vec<_>, Vec<_>) =
            blocks.into_iter().partition(|(_, block)| block.is_empty());
        let kept = usize::from(used.is_empty());
        for (cidr, block) in empty.into_iter().skip(kept) {
            found.push(Finding::Surplus {
                owner: AffinityOwner::Host(host.clone()),
                block: cidr,
                sequence: block.value().sequence_number,
            });
        }
    }
    found
}

/// Returns the blocks and host keys of deleted nodes. A block with an address borrowed by another
/// node stays, without affinity.
fn of_gone_nodes(inventory: &Inventory) -> Vec<Finding> {
    let owned = inventory
        .affinities
        .keys()
        .filter_map(|(owner, cidr)| match owner {
            AffinityOwner::Host(host) => Some((host.clone(), *cidr)),
            AffinityOwner::Virtual(_) => None,
        });
    let gone = owned.filter(|(host, _)| inventory.is_gone(host));
    let mut found: Vec<Finding> = gone
        .map(|(host, block)| Finding::Orphan { host, block })
        .collect();
    let marks = inventory
        .hosts
        .iter()
        .filter(|host| inventory.is_gone(host));
    found.extend(marks.cloned().map(Finding::Host));
    found
}

/// Returns the affinities that contradict the blocks. Virtual owners maintain their own affinities.
fn affinities(inventory: &Inventory) -> Vec<Finding> {
    let mut found = Vec::new();
    let lives = |owner: &AffinityOwner| match owner {
        AffinityOwner::Host(host) => inventory.nodes.contains(host),
        AffinityOwner::Virtual(_) => false,
    };
    let times = |owner: &AffinityOwner, block: IpNet| {
        let affinity = IpamKey::Affinity {
            owner: owner.clone(),
            block,
        };
        let (affinity, block) = (affinity, IpamKey::Block(block));
        (inventory.written(&affinity), inventory.written(&block))
    };
    for (owner, cidr) in inventory
        .affinities
        .keys()
        .filter(|(owner, _)| lives(owner))
    {
        let (written, block_written) = times(owner, *cidr);
        let block = inventory.blocks.get(cidr);
        // An unreadable block has an unknown owner.
        let unread = block.is_none() && block_written != Revision::ZERO;
        if !unread && block.and_then(Block::owner).as_ref() != Some(owner) {
            found.push(Finding::Unfounded {
                owner: owner.clone(),
                block: *cidr,
                written,
                block_written,
            });
        }
    }
    for (cidr, block) in &inventory.blocks {
        let Some(owner) = block.owner().filter(lives) else {
            continue;
        };
        let (written, block_written) = times(&owner, *cidr);
        let affinity = inventory.affinities.get(&(owner.clone(), *cidr));
        let unread = affinity.is_none() && written != Revision::ZERO;
        let confirmed =
            affinity.is_some_and(|known| known.state == AffinityState::Confirmed && !known.deleted);
        if !unread && !confirmed {
            found.push(Finding::Unconfirmed {
                owner,
                block: *cidr,
                written,
                block_written,
            });
        }
    }
    found
}

fn miscounts(inventory: &Inventory) -> Vec<Finding> {
    let mut held: BTreeMap<(&str, IpNet), u32> = BTreeMap::new();
    let holders: Vec<(IpNet, String)> = inventory
        .blocks
        .iter()
        .flat_map(|(cidr, block)| {
            let taken = block.value().taken();
            let handles = taken.filter_map(|(address, _)| block.holder(address)?.handle);
            handles.map(|handle| (*cidr, handle))
        })
        .collect();
    for (cidr, handle) in &holders {
        *held.entry((handle, *cidr)).or_default() += 1;
    }
    let counted = inventory.handles.iter().flat_map(|(id, handle)| {
        let counts = handle.block.iter();
        counts.map(|(cidr, count)| ((id.as_str(), *cidr), *count))
    });
    let counted: BTreeMap<(&str, IpNet), u32> = counted.collect();
    let both: BTreeSet<_> = held.keys().chain(counted.keys()).copied().collect();
    let mut found = Vec::new();
    for (id, cidr) in both {
        let holds = held.get(&(id, cidr)).copied();
        let written = inventory.written(&IpamKey::Handle(id.to_owned()));
        let block_written = inventory.written(&IpamKey::Block(cidr));
        let unread = !inventory.handles.contains_key(id) && written != Revision::ZERO
            || !inventory.blocks.contains_key(&cidr) && block_written != Revision::ZERO;
        if !unread && holds != counted.get(&(id, cidr)).copied() {
            found.push(Finding::Miscount {
                handle: id.to_owned(),
                block: cidr,
                holds: holds.unwrap_or_default(),
                written,
                block_written,
            });
        }
    }
    for (id, handle) in &inventory.handles {
        if handle.block.is_empty() {
            found.push(Finding::Idle {
                handle: id.clone(),
                written: inventory.written(&IpamKey::Handle(id.clone())),
            });
        }
    }
    found
}

impl Finding {
    /// Returns the address, if the finding concerns one.
    pub const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Leak { given, .. } => Some(given.address),
            _ => None,
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = |handle: &Option<String>| handle.clone().unwrap_or_else(|| "nobody".into());
        match self {
            Self::Leak {
                given,
                handle,
                why: Use::NodeGone,
            } => write!(
                f,
                "{} of {} is leaked: its node is deleted",
                given.address,
                named(handle)
            ),
            Self::Leak { given, handle, .. } => write!(
                f,
                "{} of {} is leaked: no endpoint has it",
                given.address,
                named(handle)
            ),
            Self::Cooled { block, .. } => {
                write!(
                    f,
                    "block {block} has no affinity, and released addresses whose cooldown is over"
                )
            }
            Self::Surplus { owner, block, .. } => {
                write!(f, "block {block} of {owner} is empty, and not its only one")
            }
            Self::Orphan { host, block } => {
                write!(f, "block {block} belongs to node {host}, which is deleted")
            }
            Self::Host(host) => write!(f, "node {host} is deleted, but still marked as a host"),
            Self::Unfounded { owner, block, .. } => {
                write!(
                    f,
                    "{owner} has an affinity to block {block}, which is not its own"
                )
            }
            Self::Unconfirmed { owner, block, .. } => {
                write!(f, "{owner} has no confirmed affinity to its block {block}")
            }
            Self::Idle { handle, .. } => write!(f, "handle {handle} counts nothing"),
            Self::Miscount {
                handle,
                block,
                holds,
                ..
            } => write!(
                f,
                "handle {handle} does not count the {holds} addresses that it has in block {block}"
            ),
        }
    }
}
