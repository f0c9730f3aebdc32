//! Releases addresses and blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_model::{AffinityOwner, IPAM_PREFIX, IpamKey};
use calico_store::Compare;
use ipnet::IpNet;

use crate::block::{Block, Release};
use crate::error::IpamError;
use crate::limits::{ATTEMPTS_MAX, RELEASES_MAX};
use crate::read::{Seen, just};
use crate::store::{Change, Ipam};
use crate::stored::Stored;

/// A block, its handles and the configuration, as of one revision.
struct Scene {
    cidr: IpNet,
    cool_down_s: u32,
    block: Option<Stored<Block>>,
    seen: Seen,
}

impl Ipam<'_> {
    /// Releases addresses. Returns the addresses that were not allocated. If a condition of one
    /// release does not hold, the other addresses of its block stay allocated.
    pub async fn release(&self, releases: &[Release]) -> Result<Vec<IpAddr>, IpamError> {
        let addresses: Vec<IpAddr> = releases.iter().map(|release| release.address).collect();
        let homes = self.homes(&addresses).await?;
        let mut by_block: BTreeMap<IpNet, Vec<Release>> = BTreeMap::new();
        let mut not_taken = Vec::new();
        for release in releases {
            match homes.get(&release.address) {
                Some(cidr) => by_block.entry(*cidr).or_default().push(release.clone()),
                None => not_taken.push(release.address),
            }
        }
        for (cidr, releases) in by_block {
            not_taken.extend(self.release_from(cidr, &releases).await?);
        }
        Ok(not_taken)
    }

    /// Returns releases of all addresses of a handle, conditional on their present allocations.
    pub async fn of_handle(&self, id: &str) -> Result<Vec<Release>, IpamError> {
        let key = IpamKey::Handle(id.to_owned());
        let Some(handle) = self.see(vec![just(&key)]).await?.handle(id)? else {
            return Ok(Vec::new());
        };
        let mut held = Vec::new();
        for cidr in handle.value.block.keys() {
            let block = self.scene(*cidr, &BTreeSet::new()).await?.block;
            let given = block.map(|block| block.value.of_handle(id));
            let given = given.into_iter().flatten();
            held.extend(given.map(|given| given.release(id)));
        }
        Ok(held)
    }

    /// Releases all addresses of a handle, and returns them.
    pub async fn release_handle(&self, id: &str) -> Result<Vec<IpAddr>, IpamError> {
        let key = IpamKey::Handle(id.to_owned());
        let Some(handle) = self.see(vec![just(&key)]).await?.handle(id)? else {
            return Ok(Vec::new());
        };
        let mut released = Vec::new();
        for cidr in handle.value.block.keys() {
            released.extend(self.release_all(*cidr, id).await?);
        }
        Ok(released)
    }

    /// Releases all addresses of a handle in one block.
    async fn release_all(&self, cidr: IpNet, id: &str) -> Result<Vec<IpAddr>, IpamError> {
        let mut released = Vec::new();
        for _ in 0..ATTEMPTS_MAX {
            let known = [id.to_owned()].into();
            let scene = self.scene(cidr, &known).await?;
            let Some(block) = &scene.block else {
                return Ok(released);
            };
            let held = block.value.of_handle(id);
            let some = held.iter().take(RELEASES_MAX);
            let releases: Vec<Release> = some.map(|given| given.release(id)).collect();
            if releases.is_empty() {
                return Ok(released);
            }
            if let Some(not_taken) = self.release_in(scene, &releases).await? {
                let given = releases.iter().map(|release| release.address);
                released.extend(given.filter(|address| !not_taken.contains(address)));
                if held.len() == releases.len() {
                    return Ok(released);
                }
            }
        }
        Err(IpamError::Contended(IpamKey::Block(cidr).to_string()))
    }

    /// Releases addresses of one block, and subtracts them from the counts of their handles.
    pub(crate) async fn release_from(
        &self,
        cidr: IpNet,
        releases: &[Release],
    ) -> Result<Vec<IpAddr>, IpamError> {
        let mut not_taken = Vec::new();
        for releases in releases.chunks(RELEASES_MAX) {
            not_taken.extend(self.release_some(cidr, releases).await?);
        }
        Ok(not_taken)
    }

    /// Does the same as `release_from` for at most as many addresses as one transaction has room
    /// for handles.
    async fn release_some(
        &self,
        cidr: IpNet,
        releases: &[Release],
    ) -> Result<Vec<IpAddr>, IpamError> {
        let mut handles: BTreeSet<String> = releases
            .iter()
            .filter_map(|release| release.handle.clone())
            .collect();
        for _ in 0..ATTEMPTS_MAX {
            let scene = self.scene(cidr, &handles).await?;
            if let Some(block) = &scene.block {
                // The handles of the addresses are known only now.
                let held = releases
                    .iter()
                    .filter_map(|release| block.value.holder(release.address)?.handle);
                let before = handles.len();
                handles.extend(held);
                if handles.len() > before {
                    continue;
                }
            }
            if let Some(not_taken) = self.release_in(scene, releases).await? {
                return Ok(not_taken);
            }
        }
        Err(IpamError::Contended(IpamKey::Block(cidr).to_string()))
    }

    /// Reads the data that a release in a block needs.
    async fn scene(&self, cidr: IpNet, handles: &BTreeSet<String>) -> Result<Scene, IpamError> {
        let keys = [IpamKey::Block(cidr), IpamKey::Config];
        let handles = handles.iter().map(|id| IpamKey::Handle(id.clone()));
        let ranges = keys.into_iter().chain(handles).map(|key| just(&key));
        let seen = self.see(ranges.collect()).await?;
        Ok(Scene {
            cidr,
            cool_down_s: seen.config()?.ip_cooldown_seconds,
            block: seen.block(cidr)?,
            seen,
        })
    }

    /// Tries to release addresses. Returns the addresses that were not allocated, or `None` if any
    /// of the keys was written since it was read. A block without affinity is deleted with its last
    /// allocation.
    async fn release_in(
        &self,
        scene: Scene,
        releases: &[Release],
    ) -> Result<Option<Vec<IpAddr>>, IpamError> {
        let Some(Stored {
            mut value,
            revision,
        }) = scene.block
        else {
            let addresses = releases.iter().map(|release| release.address);
            return Ok(Some(addresses.collect()));
        };
        let released = value
            .release(releases, self.now(), scene.cool_down_s)
            .map_err(IpamError::Changed)?;
        if released.not_taken.len() == releases.len() {
            return Ok(Some(released.not_taken));
        }
        let gone = value.is_empty() && value.owner().is_none();
        value.count_write();
        let mut changes = vec![Change {
            key: IpamKey::Block(scene.cidr),
            was: revision,
            value: (!gone).then(|| value.value().encode()),
        }];
        for (id, count) in &released.by_handle {
            let handle = scene.seen.handle(id)?;
            let less = |held: u32| held.saturating_sub(*count);
            if handle.is_some() {
                changes.push(Change::of_handle(id, handle, scene.cidr, less));
            }
        }
        let done = self.write(changes).await?;
        Ok(done.then_some(released.not_taken))
    }

    /// Releases the affinity of a block: an empty block is deleted, a block with allocations loses
    /// its affinity and is deleted when the last address is released. With `sequence`, only an
    /// empty block is released, and only if its sequence number is unchanged.
    pub async fn release_affinity(
        &self,
        owner: &AffinityOwner,
        cidr: IpNet,
        sequence: Option<u64>,
    ) -> Result<(), IpamError> {
        self.take_back(owner, cidr, sequence, &[]).await.map(drop)
    }

    /// Does the same as `release_affinity`, under further conditions. Returns whether there was an
    /// affinity to release.
    pub(crate) async fn take_back(
        &self,
        owner: &AffinityOwner,
        cidr: IpNet,
        sequence: Option<u64>,
        conditions: &[Compare],
    ) -> Result<bool, IpamError> {
        let affinity = IpamKey::Affinity {
            owner: owner.clone(),
            block: cidr,
        };
        for _ in 0..ATTEMPTS_MAX {
            let seen = self
                .see(vec![just(&affinity), just(&IpamKey::Block(cidr))])
                .await?;
            let Some(found) = seen.affinity(&affinity)? else {
                return Ok(false);
            };
            let mut changes = vec![Change {
                key: affinity.clone(),
                was: found.revision,
                value: None,
            }];
            let block = seen.block(cidr)?;
            // If the block has another owner, only the affinity is deleted.
            if let Some(mut block) = block
                && block.value.owner().is_none_or(|other| other == *owner)
            {
                let empty = block.value.is_empty();
                let written = block.value.value().sequence_number;
                if sequence.is_some_and(|sequence| !empty || written != sequence) {
                    return Err(IpamError::InUse(cidr));
                }
                block.value.disown();
                block.value.count_write();
                changes.push(Change {
                    key: IpamKey::Block(cidr),
                    was: block.revision,
                    value: (!empty).then(|| block.value.value().encode()),
                });
            }
            if self.write_if(changes, conditions).await? {
                return Ok(true);
            }
            if !conditions.is_empty() {
                return Ok(false);
            }
        }
        Err(IpamError::Contended(affinity.to_string()))
    }

    /// Releases all blocks of a host, and deletes its keys.
    pub async fn remove_host(&self, host: &str) -> Result<(), IpamError> {
        let owner = AffinityOwner::Host(host.to_owned());
        for key in self.keys(&IpamKey::affinities_prefix(&owner)).await? {
            if let IpamKey::Affinity { owner, block } = key {
                self.release_affinity(&owner, block, None).await?;
            }
        }
        let marker = IpamKey::Host(host.to_owned()).to_string();
        self.store.delete(marker.into()).await?;
        Ok(())
    }

    /// Releases the affinities of all blocks in a range.
    pub async fn release_range(&self, range: IpNet) -> Result<(), IpamError> {
        for key in self.keys(IPAM_PREFIX).await? {
            if let IpamKey::Affinity { owner, block } = key
                && range.contains(&block)
            {
                self.release_affinity(&owner, block, None).await?;
            }
        }
        Ok(())
    }
}
