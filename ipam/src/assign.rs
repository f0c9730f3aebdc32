//! Taking addresses.

use std::collections::BTreeMap;

use datastore::Revision;
use ipnet::IpNet;
use model::{AffinityOwner, AffinityState, BlockAffinity, IpamConfig, IpamKey};

use crate::block::{Block, Given, Release, Taker};
use crate::error::IpamError;
use crate::limits::{ATTEMPTS_MAX, HOST_BLOCKS_DEFAULT, RECLAIM_AGE};
use crate::pools::{Pool, blocks_of};
use crate::store::{Change, Ipam, Stored};

/// Addresses that are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The host that they are for.
    pub host: &'a str,
    /// Who takes them.
    pub taker: &'a Taker,
    /// How many.
    pub count: usize,
    /// The pools to take them from, all of one family.
    pub pools: &'a [Pool],
    /// Ranges that nothing is taken from.
    pub reserved: &'a [IpNet],
    /// How many blocks the host may have, where it is fewer than the settings say.
    pub blocks_max: Option<usize>,
}

impl Request<'_> {
    fn owner(&self) -> AffinityOwner {
        AffinityOwner::Host(self.host.to_owned())
    }

    fn is_in_pools(&self, block: &IpNet) -> bool {
        self.pools.iter().any(|pool| pool.cidr.contains(block))
    }

    fn is_reserved(&self, block: &IpNet) -> bool {
        self.reserved.iter().any(|range| range.contains(block))
    }
}

/// Every block, as it was read at one time; those that cannot be read are somebody's.
type Blocks = BTreeMap<IpNet, Option<Block>>;

impl Ipam<'_> {
    /// Takes addresses: out of the host's own blocks, then out of new ones, then out of empty ones
    /// of other hosts, then, where that is allowed, out of any. All that are asked for, or none.
    pub async fn assign(&self, request: &Request<'_>) -> Result<Vec<Given>, IpamError> {
        let config = self.config().await?;
        if request.pools.is_empty() {
            let host = request.host.to_owned();
            return Err(IpamError::NoPool { host });
        }
        let mut taken = Vec::new();
        let result = self.fill(request, &config, &mut taken).await;
        if result.is_err() && !taken.is_empty() {
            let releases: Vec<Release> = taken
                .iter()
                .map(|given: &Given| Release {
                    address: given.address,
                    handle: Some(request.taker.handle.clone()),
                    sequence: Some(given.sequence),
                })
                .collect();
            self.release(&releases).await?;
        }
        result.map(|()| taken)
    }

    async fn fill(
        &self,
        request: &Request<'_>,
        config: &IpamConfig,
        taken: &mut Vec<Given>,
    ) -> Result<(), IpamError> {
        let owner = request.owner();
        let affinities = self.keys(&IpamKey::affinities_prefix(&owner)).await?;
        let mut own: Vec<IpNet> = Vec::new();
        for key in affinities {
            if let IpamKey::Affinity { block, .. } = key
                && request.is_in_pools(&block)
            {
                own.push(block);
            }
        }
        for block in &own {
            if taken.len() == request.count {
                return Ok(());
            }
            taken.extend(self.take_own(*block, request, config, taken.len()).await?);
        }
        let most = match config.max_blocks_per_host {
            0 => HOST_BLOCKS_DEFAULT,
            most => usize::try_from(most).unwrap_or(usize::MAX),
        };
        let most = most.min(request.blocks_max.unwrap_or(usize::MAX));
        let mut blocks = own.len();
        while taken.len() < request.count && config.auto_allocate_blocks {
            if blocks >= most {
                let host = request.host.to_owned();
                return Err(IpamError::BlockLimit { host, blocks });
            }
            let given = self.take_new(request, config, taken.len()).await?;
            if given.is_empty() {
                break;
            }
            taken.extend(given);
            blocks += 1;
        }
        if taken.len() < request.count && !config.strict_affinity {
            self.borrow(request, config, taken).await?;
        }
        if taken.len() < request.count {
            return Err(IpamError::UsedUp {
                assigned: taken.len(),
                wanted: request.count,
            });
        }
        Ok(())
    }

    /// Takes addresses out of a block that is nobody's yet, or that somebody has left empty.
    async fn take_new(
        &self,
        request: &Request<'_>,
        config: &IpamConfig,
        taken: usize,
    ) -> Result<Vec<Given>, IpamError> {
        let blocks: Blocks = self.blocks().await?.into_iter().collect();
        let owner = request.owner();
        let mut left_empty = Vec::new();
        for pool in request.pools {
            for cidr in blocks_of(*pool, request.host) {
                if request.is_reserved(&cidr) {
                    continue;
                }
                let usable = match blocks.get(&cidr) {
                    None => true,
                    Some(None) => false,
                    Some(Some(block)) => {
                        if block.is_empty() && block.owner().is_some_and(|other| other != owner) {
                            left_empty.push(block);
                        }
                        block.owner().as_ref() == Some(&owner) && block.free(request.reserved) > 0
                    }
                };
                if usable {
                    let given = self.take_own(cidr, request, config, taken).await?;
                    if !given.is_empty() {
                        return Ok(given);
                    }
                }
            }
        }
        for block in left_empty {
            if let Some(given) = self.reclaim(block, request, config, taken).await? {
                return Ok(given);
            }
        }
        Ok(Vec::new())
    }

    /// Takes an empty block from another host, if it has had it for long enough.
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
        let (Some(owner), true) = (block.owner(), old) else {
            return Ok(None);
        };
        let sequence = block.value().sequence_number;
        match self
            .release_affinity(&owner, block.cidr(), Some(sequence))
            .await
        {
            Ok(()) => {}
            Err(IpamError::InUse(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        let given = self.take_own(block.cidr(), request, config, taken).await?;
        Ok(Some(given).filter(|given| !given.is_empty()))
    }

    /// Takes addresses out of other hosts' blocks.
    async fn borrow(
        &self,
        request: &Request<'_>,
        config: &IpamConfig,
        taken: &mut Vec<Given>,
    ) -> Result<(), IpamError> {
        for (cidr, block) in self.blocks().await? {
            if taken.len() == request.count {
                break;
            }
            let free = block.is_some_and(|block| block.free(request.reserved) > 0);
            if free && request.is_in_pools(&cidr) {
                taken.extend(
                    self.take_from(cidr, None, request, config, taken.len())
                        .await?,
                );
            }
        }
        Ok(())
    }

    /// Takes addresses out of a block of the host's own, which is made if it is not there; none if
    /// it is somebody else's.
    async fn take_own(
        &self,
        cidr: IpNet,
        request: &Request<'_>,
        config: &IpamConfig,
        taken: usize,
    ) -> Result<Vec<Given>, IpamError> {
        let owner = request.owner();
        self.take_from(cidr, Some(&owner), request, config, taken)
            .await
    }

    /// Takes what is still wanted out of a block; with an owner, only if the block is theirs or
    /// becomes theirs by this.
    async fn take_from(
        &self,
        cidr: IpNet,
        owner: Option<&AffinityOwner>,
        request: &Request<'_>,
        config: &IpamConfig,
        taken: usize,
    ) -> Result<Vec<Given>, IpamError> {
        let key = IpamKey::Block(cidr);
        let id = &request.taker.handle;
        for _ in 0..ATTEMPTS_MAX {
            let (mut block, was) = match (self.block(cidr).await?, owner) {
                (Some(found), _) => (found.value, found.revision),
                (None, Some(owner)) => {
                    let fresh = Block::fresh(cidr, owner, self.now())
                        .map_err(|fault| IpamError::Block { block: cidr, fault })?;
                    (fresh, Revision::ZERO)
                }
                (None, None) => return Ok(Vec::new()),
            };
            let mut changes = Vec::new();
            if let Some(owner) = owner {
                if block.owner().as_ref() != Some(owner) {
                    // Somebody else was faster: an affinity to it, if there is one, means nothing.
                    self.release_affinity(owner, cidr, None).await?;
                    return Ok(Vec::new());
                }
                changes.extend(self.confirmed(owner, cidr).await?);
            }
            block.collect(self.now(), config.ip_cooldown_seconds);
            let given = block.take(request.count - taken, request.taker, request.reserved);
            let Ok(more @ 1..) = u32::try_from(given.len()) else {
                return Ok(Vec::new());
            };
            if was != Revision::ZERO {
                block.count_write();
            }
            let value = Some(block.value().encode());
            changes.push(Change {
                key: key.clone(),
                was,
                value,
            });
            let handle = self.handle(id).await?;
            changes.push(Change::of_handle(id, handle, cidr, |held| {
                held.saturating_add(more)
            }));
            if self.write(changes).await? {
                return Ok(given);
            }
        }
        Err(IpamError::Contended(key.to_string()))
    }

    /// The change that confirms an affinity, unless it is.
    async fn confirmed(
        &self,
        owner: &AffinityOwner,
        block: IpNet,
    ) -> Result<Option<Change>, IpamError> {
        let owner = owner.clone();
        let key = IpamKey::Affinity { owner, block };
        let (mut value, was) = match self.affinity(&key).await? {
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
}
