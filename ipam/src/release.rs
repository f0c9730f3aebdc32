//! Giving addresses and blocks back.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use model::{AffinityOwner, IPAM_PREFIX, IpamKey};

use crate::block::Release;
use crate::error::IpamError;
use crate::limits::{ATTEMPTS_MAX, RELEASES_MAX};
use crate::store::{Change, Ipam, Stored};

impl Ipam<'_> {
    /// Gives addresses back. Tells those that nobody had. If one has come to somebody else since,
    /// those of its block stay taken.
    pub async fn release(&self, releases: &[Release]) -> Result<Vec<IpAddr>, IpamError> {
        let known: Vec<IpNet> = self
            .blocks()
            .await?
            .into_iter()
            .map(|(cidr, _)| cidr)
            .collect();
        let mut by_block: BTreeMap<IpNet, Vec<Release>> = BTreeMap::new();
        let mut not_taken = Vec::new();
        for release in releases {
            match known.iter().find(|cidr| cidr.contains(&release.address)) {
                Some(cidr) => by_block.entry(*cidr).or_default().push(release.clone()),
                None => not_taken.push(release.address),
            }
        }
        for (cidr, releases) in by_block {
            not_taken.extend(self.release_from(cidr, &releases).await?);
        }
        Ok(not_taken)
    }

    /// Gives back all addresses of a handle; tells which they were.
    pub async fn release_handle(&self, id: &str) -> Result<Vec<IpAddr>, IpamError> {
        let Some(handle) = self.handle(id).await? else {
            return Ok(Vec::new());
        };
        let mut released = Vec::new();
        for cidr in handle.value.block.keys() {
            let taken = match self.block(*cidr).await? {
                Some(block) => block.value.of_handle(id),
                None => Vec::new(),
            };
            let releases: Vec<Release> = taken
                .iter()
                .map(|given| Release {
                    address: given.address,
                    handle: Some(id.to_owned()),
                    sequence: Some(given.sequence),
                })
                .collect();
            self.release_from(*cidr, &releases).await?;
            released.extend(taken.iter().map(|given| given.address));
        }
        Ok(released)
    }

    /// Gives addresses of one block back, and counts them off their handles.
    pub(crate) async fn release_from(
        &self,
        cidr: IpNet,
        releases: &[Release],
    ) -> Result<Vec<IpAddr>, IpamError> {
        let cool_down_s = self.config().await?.ip_cooldown_seconds;
        let mut not_taken = Vec::new();
        for releases in releases.chunks(RELEASES_MAX) {
            not_taken.extend(self.release_some(cidr, releases, cool_down_s).await?);
        }
        Ok(not_taken)
    }

    /// The same of no more addresses than one transaction can hold the handles of. A block that is
    /// nobody's goes with its last address.
    async fn release_some(
        &self,
        cidr: IpNet,
        releases: &[Release],
        cool_down_s: u32,
    ) -> Result<Vec<IpAddr>, IpamError> {
        let key = IpamKey::Block(cidr);
        for _ in 0..ATTEMPTS_MAX {
            let Some(Stored {
                mut value,
                revision,
            }) = self.block(cidr).await?
            else {
                return Ok(releases.iter().map(|release| release.address).collect());
            };
            let released = value
                .release(releases, self.now(), cool_down_s)
                .map_err(IpamError::Changed)?;
            if released.not_taken.len() == releases.len() {
                return Ok(released.not_taken);
            }
            let gone = value.is_empty() && value.owner().is_none();
            value.count_write();
            let mut changes = vec![Change {
                key: key.clone(),
                was: revision,
                value: (!gone).then(|| value.value().encode()),
            }];
            for (id, count) in &released.by_handle {
                let handle = self.handle(id).await?;
                let less = |held: u32| held.saturating_sub(*count);
                if handle.is_some() {
                    changes.push(Change::of_handle(id, handle, cidr, less));
                }
            }
            if self.write(changes).await? {
                return Ok(released.not_taken);
            }
        }
        Err(IpamError::Contended(key.to_string()))
    }

    /// Takes a block from its owner: an empty one goes, one with addresses in use is nobody's
    /// until the last of them is given back. With `sequence`, an empty block only, and only if it
    /// has not been written since.
    pub async fn release_affinity(
        &self,
        owner: &AffinityOwner,
        cidr: IpNet,
        sequence: Option<u64>,
    ) -> Result<(), IpamError> {
        let affinity = IpamKey::Affinity {
            owner: owner.clone(),
            block: cidr,
        };
        for _ in 0..ATTEMPTS_MAX {
            let Some(found) = self.affinity(&affinity).await? else {
                return Ok(());
            };
            let mut changes = vec![Change {
                key: affinity.clone(),
                was: found.revision,
                value: None,
            }];
            let block = self.block(cidr).await?;
            // Never theirs, or not any more: only the affinity goes.
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
            if self.write(changes).await? {
                return Ok(());
            }
        }
        Err(IpamError::Contended(affinity.to_string()))
    }

    /// Takes all blocks from a host, and forgets it.
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

    /// Takes all blocks of a range from their owners.
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
