//! The events that Felix reports.

use std::collections::BTreeMap;
use std::time::Duration;

use calico_model::EndpointState;
use calico_store::Status;
use daemon_common::events::{self, Datastore, Event, Text};
use daemon_common::log::Repeats;
use fib_sync::{Instant, Reconciler};

use crate::agent::{Agent, EndpointView};
use crate::calc::EndpointId;
use crate::limits::EVENT_KEYS_MAX;

/// Emits events to the log and the history. Repeated events are summarized by kind.
#[derive(Debug)]
pub(crate) struct Events {
    repeats: Repeats<Key, Event>,
    /// Events of kernel routes.
    routes: kernel_events::Log,
    /// The generation of the watches of single routes.
    watched: u64,
    /// The state of each endpoint and its problem, as last reported.
    endpoints: BTreeMap<EndpointId, (EndpointState, Option<String>)>,
    /// Transactions of the packet filter that were reported.
    transactions: u64,
    /// The revision of the datastore that is known.
    revision: Option<u64>,
    /// Changes of the packet filter by other programs that were reported.
    foreign_edits: u64,
    /// Closings of the packet filter that were reported.
    closings: u64,
    /// Why the packet filter is not the wanted one, as last reported.
    problem: Option<String>,
}

/// The identity by which repeated events are recognized.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Endpoint(EndpointId),
    OtherEndpoints,
    RulesApplied,
    RulesRepaired,
    RulesClosed,
    RulesFailed,
}

impl Events {
    pub(crate) const fn new() -> Self {
        Self {
            repeats: Repeats::new(EVENT_KEYS_MAX),
            routes: kernel_events::Log::new(),
            watched: 0,
            endpoints: BTreeMap::new(),
            transactions: 0,
            revision: None,
            foreign_edits: 0,
            closings: 0,
            problem: None,
        }
    }

    /// Reports an endpoint of which the state may have changed; `None` if it was deleted.
    pub(crate) fn endpoint(
        &mut self,
        now: Instant,
        id: &EndpointId,
        view: Option<&EndpointView<'_>>,
    ) {
        if let Some(event) = self.endpoint_changed(id, view) {
            self.emit(now, Key::Endpoint(id.clone()), event);
        }
    }

    pub(crate) fn endpoint_changed(
        &mut self,
        id: &EndpointId,
        view: Option<&EndpointView<'_>>,
    ) -> Option<Event> {
        let Some(view) = view else {
            self.endpoints.remove(id)?;
            return Some(Event::EndpointRemoved {
                endpoint: Text::new(id),
            });
        };
        let new = (view.state, view.problem());
        if self.endpoints.get(id) == Some(&new) {
            return None;
        }
        self.endpoints.insert(id.clone(), new.clone());
        let (state, problem) = new;
        let endpoint = Text::new(id);
        let interface = Text::new(&view.placement.endpoint.interface);
        Some(match state {
            EndpointState::Up => Event::EndpointUp {
                endpoint,
                interface,
                problem: problem.map(Text::new),
            },
            EndpointState::Down => Event::EndpointDown {
                endpoint,
                interface,
                reason: Text::new(problem.unwrap_or_default()),
            },
            EndpointState::Error => Event::EndpointFailed {
                endpoint,
                interface,
                reason: Text::new(problem.unwrap_or_default()),
            },
        })
    }

    /// Reports an event of the kernel's routes, before the reconciler takes it.
    pub(crate) fn kernel(
        &mut self,
        now: Instant,
        reconciler: &Reconciler,
        event: &fib_sync::Event,
    ) {
        self.routes.kernel(since_start(now), event);
        kernel_events::answered(reconciler, event);
    }

    /// Notes the revision of the datastore that is known.
    pub(crate) const fn at_revision(&mut self, revision: Option<u64>) {
        self.revision = revision;
    }

    /// Reports the transactions and foreign changes of the packet filter. `transactions`: number of
    /// those carried out.
    pub(crate) fn rules(&mut self, now: Instant, agent: &Agent, transactions: u64) {
        for (key, event) in self.rules_changed(agent, transactions) {
            self.emit(now, key, event);
        }
    }

    pub(crate) fn rules_changed(&mut self, agent: &Agent, transactions: u64) -> Vec<(Key, Event)> {
        let mut changed = Vec::new();
        let foreign_edits = agent.foreign_edits();
        if std::mem::replace(&mut self.foreign_edits, foreign_edits) != foreign_edits {
            changed.push((Key::RulesRepaired, Event::RulesRepaired {}));
        }
        let closings = agent.rules_closings();
        if std::mem::replace(&mut self.closings, closings.done) != closings.done {
            let reason = Text::new(closings.reason);
            changed.push((Key::RulesClosed, Event::RulesClosed { reason }));
        }
        if std::mem::replace(&mut self.transactions, transactions) != transactions {
            let revision = self.revision;
            let event = Event::RulesApplied {
                transactions,
                revision,
            };
            changed.push((Key::RulesApplied, event));
        }
        let problem = agent.rules_problem();
        if problem != self.problem.as_deref() {
            self.problem = problem.map(str::to_owned);
            let reason = problem.map(Text::new);
            let failed = reason.map(|reason| (Key::RulesFailed, Event::RulesFailed { reason }));
            changed.extend(failed);
        }
        changed
    }

    /// Returns when to call [`look`](Self::look) again.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let ends = [self.repeats.poll_timeout(), self.routes.poll_timeout()];
        let end = ends.into_iter().flatten().min()?;
        Some(Instant::ZERO + end)
    }

    /// Reports the summaries that are due, and registers new watches of single routes.
    pub(crate) fn look(&mut self, now: Instant) {
        if events::watched_generation() != self.watched {
            self.watched = events::take_watched().0;
        }
        self.routes.look(since_start(now));
        let due = self.repeats.due(since_start(now));
        due.iter().for_each(events::emit_summary);
    }

    /// Reports all summaries, because the daemon ends.
    pub(crate) fn finish(&mut self, now: Instant) {
        self.routes.finish(since_start(now));
        let all = self.repeats.finish(since_start(now));
        all.iter().for_each(events::emit_summary);
    }

    fn emit(&mut self, now: Instant, key: Key, event: Event) {
        let others = match &key {
            Key::Endpoint(_) => Key::OtherEndpoints,
            key => key.clone(),
        };
        let level = event.kind().level;
        let admitted = self
            .repeats
            .admit(since_start(now), key, others, level, event);
        if let Some(event) = admitted {
            events::emit(event);
        }
    }
}

fn since_start(now: Instant) -> Duration {
    now.saturating_duration_since(Instant::ZERO)
}

/// Reports the status of the datastore's picture.
pub(crate) fn datastore(status: Status, revision: Option<u64>) {
    events::emit_datastore(&Datastore {
        status: status.name(),
        is_available: status.is_available(),
        revision,
        snapshot_age_s: status.snapshot_age_s(),
        reason: status.unready().map(Text::new),
    });
}

/// Reports that a configuration is rejected, and logs the whole report.
pub(crate) fn config_rejected(report: &str) {
    events::emit(Event::ConfigRejected {
        reason: Text::new(report.lines().next().unwrap_or_default()),
    });
    tracing::error!("{report}");
}

/// Reports changed keys that require a restart.
pub(crate) fn restart_required(keys: &str) {
    events::emit(Event::ConfigRestartRequired {
        keys: Text::new(keys),
    });
}
