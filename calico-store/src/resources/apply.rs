//! Creates or replaces several resources: all or none.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::Bytes;
use calico_model::{Kind, ResourceKey, encode_over, encode_strict};
use serde_json::Value;

use super::{
    Item, Planned, ResourceError, Resources, complete, item, key_of, merged, rules, up_to_date,
    version_in, without_history,
};
use crate::error::Error;
use crate::kv::{KeyRange, Query, Revision};
use crate::limits::{APPLY_OCTETS_MAX, APPLY_OPERATIONS_MAX, REPLACE_ATTEMPTS_MAX};
use crate::txn::{Compare, CompareWith, Comparison, Op, OpReply, Put, Txn};

/// The effect of a write on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It did not exist.
    Created,
    /// It was replaced by another value.
    Configured,
    /// It had this value already; nothing was written.
    Unchanged,
}

impl Effect {
    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }
}

/// A resource that was applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The stored resource.
    pub item: Item,
    /// The change in the datastore.
    pub effect: Effect,
}

/// The result for one of several resources.
#[derive(Debug)]
pub enum Outcome {
    /// It is stored.
    Applied(Applied),
    /// It cannot be stored, for this reason.
    Refused(ResourceError),
    /// It may be stored or not, because the store did not answer.
    Unknown(ResourceError),
    /// It was not written because another resource was refused.
    NotWritten,
}

/// A write that is prepared.
struct Plan {
    key: ResourceKey,
    octets: Bytes,
    /// The revision of the stored value; zero if there is none.
    was: Revision,
    effect: Effect,
}

impl Plan {
    fn is_write(&self) -> bool {
        self.effect != Effect::Unchanged
    }

    /// Returns about how long it is in a request.
    fn octets(&self) -> usize {
        // The key is in a comparison, too; and some for their frames.
        2 * self.key.to_string().len() + self.octets.len() + 64
    }

    fn applied(&self, revision: Revision) -> Result<Applied, ResourceError> {
        let revision = match self.effect {
            Effect::Unchanged => self.was,
            Effect::Created | Effect::Configured => revision,
        };
        Ok(Applied {
            item: item(self.key.clone(), &self.octets, revision)?,
            effect: self.effect,
        })
    }
}

impl Resources {
    /// Creates or replaces a resource.
    pub async fn apply(&self, resource: Value) -> Result<Applied, ResourceError> {
        let key = key_of(&resource);
        let resources = std::slice::from_ref(&resource);
        match self.apply_and_prepare(resources, false).await.pop() {
            Some(Outcome::Applied(applied)) => Ok(applied),
            Some(Outcome::Refused(error) | Outcome::Unknown(error)) => Err(error),
            Some(Outcome::NotWritten) | None => Err(ResourceError::Contended(key?)),
        }
    }

    /// Creates or replaces resources in one transaction, and returns the outcome of each. If one is
    /// refused, none is written. Before the first write the datastore is initialized, see
    /// [`Self::initialize`].
    ///
    /// More than a transaction can hold, [`APPLY_OPERATIONS_MAX`] changes or [`APPLY_OCTETS_MAX`],
    /// are written by several, in their order. If one of these fails, the outcomes have what was
    /// written before.
    pub async fn apply_all(&self, resources: &[Value]) -> Vec<Outcome> {
        self.apply_and_prepare(resources, true).await
    }

    /// Applies resources. Whether the datastore is initialized also for other kinds than nodes is
    /// `prepares`.
    async fn apply_and_prepare(&self, resources: &[Value], prepares: bool) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut attempts = 0;
        while outcomes.len() < resources.len() {
            let rest = resources.get(outcomes.len()..).unwrap_or_default();
            let plans = match self.plans(rest).await {
                Ok(plans) => plans,
                Err(refused) => {
                    outcomes.extend(refused);
                    break;
                }
            };
            if let Err((at, error)) = self.prepare(&plans, prepares).await {
                outcomes.extend(refused_at(at, error, plans.len()));
                break;
            }
            let done = self.write_plans(&plans, &mut outcomes).await;
            attempts += 1;
            match done {
                Ok(()) => {}
                // Another client has written one of them: look again.
                Err(failure) if failure.is_conflict() && attempts < REPLACE_ATTEMPTS_MAX => {}
                Err(failure) => {
                    let written = plans.len() - (resources.len() - outcomes.len());
                    outcomes.extend(failure.outcomes(&plans, written));
                }
            }
        }
        outcomes
    }

    /// Prepares the writes of resources. Returns the outcomes if one is refused.
    async fn plans(&self, resources: &[Value]) -> Result<Vec<Plan>, Vec<Outcome>> {
        let planned = Planned::new(resources);
        let mut plans = Vec::new();
        let mut keys = BTreeSet::new();
        let mut refused = BTreeMap::new();
        for (at, resource) in resources.iter().enumerate() {
            let plan = match self.plan(resource, &planned).await {
                Ok(plan) if keys.insert(plan.key.clone()) => Ok(plan),
                Ok(plan) => {
                    let reason = "another resource has the same kind and name";
                    Err(ResourceError::refused(&plan.key, reason))
                }
                Err(error) => Err(error),
            };
            match plan {
                Ok(plan) => plans.push(plan),
                // Others would not be answered either.
                Err(error @ ResourceError::Store(_)) => {
                    return Err(refused_at(at, error, resources.len()));
                }
                Err(error) => drop(refused.insert(at, error)),
            }
        }
        if refused.is_empty() {
            return Ok(plans);
        }
        let outcome = |at| match refused.remove(&at) {
            Some(error) => Outcome::Refused(error),
            None => Outcome::NotWritten,
        };
        Err((0..resources.len()).map(outcome).collect())
    }

    async fn plan(&self, resource: &Value, planned: &Planned) -> Result<Plan, ResourceError> {
        let given = version_in(resource);
        let resource = without_history(resource.clone());
        let key = key_of(&resource)?;
        rules::to_write(&key)?;
        let Some((key, found)) = self.find(&key).await? else {
            let (key, value) = encode_strict(resource)?;
            rules::to_create(self, &key, &value, planned).await?;
            return Ok(Plan {
                octets: complete(value, &Value::Null).to_string().into(),
                key,
                was: Revision::ZERO,
                effect: Effect::Created,
            });
        };
        up_to_date(&key, given.as_deref(), found.mod_revision)?;
        // An unparsable value is overwritten.
        let stored = serde_json::from_slice(&found.value).unwrap_or_default();
        let (_, value) = encode_over(resource, &stored)?;
        rules::to_replace(&key, &stored, &value)?;
        let value = merged(value, &stored);
        let (octets, effect) = match value == stored {
            true => (found.value, Effect::Unchanged),
            false => (value.to_string().into(), Effect::Configured),
        };
        Ok(Plan {
            key,
            octets,
            was: found.mod_revision,
            effect,
        })
    }

    /// Initializes the datastore before its first write. A user without permission for that may
    /// still write resources, except the first node.
    async fn prepare(&self, plans: &[Plan], prepares: bool) -> Result<(), (usize, ResourceError)> {
        let is_new_node =
            |plan: &Plan| plan.key.kind() == Kind::Node && plan.effect == Effect::Created;
        let node = plans.iter().position(is_new_node);
        let is_first_write = prepares && plans.iter().any(Plan::is_write);
        if node.is_none() && !is_first_write {
            return Ok(());
        }
        match (self.initialize().await, node) {
            (Err(error), Some(node)) => Err((node, error)),
            _ => Ok(()),
        }
    }

    /// Writes plans, and adds their outcomes.
    async fn write_plans(
        &self,
        plans: &[Plan],
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Failure> {
        for part in transactions(plans) {
            let plans = plans.get(part.clone()).unwrap_or_default();
            let written = self.write_part(plans).await;
            let revision = written.map_err(|(within, error)| Failure {
                at: part.start + within,
                part,
                error,
            })?;
            outcomes.extend(plans.iter().map(|plan| match plan.applied(revision) {
                Ok(applied) => Outcome::Applied(applied),
                Err(error) => Outcome::Refused(error),
            }));
        }
        Ok(())
    }

    /// Writes plans in one transaction.
    async fn write_part(&self, plans: &[Plan]) -> Result<Revision, (usize, Error)> {
        let mut txn = Txn::default();
        for plan in plans.iter().filter(|plan| plan.is_write()) {
            let key = Bytes::from(plan.key.to_string());
            let range = KeyRange::key(key.clone());
            txn.compares.push(Compare {
                range: range.clone(),
                comparison: Comparison::Equal,
                with: CompareWith::ModRevision(plan.was),
            });
            txn.then.push(Op::Put(Put::new(key, plan.octets.clone())));
            let mut query = Query::new(range);
            query.keys_only = true;
            txn.otherwise.push(Op::Range(query));
        }
        if txn.then.is_empty() {
            return Ok(Revision::ZERO);
        }
        let reply = self.store.txn(txn).await.map_err(|error| (0, error))?;
        if reply.succeeded {
            return Ok(reply.header.revision);
        }
        let is_changed = |(plan, reply): (&Plan, &OpReply)| match reply {
            OpReply::Range(listing) => {
                let found = listing.items.first();
                found.map_or(Revision::ZERO, |found| found.mod_revision) != plan.was
            }
            _ => false,
        };
        let writes = plans.iter().enumerate().filter(|(_, plan)| plan.is_write());
        let changed = writes
            .zip(&reply.replies)
            .find(|((_, plan), reply)| is_changed((plan, reply)));
        let at = changed.map_or(0, |((at, _), _)| at);
        Err((at, Error::Conflict { current: None }))
    }
}

/// A transaction that failed.
struct Failure {
    /// The plans in it.
    part: Range<usize>,
    /// The plan to which the error belongs.
    at: usize,
    error: Error,
}

impl Failure {
    const fn is_conflict(&self) -> bool {
        matches!(self.error, Error::Conflict { .. })
    }

    /// Returns the outcomes of the plans behind the first so many, which are written.
    fn outcomes(self, plans: &[Plan], written: usize) -> Vec<Outcome> {
        let rest = plans.iter().enumerate().skip(written);
        rest.map(|(at, plan)| {
            let is_changed = self.part.contains(&at) && plan.is_write();
            match &self.error {
                Error::Conflict { .. } if at == self.at => {
                    Outcome::Refused(ResourceError::Contended(plan.key.clone()))
                }
                // The transaction may have been carried out.
                Error::Unavailable(_) if is_changed => Outcome::Unknown(self.error.clone().into()),
                Error::Unavailable(_) | Error::Conflict { .. } => Outcome::NotWritten,
                error if is_changed => Outcome::Refused(error.clone().into()),
                _ => Outcome::NotWritten,
            }
        })
        .collect()
    }
}

/// Divides plans into parts that fit a transaction.
fn transactions(plans: &[Plan]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut operations, mut octets) = (0, 0, 0);
    for (at, plan) in plans.iter().enumerate() {
        if !plan.is_write() {
            continue;
        }
        let length = plan.octets();
        let is_full = operations == APPLY_OPERATIONS_MAX || octets + length > APPLY_OCTETS_MAX;
        if is_full && operations > 0 {
            parts.push(start..at);
            (start, operations, octets) = (at, 0, 0);
        }
        operations += 1;
        octets += length;
    }
    parts.push(start..plans.len());
    parts
}

/// Returns the outcomes of so many resources if the one at a position is refused.
fn refused_at(at: usize, error: ResourceError, count: usize) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = (0..count).map(|_| Outcome::NotWritten).collect();
    if let Some(outcome) = outcomes.get_mut(at) {
        *outcome = Outcome::Refused(error);
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(octets: usize, effect: Effect) -> Plan {
        Plan {
            key: ResourceKey::new(Kind::Tier, None, "t").expect("a key"),
            octets: vec![b' '; octets].into(),
            was: Revision::ZERO,
            effect,
        }
    }

    /// Returns the first plan of each transaction, and that behind it.
    fn parts(plans: &[Plan]) -> Vec<(usize, usize)> {
        let parts = transactions(plans).into_iter();
        parts.map(|part| (part.start, part.end)).collect()
    }

    #[test]
    fn writes_are_divided_by_number_and_length() {
        let small = || plan(10, Effect::Created);
        let all: Vec<Plan> = (0..APPLY_OPERATIONS_MAX).map(|_| small()).collect();
        assert_eq!(parts(&all), [(0, APPLY_OPERATIONS_MAX)]);
        let more: Vec<Plan> = all.into_iter().chain([small()]).collect();
        assert_eq!(
            parts(&more),
            [
                (0, APPLY_OPERATIONS_MAX),
                (APPLY_OPERATIONS_MAX, APPLY_OPERATIONS_MAX + 1)
            ]
        );
        let large = || plan(APPLY_OCTETS_MAX / 2, Effect::Configured);
        assert_eq!(parts(&[large(), large()]), [(0, 1), (1, 2)]);
        assert_eq!(
            parts(&[large(), plan(APPLY_OCTETS_MAX, Effect::Unchanged)]),
            [(0, 2)],
            "nothing is written for it"
        );
        let huge = plan(2 * APPLY_OCTETS_MAX, Effect::Created);
        assert_eq!(parts(&[huge]), [(0, 1)]);
    }
}
