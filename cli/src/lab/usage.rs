//! CPU time and memory of the daemons of a fabric.

use std::time::Duration;

use netns_lab::Usage;
use netns_lab::fabric::Fabric;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::limits::IDLE;

/// One daemon's figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DaemonUsage {
    /// The host that it runs on.
    pub(super) host: String,
    /// Its name.
    pub(super) daemon: &'static str,
    /// Resident set in octets.
    pub(super) resident_octets: u64,
    /// Time on a CPU since its start, in milliseconds.
    pub(super) cpu_ms: f64,
    /// Share of one core in the idle fabric, in percent.
    pub(super) idle_percent: f64,
}

/// Lets the fabric idle for a while and returns the figures of each daemon.
pub(super) async fn idle(fabric: &Fabric) -> Vec<DaemonUsage> {
    let before = now(fabric);
    let began = Instant::now();
    sleep(IDLE).await;
    let after = now(fabric);
    let passed = began.elapsed();
    let pairs = before.into_iter().zip(after);
    pairs
        .map(|((host, daemon, from), (_, _, to))| figures(host, daemon, from, to, passed))
        .collect()
}

fn figures(
    host: String,
    daemon: &'static str,
    from: Usage,
    to: Usage,
    passed: Duration,
) -> DaemonUsage {
    let busy = to.cpu.saturating_sub(from.cpu).as_secs_f64();
    DaemonUsage {
        host,
        daemon,
        resident_octets: to.resident_octets,
        cpu_ms: to.cpu.as_secs_f64() * 1e3,
        idle_percent: 100.0 * busy / passed.as_secs_f64(),
    }
}

fn now(fabric: &Fabric) -> Vec<(String, &'static str, Usage)> {
    let machines = fabric.reflectors.iter().chain(&fabric.nodes);
    let on_machines = machines.flat_map(|m| m.daemons.iter().map(|d| (m.plan.name.as_str(), d)));
    let store = fabric.store.iter().map(|d| (fabric.lab().root().name(), d));
    let all = on_machines.chain(store);
    all.map(|(host, d)| {
        (
            host.to_owned(),
            d.name,
            d.process.usage().unwrap_or_default(),
        )
    })
    .collect()
}

/// A table of the largest figures of each kind of daemon.
pub(super) fn table(all: &[DaemonUsage]) -> String {
    let mut kinds: Vec<&'static str> = Vec::new();
    for usage in all {
        if !kinds.contains(&usage.daemon) {
            kinds.push(usage.daemon);
        }
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "daemon",
        "processes",
        "memory, most",
        "CPU so far, most",
        "CPU idle, most",
    ]);
    for kind in kinds {
        let of_kind = || {
            all.iter()
                .filter(|usage| usage.daemon == kind && usage.cpu_ms > 0.0)
        };
        let most = |f: fn(&DaemonUsage) -> f64| of_kind().map(f).fold(0.0, f64::max);
        table.add_row([
            kind.to_owned(),
            of_kind().count().to_string(),
            format!("{:.1} MB", most(|u| u.resident_octets as f64) / 1e6),
            format!("{:.0} ms", most(|u| u.cpu_ms)),
            format!("{:.2} % of a core", most(|u| u.idle_percent)),
        ]);
    }
    table.to_string()
}
