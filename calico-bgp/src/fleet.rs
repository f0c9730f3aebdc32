//! What the store says of the fabric's own reflectors.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use calico_model::{ClusterClaim, FabricKey, FabricValueError, ReflectorState, Registration};

use crate::view::set;

/// The reflectors that there are, as far as is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    registered: BTreeMap<String, Registration>,
    /// The last words of those whose registration is gone. A lease that ran out says that the store
    /// and the reflector have not heard of each other, not that the reflector is gone: whether it
    /// is, sessions tell. They count until somebody has looked ([`Fleet::forget`]).
    absent: BTreeMap<String, Registration>,
    claims: BTreeMap<Ipv4Addr, String>,
    drains: BTreeSet<String>,
}

impl Fleet {
    /// Takes note of a key's new value, or that it is gone; returns whether that changes anything.
    ///
    /// # Errors
    /// The value does not read as what it should be; the last good one stays.
    pub(crate) fn take(
        &mut self,
        key: FabricKey,
        value: Option<&[u8]>,
    ) -> Result<bool, FabricValueError> {
        Ok(match (key, value) {
            (FabricKey::Reflector(name), Some(value)) => {
                let mut value = Registration::parse(value)?;
                value.clients = 0; // For operators; nobody's choice depends on it.
                self.absent.remove(&name).is_some() | set(&mut self.registered, &name, Some(value))
            }
            (FabricKey::Reflector(name), None) => match self.registered.remove(&name) {
                Some(last) => self.absent.insert(name, last).is_none(),
                None => false,
            },
            (FabricKey::Cluster(id), Some(value)) => {
                let owner = ClusterClaim::parse(value)?.reflector;
                self.claims.insert(id, owner.clone()) != Some(owner)
            }
            (FabricKey::Cluster(id), None) => self.claims.remove(&id).is_some(),
            (FabricKey::Drain(name), Some(_)) => self.drains.insert(name),
            (FabricKey::Drain(name), None) => self.drains.remove(&name),
        })
    }

    /// The reflectors whose registration is gone and who still count.
    pub fn absent(&self) -> impl Iterator<Item = (&str, &Registration)> {
        let absent = self.absent.iter();
        absent.map(|(name, last)| (name.as_str(), last))
    }

    /// Whether reflectors are registered now.
    pub fn is_registered(&self) -> bool {
        !self.registered.is_empty()
    }

    /// One whose registration is gone counts no more. Returns whether that changes anything.
    pub fn forget(&mut self, name: &str) -> bool {
        self.absent.remove(name).is_some()
    }

    /// All that count, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Registration)> {
        let all = self.registered.iter().chain(&self.absent);
        all.map(|(name, said)| (name.as_str(), said))
    }

    /// Those that clients may choose: the ones that stay, or if there are none those about to go,
    /// for whoever has nobody else.
    pub(crate) fn eligible(&self, alone: bool) -> Vec<(&str, &Registration)> {
        let of = |state| {
            let all = self.all();
            all.filter(move |(_, said)| said.state == state)
                .collect::<Vec<_>>()
        };
        let active = of(ReflectorState::Active);
        match active.is_empty() && alone {
            true => of(ReflectorState::Draining),
            false => active,
        }
    }

    /// Whether a host is one of them, there or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all().any(|(known, _)| known == name) || self.claims.values().any(|of| of == name)
    }

    /// The cluster ids that a reflector has claimed.
    pub(crate) fn claims_of(&self, name: &str) -> impl Iterator<Item = Ipv4Addr> {
        let claims = self.claims.iter().filter(move |(_, of)| *of == name);
        claims.map(|(id, _)| *id)
    }

    /// Whether somebody wants a reflector drained.
    pub(crate) fn drains(&self, name: &str) -> bool {
        self.drains.contains(name)
    }
}
