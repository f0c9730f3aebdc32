//! `cambric node list`: the reports of the hosts' agents in the datastore, also those with an
//! expired lease; and drained nodes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use calico_model::{
    DrainReport, DrainStage, EndpointState, EndpointStatus, FABRIC_PREFIX, FabricKey, HostStatus,
    Kind, Region, StatusKey,
};
use calico_store::{KeyRange, Store};

use crate::resources::aligned;
use crate::show::clean;

/// Prefix of all reports of agents about workloads and themselves.
const REPORTS: &str = "/calico/felix/v2/";

const HEADINGS: [&str; 8] = [
    "NAME", "REGION", "FELIX", "REPORTED", "UP", "DOWN", "ERROR", "DRAIN",
];

/// The reports of a host's agent in one region.
#[derive(Debug, Default)]
struct Agent {
    /// Its report under a lease, which exists only while it is alive.
    alive: Option<HostStatus>,
    /// Its last report, also if it is dead.
    last: Option<HostStatus>,
    /// Number of its endpoints in each state.
    endpoints: BTreeMap<EndpointState, usize>,
    /// Rejected endpoints, each with the reason.
    refused: Vec<String>,
}

/// All hosts: registered ones, and unregistered ones with a report.
#[derive(Debug, Default)]
struct Hosts {
    agents: BTreeMap<(String, Region), Agent>,
    /// The nodes to drain.
    drains: BTreeSet<String>,
    /// The stages that drained nodes have reported.
    stages: BTreeMap<String, DrainStage>,
}

/// Returns the table of all hosts.
pub(super) async fn list(store: &impl Store) -> Result<String> {
    let mut hosts = Hosts::default();
    for item in store.list(KeyRange::prefix(REPORTS)).await?.items {
        if let Ok(key) = String::from_utf8_lossy(&item.key).parse() {
            hosts.take(key, &item.value);
        }
    }
    let prefix = Kind::Node.prefix();
    for item in store.list(KeyRange::prefix(prefix.clone())).await?.items {
        let key = String::from_utf8_lossy(&item.key).into_owned();
        hosts.register(key.strip_prefix(&prefix).unwrap_or(&key));
    }
    for item in store.list(KeyRange::prefix(FABRIC_PREFIX)).await?.items {
        if let Ok(key) = String::from_utf8_lossy(&item.key).parse() {
            hosts.take_drain(key, &item.value);
        }
    }
    Ok(hosts.text())
}

impl Hosts {
    fn take(&mut self, key: StatusKey, value: &[u8]) {
        match key {
            StatusKey::Host { region, host } => {
                self.of(host, region).alive = serde_json::from_slice(value).ok();
            }
            StatusKey::LastReported { region, host } => {
                self.of(host, region).last = serde_json::from_slice(value).ok();
            }
            StatusKey::Workload {
                region,
                host,
                orchestrator,
                workload,
                endpoint,
            } => {
                let Ok(status) = serde_json::from_slice::<EndpointStatus>(value) else {
                    return;
                };
                let agent = self.of(host, region);
                *agent.endpoints.entry(status.status).or_default() += 1;
                if status.status == EndpointState::Error {
                    let reason = status.reason.as_deref().unwrap_or("error");
                    agent
                        .refused
                        .push(format!("{orchestrator}/{workload}/{endpoint}: {reason}"));
                }
            }
            StatusKey::HostEndpoint { .. } => {}
        }
    }

    fn take_drain(&mut self, key: FabricKey, value: &[u8]) {
        match key {
            FabricKey::Drain(name) => {
                self.drains.insert(name);
            }
            FabricKey::DrainReport(name) => {
                if let Ok(report) = DrainReport::parse(value) {
                    self.stages.insert(name, report.stage);
                }
            }
            FabricKey::Reflector(_) | FabricKey::Cluster(_) => {}
        }
    }

    /// Returns the progress of a drain. A node that does not report one may be a reflector.
    fn drain(&self, host: &str) -> &'static str {
        match (self.drains.contains(host), self.stages.get(host)) {
            (false, None) => "-",
            (false, Some(_)) => "ends",
            (true, None) => "requested",
            (true, Some(DrainStage::Services)) => "services",
            (true, Some(DrainStage::All)) => "all",
            (true, Some(DrainStage::Drained)) => "drained",
        }
    }

    fn of(&mut self, host: String, region: Region) -> &mut Agent {
        self.agents.entry((host, region)).or_default()
    }

    fn register(&mut self, name: &str) {
        if !self.agents.keys().any(|(host, _)| host == name) {
            self.agents
                .insert((name.to_owned(), Region::None), Agent::default());
        }
    }

    fn text(&self) -> String {
        let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
        rows.extend(self.agents.iter().map(|((host, region), agent)| {
            let mut row = vec![clean(host), region_text(region)];
            row.extend(agent.cells());
            row.push(self.drain(host).to_owned());
            row
        }));
        let mut text = aligned(&rows);
        for ((host, _), agent) in &self.agents {
            for refused in &agent.refused {
                text.push_str(&format!("{}: {}\n", clean(host), clean(refused)));
            }
        }
        text
    }
}

impl Agent {
    /// Returns the host's state, the time of its last report, and its endpoints.
    fn cells(&self) -> [String; 5] {
        let state = match (&self.alive, &self.last) {
            (Some(_), _) => "alive",
            (None, Some(_)) => "dead",
            (None, None) => "no report",
        };
        let last = self.alive.as_ref().or(self.last.as_ref());
        let count = |state| {
            let count = self.endpoints.get(&state).copied();
            count.unwrap_or_default().to_string()
        };
        [
            state.to_owned(),
            last.map_or_else(|| "-".to_owned(), |report| clean(&report.time)),
            count(EndpointState::Up),
            count(EndpointState::Down),
            count(EndpointState::Error),
        ]
    }
}

fn region_text(region: &Region) -> String {
    match region {
        Region::None => "-".to_owned(),
        Region::Named(name) => clean(name),
    }
}

#[cfg(test)]
mod tests {
    use calico_store::LeaseId;
    use etcd_lite::Local;

    use super::*;

    #[tokio::test]
    async fn hosts_are_listed_as_alive_dead_or_unreported() {
        let store = Local::empty();
        let report = r#"{"time":"2026-03-04T10:22:00Z","uptime":84.2,"first_update":false}"#;
        let refused = r#"{"status":"error","reason":"cali1 is taken"}"#;
        let n1 = "/calico/felix/v2/no-region/host/n1";
        let n2 = "/calico/felix/v2/region-east/host/n2";
        let nodes = Kind::Node.prefix();
        for (key, value) in [
            (format!("{n1}/status"), report),
            (format!("{n1}/last_reported_status"), report),
            (
                format!("{n1}/workload/k8s/ns%2fa/endpoint/eth0"),
                r#"{"status":"up"}"#,
            ),
            (format!("{n1}/workload/k8s/ns%2fb/endpoint/eth0"), refused),
            (format!("{n2}/last_reported_status"), report),
            (
                format!("{n2}/workload/k8s/ns%2fc/endpoint/eth0"),
                r#"{"status":"down"}"#,
            ),
            (
                "/calico/felix/v2/no-region/host/round-trip-check".to_owned(),
                "1",
            ),
            (format!("{nodes}n1"), "{}"),
            (format!("{nodes}n3"), "{}"),
            ("/cambric/v1/drain/n1".to_owned(), "{}"),
            ("/cambric/v1/drain/n3".to_owned(), "{}"),
            (
                "/cambric/v1/drain-report/n2".to_owned(),
                r#"{"stage":"drained"}"#,
            ),
            (
                "/cambric/v1/drain-report/n1".to_owned(),
                r#"{"stage":"all"}"#,
            ),
        ] {
            let put = store.put(key.into(), value.to_owned().into(), LeaseId::NONE);
            put.await.expect("put");
        }
        let text = list(&store).await.expect("a list");
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "NAME REGION FELIX REPORTED UP DOWN ERROR DRAIN",
                "n1 - alive 2026-03-04T10:22:00Z 1 0 1 all",
                "n2 east dead 2026-03-04T10:22:00Z 0 1 0 ends",
                "n3 - no report - 0 0 0 requested",
                "n1: k8s/ns/b/eth0: cali1 is taken",
            ]
        );
    }
}
