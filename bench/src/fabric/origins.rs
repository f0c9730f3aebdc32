//! A fabric whose reflectors compare routes with the records of the datastore.

use anyhow::{Result, bail};
use calico_model::RESOURCES_PREFIX;
use calico_store::{LeaseId, Store};
use daemon_common::report::{OriginFigures, Status};
use daemon_common::{Command, Reply, client};
use netns_lab::fabric::{Machine, MachinePlan, Plan};
use serde_json::{Value, json};

use crate::limits::FABRIC_WITHIN;

/// A mode of origin validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Origins {
    /// Routes are not compared.
    Off,
    /// Routes without a record are reported.
    Warn,
    /// Routes without a record are not used.
    Enforce,
}

/// The network of all endpoints of a fabric.
const POOL: &str = "10.64.0.0/10";

impl Origins {
    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Enforce => "enforce",
        }
    }

    /// Returns a plan in which the datastore configures BGP, and the reflectors have this mode.
    pub(super) fn plan(self, plan: Plan) -> Plan {
        let mut plan = plan.with_bgp_from_store();
        plan.reflector_keys = format!("origin_validation = \"{}\"\n", self.name());
        plan
    }

    /// Waits until a reflector has read the records, which takes a session with a node.
    pub async fn in_sync(self, reflector: &Machine) -> Result<()> {
        if self == Self::Off {
            return Ok(());
        }
        netns_lab::until(FABRIC_WITHIN, "the records are read", async || {
            Ok(match status(reflector).await {
                Ok(status) if has_records(&status, self) => Ok(()),
                Ok(status) => Err(format!("{status:?}")),
                Err(error) => Err(format!("{error:#}")),
            })
        })
        .await
        .map(|((), _)| ())
        .map_err(|error: netns_lab::Error| error.into())
    }
}

/// Returns whether a reflector has read the records of workloads, too.
fn has_records(status: &Status, mode: Origins) -> bool {
    let value = format!("{}, records in-sync, ", mode.name());
    let mut facts = status.facts.iter();
    facts.any(|fact| fact.name == "origin validation" && fact.value.starts_with(&value))
}

/// Returns the counts of a reflector that compares routes.
pub async fn figures(reflector: &Machine) -> Result<OriginFigures> {
    let Some(figures) = status(reflector).await?.origins else {
        bail!("the reflector compares no routes");
    };
    Ok(*figures)
}

async fn status(reflector: &Machine) -> Result<Status> {
    let socket = reflector.control("route-reflector");
    match client::call(socket, &Command::Status {}).await? {
        Reply::Status(status) => Ok(status),
        other => bail!("not a status: {other:?}"),
    }
}

/// Writes the resources that configure BGP: settings, a pool, and the Nodes.
pub(super) async fn record(store: &dyn Store, plan: &Plan) -> Result<()> {
    let settings = json!({"metadata": {"name": "default"},
        "spec": {"asNumber": plan.asn, "nodeToNodeMeshEnabled": false}});
    put(store, "bgpconfigurations/default", &settings).await?;
    let pool = json!({"metadata": {"name": "bench"}, "spec": {"cidr": POOL}});
    put(store, "ippools/bench", &pool).await?;
    for machine in &plan.nodes {
        let node = node(machine, &json!({}));
        put(store, &format!("nodes/{}", machine.name), &node).await?;
    }
    for machine in &plan.reflectors {
        // The label is the operator's record that the node is a reflector.
        let node = node(machine, &json!({"cambric.io/reflector-weight": "1"}));
        put(store, &format!("nodes/{}", machine.name), &node).await?;
    }
    Ok(())
}

fn node(machine: &MachinePlan, labels: &Value) -> Value {
    json!({"metadata": {"name": machine.name, "labels": labels},
        "spec": {"bgp": {"ipv4Address": machine.net_v4(), "ipv6Address": machine.net_v6()}}})
}

async fn put(store: &dyn Store, name: &str, value: &Value) -> Result<()> {
    let key = format!("{RESOURCES_PREFIX}{name}");
    let put = store.put(key.into(), value.to_string().into(), LeaseId::NONE);
    put.await?;
    Ok(())
}
