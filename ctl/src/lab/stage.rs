//! A fabric brought up, with its store, its sessions and its workloads.

use std::path::PathBuf;

use anyhow::{Context, Result};
use lab::fabric::{Fabric, Owners, Place, WorkloadPlan};
use lab::{Lab, until};
use tokio::time::Instant;

use super::args::{FabricArgs, Inside};
use super::journal::Journal;
use super::kernels::Kernels;
use super::limits::{CONVERGE, PER_NODE, STORE};
use super::records::Records;
use super::{programs, sessions};

/// A running fabric.
#[derive(Debug)]
pub(super) struct Stage {
    /// Hosts, links, processes.
    pub(super) fabric: Fabric,
    /// The store's contents.
    pub(super) records: Records,
    /// Where every workload prefix shall lead.
    pub(super) owners: Owners,
    /// The nodes' kernels.
    pub(super) kernels: Kernels,
}

/// Builds hosts and links, and starts the store in them; no daemon runs yet.
pub(super) async fn build(
    args: &FabricArgs,
    inside: Inside,
    directory: PathBuf,
    journal: &mut Journal,
) -> Result<Stage> {
    let plan = args.plan()?;
    let began = Instant::now();
    let lab = Lab::enclosed(directory).await?;
    let fabric = Fabric::build(lab, plan).await?;
    let how = match inside {
        Inside::Root => "",
        Inside::User => "\n(as an ordinary user: socket buffers stay within the system's limits)",
    };
    let hosts = fabric.nodes.len() + fabric.reflectors.len() + fabric.plan.stores.len();
    let built = format!("{hosts} hosts on one bridge, each in namespaces of its own{how}");
    journal.good("built", Some(began.elapsed()), built);
    let (fabric, records) = start_store(fabric, args, journal).await?;
    let kernels = Kernels::watch(&fabric)?;
    Ok(Stage {
        fabric,
        records,
        owners: Owners::new(),
        kernels,
    })
}

async fn start_store(
    mut fabric: Fabric,
    args: &FabricArgs,
    journal: &mut Journal,
) -> Result<(Fabric, Records)> {
    let began = Instant::now();
    let directories = fabric.store_directories("store")?;
    fabric.start_store(&programs::serve(args.store, &fabric.plan, &directories)?)?;
    let opened = until(STORE, "the store answers", async || {
        fabric.check()?;
        anyhow::Ok(
            Records::open(fabric.plan.store_addresses())
                .await
                .map_err(|error| format!("{error:#}")),
        )
    });
    let (mut records, _) = opened.await?;
    for node in &fabric.plan.nodes {
        records
            .put_node(node, fabric.plan.asn)
            .await
            .context("writing a node to the store")?;
    }
    let addresses: Vec<_> = fabric
        .plan
        .store_addresses()
        .map(|a| a.to_string())
        .collect();
    let outcome = format!(
        "{} store answers at {}",
        args.store.name(),
        addresses.join(", ")
    );
    journal.good("store", Some(began.elapsed()), outcome);
    Ok((fabric, records))
}

impl Stage {
    /// Starts all daemons and waits until every session is up.
    pub(super) async fn start_daemons(&mut self, journal: &mut Journal) -> Result<()> {
        let began = Instant::now();
        let programs = programs::daemons()?;
        let limit = CONVERGE + PER_NODE * u32::from(self.fabric.plan.shape.nodes);
        self.fabric.start_reflectors(&programs)?;
        // A node that finds no reflector listening tries again only after seconds.
        until(limit, "the reflectors listen", async || {
            self.fabric.check()?;
            anyhow::Ok(sessions::reflectors_answer(&self.fabric).await)
        })
        .await?;
        self.fabric.start_nodes(&programs)?;
        let (up, _) = until(limit, "all BGP sessions are up", async || {
            self.fabric.check()?;
            anyhow::Ok(sessions::all_up(&self.fabric).await)
        })
        .await?;
        let each = if self.fabric.plan.shape.mesh {
            "every node to every other"
        } else {
            "every node to every reflector"
        };
        let outcome = format!("{up} BGP sessions are up, {each}");
        journal.good("sessions", Some(began.elapsed()), outcome);
        Ok(())
    }

    /// Adds all workloads of the plan and waits until every kernel leads to each.
    pub(super) async fn add_workloads(&mut self, journal: &mut Journal) -> Result<()> {
        let workloads = self.fabric.plan.workloads.clone();
        for (place, workload) in &workloads {
            self.fabric.add_workload(workload.clone(), *place).await?;
        }
        let began = Instant::now();
        for (place, workload) in &workloads {
            self.announce(*place, workload).await?;
        }
        let agreed = self.kernels.agree(&mut self.fabric, &self.owners).await?;
        let routes = self.owners.len() * self.fabric.nodes.len();
        let outcome = format!(
            "{} workloads written to the store: every kernel leads to every one ({routes} routes)",
            workloads.len(),
        );
        journal.good("converged", Some(agreed - began), outcome);
        Ok(())
    }

    /// Writes a workload's endpoint into the store.
    async fn announce(&mut self, place: Place, workload: &WorkloadPlan) -> Result<()> {
        let node = &self.fabric.node(place)?.plan.name;
        self.records
            .put_endpoint(workload, node)
            .await
            .context("writing an endpoint")?;
        self.owners.extend(workload.nets().map(|net| (net, place)));
        Ok(())
    }
}
