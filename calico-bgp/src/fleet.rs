//! The registered route reflectors of the fabric, and the drained nodes.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use calico_model::{
    ClusterClaim, DrainReport, DrainRequest, FabricKey, FabricValueError, ReflectorState,
    Registration,
};

use crate::view::set;

/// The known reflectors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    registered: BTreeMap<String, Registration>,
    /// The last registrations of reflectors whose lease has expired. An expired lease means that
    /// the reflector and the datastore could not communicate, not that the reflector is down:
    /// sessions show that. These reflectors count until [`Fleet::forget`] is called.
    absent: BTreeMap<String, Registration>,
    claims: BTreeMap<Ipv4Addr, String>,
    /// The nodes and reflectors to drain, each with the time of the request.
    drains: BTreeMap<String, String>,
    /// The node whose report of a drain is kept.
    own: String,
    /// The stored report of the own node, if it is valid.
    drain_report: Option<DrainReport>,
}

impl Fleet {
    /// Creates an empty fleet that keeps the drain report of this node only.
    pub(crate) fn of(node: &str) -> Self {
        Self {
            own: node.to_owned(),
            ..Self::default()
        }
    }

    /// Applies a key's new value or its deletion; returns whether anything changes.
    ///
    /// # Errors
    /// The value is invalid; the last valid one stays in effect.
    pub(crate) fn take(
        &mut self,
        key: FabricKey,
        value: Option<&[u8]>,
    ) -> Result<bool, FabricValueError> {
        Ok(match (key, value) {
            (FabricKey::Reflector(name), Some(value)) => {
                let mut value = Registration::parse(value)?;
                value.clients = 0; // For operators; no choice depends on it.
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
            (FabricKey::Drain(name), Some(value)) => {
                // A request is effective whatever its value is.
                let since = DrainRequest::parse(value).map(|request| request.since);
                set(&mut self.drains, &name, Some(since.unwrap_or_default()))
            }
            (FabricKey::Drain(name), None) => self.drains.remove(&name).is_some(),
            (FabricKey::DrainReport(name), value) => {
                // Each node can write its report, so a report is neither a change nor a fault.
                if name == self.own {
                    self.drain_report = value.and_then(|value| DrainReport::parse(value).ok());
                }
                false
            }
        })
    }

    /// Returns the reflectors that are not registered but still count.
    pub fn absent(&self) -> impl Iterator<Item = (&str, &Registration)> {
        let absent = self.absent.iter();
        absent.map(|(name, last)| (name.as_str(), last))
    }

    /// Returns whether any reflector is registered now.
    pub fn is_registered(&self) -> bool {
        !self.registered.is_empty()
    }

    /// Removes a reflector that is not registered. Returns whether anything changes.
    pub fn forget(&mut self, name: &str) -> bool {
        self.absent.remove(name).is_some()
    }

    /// Returns all reflectors that count, by name.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Registration)> {
        let all = self.registered.iter().chain(&self.absent);
        all.map(|(name, registration)| (name.as_str(), registration))
    }

    /// Returns the reflectors that clients may choose: those that are not drained, or otherwise
    /// the drained ones, for a client that is `alone`, without other peers.
    pub(crate) fn eligible(&self, alone: bool) -> Vec<(&str, &Registration)> {
        let of = |state| {
            let all = self.all();
            all.filter(move |(_, registration)| registration.state == state)
                .collect::<Vec<_>>()
        };
        let active = of(ReflectorState::Active);
        match active.is_empty() && alone {
            true => of(ReflectorState::Draining),
            false => active,
        }
    }

    /// Returns whether a host is a known reflector, running or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all().any(|(known, _)| known == name) || self.claims.values().any(|of| of == name)
    }

    /// Returns the cluster IDs that a reflector has claimed.
    pub(crate) fn claims_of(&self, name: &str) -> impl Iterator<Item = Ipv4Addr> {
        let claims = self.claims.iter().filter(move |(_, of)| *of == name);
        claims.map(|(id, _)| *id)
    }

    /// Returns whether a drain of this node or reflector is requested.
    pub(crate) fn drains(&self, name: &str) -> bool {
        self.drains.contains_key(name)
    }

    /// Returns the time of the request to drain this node, if there is one.
    pub(crate) fn drain_since(&self, name: &str) -> Option<&str> {
        self.drains.get(name).map(String::as_str)
    }

    /// Returns the stored report of the own node, if it is valid.
    pub const fn drain_report(&self) -> Option<&DrainReport> {
        self.drain_report.as_ref()
    }
}
