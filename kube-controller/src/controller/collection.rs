//! Collection: addresses of deleted pods, and Nodes that the API server has deleted, with the blocks and
//! endpoints of these.
//!
//! Two sources must agree, in each look of a grace period. In the datastore no endpoint has the address,
//! and the API server has a complete list without the pod or the Node. A look that is not possible
//! starts all grace periods again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use calico_ipam::{Collector, Finding, Inventory, Ipam, IpamError};
use calico_model::Kind;
use calico_store::{Revision, Status};
use daemon_common::events::{Event, Text, emit};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until};

use super::Controller;
use super::requests::uid_of;
use crate::kinds::Watched;
use crate::limits::{COLLECTED_PER_LOOK, LEAK_GRACE, RECONCILER_PERIOD};
use crate::nodes::{is_stale, node_of};
use crate::object::ObjectId;
use crate::objects::{Completeness, Objects};
use crate::stored::{endpoint_name, pod_of};
use crate::target::Target;
use crate::write::{Job, Writer, Written, write_all};
use kube_client::{Failure, Server};

/// The attributes of an allocation that name its pod and node.
const POD: &str = "pod";
const NAMESPACE: &str = "namespace";

/// The state of the collection.
pub(crate) struct Collection {
    collector: Collector,
    /// Since when a Node of the datastore has no Node in the API server, by its key and revision.
    stale: BTreeMap<(Target, Revision), Instant>,
    /// The Nodes of the datastore that an event of the API server or an operator has shown as deleted.
    pub(crate) proven: BTreeSet<Target>,
    next: Instant,
    period: Duration,
    /// The grace period; zero disables the collection of addresses.
    grace: Duration,
    running: Option<BoxFuture<'static, Step>>,
    /// Findings that were repaired, and Nodes and endpoints that were deleted, since the start.
    pub(crate) collected: u64,
    /// Why the last look or repair failed.
    pub(crate) failure: Option<String>,
}

/// A step of a collection.
pub(super) enum Step {
    /// A look is due.
    Due,
    /// The content of the datastore.
    Read(Box<Result<Inventory, IpamError>>),
    /// The results of repairs.
    Done {
        mended: Vec<Finding>,
        written: Vec<(Job, Written)>,
        failure: Option<String>,
    },
}

impl Default for Collection {
    fn default() -> Self {
        Self {
            collector: Collector::new(LEAK_GRACE),
            stale: BTreeMap::new(),
            proven: BTreeSet::new(),
            next: Instant::now() + RECONCILER_PERIOD,
            period: RECONCILER_PERIOD,
            grace: LEAK_GRACE,
            running: None,
            collected: 0,
            failure: None,
        }
    }
}

impl Collection {
    /// Waits for the next step. Cancellation loses nothing.
    pub(super) async fn next(&mut self) -> Step {
        let step = match &mut self.running {
            Some(running) => running.await,
            None => {
                sleep_until(self.next).await;
                self.next = Instant::now() + self.period;
                Step::Due
            }
        };
        self.running = None;
        step
    }

    /// Sets the time between two looks and the grace period. Zero as a grace period disables the
    /// collection of addresses.
    pub(crate) fn set(&mut self, period: Duration, grace: Duration) {
        if (period, grace) == (self.period, self.grace) {
            return;
        }
        (self.period, self.grace) = (period, grace);
        self.collector.set_grace(grace);
        self.next = self.next.min(Instant::now() + period);
    }

    /// Returns how many findings and Nodes wait for the end of their grace period.
    pub(crate) fn suspects(&self) -> usize {
        self.collector.suspects().count() + self.stale.len()
    }

    fn forget(&mut self) {
        self.collector.forget();
        self.stale.clear();
    }
}

impl Controller {
    /// Carries out a step of the collection.
    pub(super) fn collect(&mut self, step: Step) {
        match step {
            Step::Due if self.may_collect() => {
                let store = Arc::clone(&self.writer.store);
                self.collection.running = Some(Box::pin(async move {
                    Step::Read(Box::new(Ipam::new(&*store).inventory().await))
                }));
            }
            Step::Due => self.collection.forget(),
            Step::Read(read) => match *read {
                // The objects may have changed since the look began.
                Ok(inventory) if self.may_collect() => self.look(&inventory),
                Ok(_) => self.collection.forget(),
                Err(error) => self.not_collected(error.to_string()),
            },
            Step::Done {
                mended,
                written,
                failure,
            } => self.collected(mended, written, failure),
        }
    }

    /// Returns whether the API server can prove the absence of objects: this replica leads, nothing
    /// holds deletions, and pods and Nodes are followed.
    fn may_collect(&self) -> bool {
        let is_proof = |watched: Watched| {
            self.objects.completeness(watched) == Completeness::Complete
                && self.followed.contains(&watched)
                && !self.failures.contains_key(&watched)
        };
        self.status == Status::InSync
            && self.writer.lead.may_write()
            && self.guard.record().is_some()
            && self.guard.held(true).is_none()
            && is_proof(Watched::Pod)
            && is_proof(Watched::Node)
    }

    /// Evaluates the content of the datastore, and repairs what has passed its grace period.
    fn look(&mut self, inventory: &Inventory) {
        let now = Instant::now();
        let jobs = self.stale_jobs(now);
        let mut findings = Vec::new();
        if self.collection.grace.is_zero() {
            self.collection.collector.forget();
        } else {
            let objects = &self.objects;
            let is_proven = |finding: &Finding| match finding {
                Finding::Leak { given, .. } => {
                    let mut blocks = inventory.blocks.iter();
                    let block = blocks.find(|(cidr, _)| cidr.contains(&given.address));
                    let holder = block.and_then(|(_, block)| block.holder(given.address));
                    holder.is_some_and(|holder| is_ownerless(&holder.attributes, objects))
                }
                Finding::Orphan { host, .. } | Finding::Host(host) => !objects.has_node(host),
                _ => true,
            };
            let looked = self
                .collection
                .collector
                .look_at(now.into_std(), inventory, is_proven);
            match looked {
                Ok(found) => findings = found,
                Err(not_ready) => return self.not_collected(not_ready.to_string()),
            }
        }
        if findings.is_empty() && jobs.is_empty() {
            self.collection.failure = None;
            return;
        }
        findings.truncate(COLLECTED_PER_LOOK);
        let known = self.guard.record().map(|record| record.uid.clone());
        let (writer, server) = (self.writer.clone(), Server::new(self.access.clone()));
        let repairs = repair(writer, server, known.unwrap_or_default(), findings, jobs);
        self.collection.running = Some(Box::pin(repairs));
    }

    /// Returns the deletions of Nodes that were stale for the grace period, and of their endpoints.
    fn stale_jobs(&mut self, now: Instant) -> Vec<Job> {
        let mut before = std::mem::take(&mut self.collection.stale);
        let grace = match self.collection.grace {
            Duration::ZERO => LEAK_GRACE,
            grace => grace,
        };
        let mut jobs = Vec::new();
        for node in self.stored.of_kind(Kind::Node) {
            let key = Target::Resource(node.clone());
            let Some(found) = self.stored.get(&key) else {
                continue;
            };
            if !self.settings.node || !is_stale(found, &self.objects) {
                continue;
            }
            let id = (key.clone(), found.revision);
            let since = before.remove(&id).unwrap_or(now);
            self.collection.stale.insert(id, since);
            if now.duration_since(since) < grace || jobs.len() >= COLLECTED_PER_LOOK {
                continue;
            }
            let endpoints = self.stored.of_kind(Kind::WorkloadEndpoint);
            let endpoints = endpoints.filter(|endpoint| {
                endpoint_name(endpoint).is_some_and(|name| name.node() == node.name())
            });
            let mut left = 0;
            for endpoint in endpoints {
                match pod_of(endpoint) {
                    Some(pod) if self.objects.get(Watched::Pod, &pod).is_none() => {
                        jobs.extend(self.deletion(endpoint.clone().into()));
                    }
                    // Its pod exists: the Node stays with it.
                    _ => left += 1,
                }
            }
            if left == 0 {
                jobs.extend(self.deletion(key));
            }
        }
        jobs
    }

    fn deletion(&self, key: Target) -> Option<Job> {
        let was = self.stored.get(&key)?.revision;
        Some(Job {
            key,
            octets: None,
            was,
        })
    }

    fn not_collected(&mut self, reason: String) {
        if self.collection.failure.as_ref() != Some(&reason) {
            emit(Event::KubernetesCollectionFailed {
                reason: Text::new(&reason),
            });
        }
        self.collection.failure = Some(reason);
    }

    fn collected(
        &mut self,
        mended: Vec<Finding>,
        written: Vec<(Job, Written)>,
        failure: Option<String>,
    ) {
        for finding in &mended {
            self.collection.collected += 1;
            emit(Event::KubernetesCollected {
                finding: Text::new(finding),
            });
        }
        for (job, written) in written {
            let is_done = matches!(written, Written::Done(_));
            self.collection.collected += u64::from(is_done);
            if is_done {
                self.collection.proven.remove(&job.key);
            }
            self.finish_write(job, written);
        }
        match failure {
            Some(reason) => self.not_collected(reason),
            None => self.collection.failure = None,
        }
    }

    /// Records that the API server has sent the deletion of a Node.
    pub(super) fn prove_node(&mut self, id: &ObjectId) {
        let of = |key: &Target| {
            let found = self.stored.get(key);
            found.is_some_and(|found| node_of(found).contains(&id.name))
        };
        let nodes = self.stored.of_kind(Kind::Node).cloned();
        let keys: Vec<_> = nodes.map(Target::Resource).filter(of).collect();
        self.collection.proven.extend(keys);
    }
}

/// Returns whether the attributes of an address name a pod that the API server does not have, or an
/// address of a node that it does not have.
fn is_ownerless(attributes: &BTreeMap<String, String>, objects: &Objects) -> bool {
    let of = |name: &str| attributes.get(name).cloned();
    match (of(NAMESPACE), of(POD), of(calico_ipam::NODE)) {
        (Some(namespace), Some(name), _) => {
            let pod = ObjectId { namespace, name };
            objects.get(Watched::Pod, &pod).is_none()
        }
        (None, None, Some(node)) => !objects.has_node(&node),
        // Without a pod there is no proof.
        _ => false,
    }
}

/// Repairs findings and carries out deletions, if the server is the known one.
async fn repair(
    writer: Writer,
    mut server: Server,
    known: String,
    findings: Vec<Finding>,
    jobs: Vec<Job>,
) -> Step {
    let done = |mended, written, failure| Step::Done {
        mended,
        written,
        failure,
    };
    let path = format!("{}/{}", Watched::Namespace.path(), super::IDENTITY);
    let read = server.read(&path).await;
    match read.and_then(|value| uid_of(&value)) {
        Ok(uid) if uid == known => {}
        Ok(_) => {
            let reason = "the API server is another one".to_owned();
            return done(Vec::new(), Vec::new(), Some(reason));
        }
        Err(failure) => return done(Vec::new(), Vec::new(), Some(not_verified(&failure))),
    }
    let mut mended = Vec::new();
    let mut failure = None;
    for finding in findings {
        match Ipam::new(&*writer.store).mend(&finding).await {
            Ok(true) => mended.push(finding),
            // It has changed since the look.
            Ok(false) => {}
            Err(error) => {
                failure = Some(error.to_string());
                break;
            }
        }
    }
    let written = match jobs.is_empty() {
        true => Vec::new(),
        false => write_all(writer, jobs, None).await,
    };
    done(mended, written, failure)
}

fn not_verified(failure: &Failure) -> String {
    format!("no verification of the API server: {failure}")
}

impl std::fmt::Debug for Collection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collection").finish_non_exhaustive()
    }
}
