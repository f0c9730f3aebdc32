//! Assigns a specific address.

use std::net::IpAddr;

use calico_model::{AffinityOwner, IpamKey};
use calico_store::Revision;

use crate::assign::{around, given_changes};
use crate::block::{Given, Taker};
use crate::error::IpamError;
use crate::limits::ATTEMPTS_MAX;
use crate::pools::Pool;
use crate::read::{just, overlaps};
use crate::store::Ipam;

/// A request for a specific address.
#[derive(Debug, Clone, Copy)]
pub struct AddressRequest<'a> {
    /// The host that requests it, or the virtual owner.
    pub host: &'a str,
    /// The handle and attributes of the allocation.
    pub taker: &'a Taker,
    /// The address.
    pub address: IpAddr,
    /// The pools that may contain it.
    pub pools: &'a [Pool],
}

impl Ipam<'_> {
    /// Assigns a specific address: from the existing block that contains it, whatever the affinity
    /// of that block, or from a new block with affinity to the host. With strict affinity, only
    /// from a block with affinity to the host. A block of a virtual owner serves only this owner.
    ///
    /// Neither a reservation nor the limit of blocks per host prevents the assignment of a specific
    /// address. If the address is already allocated, the error is [`IpamError::Taken`]; if the
    /// handle in that error is the requesting one, the answer to an earlier request was lost.
    pub async fn assign_address(&self, request: &AddressRequest<'_>) -> Result<Given, IpamError> {
        let AddressRequest { host, address, .. } = *request;
        let mut pools = request.pools.iter();
        let Some(fresh) = pools.find_map(|pool| pool.block_of(address)) else {
            return Err(IpamError::NotInPool(address));
        };
        let host = self.owner(host);
        let handle = &request.taker.handle;
        let mut cidr = fresh;
        for _ in 0..ATTEMPTS_MAX {
            let mut ranges = around(cidr, handle, Some(&host));
            ranges.push(just(&IpamKey::Config));
            let seen = self.see(ranges).await?;
            let (mut block, was) = match seen.block(cidr)? {
                Some(found) => (found.value, found.revision),
                None => {
                    // A pool that was deleted and created again may have had blocks of another
                    // size.
                    if let Some(found) = self.homes(&[address]).await?.get(&address) {
                        cidr = *found;
                        continue;
                    }
                    cidr = fresh;
                    if overlaps(&self.block_ranges().await?, cidr) {
                        return Err(IpamError::InUse(cidr));
                    }
                    (self.fresh(cidr, &host)?, Revision::ZERO)
                }
            };
            let (config, owner) = (seen.config()?, block.owner());
            let is_virtual = matches!(owner, Some(AffinityOwner::Virtual(_)));
            if (config.strict_affinity || is_virtual) && owner.as_ref() != Some(&host) {
                let owner = owner.map(|owner| owner.to_string());
                return Err(IpamError::Strict { address, owner });
            }
            block.collect(self.now(), config.ip_cooldown_seconds);
            let Some(given) = block.take_address(address, request.taker) else {
                let handle = block.holder(address).and_then(|holder| holder.handle);
                return Err(IpamError::Taken { address, handle });
            };
            let own = Some(&host).filter(|_| owner.as_ref() == Some(&host));
            let changes = given_changes(&seen, block, was, handle, 1, own)?;
            if self.write(changes).await? {
                return Ok(given);
            }
        }
        Err(IpamError::Contended(IpamKey::Block(cidr).to_string()))
    }
}
