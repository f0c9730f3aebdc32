//! Assigns addresses.

use std::cmp::Reverse;

use calico_model::{AffinityOwner, AffinityState, BlockAffinity, IpamConfig, IpamKey};
use calico_store::{Error, KeyRange, Revision};
use ipnet::IpNet;

use crate::block::{Block, Given, Taker};
use crate::error::IpamError;
use crate::limits::{ATTEMPTS_MAX, READ_BLOCKS_MAX, RECLAIM_AGE};
use crate::pools::{Pool, blocks_of, place_of};
use crate::read::{Seen, just, overlaps};
use crate::store::{Change, Ipam};
use crate::stored::Stored;

/// A request for addresses.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The host that requests them, or the virtual owner.
    pub host: &'a str,
    /// The handle and attributes of the allocations.
    pub taker: &'a Taker,
    /// Number of addresses.
    pub count: usize,
    /// The pools to assign them from, all of one family.
    pub pools: &'a [Pool],
    /// Ranges from which nothing is assigned.
    pub reserved: &'a [IpNet],
    /// Maximum number of blocks of the host, if lower than the one in the IPAM configuration.
    pub blocks_max: Option<usize>,
}

/// The blocks of a host at some time, and the settings of address management.
#[derive(Debug, Clone)]
pub struct HostBlocks {
    config: IpamConfig,
    /// The block written last is the first one: it is the most likely one to have a free address.
    blocks: Vec<IpNet>,
}

impl HostBlocks {
    /// Returns those in the pools of a request, in order.
    fn of(&self, request: &Request<'_>) -> Vec<IpNet> {
        let own = self.blocks.iter().copied();
        own.filter(|block| request.is_in_pools(block)).collect()
    }
}

impl Request<'_> {
    fn is_in_pools(&self, block: &IpNet) -> bool {
        self.pools.iter().any(|pool| pool.cidr.contains(block))
    }

    fn is_reserved(&self, block: &IpNet) -> bool {
        self.reserved.iter().any(|range| range.contains(block))
    }
}

impl Ipam<'_> {
    /// Assigns addresses: from the host's own blocks, then from new blocks, then from empty blocks
    /// of other hosts, then, without strict affinity, from any block. Assigns all requested
    /// addresses or none.
    pub async fn assign(&self, request: &Request<'_>) -> Result<Vec<Given>, IpamError> {
        self.assign_after(request, None).await
    }

    /// Assigns addresses as [`assign`](Self::assign) does. With earlier [blocks](Self::host_blocks) of the
    /// host, the first one of them is tried before its blocks are read: a caller that must wait for a lock
    /// reads them while it waits.
    pub async fn assign_after(
        &self,
        request: &Request<'_>,
        earlier: Option<&HostBlocks>,
    ) -> Result<Vec<Given>, IpamError> {
        if request.pools.is_empty() {
            let host = request.host.to_owned();
            return Err(IpamError::NoPool { host });
        }
        let mut taken = Vec::new();
        let result = self.fill(request, earlier, &mut taken).await;
        if result.is_err() && !taken.is_empty() {
            let releases: Vec<_> = taken
                .iter()
                .map(|given: &Given| given.release(&request.taker.handle))
                .collect();
            self.release(&releases).await?;
        }
        result.map(|()| taken)
    }

    /// Reads the blocks of a host, or of the virtual owner.
    pub async fn host_blocks(&self, host: &str) -> Result<HostBlocks, IpamError> {
        let affinities = IpamKey::affinities_prefix(&self.owner(host));
        let seen = self
            .see(vec![just(&IpamKey::Config), KeyRange::prefix(affinities)])
            .await?;
        let mut own: Vec<(IpNet, Revision)> = seen
            .keys()
            .filter_map(|(key, written)| match key {
                IpamKey::Affinity { block, .. } => Some((block, written)),
                _ => None,
            })
            .collect();
        own.sort_by_key(|(_, written)| Reverse(*written));
        Ok(HostBlocks {
            config: seen.config()?,
            blocks: own.into_iter().map(|(block, _)| block).collect(),
        })
    }

    async fn fill(
        &self,
        request: &Request<'_>,
        earlier: Option<&HostBlocks>,
        taken: &mut Vec<Given>,
    ) -> Result<(), IpamError> {
        if let Some(earlier) = earlier
            && let Some(first) = earlier.of(request).first()
        {
            taken.extend(self.take_own(*first, request, &earlier.config, 0).await?);
            if taken.len() == request.count {
                return Ok(());
            }
        }
        let known = self.host_blocks(request.host).await?;
        let (own, config) = (known.of(request), known.config);
        self.take_owned(&own, request, &config, taken).await?;
        let most = self.blocks_max(&config);
        let most = most.min(request.blocks_max.unwrap_or(usize::MAX));
        let mut blocks = own.len();
        while taken.len() < request.count && config.auto_allocate_blocks {
            if blocks >= most {
                let host = request.host.to_owned();
                return Err(IpamError::BlockLimit { host, blocks });
            }
            let given = self.take_new(request, &config, taken.len()).await?;
            if given.is_empty() {
                break;
            }
            taken.extend(given);
            blocks += 1;
        }
        if taken.len() < request.count && !config.strict_affinity {
            self.borrow(request, &config, taken).await?;
        }
        if taken.len() < request.count {
            return Err(IpamError::UsedUp {
                assigned: taken.len(),
                wanted: request.count,
            });
        }
        Ok(())
    }

    /// Assigns addresses from blocks with affinity to the host, in the given order: the first block
    /// is always tried, each further block if it has free addresses.
    async fn take_owned(
        &self,
        own: &[IpNet],
        request: &Request<'_>,
        config: &IpamConfig,
        taken: &mut Vec<Given>,
    ) -> Result<(), IpamError> {
        let Some((first, others)) = own.split_first() else {
            return Ok(());
        };
        taken.extend(self.take_own(*first, request, config, taken.len()).await?);
        for others in others.chunks(READ_BLOCKS_MAX) {
            if taken.len() == request.count {
                return Ok(());
            }
            let keys = others.iter().map(|cidr| just(&IpamKey::Block(*cidr)));
            let seen = self.see(keys.collect()).await?;
            for cidr in others {
                // A missing block is created; an unreadable one is tried, which returns the error.
                let full = match seen.block(*cidr) {
                    Ok(Some(mut stored)) => {
                        let block = &mut stored.value;
                        block.collect(self.now(), config.ip_cooldown_seconds);
                        block.owner() == Some(self.owner(request.host))
                            && block.free(request.reserved) == 0
                    }
                    Ok(None) | Err(_) => false,
                };
                if !full && taken.len() < request.count {
                    taken.extend(self.take_own(*cidr, request, config, taken.len()).await?);
                }
            }
        }
        Ok(())
    }

    /// Assigns addresses from a block that does not exist yet, or from an empty block of another
    /// host.
    async fn take_new(
        &self,
        request: &Request<'_>,
        config: &IpamConfig,
        taken: usize,
    ) -> Result<Vec<Given>, IpamError> {
        let known = self.block_ranges().await?;
        for pool in request.pools {
            for cidr in blocks_of(*pool, request.host) {
                if request.is_reserved(&cidr) || overlaps(&known, cidr) {
                    continue;
                }
                let given = self.take_own(cidr, request, config, taken).await?;
                if !given.is_empty() {
                    return Ok(given);
                }
            }
        }
        let blocks = self.blocks().await?.into_iter();
        let blocks: Vec<Block> = blocks
            .filter(|(cidr, _)| request.is_in_pools(cidr) && !request.is_reserved(cidr))
            .filter_map(|(_, block)| block)
            .collect();
        let own = Some(self.owner(request.host));
        // Blocks that Calico's writers created without writing the affinity.
        for block in &blocks {
            if block.owner() == own && block.free(request.reserved) > 0 {
                let given = self.take_own(block.cidr(), request, config, taken).await?;
                if !given.is_empty() {
                    return Ok(given);
                }
            }
        }
        for block in &blocks {
            if block.owner() != own
                && block.is_empty()
                && let Some(given) = self.reclaim(block, request, config, taken).await?
            {
                return Ok(given);
            }
        }
        Ok(Vec::new())
    }

    /// Takes over an empty block of another host, if its affinity is old enough.
    async fn reclaim(
        &self,
        block: &Block,
        request: &Request<'_>,
        config: &IpamConfig,
        taken: usize,
    ) -> Result<Option<Vec<Given>>, IpamError> {
        let old = block
            .claimed()
            .is_none_or(|then| then.seconds_to(self.now()) >= RECLAIM_AGE.as_secs());
        let (Some(owner @ AffinityOwner::Host(_)), true) = (block.owner(), old) else {
            return Ok(None);
        };
        let sequence = block.value().sequence_number;
        match self
            .release_affinity(&owner, block.cidr(), Some(sequence))
            .await
        {
            Ok(()) => {}
            // A role of etcd for one host has no keys of other hosts: their blocks stay theirs.
            Err(IpamError::InUse(_) | IpamError::Store(Error::Denied(_))) => return Ok(None),
            Err(error) => return Err(error),
        }
        let given = self.take_own(block.cidr(), request, config, taken).await?;
        Ok(Some(given).filter(|given| !given.is_empty()))
    }

    /// Assigns addresses from other hosts' blocks, starting at a position derived from the host's
    /// name.
    async fn borrow(
        &self,
        request: &Request<'_>,
        config: &IpamConfig,
        taken: &mut Vec<Given>,
    ) -> Result<(), IpamError> {
        let mut blocks = self.blocks().await?;
        if !blocks.is_empty() {
            let start = place_of(request.host, blocks.len());
            blocks.rotate_left(start);
        }
        for (cidr, block) in blocks {
            if taken.len() == request.count {
                break;
            }
            let free = block.is_some_and(|mut block| {
                block.collect(self.now(), config.ip_cooldown_seconds);
                let lent = !matches!(block.owner(), Some(AffinityOwner::Virtual(_)));
                lent && block.free(request.reserved) > 0
            });
            if free && request.is_in_pools(&cidr) {
                taken.extend(
                    self.take_from(cidr, None, request, config, taken.len())
                        .await?,
                );
            }
        }
        Ok(())
    }

    /// Assigns addresses from a block with affinity to the host, which is created if it does not
    /// exist. Returns no addresses if the block has another affinity.
    async fn take_own(
        &self,
        cidr: IpNet,
        request: &Request<'_>,
        config: &IpamConfig,
        taken: usize,
    ) -> Result<Vec<Given>, IpamError> {
        let owner = self.owner(request.host);
        self.take_from(cidr, Some(&owner), request, config, taken)
            .await
    }

    /// Assigns the remaining addresses from a block. With an owner, only if the block has or gets
    /// affinity to that owner.
    async fn take_from(
        &self,
        cidr: IpNet,
        owner: Option<&AffinityOwner>,
        request: &Request<'_>,
        config: &IpamConfig,
        taken: usize,
    ) -> Result<Vec<Given>, IpamError> {
        let id = &request.taker.handle;
        for _ in 0..ATTEMPTS_MAX {
            let seen = self.see(around(cidr, id, owner)).await?;
            let (mut block, was) = match (seen.block(cidr)?, owner) {
                (Some(found), _) => (found.value, found.revision),
                (None, Some(owner)) => (self.fresh(cidr, owner)?, Revision::ZERO),
                (None, None) => return Ok(Vec::new()),
            };
            if let Some(owner) = owner
                && block.owner().as_ref() != Some(owner)
            {
                // Another host has claimed the block first: an affinity to it, if there is one, is
                // void.
                if seen.affinity(&affinity(owner, cidr))?.is_some() {
                    self.release_affinity(owner, cidr, None).await?;
                }
                return Ok(Vec::new());
            }
            block.collect(self.now(), config.ip_cooldown_seconds);
            let given = block.take(request.count - taken, request.taker, request.reserved);
            if given.is_empty() {
                return Ok(given);
            }
            let changes = given_changes(&seen, block, was, id, given.len(), owner)?;
            if self.write(changes).await? {
                return Ok(given);
            }
        }
        Err(IpamError::Contended(IpamKey::Block(cidr).to_string()))
    }

    /// Returns a block that does not exist yet.
    pub(crate) fn fresh(&self, cidr: IpNet, owner: &AffinityOwner) -> Result<Block, IpamError> {
        Block::fresh(cidr, owner, self.now())
            .map_err(|fault| IpamError::Block { block: cidr, fault })
    }
}

/// Returns the keys that an assignment from a block reads.
pub(crate) fn around(cidr: IpNet, handle: &str, owner: Option<&AffinityOwner>) -> Vec<KeyRange> {
    let mut ranges = vec![
        just(&IpamKey::Block(cidr)),
        just(&IpamKey::Handle(handle.to_owned())),
    ];
    ranges.extend(owner.map(|owner| just(&affinity(owner, cidr))));
    ranges
}

/// Returns the changes of an assignment from a block: to the block, to its affinity to an owner
/// unless that is confirmed, and to the handle.
pub(crate) fn given_changes(
    seen: &Seen,
    mut block: Block,
    was: Revision,
    handle: &str,
    count: usize,
    owner: Option<&AffinityOwner>,
) -> Result<Vec<Change>, IpamError> {
    let cidr = block.cidr();
    let mut changes = Vec::new();
    if let Some(owner) = owner {
        changes.extend(confirmed(seen, affinity(owner, cidr))?);
    }
    if was != Revision::ZERO {
        block.count_write();
    }
    changes.push(Change {
        key: IpamKey::Block(cidr),
        was,
        value: Some(block.value().encode()),
    });
    let more = u32::try_from(count).unwrap_or(u32::MAX);
    let found = seen.handle(handle)?;
    changes.push(Change::of_handle(handle, found, cidr, |held| {
        held.saturating_add(more)
    }));
    Ok(changes)
}

fn affinity(owner: &AffinityOwner, block: IpNet) -> IpamKey {
    let owner = owner.clone();
    IpamKey::Affinity { owner, block }
}

/// Returns the change that confirms an affinity, unless it is confirmed.
fn confirmed(seen: &Seen, key: IpamKey) -> Result<Option<Change>, IpamError> {
    let (mut value, was) = match seen.affinity(&key)? {
        Some(Stored { value, revision }) => (value, revision),
        None => (BlockAffinity::new(AffinityState::Pending), Revision::ZERO),
    };
    if value.state == AffinityState::Confirmed && !value.deleted {
        return Ok(None);
    }
    value.state = AffinityState::Confirmed;
    value.deleted = false;
    let value = Some(value.encode());
    Ok(Some(Change { key, was, value }))
}
