//! The stored pools and reservations.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_model::{IpPoolSpec, IpReservationSpec, Kind, ParseError, Resource, Spec};
use calico_store::KeyRange;
use ipnet::IpNet;

use crate::error::IpamError;
use crate::pools::{Pool, is_for_workloads};
use crate::store::Ipam;

/// Every pool and every reservation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pools {
    /// The readable pools, by name.
    pub all: Vec<NamedPool>,
    /// Unreadable pools: key and error.
    pub unreadable: Vec<(String, String)>,
    /// Ranges from which addresses are assigned only on explicit request.
    pub reserved: Vec<IpNet>,
}

/// A pool as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPool {
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: IpPoolSpec,
}

impl Pools {
    /// Returns the pools of one family for a workload on this node, in this namespace, that names
    /// no pool.
    pub fn for_workload(
        &self,
        ipv6: bool,
        node: &BTreeMap<String, String>,
        namespace: Option<&BTreeMap<String, String>>,
    ) -> Vec<Pool> {
        let specs = self.all.iter().map(|pool| &pool.spec);
        Pool::for_workload(specs, ipv6, node, namespace)
    }

    /// Returns the pool of this name, or of this range, for a workload. It must be enabled, and its
    /// allowed uses must contain workloads. As in Calico, the node selector, the namespace selector
    /// and the assignment mode of a pool do not apply when it is named.
    pub fn named(&self, word: &str) -> Result<Pool, IpamError> {
        let range: Option<IpNet> = word.parse().ok();
        let found = self
            .usable()
            .find(|(named, pool)| named.name == word || range == Some(pool.cidr));
        let (named, pool) = found.ok_or_else(|| IpamError::UnknownPool(word.to_owned()))?;
        named.workloads_allowed()?;
        Ok(pool)
    }

    /// Returns the pools from which a workload may get these specific addresses. A pool with other
    /// uses that contains one of them is an error.
    pub fn for_addresses(&self, addresses: &[IpAddr]) -> Result<Vec<Pool>, IpamError> {
        let has_one = |pool: &Pool| addresses.iter().any(|address| pool.cidr.contains(address));
        let containing = self.usable().filter(|(_, pool)| has_one(pool));
        containing
            .map(|(named, pool)| named.workloads_allowed().map(|()| pool))
            .collect()
    }

    /// Returns all enabled pools.
    pub fn enabled(&self) -> Vec<Pool> {
        self.usable().map(|(_, pool)| pool).collect()
    }

    fn usable(&self) -> impl Iterator<Item = (&NamedPool, Pool)> {
        let enabled = self.all.iter().filter(|pool| !pool.spec.disabled);
        enabled.filter_map(|pool| Some((pool, Pool::of(&pool.spec)?)))
    }
}

impl NamedPool {
    fn workloads_allowed(&self) -> Result<(), IpamError> {
        match is_for_workloads(&self.spec) {
            true => Ok(()),
            false => Err(IpamError::OtherUse {
                pool: self.name.clone(),
                uses: self.spec.allowed_uses.join(", "),
            }),
        }
    }
}

impl Ipam<'_> {
    /// Reads the stored pools and reservations. An unreadable reservation is an error, because the
    /// addresses that it reserves are unknown.
    pub async fn pools(&self) -> Result<Pools, IpamError> {
        let pools = self.resources::<IpPoolSpec>(Kind::IpPool).await?;
        let reservations = self.resources::<IpReservationSpec>(Kind::IpReservation);
        let mut found = Pools::default();
        for (key, pool) in pools {
            match pool {
                Ok(pool) => found.all.push(NamedPool {
                    name: pool.metadata.name,
                    spec: pool.spec,
                }),
                Err(error) => found.unreadable.push((key, error.to_string())),
            }
        }
        for (key, reservation) in reservations.await? {
            let spec = reservation
                .map_err(|error| IpamError::Unreadable { key, error })?
                .spec;
            let ranges = spec.reserved_cidrs.iter().map(|range| range.0.trunc());
            found.reserved.extend(ranges);
        }
        Ok(found)
    }

    async fn resources<S: Spec>(
        &self,
        kind: Kind,
    ) -> Result<Vec<(String, Result<Resource<S>, ParseError>)>, IpamError> {
        let listing = self.store.list(KeyRange::prefix(kind.prefix())).await?;
        let items = listing.items.iter().map(|item| {
            let key = String::from_utf8_lossy(&item.key).into_owned();
            (key, Resource::parse(&item.value))
        });
        Ok(items.collect())
    }
}
