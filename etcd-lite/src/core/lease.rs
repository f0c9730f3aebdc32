//! Leases: keys that exist only as long as their lease is renewed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use super::Core;
use crate::limits::{LEASE_TTL_MAX_S, LEASES_MAX};
use calico_store::Error;
use calico_store::{Lease, LeaseId, LeaseState};

/// All leases, and their attached keys.
#[derive(Debug, Default)]
pub(super) struct Leases {
    by_id: BTreeMap<LeaseId, Held>,
    /// Expiry of each lease, soonest first.
    ends: BTreeSet<(Duration, LeaseId)>,
    last_id: i64,
}

#[derive(Debug)]
pub(super) struct Held {
    ttl_s: i64,
    ends: Duration,
    keys: BTreeSet<Bytes>,
}

impl Leases {
    /// Returns no leases. Ids are counted from a start that depends on the cluster ID, so that an
    /// id of an earlier store is not mistaken for one of this store.
    pub(super) fn new(cluster: u64) -> Self {
        Self {
            last_id: i64::try_from(cluster >> 8).unwrap_or_default(),
            ..Self::default()
        }
    }

    pub(super) fn contains(&self, id: LeaseId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn attach(&mut self, id: LeaseId, key: &Bytes) {
        if let Some(held) = self.by_id.get_mut(&id) {
            held.keys.insert(key.clone());
        }
    }

    pub(super) fn detach(&mut self, id: LeaseId, key: &Bytes) {
        if let Some(held) = self.by_id.get_mut(&id) {
            held.keys.remove(key);
        }
    }

    fn unused_id(&mut self) -> LeaseId {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            let id = LeaseId(self.last_id);
            if !self.contains(id) {
                return id;
            }
        }
    }

    /// Adds a lease that starts now.
    pub(super) fn grant(&mut self, id: LeaseId, ttl_s: i64, now: Duration) {
        let ends = now + seconds(ttl_s);
        let held = Held {
            ttl_s,
            ends,
            keys: BTreeSet::new(),
        };
        self.by_id.insert(id, held);
        self.ends.insert((ends, id));
    }

    /// Adds a lease of an earlier run: new ids follow it.
    pub(super) fn take_over(&mut self, id: LeaseId, ttl_s: i64) {
        self.last_id = self.last_id.max(id.0);
        self.grant(id, ttl_s, Duration::ZERO);
    }

    /// Renews all of them for their full times to live.
    pub(super) fn renew_all(&mut self, now: Duration) {
        self.ends.clear();
        for (id, held) in &mut self.by_id {
            held.ends = now + seconds(held.ttl_s);
            self.ends.insert((held.ends, *id));
        }
    }

    /// Returns every lease with its granted time in seconds.
    pub(super) fn granted(&self) -> impl Iterator<Item = (LeaseId, i64)> {
        self.by_id.iter().map(|(id, held)| (*id, held.ttl_s))
    }

    pub(super) fn remove(&mut self, id: LeaseId) -> Option<Held> {
        let held = self.by_id.remove(&id)?;
        self.ends.remove(&(held.ends, id));
        Some(held)
    }
}

impl Core {
    /// Grants a lease. If the id is 0, one is chosen.
    pub fn lease_grant(&mut self, now: Duration, id: LeaseId, ttl_s: i64) -> Result<Lease, Error> {
        self.answering()?;
        if id.0 < 0 {
            return Err(Error::BadRequest("the id of a lease is negative".into()));
        }
        if !(1..=LEASE_TTL_MAX_S).contains(&ttl_s) {
            return Err(Error::BadRequest(
                "the time to live of a lease is out of range".into(),
            ));
        }
        if self.leases.contains(id) {
            return Err(Error::LeaseExists(id));
        }
        if self.is_full || self.leases.by_id.len() >= LEASES_MAX {
            return Err(Error::NoSpace);
        }
        let id = if id == LeaseId::NONE {
            self.leases.unused_id()
        } else {
            id
        };
        self.leases.grant(id, ttl_s, now);
        self.note_grant(id, ttl_s);
        Ok(Lease { id, ttl_s })
    }

    /// Renews a lease for its full time to live; returns that time in seconds.
    pub fn lease_keep_alive(&mut self, now: Duration, id: LeaseId) -> Result<i64, Error> {
        self.answering()?;
        let held = self.leases.by_id.get_mut(&id).ok_or(Error::NoLease(id))?;
        self.leases.ends.remove(&(held.ends, id));
        held.ends = now + seconds(held.ttl_s);
        self.leases.ends.insert((held.ends, id));
        Ok(held.ttl_s)
    }

    /// Revokes a lease, which deletes its attached keys.
    pub fn lease_revoke(&mut self, id: LeaseId) -> Result<(), Error> {
        self.answering()?;
        let held = self.leases.remove(id).ok_or(Error::NoLease(id))?;
        self.note_end(id);
        self.delete_keys(held.keys);
        Ok(())
    }

    /// Returns the state of a lease.
    pub fn lease_state(&self, now: Duration, id: LeaseId) -> Result<LeaseState, Error> {
        self.answering()?;
        let held = self.leases.by_id.get(&id).ok_or(Error::NoLease(id))?;
        Ok(LeaseState {
            remaining_s: held
                .ends
                .saturating_sub(now)
                .as_secs()
                .try_into()
                .unwrap_or(i64::MAX),
            granted_s: held.ttl_s,
            keys: held.keys.iter().cloned().collect(),
        })
    }

    /// Returns the ids of all leases.
    pub fn leases(&self) -> Vec<LeaseId> {
        self.leases.by_id.keys().copied().collect()
    }

    /// Returns when the next lease expires.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.leases.ends.first().map(|(ends, _)| *ends)
    }

    /// Revokes every expired lease.
    pub fn expire(&mut self, now: Duration) {
        while let Some(&(ends, id)) = self.leases.ends.first()
            && ends <= now
        {
            self.leases.ends.pop_first();
            if let Some(held) = self.leases.by_id.remove(&id) {
                self.note_end(id);
                self.delete_keys(held.keys);
            }
        }
    }
}

fn seconds(ttl_s: i64) -> Duration {
    Duration::from_secs(ttl_s.unsigned_abs())
}
