//! The metrics of Felix with Calico's names, for dashboards and alerts that have them.
//!
//! Calico's counters have no suffix, and OpenMetrics requires `_total` for its type `counter`. So these
//! have the type `unknown`; Prometheus computes rates of them in the same way.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::report::FelixFigures;

/// Prefix of every name.
pub(super) const PREFIX: &str = "felix";

/// The values of one scrape.
#[derive(Debug)]
pub(super) struct Felix(pub(super) Box<FelixFigures>);

/// A metric.
struct Row {
    /// Calico's name without the prefix.
    name: &'static str,
    help: &'static str,
    /// Whether the value only grows.
    is_count: bool,
    value: fn(&FelixFigures) -> u64,
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&FelixFigures) -> u64) -> Row {
    Row {
        name,
        help,
        is_count: false,
        value,
    }
}

const fn count(name: &'static str, help: &'static str, value: fn(&FelixFigures) -> u64) -> Row {
    Row {
        is_count: true,
        ..gauge(name, help, value)
    }
}

/// The metrics without labels.
const ROWS: [Row; 17] = [
    gauge(
        "active_local_endpoints",
        "Workload endpoints of this host.",
        |all| all.active_local_endpoints,
    ),
    gauge(
        "active_local_policies",
        "Policies that apply to an endpoint of this host.",
        |all| all.active_local_policies,
    ),
    gauge(
        "active_local_selectors",
        "Selectors of rules that apply to an endpoint of this host.",
        |all| all.active_local_selectors,
    ),
    count(
        "calc_graph_updates_processed",
        "Changes of the datastore that were processed.",
        |all| all.calc_graph_updates_processed,
    ),
    gauge(
        "cluster_num_host_endpoints",
        "HostEndpoints in the datastore.",
        |all| all.cluster_num_host_endpoints,
    ),
    gauge(
        "cluster_num_hosts",
        "Nodes in the datastore with an address.",
        |all| all.cluster_num_hosts,
    ),
    gauge(
        "cluster_num_policies",
        "Policies in the datastore.",
        |all| all.cluster_num_policies,
    ),
    gauge(
        "cluster_num_profiles",
        "Profiles in the datastore.",
        |all| all.cluster_num_profiles,
    ),
    gauge("cluster_num_tiers", "Tiers in the datastore.", |all| {
        all.cluster_num_tiers
    }),
    gauge(
        "cluster_num_workload_endpoints",
        "Workload endpoints in the datastore.",
        |all| all.cluster_num_workload_endpoints,
    ),
    count(
        "int_dataplane_failures",
        "Changes that the kernel rejected, and that are tried again.",
        |all| all.int_dataplane_failures,
    ),
    gauge("nft_chains", "Chains of the packet filter.", |all| {
        all.nft_chains
    }),
    gauge("nft_rules", "Rules of the packet filter.", |all| {
        all.nft_rules
    }),
    gauge("nft_sets", "Sets and maps of the packet filter.", |all| {
        all.nft_sets
    }),
    gauge(
        "resync_state",
        "1: waiting for a ready datastore, 2: reading it, 3: in sync.",
        |all| all.resync_state,
    ),
    count(
        "resyncs_started",
        "Full reads of the datastore that were begun.",
        |all| all.resyncs_started,
    ),
    gauge(
        "route_table_num_ifaces",
        "Interfaces over which endpoints have routes.",
        |all| all.route_table_num_ifaces,
    ),
];

/// A counter without the suffix of its type.
struct Unsuffixed(u64);

impl EncodeMetric for Unsuffixed {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.0)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

impl Collector for Felix {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let figures = &*self.0;
        for row in &ROWS {
            let value = (row.value)(figures);
            let kind = match row.is_count {
                true => MetricType::Unknown,
                false => MetricType::Gauge,
            };
            let metric = encoder.encode_descriptor(row.name, row.help, None, kind)?;
            match row.is_count {
                true => Unsuffixed(value).encode(metric)?,
                false => ConstGauge::new(value).encode(metric)?,
            }
        }
        let help = "Sets of addresses of selectors, services and pools.";
        let kind = MetricType::Gauge;
        let mut family = encoder.encode_descriptor("ipsets_calico", help, None, kind)?;
        for (version, number) in ["ipv4", "ipv6"].into_iter().zip(figures.ipsets_calico) {
            let labels = [("ip_version", version)];
            ConstGauge::new(number).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
