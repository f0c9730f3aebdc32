//! Deletions that follow from lists: they show only that an object is missing, not that a user has
//! deleted it.

use std::collections::BTreeSet;

use calico_model::{Kind, ResourceKey};
use calico_store::Status;

use super::Controller;
use crate::guard::Held;
use crate::kinds::Watched;
use crate::limits::{LOSSES_MAX, LOSSES_PERCENT_MAX};
use crate::nodes::{is_stale, node_of};
use crate::objects::Completeness;
use crate::target::Target;

impl Controller {
    /// Compares new lists with the datastore once that is in sync.
    pub(super) fn look_at_lists(&mut self) {
        if self.status == Status::InSync {
            // The record of a service without slices belongs to the service.
            let is_complete = self.objects.completeness(Watched::Service) != Completeness::Unknown;
            let is_due = |watched: &Watched| *watched != Watched::EndpointSlice || is_complete;
            let lists = std::mem::take(&mut self.new_lists);
            let (due, later) = lists.into_iter().partition::<BTreeSet<_>, _>(is_due);
            self.new_lists = later;
            for watched in due {
                self.look_at_losses(watched);
            }
        }
    }

    /// Compares a list with the datastore: many missing objects, and missing objects of a kind that was
    /// never recorded, hold deletions until the server is confirmed.
    fn look_at_losses(&mut self, watched: Watched) {
        let (mut all, mut missing) = (0, 0);
        for key in self.stored.keys() {
            if let Some(is_missing) = self.is_lost(key, watched) {
                all += 1;
                missing += usize::from(is_missing);
            }
        }
        if missing > 0 && !self.guard.has_recorded(watched) {
            self.guard.raise(Held::Unconfirmed);
        } else if missing > LOSSES_MAX.max(all * LOSSES_PERCENT_MAX / 100) {
            self.guard.raise(Held::Losses {
                watched,
                missing,
                all,
            });
        }
    }

    /// Returns whether a resource of a kind has no object, without an event or an operator that shows
    /// its deletion; `None` for resources of other kinds.
    fn is_lost(&self, key: &Target, watched: Watched) -> Option<bool> {
        let kind = key.resource().map(ResourceKey::kind);
        if watched == Watched::Node && kind == Some(Kind::Node) {
            let found = self.stored.get(key)?;
            let is_own = !node_of(found).is_empty();
            let is_missing = is_stale(found, &self.objects);
            return is_own.then_some(is_missing && !self.collection.proven.contains(key));
        }
        let is_owned = Watched::owner_of(key) == Some(watched);
        let is_missing = !self.has_object(key) && !self.proven.contains(key);
        is_owned.then_some(is_missing)
    }

    /// Returns whether each kind was listed, or has a reason why not. Before, a confirmation waits.
    pub(super) fn are_lists_tried(&self) -> bool {
        let is_tried = |watched: &Watched| {
            self.objects.completeness(*watched) != Completeness::Unknown
                || self.failures.contains_key(watched)
        };
        Watched::ALL.iter().all(is_tried)
    }

    /// Records that the deletion of all resources without an object is wanted by an operator.
    pub(super) fn prove_losses(&mut self) {
        let is_missing = |key: &&Target| {
            Watched::owner_of(key).is_some_and(|watched| {
                self.objects.completeness(watched) == Completeness::Complete
                    && !self.has_object(key)
            })
        };
        let missing: BTreeSet<_> = self.stored.keys().filter(is_missing).cloned().collect();
        self.proven.extend(missing);
        if self.objects.completeness(Watched::Node) == Completeness::Complete {
            let is_lost = |key: &Target| self.is_lost(key, Watched::Node) == Some(true);
            let nodes = self.stored.of_kind(Kind::Node).cloned();
            let lost: Vec<_> = nodes.map(Target::Resource).filter(is_lost).collect();
            self.collection.proven.extend(lost);
        }
    }

    /// Returns the resources that may be deleted now: their kind has no failure, and its watch is open.
    pub(super) fn deletable(&self) -> impl Iterator<Item = &Target> {
        let is_followed = |key: &&Target| {
            let watched = match key.resource().map(ResourceKey::kind) {
                Some(Kind::HostEndpoint) => Some(Watched::Node),
                _ => Watched::owner_of(key),
            };
            watched.is_some_and(|watched| {
                self.followed.contains(&watched) && !self.failures.contains_key(&watched)
            })
        };
        self.unwanted.iter().filter(is_followed)
    }
}
