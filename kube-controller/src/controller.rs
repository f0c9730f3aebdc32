//! The controller: readers of the API server, a follower of the datastore, and the writes between
//! them. One task owns everything.

mod balanced;
mod collection;
mod configured;
mod leading;
mod losses;
mod news;
mod reports;
mod requests;
mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use calico_model::{Kind, NodeSpec, Resource};
use calico_store::{
    Change as StoreChange, Follower, Revision, Status, Store, Update, follow_ready,
};
use daemon_common::daemon::chance;
use daemon_common::events::{Datastore, Text, emit_datastore};
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::felix::Changed;
use crate::guard::{Guard, Held};
use crate::kinds::Watched;
use crate::lease::{Election, LeaseName};
use crate::limits::{
    BATCHES_BEFORE_DELETIONS, COMPARISONS_PER_STEP, INCOMPLETE_REPORT, NEWS_QUEUED_MAX,
    WRITE_RETRY_MIN, WRITES_PER_BATCH,
};
use crate::objects::{Completeness, Objects, Touched};
use crate::plan::{Change, tier_keys};
use crate::reader::{News, Reader};
use crate::rivals::Rivals;
use crate::routes::Routes;
use crate::settings::{Ignored, Settings, Variables};
use crate::stored::{Part, Stored};
use crate::target::Target;
use crate::unchecked::Unchecked;
use crate::write::{Job, Writer};
use balanced::Balancers;
use collection::{Collection, Step};
use kube_client::{Access, Failure};
use leading::{Pending, elect};
use requests::Done;

/// The namespace that identifies a server.
const IDENTITY: &str = "kube-system";

/// The numbers of writes since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Resources that were created or changed.
    pub written: u64,
    /// Resources that were deleted.
    pub deleted: u64,
}

/// The controller.
pub struct Controller {
    pub(crate) objects: Objects,
    pub(crate) guard: Guard,
    pub(crate) counts: Counts,
    pub(crate) follower: Follower,
    pub(crate) status: Status,
    /// The failure of the last request, by kind.
    pub(crate) failures: BTreeMap<Watched, Failure>,
    /// The resources that cannot be written, with the reasons.
    pub(crate) faults: BTreeMap<Target, String>,
    /// The resources to compare.
    pub(crate) unchecked: Unchecked,
    /// The resources to delete once that is allowed.
    pub(crate) unwanted: BTreeSet<Target>,
    /// The resources that another server would replace.
    pub(crate) withheld: BTreeSet<Target>,
    /// The resources without an object. An event or an operator has shown that they are unwanted.
    pub(crate) proven: BTreeSet<Target>,
    /// The kinds with an open watch.
    pub(crate) followed: BTreeSet<Watched>,
    /// The kinds with a list that was not compared with the datastore.
    new_lists: BTreeSet<Watched>,
    /// Why they are not deleted, as it was reported last.
    pub(crate) held: Option<Held>,
    pub(crate) stored: Stored,
    pub(crate) routes: Routes,
    /// Whether to look for routes that are left out, and not before when.
    is_beyond_due: bool,
    beyond_at: Instant,
    pub(crate) balancers: Balancers,
    writer: Writer,
    access: Access,
    /// The election of the replica that writes, if there are several.
    election: Option<Election>,
    /// Whether this replica leads, as it was reported last.
    is_leading: Option<bool>,
    pub(crate) pending: Pending,
    /// Why this replica could not ask for the lease, as it was reported last.
    lease_failure: Option<Failure>,
    pub(crate) collection: Collection,
    pub(crate) settings: Settings,
    variables: Variables,
    /// The settings without an effect.
    pub(crate) ignored: Vec<Ignored>,
    rivals: Rivals,
    news: mpsc::Receiver<News>,
    _readers: Vec<Reader>,
    /// The one request that runs.
    running: Option<BoxFuture<'static, Done>>,
    /// No request starts before, after a failure.
    retry_at: Instant,
    retry_delay: Duration,
    /// Faults are tried again then.
    faults_at: Option<Instant>,
    /// The resources that had another value at their last write.
    conflicts: BTreeSet<Target>,
    /// Why the server was not verified before deletions.
    pub(crate) verification: Option<Failure>,
    /// No verification starts before, after a failure.
    verify_at: Instant,
    verify_delay: Duration,
    /// Batches of writes since deletions were tried.
    batches: u32,
    /// When missing namespaces are reported; `None` after that.
    incomplete_at: Option<Instant>,
    /// Whether the datastore was read again since the present write began.
    is_reread: bool,
}

/// The options of a controller.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The lease of the replicas; `None`: there is one.
    pub lease: Option<LeaseName>,
    /// The variables of the environment.
    pub variables: Variables,
}

/// An input of the controller.
pub struct Input(Source);

enum Source {
    News(Box<News>),
    Updates(Vec<Update>),
    Done(Done),
    Balanced(balanced::Done),
    Time,
    /// The part of this replica may have changed.
    Lead,
    Collection(Step),
}

impl Controller {
    /// Starts to read the API server and the datastore. With a lease, only its holder writes. Must be
    /// called within a tokio runtime.
    pub fn start(store: Arc<dyn Store>, access: Access, options: Options) -> Self {
        let (election, lead) = elect(&access, options.lease);
        let (sender, news) = mpsc::channel(NEWS_QUEUED_MAX);
        let start = |watched| Reader::start(watched, access.clone(), sender.clone());
        Self {
            objects: Objects::default(),
            guard: Guard::default(),
            counts: Counts::default(),
            follower: follow_ready(Arc::clone(&store), Stored::ranges(), chance(), None),
            status: Status::Syncing,
            failures: BTreeMap::new(),
            faults: BTreeMap::new(),
            unchecked: Unchecked::default(),
            unwanted: BTreeSet::new(),
            withheld: BTreeSet::new(),
            proven: BTreeSet::new(),
            followed: BTreeSet::new(),
            new_lists: BTreeSet::new(),
            held: Some(Held::Incomplete),
            stored: Stored::default(),
            routes: Routes::default(),
            is_beyond_due: false,
            beyond_at: Instant::now(),
            balancers: Balancers::default(),
            writer: Writer::new(store, lead),
            election,
            is_leading: None,
            pending: Pending::default(),
            lease_failure: None,
            collection: Collection::default(),
            settings: Settings::read(None, &options.variables).settings,
            variables: options.variables,
            ignored: Vec::new(),
            rivals: Rivals::default(),
            _readers: Watched::ALL.into_iter().map(start).collect(),
            access,
            news,
            running: None,
            retry_at: Instant::now(),
            retry_delay: WRITE_RETRY_MIN,
            faults_at: None,
            conflicts: BTreeSet::new(),
            verification: None,
            verify_at: Instant::now(),
            verify_delay: WRITE_RETRY_MIN,
            batches: 0,
            incomplete_at: Some(Instant::now() + INCOMPLETE_REPORT),
            is_reread: false,
        }
    }

    /// Waits for the next input. Cancellation loses nothing.
    pub async fn wait(&mut self) -> Input {
        let now = Instant::now();
        let ahead = |at: &Instant| *at > now;
        let retries = [self.retry_at, self.verify_at].into_iter().filter(ahead);
        let others = [self.faults_at, self.incomplete_at].into_iter().flatten();
        let balancers = self.balancers.retry_at().filter(|at| *at > now);
        let pending = self.pending.report_at();
        let beyond = self.is_beyond_due.then_some(self.beyond_at).filter(ahead);
        let until = retries.chain(others).chain(balancers);
        let until = until.chain(pending).chain(beyond).min();
        let source = tokio::select! {
            Some(news) = self.news.recv() => Source::News(Box::new(news)),
            updates = self.follower.next() => Source::Updates(updates),
            done = finished(&mut self.running) => Source::Done(done),
            done = self.balancers.finished() => Source::Balanced(done),
            () = at(until) => Source::Time,
            () = self.writer.lead.changed() => Source::Lead,
            step = self.collection.next() => Source::Collection(step),
        };
        Input(source)
    }

    /// Applies an input.
    pub fn handle(&mut self, input: Input) {
        match input.0 {
            Source::News(news) => self.take_news(*news),
            Source::Updates(updates) => updates.into_iter().for_each(|one| self.take_update(one)),
            Source::Done(done) => {
                self.running = None;
                self.finish(done);
            }
            Source::Balanced(done) => self.finish_balancing(done),
            Source::Time => {
                if self.faults_at.is_some_and(|at| at <= Instant::now()) {
                    self.faults_at = None;
                    self.unchecked.extend(self.faults.keys().cloned());
                }
                self.report_incomplete();
                self.report_idle_leader();
            }
            Source::Lead => {}
            Source::Collection(step) => self.collect(step),
        }
    }

    /// Compares some resources, and starts the next request. Returns whether more can be done now.
    pub fn step(&mut self) -> bool {
        let leads = self.look_at_lead();
        if leads {
            self.start_balancing();
        }
        if self.running.is_some() || self.status != Status::InSync {
            return false;
        }
        if self.retry_at > Instant::now() {
            return false;
        }
        // Nothing is written before the server is identified.
        if self.guard.uid().is_none() {
            self.report_held();
            return false;
        }
        if self.guard.may_replace() {
            self.unchecked.extend(std::mem::take(&mut self.withheld));
        }
        self.compute_routes();
        if !leads {
            return self.follow();
        }
        if self.batches >= BATCHES_BEFORE_DELETIONS && !self.unwanted.is_empty() {
            self.batches = 0;
            self.report_held();
            self.confirm_or_delete();
            if self.running.is_some() {
                return false;
            }
        }
        let jobs = self.compare();
        if !jobs.is_empty() {
            self.batches += 1;
            let record = self.new_record().filter(|_| self.guard.record().is_some());
            self.write(jobs, record);
            return false;
        }
        if !self.unchecked.is_empty() {
            return true;
        }
        self.batches = 0;
        let is_released = self.report_held();
        self.confirm_or_delete();
        is_released
    }

    /// Returns the numbers of writes.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns why nothing is deleted, if that is so.
    pub const fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// Returns the objects of the API server.
    pub const fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the content of the datastore.
    pub const fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Returns the routes of services.
    pub const fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns the failure of the last request for a kind.
    pub fn failure(&self, watched: Watched) -> Option<&Failure> {
        self.failures.get(&watched)
    }

    /// Returns whether everything is read, compared and written.
    pub fn is_settled(&self) -> bool {
        let is_known =
            |watched: &Watched| self.objects.completeness(*watched) != Completeness::Unknown;
        self.status == Status::InSync
            && Watched::ALL.iter().all(is_known)
            && self.unchecked.is_empty()
            && !self.routes.is_due()
            && (self.is_leading == Some(false) || self.is_written())
            && self.running.is_none()
            && self.guard.record().is_some()
    }

    /// Returns whether the leader has nothing left to do.
    fn is_written(&self) -> bool {
        self.balancers.is_idle() && self.unwanted.is_empty() && self.withheld.is_empty()
    }

    /// Reads the UID of the server from its namespaces, if they have changed and are complete.
    fn look_at_identity(&mut self, watched: Watched) {
        if watched == Watched::Namespace
            && self.objects.completeness(watched) == Completeness::Complete
        {
            let namespace = self.objects.namespace(IDENTITY);
            let uid = namespace.map(|namespace| namespace.uid.clone());
            let uid = uid.filter(|uid| !uid.is_empty());
            self.guard.set_uid(uid.as_deref());
        }
    }

    fn touch(&mut self, watched: Watched, touched: Touched) {
        if watched == Watched::ClusterNetworkPolicy && !touched.keys.is_empty() {
            self.check_tiers();
        }
        self.unchecked.extend(touched.keys);
        for pod in &touched.pods {
            self.unchecked.extend(self.stored.endpoints(pod).cloned());
            self.routes.touch_pod(pod);
        }
        for service in touched.services {
            self.touch_service(service);
        }
        if touched.nodes {
            self.check_kinds(&[Kind::Node, Kind::WorkloadEndpoint]);
            self.routes.touch_all();
        }
    }

    /// Compares the tiers. A refused one waits for its next attempt.
    fn check_tiers(&mut self) {
        let faults = &self.faults;
        let tiers = tier_keys().map(Target::Resource);
        let tiers = tiers.filter(|key| !faults.contains_key(key));
        self.unchecked.extend(tiers);
    }

    fn check_kinds(&mut self, kinds: &[Kind]) {
        let of_kind = |key: &&Target| {
            let key = key.resource();
            key.is_some_and(|key| kinds.contains(&key.kind()))
        };
        self.unchecked
            .extend(self.stored.keys().filter(of_kind).cloned());
    }

    fn take_update(&mut self, update: Update) {
        match update {
            Update::Change(change) => self.take_change(change),
            Update::Status(status) => {
                let is_synced = status == Status::InSync && self.status != Status::InSync;
                if status != Status::InSync {
                    self.stored.forget_own();
                    self.is_reread = true;
                }
                self.status = status;
                let revision = self.follower.revision();
                emit_datastore(&Datastore {
                    status: status.name(),
                    is_available: status.is_available(),
                    revision: revision.and_then(|revision| u64::try_from(revision.0).ok()),
                    snapshot_age_s: None,
                    reason: status.unready().map(Text::new),
                });
                if is_synced {
                    self.unchecked.extend(self.stored.keys().cloned());
                    self.unchecked.extend(self.objects.keys().cloned());
                    self.check_tiers();
                    self.balance_all();
                    self.look_at_lists();
                }
            }
        }
    }

    fn take_change(&mut self, change: StoreChange) {
        let references = |stored: &Stored, key: &Target| {
            let found = stored.get(key)?;
            let node = Resource::<NodeSpec>::parse(&found.octets).ok()?;
            Some(node.spec.orch_refs)
        };
        let key = match &change {
            StoreChange::Put(item) => &item.key,
            StoreChange::Delete(key) => key,
        };
        let target = Target::parse(&String::from_utf8_lossy(key));
        let is_node = |target: &Target| {
            let key = target.resource();
            key.is_some_and(|key| key.kind() == Kind::Node)
        };
        let node = target.filter(is_node);
        let before = node.as_ref().and_then(|key| references(&self.stored, key));
        match self.stored.apply(change) {
            Part::Target(key) => self.take_target(key),
            Part::Pools => self.balance_all(),
            Part::Reports(Changed::Pod(pod)) => self.routes.touch_pod(&pod),
            Part::Reports(Changed::Settings) => self.routes.touch_all(),
            Part::Reports(Changed::Nothing) => {}
            Part::Record => self.take_record(),
            Part::Confirmation | Part::Other => {}
        }
        if let Some(node) = node
            && references(&self.stored, &node) != before
        {
            self.check_kinds(&[Kind::WorkloadEndpoint]);
        }
    }

    fn take_record(&mut self) {
        let record = self.stored.record().map(|value| value.octets.clone());
        self.guard.set_record(record.as_deref());
    }

    /// Compares resources with the datastore, and returns those to write.
    fn compare(&mut self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for _ in 0..COMPARISONS_PER_STEP {
            if jobs.len() >= WRITES_PER_BATCH {
                break;
            }
            let Some(key) = self.unchecked.pop_first() else {
                break;
            };
            self.compare_one(key, &mut jobs);
        }
        jobs
    }

    fn compare_one(&mut self, key: Target, jobs: &mut Vec<Job>) {
        self.unwanted.remove(&key);
        self.withheld.remove(&key);
        let was_pending = self.pending.remove(&key);
        let is_proven = self.proven.remove(&key);
        match self.plan(&key) {
            Ok(Change::Nothing) => {
                self.rivals.forget(&key);
                if was_pending {
                    self.pending.progress();
                }
                self.faults.remove(&key);
            }
            Ok(Change::Put { was, .. }) if was != Revision::ZERO && !self.guard.may_replace() => {
                self.withheld.insert(key);
            }
            Ok(Change::Put { octets, was }) => {
                self.look_at_rivals(&key);
                jobs.push(Job {
                    key,
                    octets: Some(octets),
                    was,
                });
            }
            Ok(Change::Delete { .. }) => {
                if is_proven {
                    self.proven.insert(key.clone());
                }
                self.unwanted.insert(key);
            }
            Err(reason) => self.fault(key, reason),
        }
    }

    /// Returns the record to store, if it differs from the stored one.
    fn new_record(&self) -> Option<Bytes> {
        let next = self.guard.next_record()?;
        if self.guard.record() == Some(&next) {
            return None;
        }
        let octets = serde_json::to_vec(&next).unwrap_or_default();
        Some(octets.into())
    }
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").finish_non_exhaustive()
    }
}

/// Waits for a request, if one runs.
async fn finished(running: &mut Option<BoxFuture<'static, Done>>) -> Done {
    match running {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Waits until an instant, or forever.
async fn at(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
