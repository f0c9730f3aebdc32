//! The datastore as the source of the configuration.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bgp_io::Speaker;
use bgp_io::bgp_fsm::Instant;
use calico_bgp::{Derived, Fault, Host, View, Wish};
use calico_model::DrainReport;
use calico_store::{EtcdOptions, EtcdStore, Follower, KeyRange, Status, Update, follow_ready};
use daemon_common::events::{self, Datastore, Event, Text};
use daemon_common::report::StoreFigures;

use crate::node_drain::report::ReportTask;
use crate::registration::RegistrationTask;
use crate::resources::Resources;
use crate::secrets::Keeper;
use crate::transition::Transition;
use crate::{Config, Settings};

/// The known content of the datastore, and the watches that keep it current.
pub(crate) struct Source {
    store: Arc<EtcdStore>,
    follower: Follower,
    resources: Resources,
    /// The passwords that resources refer to, if there is a directory for them.
    secrets: Option<Keeper>,
    /// Age of the snapshot that is in use, at the start.
    snapshot_age_s: Option<u64>,
    /// The faults of the resources as last logged.
    faults: BTreeSet<Fault>,
    /// A reflector's registration.
    registration: Option<RegistrationTask>,
    /// The report of a drained node.
    drain_report: Option<ReportTask>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("host", self.resources.host())
            .field("status", &self.resources.status())
            .finish_non_exhaustive()
    }
}

impl Source {
    /// Begins to watch the datastore that a file names. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// The options cannot work, or the datastore requires a user and is unreachable.
    pub(crate) async fn open<S: Settings>(
        config: &Config<S>,
        (options, host): (&EtcdOptions, &Host),
        seed: u64,
    ) -> Result<Self, calico_store::Error> {
        let store = Arc::new(EtcdStore::connect(options).await?);
        let ranges = View::prefixes(&host.name).into_iter().map(KeyRange::prefix);
        let reflects = host.reflects;
        Ok(Self {
            registration: reflects.then(|| RegistrationTask::new(host, store.clone())),
            drain_report: (!reflects).then(|| ReportTask::new(&host.name, store.clone())),
            follower: follow_ready(store.clone(), ranges, seed, config.snapshot()),
            store,
            resources: Resources::new(host.clone()),
            secrets: config.secrets().map(Keeper::new),
            snapshot_age_s: None,
            faults: BTreeSet::new(),
        })
    }

    /// Returns the connection to the datastore.
    pub(crate) const fn store(&self) -> &Arc<EtcdStore> {
        &self.store
    }

    /// Waits for updates of the datastore or of the passwords. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Vec<Update> {
        loop {
            let answered = async {
                match &mut self.registration {
                    Some(registration) => registration.next().await,
                    None => std::future::pending().await,
                }
            };
            let reported = async {
                match &mut self.drain_report {
                    Some(report) => report.next().await,
                    None => std::future::pending().await,
                }
            };
            let read = async {
                match &mut self.secrets {
                    Some(secrets) => secrets.next().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                updates = self.follower.next() => return updates,
                () = answered => {}
                () = reported => {}
                changed = read => {
                    if changed {
                        self.resources.touch();
                    }
                    return Vec::new();
                }
            }
        }
    }

    /// Processes updates, and returns the configuration to apply if it may have changed.
    pub(crate) fn take(
        &mut self,
        updates: Vec<Update>,
        transition: &Transition,
    ) -> Option<Derived> {
        for update in updates {
            if self.resources.take(update) {
                self.status_changed();
            }
        }
        let view = self.resources.view();
        if let Some(report) = &mut self.drain_report {
            report.see(view.fleet().drain_report());
        }
        if let (true, Some(secrets)) = (self.resources.has_changed(), &mut self.secrets) {
            secrets.want(self.resources.view().secrets());
        }
        self.derive(transition)
    }

    /// Checks whether reflectors without a registration still run, and returns the configuration to
    /// apply if it has changed.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        speaker: &Speaker,
        transition: &Transition,
    ) -> Option<Derived> {
        self.resources.look(now, speaker);
        self.derive(transition)
    }

    /// Returns when to [`look`](Self::look) again.
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.resources.poll_timeout()
    }

    /// Registers a reflector that listens.
    pub(crate) fn register(&mut self, wish: Wish) {
        if let Some(registration) = &mut self.registration {
            registration.registrar.want(wish);
        }
    }

    /// Stores the report of a drained node, or removes it.
    pub(crate) fn report_drain(&mut self, report: Option<DrainReport>) {
        if let Some(task) = &mut self.drain_report {
            task.want(report);
        }
    }

    /// Returns the configuration to apply, if it may have changed. New passwords are read first:
    /// without them sessions would end.
    fn derive(&mut self, transition: &Transition) -> Option<Derived> {
        let secrets = self.secrets.as_ref();
        if !self.resources.is_due() || !secrets.is_none_or(Keeper::is_settled) {
            return None;
        }
        let passwords = secrets.map(Keeper::passwords).unwrap_or_default();
        let derived = self.resources.derive(&passwords, transition);
        self.emit_faults();
        let Some(derived) = derived else {
            tracing::debug!("configuration as before");
            return None;
        };
        if let (None, Some(wish), Some(registration)) =
            (&derived.intent, &derived.wish, &mut self.registration)
        {
            registration.registrar.claim(wish.clone()); // There is no speaker without a cluster id.
        }
        Some(derived)
    }

    /// Returns what is waited for, if the view is incomplete.
    pub(crate) fn waiting(&self) -> Option<String> {
        match self.resources.status() {
            Status::Syncing => Some("a full read of the store".to_owned()),
            Status::Unready(why) if !self.resources.has_whole() => {
                Some(format!("the store is not ready: {why}"))
            }
            _ => None,
        }
    }

    /// Returns the operator's notes.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> + '_ {
        const STAYS: &str = "the last configuration stays in effect";
        let lost = match self.resources.status() {
            Status::Lost => Some(format!("the store is away: {STAYS}")),
            Status::Unready(why) if self.resources.has_whole() => {
                Some(format!("the store is not ready, {why}: {STAYS}"))
            }
            Status::Snapshot { age_s } => Some(format!(
                "the store is away: a snapshot of {age_s} s before the start is in effect"
            )),
            Status::Syncing | Status::InSync | Status::Unready(_) => None,
        };
        let unreported = self.drain_report.iter().filter_map(ReportTask::trouble);
        let registration = self.registration.iter();
        let trouble = registration.filter_map(|registration| registration.registrar.trouble());
        lost.into_iter()
            .chain(self.follower.troubles())
            .chain(trouble.map(|trouble| format!("not registered as reflector: {trouble}")))
            .chain(unreported.map(|trouble| format!("report of the drain not stored: {trouble}")))
            .chain(self.faults.iter().map(Fault::to_string))
    }

    /// Returns the source of a neighbor's configuration, for people.
    pub(crate) fn origin(&self, address: IpAddr) -> String {
        let derived = self.resources.derived();
        let origin = derived.and_then(|derived| derived.origins.get(&address));
        // Only peers that the fabric had chosen are kept.
        let kept = "an earlier configuration: kept until the other peers have sent its routes";
        origin.cloned().unwrap_or_else(|| kept.to_owned())
    }

    /// Returns how current the view is, in numbers.
    pub(crate) fn figures(&self) -> StoreFigures {
        let registration = self.registration.as_ref();
        let status = self.resources.status();
        StoreFigures {
            in_sync: status == Status::InSync,
            away: status == Status::Lost,
            unready: matches!(status, Status::Unready(_)),
            snapshot_age_s: self.snapshot_age_s,
            revision: self.follower.revision().map(|revision| revision.0),
            answered_s: self.follower.last_answer().map(|ago| ago.as_secs()),
            bad_values: self.resources.view().faults().count() as u64,
            registered: registration.map(|RegistrationTask { registrar, .. }| {
                registrar.registered().is_some() && registrar.trouble().is_none()
            }),
        }
    }

    /// Returns the revision of the view.
    pub(crate) fn revision(&self) -> Option<u64> {
        self.follower.revision()?.0.try_into().ok()
    }

    /// Emits the status of the store.
    fn status_changed(&mut self) {
        let status = self.resources.status();
        let revision = self.revision();
        events::emit_datastore(&Datastore {
            status: status.name(),
            is_available: status.is_available(),
            revision,
            snapshot_age_s: status.snapshot_age_s(),
            reason: status.unready().map(Text::new),
        });
        self.snapshot_age_s = match status {
            Status::Snapshot { age_s } => Some(age_s),
            Status::InSync => None,
            _ => self.snapshot_age_s,
        };
    }

    /// Emits new faults and resolved faults.
    fn emit_faults(&mut self) {
        let mut now: BTreeSet<Fault> = self.resources.faults().iter().cloned().collect();
        now.extend(self.secrets.iter().flat_map(Keeper::faults));
        for fault in now.difference(&self.faults) {
            events::emit(Event::DatastoreFault {
                key: Text::new(&fault.key),
                field: Text::new(&fault.field),
                reason: Text::new(&fault.reason),
            });
        }
        for fault in self.faults.difference(&now) {
            events::emit(Event::DatastoreFaultResolved {
                key: Text::new(&fault.key),
                field: Text::new(&fault.field),
            });
        }
        self.faults = now;
    }
}

#[cfg(test)]
mod tests {
    use calico_bgp::validation::OriginIndex;
    use calico_model::Kind;
    use calico_store::roles::{EtcdRole, Owner, Part};

    use super::*;

    #[test]
    fn roles_of_etcd_have_the_ranges_of_the_mirror() {
        let owner = Owner {
            node: "h1".to_owned(),
            ..Owner::default()
        };
        // The mirror adds the ClusterInformation.
        let prefixes = View::prefixes("h1").into_iter();
        let prefixes = prefixes.chain([Kind::ClusterInformation.prefix()]);
        let prefixes = prefixes.chain(OriginIndex::prefixes_of_nodes());
        let prefixes = prefixes.chain(OriginIndex::prefixes_of_workloads());
        let read: BTreeSet<_> = prefixes.map(KeyRange::prefix).collect();
        for part in [Part::BgpClient, Part::RouteReflector] {
            let role = EtcdRole::new(part, &owner);
            let granted: BTreeSet<_> = role.read_ranges().cloned().collect();
            assert_eq!(granted, read, "{part}");
        }
    }
}
