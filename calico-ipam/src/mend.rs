//! Repairs findings that have not changed.

use calico_model::{AffinityOwner, AffinityState, BlockAffinity, IpamKey, Kind};
use calico_store::{Compare, CompareWith, Comparison, KeyRange, Revision};
use ipnet::IpNet;

use crate::block::{Given, Release};
use crate::collect::Finding;
use crate::error::IpamError;
use crate::read::just;
use crate::store::{Change, Ipam};
use crate::stored::Stored;

impl Ipam<'_> {
    /// Repairs a finding. Returns whether it did: an object that was written after the finding is
    /// left unchanged.
    pub async fn mend(&self, finding: &Finding) -> Result<bool, IpamError> {
        match finding {
            Finding::Leak { given, handle, .. } => self.release_leak(given, handle.clone()).await,
            Finding::Cooled { block, written } => self.forget_cooled(*block, *written).await,
            Finding::Surplus {
                owner,
                block,
                sequence,
            } => match self.release_affinity(owner, *block, Some(*sequence)).await {
                Ok(()) => Ok(true),
                Err(IpamError::InUse(_)) => Ok(false),
                Err(error) => Err(error),
            },
            Finding::Orphan { host, block } => {
                let owner = AffinityOwner::Host(host.clone());
                self.take_back(&owner, *block, None, &[gone(host)]).await
            }
            Finding::Host(host) => self.forget_host(host).await,
            Finding::Unfounded {
                owner,
                block,
                written,
                block_written,
            } => {
                let change = affinity(owner, *block, *written, None);
                let unchanged = at(&IpamKey::Block(*block), *block_written);
                self.write_if(vec![change], &[unchanged]).await
            }
            Finding::Unconfirmed {
                owner,
                block,
                written,
                block_written,
            } => {
                let confirmed = BlockAffinity::new(AffinityState::Confirmed);
                let change = affinity(owner, *block, *written, Some(&confirmed));
                let unchanged = at(&IpamKey::Block(*block), *block_written);
                self.write_if(vec![change], &[unchanged]).await
            }
            Finding::Idle { handle, written } => {
                let change = Change {
                    key: IpamKey::Handle(handle.clone()),
                    was: *written,
                    value: None,
                };
                self.write(vec![change]).await
            }
            Finding::Miscount {
                handle,
                block,
                holds,
                written,
                block_written,
            } => {
                let unchanged = at(&IpamKey::Block(*block), *block_written);
                let count = (*block, *holds);
                self.recount(handle, *written, count, unchanged).await
            }
        }
    }

    async fn release_leak(&self, given: &Given, handle: Option<String>) -> Result<bool, IpamError> {
        let release = Release {
            address: given.address,
            handle,
            sequence: Some(given.sequence),
        };
        match self.release(&[release]).await {
            Ok(not_taken) => Ok(not_taken.is_empty()),
            Err(IpamError::Changed(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes the keys of a host without a node.
    async fn forget_host(&self, host: &str) -> Result<bool, IpamError> {
        let seen = self
            .see(vec![just(&IpamKey::Host(host.to_owned()))])
            .await?;
        let changes = seen.keys().map(|(key, was)| Change {
            key,
            was,
            value: None,
        });
        let changes: Vec<Change> = changes.collect();
        Ok(!changes.is_empty() && self.write_if(changes, &[gone(host)]).await?)
    }

    /// Corrects the count of a block in a handle, if the handle has this revision.
    async fn recount(
        &self,
        handle: &str,
        written: Revision,
        (block, holds): (IpNet, u32),
        unchanged: Compare,
    ) -> Result<bool, IpamError> {
        let key = IpamKey::Handle(handle.to_owned());
        let found = self.see(vec![just(&key)]).await?.handle(handle)?;
        let revision = found.as_ref().map(|found| found.revision);
        if revision.unwrap_or_default() != written {
            return Ok(false);
        }
        let change = Change::of_handle(handle, found, block, |_| holds);
        self.write_if(vec![change], &[unchanged]).await
    }

    /// Frees the addresses that have cooled down in a block without affinity, and deletes the block
    /// if it is empty.
    async fn forget_cooled(&self, cidr: IpNet, written: Revision) -> Result<bool, IpamError> {
        let key = IpamKey::Block(cidr);
        let seen = self.see(vec![just(&key), just(&IpamKey::Config)]).await?;
        let Some(Stored {
            mut value,
            revision,
        }) = seen.block(cidr)?
        else {
            return Ok(false);
        };
        if revision != written || value.owner().is_some() {
            return Ok(false);
        }
        value.collect(self.now(), seen.config()?.ip_cooldown_seconds);
        value.count_write();
        let gone = value.is_empty();
        let change = Change {
            key,
            was: revision,
            value: (!gone).then(|| value.value().encode()),
        };
        self.write(vec![change]).await
    }
}

/// Returns the change of an affinity, of this revision, to this value; `None` deletes it.
fn affinity(
    owner: &AffinityOwner,
    block: IpNet,
    was: Revision,
    value: Option<&BlockAffinity>,
) -> Change {
    let owner = owner.clone();
    Change {
        key: IpamKey::Affinity { owner, block },
        was,
        value: value.map(BlockAffinity::encode),
    }
}

/// Returns the condition that a key has this revision.
fn at(key: &IpamKey, written: Revision) -> Compare {
    Compare {
        range: just(key),
        comparison: Comparison::Equal,
        with: CompareWith::ModRevision(written),
    }
}

/// Returns the condition that a node does not exist.
fn gone(node: &str) -> Compare {
    Compare {
        range: KeyRange::key(format!("{}{node}", Kind::Node.prefix())),
        comparison: Comparison::Equal,
        with: CompareWith::ModRevision(Revision::ZERO),
    }
}
