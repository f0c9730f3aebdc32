//! Load balancers: one request at a time, beside the writes of the controller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use calico_ipam::{IpamError, Release};
use calico_kubernetes::Balancer;
use calico_model::ServiceName;
use calico_store::{Status, Store};
use daemon_common::events::{Event, Text, emit};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::Controller;
use super::requests::uid_of;
use crate::balancers::{Job, Settled, orphans, release, report, settle};
use crate::guard::Held;
use crate::kinds::Watched;
use crate::limits::{
    LOSSES_MAX, LOSSES_PERCENT_MAX, REMOVED_HANDLES_MAX, ROUTES_OF_NAMESPACE_MAX,
    ROUTES_OF_NODE_MAX, WRITE_RETRY_MAX, WRITE_RETRY_MIN,
};
use crate::object::{Object, ObjectId, Wanted};
use crate::objects::Completeness;
use kube_client::{Access, Failure, Server};

/// The reasons in Events of services, in one word.
const NOT_ASSIGNED: &str = "LoadBalancerAddressNotAssigned";
const NOT_CONVERTED: &str = "ServiceFieldInvalid";
const NOT_ANNOUNCED: &str = "ServiceRouteLeftOut";

/// The state of load balancers.
#[derive(Default)]
pub(crate) struct Balancers {
    /// The services to compare with their addresses.
    pending: BTreeSet<ServiceName>,
    /// Why services lack an address, as their Events have it.
    pub(crate) lacking: BTreeMap<ServiceName, String>,
    /// Why no Event was written, if the last one failed.
    pub(crate) unreported: Option<String>,
    /// The last failure of a request.
    pub(crate) failure: Option<String>,
    /// Whether addresses without a service are to be released.
    is_sweep_due: bool,
    /// The handles of services that an event has removed, and of all that are missing if an operator
    /// has confirmed that.
    removed: BTreeSet<String>,
    is_confirmed: bool,
    running: Option<BoxFuture<'static, Done>>,
    /// No request starts before, after a failure.
    retry_at: Option<Instant>,
    delay: Duration,
    /// When services that lack an address are tried again.
    lacking_at: Option<Instant>,
}

/// The result of a request.
pub(super) enum Done {
    Settled {
        service: ServiceName,
        settled: Settled,
        unreported: Option<Failure>,
    },
    /// Orphans were released, or are too many: how many of how many.
    Swept(Result<Option<(usize, usize)>, String>),
}

impl Balancers {
    /// Waits for a request, if one runs.
    pub(super) async fn finished(&mut self) -> Done {
        let done = match &mut self.running {
            Some(future) => future.await,
            None => std::future::pending().await,
        };
        self.running = None;
        done
    }

    /// Returns when to try again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at.into_iter().chain(self.lacking_at).min()
    }

    /// Returns whether nothing is left to do now.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.running.is_none()
    }

    fn wait(&mut self) {
        self.delay = (self.delay * 2).clamp(WRITE_RETRY_MIN, WRITE_RETRY_MAX);
        self.retry_at = Some(Instant::now() + self.delay);
    }
}

fn name_of(id: &ObjectId) -> ServiceName {
    ServiceName {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
    }
}

fn balancer_of(object: &Object) -> Option<&Balancer> {
    match object.wanted() {
        Some(Wanted::Service(service)) => service.balancer.as_ref(),
        _ => None,
    }
}

impl Controller {
    /// Compares all services again.
    pub(super) fn balance_all(&mut self) {
        self.balancers.pending.extend(self.objects.services());
        self.balancers.retry_at = None;
    }

    /// Compares a service again.
    pub(super) fn balance(&mut self, service: ServiceName) {
        self.balancers.pending.insert(service);
    }

    /// Notes that an event has removed a service, or that it is no longer a load balancer.
    pub(super) fn unbalance(&mut self, earlier: &Object, now: Option<&Object>) {
        let before = balancer_of(earlier);
        if let Some(before) = before.filter(|_| now.and_then(balancer_of).is_none()) {
            if self.balancers.removed.len() < REMOVED_HANDLES_MAX {
                self.balancers.removed.insert(before.handle.clone());
            }
            self.balancers.is_sweep_due = true;
        }
        if now.is_none() {
            self.balancers.lacking.remove(&name_of(&earlier.id));
        }
    }

    /// Notes that all services are known, or that an operator has confirmed those that are missing.
    pub(super) fn sweep(&mut self, is_confirmed: bool) {
        self.balancers.is_sweep_due = true;
        self.balancers.is_confirmed |= is_confirmed;
    }

    /// Starts the next request, if there is one.
    pub(super) fn start_balancing(&mut self) {
        let is_complete = |watched| self.objects.completeness(watched) == Completeness::Complete;
        let is_ready = self.status == Status::InSync
            && self.guard.may_replace()
            && is_complete(Watched::Service)
            && self.balancers.running.is_none()
            && self
                .balancers
                .retry_at
                .is_none_or(|at| at <= Instant::now());
        if !is_ready {
            return;
        }
        self.balancers.retry_at = None;
        if self
            .balancers
            .lacking_at
            .is_some_and(|at| at <= Instant::now())
        {
            self.balancers.lacking_at = None;
            let lacking = self.balancers.lacking.keys().cloned();
            self.balancers.pending.extend(lacking);
        }
        while let Some(service) = self.balancers.pending.pop_first() {
            if let Some(future) = self.settling(service) {
                self.balancers.running = Some(future);
                return;
            }
        }
        let may_release = self.guard.held(true).is_none()
            && self.followed.contains(&Watched::Service)
            && !self.failures.contains_key(&Watched::Service);
        if self.balancers.is_sweep_due && may_release {
            self.balancers.is_sweep_due = false;
            self.balancers.running = Some(self.sweeping());
        }
    }

    /// Returns the request for a service: its addresses, and an Event if it has a new fault.
    fn settling(&mut self, service: ServiceName) -> Option<BoxFuture<'static, Done>> {
        let id = ObjectId {
            namespace: service.namespace.clone(),
            name: service.name.clone(),
        };
        let object = self.objects.get(Watched::Service, &id)?;
        let fault = object.reports.first();
        let fault = fault.map(|report| format!("{}: {}", report.field, report.reason));
        let fault = fault.map(|fault| (NOT_CONVERTED, fault)).or_else(|| {
            let reason = || {
                format!(
                    "routes of this Service are left out: a node announces at most {ROUTES_OF_NODE_MAX} routes \
                     of services, and at most {ROUTES_OF_NAMESPACE_MAX} of one namespace"
                )
            };
            let is_left_out = self.routes.is_left_out(&service);
            is_left_out.then(|| (NOT_ANNOUNCED, reason()))
        });
        let balancer = balancer_of(object).filter(|balancer| !balancer.is_foreign);
        if balancer.is_none() && fault.is_none() {
            self.balancers.lacking.remove(&service);
            return None;
        }
        let known = self.balancers.lacking.get(&service).cloned();
        let uid = object.uid.clone();
        let job = balancer.map(|balancer| Job {
            service: service.clone(),
            balancer: balancer.clone(),
            may_assign: self.settings.assigns(balancer),
        });
        let (store, access) = (Arc::clone(&self.writer.store), self.access.clone());
        Some(Box::pin(async move {
            let settled = match job {
                Some(job) => settle(store, access.clone(), job).await,
                None => Settled::Done,
            };
            let (word, settled) = match (settled, fault) {
                (Settled::Done, Some((word, fault))) => (word, Settled::Lacking(fault)),
                (settled, _) => (NOT_ASSIGNED, settled),
            };
            let mut unreported = None;
            if let Settled::Lacking(reason) = &settled
                && known.as_ref() != Some(reason)
            {
                let reported = report(access, &service, &uid, word, reason).await;
                unreported = reported.err();
            }
            Done::Settled {
                service,
                settled,
                unreported,
            }
        }))
    }

    /// Returns the request that releases the addresses of services that do not exist. The server is
    /// verified right before, as for each deletion.
    fn sweeping(&self) -> BoxFuture<'static, Done> {
        let handles = self.objects.services();
        let handles = handles.filter_map(|name| {
            let service = self.objects.service(&name)?;
            Some(service.balancer.as_ref()?.handle.clone())
        });
        // An unreadable service keeps its addresses, but its handle is unknown: then none is released.
        let is_readable = self.objects.all_readable(Watched::Service);
        let handles: BTreeSet<String> = handles.collect();
        let (store, access) = (Arc::clone(&self.writer.store), self.access.clone());
        let removed = self.balancers.removed.clone();
        let is_confirmed = self.balancers.is_confirmed;
        let known = self.guard.record().map(|record| record.uid.clone());
        Box::pin(async move {
            if !is_readable {
                return Done::Swept(Ok(None));
            }
            let swept = released(store, access, handles, &removed, is_confirmed, known).await;
            Done::Swept(swept)
        })
    }

    pub(super) fn finish_balancing(&mut self, done: Done) {
        match done {
            Done::Settled {
                service,
                settled,
                unreported,
            } => {
                self.balancers.unreported = unreported.map(|failure| failure.to_string());
                self.finish_settling(service, settled);
            }
            Done::Swept(Ok(None)) => {
                self.balancers.removed.clear();
                self.balancers.is_confirmed &= self.balancers.is_sweep_due;
                // A service without an address may get one now.
                let lacking = self.balancers.lacking.keys().cloned();
                self.balancers.pending.extend(lacking);
            }
            // The confirmation has come while it ran.
            Done::Swept(Ok(Some(_))) if self.balancers.is_confirmed => {
                self.balancers.is_sweep_due = true;
            }
            Done::Swept(Ok(Some((missing, all)))) => self.guard.raise(Held::Losses {
                watched: Watched::Service,
                missing,
                all,
            }),
            Done::Swept(Err(reason)) => {
                self.balancers.failure = Some(reason);
                self.balancers.is_sweep_due = true;
                self.balancers.wait();
            }
        }
    }

    fn finish_settling(&mut self, service: ServiceName, settled: Settled) {
        match settled {
            Settled::Done => {
                self.balancers.lacking.remove(&service);
                self.balancers.failure = None;
                self.balancers.delay = Duration::ZERO;
            }
            Settled::Lacking(reason) => {
                let before = self
                    .balancers
                    .lacking
                    .insert(service.clone(), reason.clone());
                if before.as_ref() != Some(&reason) {
                    emit(Event::KubernetesWriteFailed {
                        resource: Text::new(format!("Service {service}")),
                        reason: Text::new(&reason),
                    });
                }
                let again = Instant::now() + WRITE_RETRY_MAX;
                self.balancers.lacking_at.get_or_insert(again);
            }
            Settled::Failed(reason) => {
                self.balancers.failure = Some(reason);
                self.balancers.pending.insert(service);
                self.balancers.wait();
            }
        }
    }
}

/// Releases the addresses whose services do not exist. Returns their number and that of all, if they are
/// too many without a confirmation.
async fn released(
    store: Arc<dyn Store>,
    access: Access,
    handles: BTreeSet<String>,
    removed: &BTreeSet<String>,
    is_confirmed: bool,
    known: Option<String>,
) -> Result<Option<(usize, usize)>, String> {
    let text = |error: IpamError| error.to_string();
    let all = handles.len();
    let orphans: Vec<Release> = orphans(Arc::clone(&store), handles).await.map_err(text)?;
    if orphans.is_empty() {
        return Ok(None);
    }
    let is_proven = |release: &&Release| {
        let handle = release.handle.as_ref();
        handle.is_some_and(|handle| removed.contains(handle))
    };
    let missing = orphans.len() - orphans.iter().filter(is_proven).count();
    let most = LOSSES_MAX.max((all + missing) * LOSSES_PERCENT_MAX / 100);
    if missing > most && !is_confirmed {
        return Ok(Some((missing, all + missing)));
    }
    let path = format!("{}/{}", Watched::Namespace.path(), super::IDENTITY);
    let read = Server::new(access).read(&path).await;
    let uid = read.and_then(|value| uid_of(&value));
    let uid = uid.map_err(|failure| failure.to_string())?;
    if known.as_ref() != Some(&uid) {
        return Err("the API server is not the known one".to_owned());
    }
    release(store, orphans).await.map_err(text)?;
    Ok(None)
}
