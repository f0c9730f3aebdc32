//! Reports in numbers.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::felix::{self, Felix};
use super::process::{self, Process};
use crate::report::{
    BfdFigures, EndpointFigures, FlowFigures, KernelFigures, LogFigures, Neighbor, NeighborFamily,
    NeighborRange, Neighbors, OriginFigures, Status, StoreFigures, TableFigures,
};

/// Prefix of every name.
const PREFIX: &str = "cambric";

/// The text of one scrape.
pub(super) fn render(
    mut status: Status,
    neighbors: Neighbors,
    events: Vec<(&'static str, u64)>,
) -> Result<String, fmt::Error> {
    let (felix, process) = (status.felix.take(), status.process.take());
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Reports {
        status,
        neighbors,
        events,
    }));
    let mut text = String::new();
    encode_registry(&mut text, &registry)?;
    if let Some(figures) = felix {
        let mut of_felix = Registry::with_prefix(felix::PREFIX);
        of_felix.register_collector(Box::new(Felix(figures)));
        encode_registry(&mut text, &of_felix)?;
    }
    if let Some(figures) = process {
        let mut of_process = Registry::with_prefix(process::PREFIX);
        of_process.register_collector(Box::new(Process(figures)));
        encode_registry(&mut text, &of_process)?;
    }
    encode_eof(&mut text)?;
    Ok(text)
}

#[derive(Debug)]
struct Reports {
    status: Status,
    neighbors: Neighbors,
    events: Vec<(&'static str, u64)>,
}

impl Collector for Reports {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        page.daemon(&self.status)?;
        if let Some(log) = &self.status.log {
            page.log(log)?;
        }
        let events = self.events.iter();
        let events = events.map(|(name, count)| (vec![("event", *name)], *count));
        page.counters("events", "Events since the start, by name.", events)?;
        if let Some(store) = &self.status.store {
            page.store(store, self.status.uptime_s)?;
        }
        if let Some(origins) = &self.status.origins {
            page.origins(origins)?;
        }
        if let Some(tables) = &self.status.tables {
            page.tables(tables)?;
            page.neighbors(&self.neighbors.neighbors)?;
            page.ranges(&self.neighbors.ranges)?;
        }
        if let Some(kernel) = &self.status.kernel {
            page.kernel(kernel)?;
        }
        if let Some(bfd) = &self.status.bfd {
            page.bfd(bfd)?;
        }
        if let Some(endpoints) = &self.status.endpoints {
            page.endpoints(endpoints)?;
        }
        if let Some(flows) = &self.status.flows {
            page.flows(flows)?;
        }
        Ok(())
    }
}

type Labels<'r> = Vec<(&'static str, &'r str)>;

struct Page<'e>(DescriptorEncoder<'e>);

impl Page<'_> {
    fn daemon(&mut self, status: &Status) -> fmt::Result {
        let labels = vec![
            ("daemon", status.daemon.clone()),
            ("version", status.version.clone()),
        ];
        let build = Info::new(labels);
        let help = "The program and its version.";
        self.single("build", help, &build)?;
        self.gauge(
            "uptime_seconds",
            "Seconds since the start.",
            status.uptime_s,
        )?;
        if let Some(kib) = status.resident_kib {
            let help = "Resident memory.";
            self.gauge("resident_memory_bytes", help, kib.saturating_mul(1024))?;
        }
        if let Some(turns) = status.turns {
            let help = "Turns of the main loop. An idle daemon takes a few in a second.";
            self.counter("loop_turns", help, turns)?;
        }
        let help = "All that the daemon should do is done.";
        self.gauge("ready", help, status.ready.into())?;
        let help = "Things that the daemon waits for.";
        self.gauge("waiting_for", help, count(&status.waiting_for))?;
        let help = "Notes in the status.";
        self.gauge("notes", help, count(&status.notes))?;
        let help = "The last reload was rejected, or requires a restart.";
        self.gauge("config_error", help, status.config_error.is_some().into())
    }

    fn log(&mut self, log: &LogFigures) -> fmt::Result {
        let help = "Log lines that wait to be written to standard error.";
        self.gauge("log_lines_waiting", help, log.waiting)?;
        let help = "Log lines that were lost because standard error was blocked.";
        let levels = [
            ("error", log.lost_error),
            ("warn", log.lost_warn),
            ("info", log.lost_info),
            ("debug", log.lost_debug),
        ];
        let levels = levels.map(|(level, number)| (vec![("level", level)], number));
        self.counters("log_lines_lost", help, levels)?;
        let help = "Repeated events of which a summary was logged instead of a line each.";
        self.counter("log_events_summarized", help, log.summarized)
    }

    fn store(&mut self, store: &StoreFigures, uptime_s: u64) -> fmt::Result {
        let help = "The datastore has been read, is watched and is applied.";
        self.gauge("store_in_sync", help, store.in_sync.into())?;
        let help =
            "The datastore has been unreachable for 5 s; the last configuration stays in effect.";
        self.gauge("store_away", help, store.away.into())?;
        let help = "The datastore is not ready; the last configuration stays in effect.";
        self.gauge("store_unready", help, store.unready.into())?;
        let help = "A snapshot of an earlier run is in effect.";
        let snapshot = store.snapshot_age_s.is_some();
        self.gauge("store_snapshot", help, snapshot.into())?;
        if let Some(revision) = store.revision {
            let help = "The applied revision of the datastore.";
            self.single("store_revision", help, &ConstGauge::new(revision))?;
        }
        let help = "Seconds since the store has answered, or since the start if it never did.";
        let silent_s = store.answered_s.unwrap_or(uptime_s);
        self.gauge("store_silent_seconds", help, silent_s)?;
        let help = "Keys with an invalid value; the last valid value stays in effect.";
        self.gauge("store_bad_values", help, store.bad_values)?;
        let Some(registered) = store.registered else {
            return Ok(());
        };
        let help = "Whether the reflector is registered in the store.";
        self.gauge("store_registered", help, registered.into())
    }

    fn origins(&mut self, origins: &OriginFigures) -> fmt::Result {
        let help = "The records of origin validation were read.";
        self.gauge("origin_in_sync", help, origins.in_sync.into())?;
        let help = "Paths without a record in the datastore, not yet reported.";
        self.gauge("origin_paths_pending", help, origins.pending)?;
        let help = "Paths without a record in the datastore that were reported.";
        self.gauge("origin_paths_unconfirmed", help, origins.unconfirmed)?;
        let help = "Paths without a record that were not held because there were too many.";
        self.counter("origin_paths_overflow", help, origins.overflow)?;
        let help = "Paths that are not used because no record confirms them, by neighbor.";
        let excluded = origins.excluded.iter();
        let excluded = excluded.map(|(name, count)| (vec![("neighbor", name.as_str())], *count));
        self.gauges("origin_paths_excluded", help, excluded)?;
        let help = "Reported paths without a record in the datastore, by node.";
        let reported = origins.reported.iter();
        let reported = reported.map(|(node, count)| (vec![("node", node.as_str())], *count));
        self.counters("origin_paths_reported", help, reported)
    }

    fn tables(&mut self, tables: &TableFigures) -> fmt::Result {
        let help = "Prefixes with a path, all families.";
        self.gauge("table_prefixes", help, tables.prefixes)?;
        self.gauge("table_paths", "Paths, all families.", tables.paths)?;
        let help = "Different sets of attributes that paths have.";
        self.gauge("table_attribute_sets", help, tables.attribute_sets)?;
        let help = "Malformed messages of all neighbors (RFC 7606).";
        self.counter("malformed_messages", help, tables.malformed)
    }

    fn neighbors(&mut self, all: &[Neighbor]) -> fmt::Result {
        let each = |number: fn(&Neighbor) -> u64| {
            let samples = all.iter();
            samples.map(move |one| (vec![("neighbor", one.name.as_str())], number(one)))
        };
        let help = "The session is established.";
        let up = |one: &Neighbor| one.since_s.is_some().into();
        self.gauges("neighbor_up", help, each(up))?;
        let help = "How often the session was established.";
        let established = |one: &Neighbor| one.flaps + u64::from(one.since_s.is_some());
        self.counters("neighbor_established", help, each(established))?;
        let help = "BGP messages received.";
        self.counters("neighbor_messages_in", help, each(|one| one.messages_in))?;
        let help = "BGP messages sent.";
        self.counters("neighbor_messages_out", help, each(|one| one.messages_out))?;
        let help = "UPDATE messages received.";
        self.counters("neighbor_updates_in", help, each(|one| one.updates_in))?;
        let help = "UPDATE messages sent.";
        self.counters("neighbor_updates_out", help, each(|one| one.updates_out))?;
        let help = "Bytes of its received routes in the tables.";
        let received = |one: &Neighbor| one.octets_received;
        self.gauges("neighbor_received_bytes", help, each(received))?;
        let help = "Bytes that wait until it reads.";
        self.gauges("neighbor_queued_bytes", help, each(|one| one.octets_queued))?;
        self.families(all)
    }

    fn families(&mut self, all: &[Neighbor]) -> fmt::Result {
        let each = |number: fn(&NeighborFamily) -> u64| {
            all.iter().flat_map(move |one| {
                one.families.iter().map(move |family| {
                    let of = ("neighbor", one.name.as_str());
                    (vec![of, ("family", family.family.as_str())], number(family))
                })
            })
        };
        let help = "Paths held from it.";
        self.gauges("neighbor_paths_received", help, each(|one| one.received))?;
        let help = "Paths held from it that the import policy accepts.";
        self.gauges("neighbor_paths_accepted", help, each(|one| one.accepted))?;
        let help = "Accepted paths that cannot be used.";
        self.gauges(
            "neighbor_paths_ineligible",
            help,
            each(|one| one.ineligible),
        )?;
        let help = "Announcements refused for the limit of paths.";
        self.counters("neighbor_paths_limited", help, each(|one| one.limited))?;
        let sent = all.iter().flat_map(|one| {
            let limited = one.families.iter().filter(|family| family.sent.is_some());
            limited.map(|family| {
                let of = ("neighbor", one.name.as_str());
                (vec![of, ("family", family.family.as_str())], family)
            })
        });
        let paths = sent.clone();
        let paths = paths.map(|(labels, family)| (labels, family.sent.unwrap_or_default().into()));
        let help = "Paths that it was sent, where they are limited.";
        self.gauges("neighbor_paths_sent", help, paths)?;
        let help = "Paths not advertised because of the limit of sent paths, in this session.";
        let suppressed = sent.map(|(labels, family)| (labels, family.suppressed));
        self.counters("neighbor_paths_suppressed", help, suppressed)
    }

    fn ranges(&mut self, all: &[NeighborRange]) -> fmt::Result {
        let named: Vec<(String, &NeighborRange)> = all
            .iter()
            .filter_map(|range| Some((range.prefix?.to_string(), range)))
            .collect();
        let ranges = || {
            let each = named.iter();
            each.map(|(prefix, range)| (vec![("range", prefix.as_str())], *range))
        };
        let help = "Neighbors of the range.";
        let used = ranges().map(|(labels, range)| (labels, u64::from(range.used)));
        self.gauges("range_neighbors", help, used)?;
        let help = "Maximum number of neighbors of the range.";
        let limits = ranges().map(|(labels, range)| (labels, u64::from(range.limit)));
        self.gauges("range_limit", help, limits)?;
        let help = "Connections out of the range that never became a session.";
        let failed = ranges().flat_map(|(labels, range)| {
            range.failed.iter().map(move |(reason, count)| {
                let reason = ("reason", reason.as_str());
                ([labels.as_slice(), &[reason]].concat(), *count)
            })
        });
        self.counters("range_handshakes_failed", help, failed)
    }

    fn kernel(&mut self, kernel: &KernelFigures) -> fmt::Result {
        let help = "Kernel routes that should be there.";
        self.gauge("kernel_routes_wanted", help, kernel.wanted)?;
        let help = "Wanted kernel routes that the kernel has confirmed.";
        self.gauge("kernel_routes_installed", help, kernel.installed)?;
        let help = "Wanted kernel routes that are on their way.";
        self.gauge("kernel_routes_pending", help, kernel.pending)?;
        let help = "Wanted kernel routes that the kernel refuses.";
        self.gauge("kernel_routes_failed", help, kernel.failed)?;
        let help = "Kernel routes of this daemon that other programs deleted or changed.";
        self.counter("kernel_routes_drift", help, kernel.drift)?;
        let help = "Kernel routes put and deleted.";
        self.counter("kernel_writes", help, kernel.writes)
    }

    fn bfd(&mut self, bfd: &BfdFigures) -> fmt::Result {
        self.gauge(
            "bfd_clients",
            "Clients of BFD, with those that are away.",
            bfd.clients,
        )?;
        self.gauge(
            "bfd_sessions",
            "Sessions of BFD, of all clients.",
            bfd.sessions,
        )?;
        self.gauge("bfd_sessions_up", "Sessions of BFD that are up.", bfd.up)?;
        let help = "Packets of BFD that were discarded.";
        self.counter("bfd_packets_discarded", help, bfd.discarded)
    }

    fn endpoints(&mut self, figures: &EndpointFigures) -> fmt::Result {
        let states = [
            ("up", figures.up),
            ("down", figures.down),
            ("error", figures.error),
        ];
        let states = states.map(|(state, number)| (vec![("state", state)], number));
        self.gauges("endpoints", "Workload endpoints of this host.", states)?;
        let help = "Interfaces of workloads that are no endpoint's.";
        self.gauge("unclaimed_interfaces", help, figures.unclaimed)?;
        let help = "Whether the packet filter in the kernel is the wanted one.";
        self.gauge("rules_in_sync", help, figures.rules_in_sync.into())?;
        let help = "Changes of the packet filter.";
        self.counter("rules_transactions", help, figures.rules_transactions)?;
        let help = "Changes of the packet filter by others that were undone.";
        self.counter("rules_foreign_edits", help, figures.rules_foreign_edits)?;
        let help = "Established connections that were cut.";
        self.counter("connections_cut", help, figures.connections_cut)
    }

    fn flows(&mut self, figures: &FlowFigures) -> fmt::Result {
        let help = "Whether the flow log receives the records of the kernel's packet log.";
        self.gauge("flow_log_open", help, figures.enabled.into())?;
        let help = "Records of packets that the flow log has received.";
        self.counter("flow_log_records", help, figures.records)?;
        let help = "Records that were lost, because they were not read in time.";
        self.counter("flow_log_lost_records", help, figures.lost)?;
        let help = "Packets without a record, beyond the limit of records.";
        self.counter("flow_log_unsent_records", help, figures.unsent)?;
        let help = "How often the kernel discarded ends of connections.";
        self.counter("flow_log_end_overruns", help, figures.ends_overruns)?;
        let help = "Rows of the flow log.";
        self.gauge("flow_log_rows", help, figures.rows)?;
        let help = "Rows of the flow log that were removed to make room.";
        self.counter("flow_log_rows_removed", help, figures.rows_removed)
    }

    fn gauge(&mut self, name: &str, help: &str, number: u64) -> fmt::Result {
        self.single(name, help, &ConstGauge::new(number))
    }

    fn counter(&mut self, name: &str, help: &str, number: u64) -> fmt::Result {
        self.single(name, help, &ConstCounter::new(number))
    }

    fn single(&mut self, name: &str, help: &str, metric: &impl EncodeMetric) -> fmt::Result {
        let kind = metric.metric_type();
        metric.encode(self.0.encode_descriptor(name, help, None, kind)?)
    }

    fn gauges<'r>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'r>, u64)>,
    ) -> fmt::Result {
        self.family(name, help, samples, ConstGauge::new)
    }

    /// The names of their samples end with `_total`.
    fn counters<'r>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'r>, u64)>,
    ) -> fmt::Result {
        self.family(name, help, samples, ConstCounter::new)
    }

    fn family<'r, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'r>, u64)>,
        metric: fn(u64) -> M,
    ) -> fmt::Result {
        let kind = metric(0).metric_type();
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, number) in samples {
            metric(number).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn count(all: &[String]) -> u64 {
    all.len() as u64
}
