//! Registers a reflector in the datastore, so that clients find it: pure.
//!
//! A [`Registrar`] keeps one key up to date, the reflector's registration, under a lease that it
//! keeps alive, and claims a cluster id that no other reflector has. It returns the requests to the
//! datastore and receives the answers; its caller owns the clock and the connection.
//!
//! A reflector needs a cluster id before it can speak BGP, and must not be found by clients before
//! it accepts their connections: it [claims](Registrar::claim) first, and
//! [registers](Registrar::want) once it listens.
//!
//! No answer or failure of the datastore ends a session. While the datastore is unreachable the
//! registrar retries; when its lease has expired by then, it takes a new lease and registers again.
//! When its cluster id now belongs to another reflector, by a claim or because it is configured for a
//! node, the registrar claims the next candidate.

use std::net::Ipv4Addr;
use std::time::Duration;

use bgp_io::bgp_fsm::Instant;
use calico_bgp::placement::cluster_ids;
use calico_bgp::{ClusterWish, Wish};
use calico_model::{ClusterClaim, FabricKey, Registration};
use calico_store::{
    Compare, CompareWith, Comparison, Delete, Error, KeyRange, Lease, LeaseId, Op, OpReply, Put,
    Query, Revision, Txn, TxnReply,
};

use crate::limits::{
    CLUSTER_ID_TRIES_MAX, LOAD_WRITE_MIN, REGISTRY_RETRY_MAX, REGISTRY_RETRY_MIN, REREGISTER_EVERY,
};

#[cfg(test)]
mod tests;

/// A request to the datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Grant a lease of so many seconds.
    Grant(i64),
    /// Keep a lease alive.
    KeepAlive(LeaseId),
    /// Carry out a transaction.
    Txn(Txn),
}

/// A reply of the datastore.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Job::Grant`].
    Granted(Result<Lease, Error>),
    /// To [`Job::KeepAlive`].
    KeptAlive(Result<i64, Error>),
    /// To [`Job::Txn`].
    Done(Result<TxnReply, Error>),
}

/// Maintains a reflector's registration.
#[derive(Debug)]
pub struct Registrar {
    name: String,
    /// Time for which the registration stays after the last keepalive.
    ttl: Duration,
    wish: Option<Wish>,
    /// Whether the reflector listens, so that it may be registered.
    listens: bool,
    /// The cluster id that was claimed before it listened, and when.
    claimed: Option<(Ipv4Addr, Instant)>,
    lease: Option<(LeaseId, Duration)>,
    /// When the lease was last renewed.
    alive_at: Instant,
    /// The registration as stored under the lease, and since when.
    stored: Option<(Registration, Instant)>,
    /// Number of cluster IDs that turned out to belong to others.
    taken: usize,
    /// Own claim as stored, where its text differs from the text that this daemon would write.
    claim: Option<Vec<u8>>,
    under_way: Option<UnderWay>,
    /// No request is sent before.
    not_before: Instant,
    failures: u32,
    /// Why the last request failed.
    trouble: Option<String>,
}

#[derive(Debug)]
enum UnderWay {
    Grant,
    KeepAlive,
    Claim(Registration),
    Register(Registration),
}

impl Registrar {
    /// Creates a registrar without a registration. A registration stays for `ttl` after its last
    /// keepalive; the datastore may make that longer.
    pub fn new(name: impl Into<String>, ttl: Duration) -> Self {
        Self {
            name: name.into(),
            ttl,
            wish: None,
            listens: false,
            claimed: None,
            lease: None,
            alive_at: Instant(0),
            stored: None,
            taken: 0,
            claim: None,
            under_way: None,
            not_before: Instant(0),
            failures: 0,
            trouble: None,
        }
    }

    /// Claims the cluster ID of a reflector that does not listen yet. An existing registration
    /// stays.
    pub fn claim(&mut self, wish: Wish) {
        self.claimed = None;
        self.take(wish);
    }

    /// Registers a reflector that listens, with these values from now on.
    pub fn want(&mut self, wish: Wish) {
        self.listens = true;
        self.take(wish);
    }

    fn take(&mut self, wish: Wish) {
        let before = self.wish.as_ref().map(|old| &old.cluster);
        if before != Some(&wish.cluster) {
            self.taken = 0;
        }
        if matches!(before, Some(ClusterWish::Given(_)))
            && matches!(wish.cluster, ClusterWish::Own { .. })
        {
            self.stored = None; // An assigned cluster ID is not claimed yet.
        }
        self.wish = Some(wish);
    }

    /// Returns the registration that was last written, if it is known to be stored.
    pub fn registered(&self) -> Option<&Registration> {
        self.stored.as_ref().map(|(stored, _)| stored)
    }

    /// Returns why the datastore lacks the registration, if it does.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Returns the next request; `None` while a request is outstanding.
    pub fn poll(&mut self, now: Instant) -> Option<Job> {
        if self.due()? > now {
            return None;
        }
        let (under_way, job) = match self.lease {
            _ if !self.listens => {
                let registration = self.next()?;
                let txn = match self.transaction(&registration, None) {
                    Ok(txn) => txn,
                    Err(why) => return self.give_up(now, why),
                };
                (UnderWay::Claim(registration), Job::Txn(txn))
            }
            None => {
                let ttl_s = self.ttl.as_secs();
                (
                    UnderWay::Grant,
                    Job::Grant(ttl_s.try_into().unwrap_or(i64::MAX)),
                )
            }
            Some((lease, _)) if self.keep_alive_due()? <= now => {
                (UnderWay::KeepAlive, Job::KeepAlive(lease))
            }
            Some((lease, _)) => {
                let registration = self.next()?;
                let txn = match self.transaction(&registration, Some(lease)) {
                    Ok(txn) => txn,
                    Err(why) => return self.give_up(now, why),
                };
                (UnderWay::Register(registration), Job::Txn(txn))
            }
        };
        self.under_way = Some(under_way);
        Some(job)
    }

    /// Returns when to [`poll`](Self::poll) even without an event.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due()
    }

    /// Processes a reply.
    pub fn done(&mut self, now: Instant, answer: Answer) {
        let Some(under_way) = self.under_way.take() else {
            return;
        };
        let done = match (under_way, answer) {
            (UnderWay::Grant, Answer::Granted(granted)) => granted.map(|lease| {
                let ttl = Duration::from_secs(u64::try_from(lease.ttl_s).unwrap_or(1).max(1));
                self.lease = Some((lease.id, ttl));
                self.alive_at = now;
                self.stored = None;
            }),
            (UnderWay::KeepAlive, Answer::KeptAlive(kept)) => match kept {
                Ok(_) => {
                    self.alive_at = now;
                    self.failures = 0;
                    Ok(())
                }
                Err(error) => {
                    if matches!(error, Error::NoLease(_)) {
                        self.lose_lease();
                        self.failures = 0; // The datastore answers.
                    }
                    Err(error)
                }
            },
            (UnderWay::Claim(registration), Answer::Done(reply)) => reply.map(|reply| {
                if self.answered(now, &registration, &reply) {
                    self.claimed = Some((registration.cluster_id, now));
                }
            }),
            (UnderWay::Register(registration), Answer::Done(reply)) => match reply {
                Ok(reply) => {
                    if self.answered(now, &registration, &reply) {
                        self.stored = Some((registration, now));
                    }
                    Ok(())
                }
                Err(error) => {
                    if matches!(error, Error::NoLease(_)) {
                        self.lose_lease();
                    }
                    Err(error)
                }
            },
            // The caller has mixed up its replies: request again.
            _ => Ok(()),
        };
        if let Err(error) = done {
            self.failed(now, &error);
        }
    }

    fn lose_lease(&mut self) {
        self.lease = None;
        self.stored = None;
    }

    fn failed(&mut self, now: Instant, error: &Error) {
        self.trouble = Some(error.to_string());
        let wait = REGISTRY_RETRY_MIN.saturating_mul(1 << self.failures.min(16));
        self.not_before = now + wait.min(REGISTRY_RETRY_MAX);
        self.failures = self.failures.saturating_add(1);
    }

    /// Records a problem that only an operator can solve; it is retried at intervals.
    fn give_up(&mut self, now: Instant, why: String) -> Option<Job> {
        self.trouble = Some(why);
        self.not_before = now + REREGISTER_EVERY;
        self.taken = 0;
        None
    }

    fn due(&self) -> Option<Instant> {
        if self.under_way.is_some() {
            return None;
        }
        let wish = self.wish.as_ref()?;
        let at = match self.lease {
            _ if !self.listens => self.claim_due(wish)?,
            None => self.not_before,
            Some(_) => self.keep_alive_due()?.min(self.register_due(wish)),
        };
        Some(at.max(self.not_before))
    }

    /// Returns when to claim a cluster ID: at once, and at intervals in case the claim was deleted.
    fn claim_due(&self, wish: &Wish) -> Option<Instant> {
        match (&wish.cluster, self.claimed) {
            (ClusterWish::Given(_), _) => None,
            (cluster, Some((id, at))) if cluster.allows(id) => Some(at + REREGISTER_EVERY),
            _ => Some(self.not_before),
        }
    }

    fn keep_alive_due(&self) -> Option<Instant> {
        self.lease.map(|(_, ttl)| self.alive_at + ttl / 3)
    }

    /// Returns the time of the next write: at once after a relevant change, after [`LOAD_WRITE_MIN`] if
    /// only the load changed, and otherwise after [`REREGISTER_EVERY`], in case the key was deleted.
    fn register_due(&self, wish: &Wish) -> Instant {
        let Some((stored, at)) = &self.stored else {
            return self.not_before;
        };
        let current = Registration {
            cluster_id: stored.cluster_id,
            ..wish.registration.clone()
        };
        if !wish.cluster.allows(stored.cluster_id)
            || (Registration {
                clients: stored.clients,
                ..current.clone()
            }) != *stored
        {
            return self.not_before;
        }
        match current.clients == stored.clients {
            true => *at + REREGISTER_EVERY,
            false => *at + LOAD_WRITE_MIN,
        }
    }

    /// Returns the next registration, with the cluster ID to try.
    fn next(&self) -> Option<Registration> {
        let wish = self.wish.as_ref()?;
        let cluster_id = match &wish.cluster {
            ClusterWish::Given(id) => *id,
            ClusterWish::Own {
                router_id, held, ..
            } => {
                let stored = self.stored.as_ref().map(|(stored, _)| stored.cluster_id);
                let candidates = stored
                    .into_iter()
                    .chain(*held)
                    .chain(cluster_ids(&self.name, *router_id));
                let mut allowed = candidates.filter(|id| wish.cluster.allows(*id));
                allowed.nth(self.taken)?
            }
        };
        Some(Registration {
            cluster_id,
            ..wish.registration.clone()
        })
    }

    /// Returns the transaction that writes the registration if this reflector owns the cluster ID,
    /// that also claims the ID if it is free, and otherwise reads its owner. Without a lease it
    /// writes no registration. Fails when enough IDs were tried, or the value cannot be written.
    fn transaction(
        &self,
        registration: &Registration,
        lease: Option<LeaseId>,
    ) -> Result<Txn, String> {
        let key = FabricKey::Reflector(self.name.clone()).to_string();
        let value = registration.encode().map_err(|faults| {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            faults.join("; ")
        })?;
        let register = lease.map(|lease| {
            Op::Put(Put {
                lease: Some(lease),
                ..Put::new(key, value)
            })
        });
        if let Some(ClusterWish::Given(_)) = self.wish.as_ref().map(|wish| &wish.cluster) {
            return Ok(Txn {
                then: register.into_iter().collect(),
                ..Txn::default()
            });
        }
        if self.taken >= CLUSTER_ID_TRIES_MAX {
            return Err(format!(
                "{CLUSTER_ID_TRIES_MAX} cluster ids were asked for, and all are other reflectors'"
            ));
        }
        let key = FabricKey::Cluster(registration.cluster_id).to_string();
        let fresh = ClusterClaim::of(&self.name).encode();
        let ours = self.claim.clone().unwrap_or_else(|| fresh.clone());
        let mut then = vec![Op::Put(Put::new(key.clone(), fresh))];
        then.extend(register.clone());
        then.extend(self.release(&ours));
        let claim = Txn {
            compares: vec![equal(&key, CompareWith::CreateRevision(Revision::ZERO))],
            then,
            otherwise: vec![Op::Range(Query::new(KeyRange::key(key.clone())))],
        };
        Ok(Txn {
            compares: vec![equal(&key, CompareWith::Value(ours.into()))],
            then: register.into_iter().collect(),
            otherwise: vec![Op::Txn(Box::new(claim))],
        })
    }

    /// Returns the operation that deletes the claim of a cluster ID that has to be given up, if
    /// this reflector still owns it.
    fn release(&self, ours: &[u8]) -> Option<Op> {
        let cluster = &self.wish.as_ref()?.cluster;
        let ClusterWish::Own { held, .. } = cluster else {
            return None;
        };
        let held = held.filter(|held| !cluster.allows(*held))?;
        let key = FabricKey::Cluster(held).to_string();
        Some(Op::Txn(Box::new(Txn {
            compares: vec![equal(&key, CompareWith::Value(ours.to_vec().into()))],
            then: vec![Op::Delete(Delete {
                range: KeyRange::key(key),
                previous: false,
            })],
            otherwise: Vec::new(),
        })))
    }

    /// Processes the reply to a transaction; returns whether the transaction has reached its
    /// purpose.
    fn answered(&mut self, now: Instant, registration: &Registration, reply: &TxnReply) -> bool {
        let inner = match reply.replies.first() {
            Some(OpReply::Txn(inner)) if !reply.succeeded => inner,
            _ => return self.succeed(),
        };
        if inner.succeeded {
            self.claim = None;
            return self.succeed();
        }
        let found = match inner.replies.first() {
            Some(OpReply::Range(listing)) => listing.items.first(),
            _ => None,
        };
        let Some(found) = found else {
            self.not_before = now + REGISTRY_RETRY_MIN; // Just deleted, or never seen.
            return false;
        };
        match ClusterClaim::parse(&found.value) {
            Ok(claim) if claim.reflector == self.name => self.claim = Some(found.value.to_vec()),
            _ => {
                self.trouble = Some(format!(
                    "cluster id {} is another reflector's: asking for the next",
                    registration.cluster_id
                ));
                self.claim = None;
                self.stored = None;
                self.taken += 1;
            }
        }
        false
    }

    fn succeed(&mut self) -> bool {
        self.taken = 0;
        self.failures = 0;
        self.trouble = None;
        true
    }
}

fn equal(key: &str, with: CompareWith) -> Compare {
    Compare {
        range: KeyRange::key(key.to_owned()),
        comparison: Comparison::Equal,
        with,
    }
}
