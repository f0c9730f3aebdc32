//! The answers to operators.

use calico_kubernetes::{Announced, Reason};
use daemon_common::daemon::resident_kib;
use daemon_common::events;
use daemon_common::report::{Fact, Limit, Limits, Status, StoreFigures};

use crate::config::{Config, DAEMON};
use crate::controller::Controller;
use crate::guard::CONFIRMED_KEY;
use crate::kinds::Watched;
use crate::limits::{NOTES_MAX, OBJECTS_OF_KIND_MAX, ROUTES_OF_NAMESPACE_MAX, ROUTES_OF_NODE_MAX};
use crate::objects::Completeness;

/// Returns the state in one line.
pub(crate) fn summary(controller: &Controller) -> String {
    let counts = controller.counts;
    let deletions = match &controller.held {
        None => "",
        Some(_) => ", deletions held",
    };
    let lead = match (controller.is_leading(), controller.can_lead()) {
        (true, _) => "",
        (false, true) => "not the leader, ",
        (false, false) => "writes nothing, ",
    };
    format!(
        "{lead}{} written, {} deleted{deletions}",
        counts.written, counts.deleted
    )
}

pub(crate) fn status(controller: &Controller, config: &Config) -> Status {
    let log = daemon_common::log::figures();
    let mut notes = controller.lead_notes();
    notes.extend(self::notes(controller));
    notes.extend(log.note());
    let mut facts = vec![fact("API server", config.access.authority())];
    let leadership = controller.leadership().into_iter();
    facts.extend(leadership.map(|(name, value)| fact(name, value)));
    facts.extend(Watched::ALL.map(|watched| of_kind(controller, watched)));
    facts.push(fact("addresses of services", announced(controller)));
    facts.push(fact("written", controller.counts.written.to_string()));
    facts.push(fact("deleted", controller.counts.deleted.to_string()));
    facts.push(fact("to delete", controller.unwanted.len().to_string()));
    let withheld = controller.withheld.len().to_string();
    facts.push(fact("to replace", withheld));
    facts.push(fact(
        "to collect",
        controller.collection.suspects().to_string(),
    ));
    facts.push(fact(
        "collected",
        controller.collection.collected.to_string(),
    ));
    let known = controller.guard.record().map(|record| record.uid.clone());
    facts.push(fact("known server", known.unwrap_or_default()));
    let away = !controller.status.is_available();
    Status {
        daemon: DAEMON.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        resident_kib: resident_kib(),
        ready: controller.is_settled() && controller.held.is_none() && controller.can_lead(),
        waiting_for: waiting_for(controller),
        notes,
        config: config.path.display().to_string(),
        facts,
        log: Some(log.into()),
        store: Some(Box::new(StoreFigures {
            in_sync: controller.status.name() == "in-sync",
            away: away && controller.status.unready().is_none(),
            unready: controller.status.unready().is_some(),
            revision: controller.follower.revision().map(|revision| revision.0),
            answered_s: controller.follower.last_answer().map(|ago| ago.as_secs()),
            ..StoreFigures::default()
        })),
        ..Status::default()
    }
}

fn fact(name: &str, value: String) -> Fact {
    Fact {
        name: name.to_owned(),
        value,
    }
}

fn of_kind(controller: &Controller, watched: Watched) -> Fact {
    let count = controller.objects.count(watched);
    let state = match controller.objects.completeness(watched) {
        Completeness::Unknown => "not listed",
        Completeness::Complete => "complete",
        Completeness::Missing => "the server does not have this kind",
    };
    fact(watched.name(), format!("{count}, {state}"))
}

fn waiting_for(controller: &Controller) -> Vec<String> {
    let mut all = Vec::new();
    for watched in Watched::ALL {
        if controller.objects.completeness(watched) == Completeness::Unknown {
            all.push(format!("the list of {watched} objects"));
        }
    }
    let left = controller.unchecked.len();
    if left > 0 {
        all.push(format!("the comparison of {left} resources"));
    }
    all
}

/// Returns what an operator should know, at most [`NOTES_MAX`] of each sort.
fn notes(controller: &Controller) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(held) = &controller.held {
        let mut note = format!("nothing is deleted: {held}");
        if let Some(uid) = controller.guard.uid().filter(|_| held.needs_confirmation()) {
            note.push_str(&format!(
                "; confirm this server with: etcdctl put {CONFIRMED_KEY} {uid}"
            ));
        }
        notes.push(note);
    }
    if !controller.withheld.is_empty() {
        let count = controller.withheld.len();
        notes.push(format!(
            "{count} existing resources are not replaced: the API server is not the known one"
        ));
    }
    if let Some(failure) = &controller.verification {
        notes.push(format!("no verification before deletions: {failure}"));
    }
    if let Some(confirmation) = controller.stored.confirmation() {
        let text = std::str::from_utf8(&confirmation.octets).unwrap_or_default();
        notes.push(match controller.guard.uid() == Some(text.trim()) {
            true => format!("{CONFIRMED_KEY} takes effect once each kind was listed or has failed"),
            false => format!("{CONFIRMED_KEY} does not name this server; it is ignored"),
        });
    }
    let ignored = controller.ignored.iter().take(NOTES_MAX);
    notes.extend(ignored.map(|one| format!("{} has no effect: {}", one.setting, one.reason)));
    if let Some(failure) = &controller.collection.failure {
        notes.push(format!("nothing is collected: {failure}"));
    }
    for (watched, failure) in &controller.failures {
        notes.push(format!("{watched}: {failure}"));
    }
    for (node, beyond) in controller.routes.beyond().take(NOTES_MAX) {
        notes.push(format!(
            "node {node}: {beyond} routes of services are left out: a node has at most {ROUTES_OF_NODE_MAX}, \
             and {ROUTES_OF_NAMESPACE_MAX} of one namespace"
        ));
    }
    notes.extend(unannounced(controller).take(NOTES_MAX));
    let lacking = controller.balancers.lacking.iter().take(NOTES_MAX);
    notes.extend(lacking.map(|(service, reason)| format!("Service {service}: {reason}")));
    let balancers = &controller.balancers;
    let failure = balancers.failure.iter();
    notes.extend(failure.map(|reason| format!("addresses of load balancers: {reason}")));
    let unreported = balancers.unreported.iter();
    notes.extend(
        unreported.map(|reason| format!("an Event of a Service was not written: {reason}")),
    );
    let faults = controller.faults.iter().take(NOTES_MAX);
    notes.extend(faults.map(|(key, reason)| format!("{}: {reason}", key.name())));
    let reports = controller.objects.reports().take(NOTES_MAX);
    notes.extend(reports.map(ToString::to_string));
    notes.extend(controller.follower.troubles());
    notes
}

/// Returns the addresses that no node announces, although an endpoint is ready.
fn unannounced(controller: &Controller) -> impl Iterator<Item = String> + '_ {
    let services = controller.routes.services();
    services.flat_map(|(name, addresses)| {
        let addresses = addresses.iter();
        addresses.filter_map(move |(address, announced)| match announced {
            Announced::Nowhere(
                reason @ (Reason::NotUp | Reason::NoLocalEndpoint | Reason::Invalid),
            ) => Some(format!(
                "Service {name}: no node announces {address}: {reason}"
            )),
            _ => None,
        })
    })
}

/// Returns how many nodes announce how many addresses of services.
fn announced(controller: &Controller) -> String {
    let nodes = controller.routes.nodes().filter(|(_, may)| *may).count();
    let services = controller.routes.services();
    let addresses = services.flat_map(|(_, addresses)| addresses.values());
    let is_announced = |announced: &&Announced| !matches!(announced, Announced::Nowhere(_));
    let count = addresses.filter(is_announced).count();
    format!("{count} on {nodes} nodes")
}

pub(crate) fn limits(controller: &Controller) -> Limits {
    let further = "a longer list is rejected, and nothing of the kind is deleted";
    let of_kind = Watched::ALL.map(|watched| {
        let count = controller.objects.count(watched) as u64;
        let name = format!("{watched} objects");
        Limit::new(&name, OBJECTS_OF_KIND_MAX as u64, further).used(count)
    });
    let mut limits = of_kind.to_vec();
    limits.extend(events::limits());
    Limits { limits }
}
