//! A fabric brought up, with its store, its sessions and its workloads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use futures_util::future::try_join_all;
use ipnet::IpNet;
use lab::fabric::{Fabric, Owners, Place};
use lab::{Lab, until};
use tokio::time::{Duration, Instant};

use super::args::{FabricArgs, Inside};
use super::containers::{self, Containers};
use super::journal::{Journal, milliseconds};
use super::kernels::Kernels;
use super::limits::{CONVERGE, PER_NODE, STORE};
use super::records::Records;
use super::{programs, sessions};

/// A running fabric.
#[derive(Debug)]
pub(super) struct Stage {
    /// Hosts, links, processes.
    pub(super) fabric: Fabric,
    /// Who connects workloads.
    containers: Containers,
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
    let fabric = start_store(fabric, args, journal).await?;
    let kernels = Kernels::watch(&fabric)?;
    Ok(Stage {
        containers: Containers::of(&fabric)?,
        fabric,
        owners: Owners::new(),
        kernels,
    })
}

async fn start_store(
    mut fabric: Fabric,
    args: &FabricArgs,
    journal: &mut Journal,
) -> Result<Fabric> {
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
    let pools = Fabric::workload_nets();
    records.put_pools(&pools).await.context("writing pools")?;
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
    Ok(fabric)
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

    /// Connects all workloads of the plan and waits until every kernel leads to each.
    pub(super) async fn add_workloads(&mut self, journal: &mut Journal) -> Result<()> {
        let workloads = self.fabric.plan.workloads.clone();
        for (place, name) in &workloads {
            self.fabric.add_workload(name, *place).await?;
        }
        let began = Instant::now();
        let mut slowest = Duration::ZERO;
        for connected in self.connect_all().await? {
            slowest = slowest.max(connected.took);
            self.note(&connected)?;
        }
        let agreed = self.kernels.agree(&mut self.fabric, &self.owners).await?;
        let routes = self.owners.len() * self.fabric.nodes.len();
        let outcome = format!(
            "{} containers connected by CNI, the slowest in {}:\nevery kernel leads to every one ({routes} routes)",
            workloads.len(),
            milliseconds(slowest.as_secs_f64() * 1e3),
        );
        journal.good("converged", Some(agreed - began), outcome);
        Ok(())
    }

    /// Nodes at the same time, the workloads of each after one another.
    async fn connect_all(&self) -> Result<Vec<Connected>> {
        let nodes = (0..self.fabric.nodes.len()).map(async |place| {
            let mut all = Vec::new();
            for workload in self.fabric.workloads.iter().filter(|w| w.place == place) {
                all.push(self.ask_for(&workload.name, place, &[]).await?);
            }
            anyhow::Ok(all)
        });
        Ok(try_join_all(nodes).await?.concat())
    }

    async fn ask_for(&self, name: &str, place: Place, wanted: &[IpAddr]) -> Result<Connected> {
        let began = Instant::now();
        let (v4, v6) = self
            .containers
            .add(&self.fabric, name, place, wanted)
            .await?;
        Ok(Connected {
            name: name.to_owned(),
            place,
            v4,
            v6,
            took: began.elapsed(),
        })
    }

    fn note(&mut self, connected: &Connected) -> Result<()> {
        let all = &mut self.fabric.workloads;
        let workload = all.iter_mut().find(|w| w.name == connected.name);
        let workload = workload.context("the workload is gone")?;
        workload.connected(connected.place, connected.v4, connected.v6)?;
        let nets = workload.nets().map(|net| (net, connected.place));
        self.owners.extend(nets);
        Ok(())
    }

    /// Connects a workload to a node, with these addresses or with any.
    pub(super) async fn connect(
        &mut self,
        name: &str,
        place: Place,
        wanted: &[IpAddr],
    ) -> Result<()> {
        let connected = self.ask_for(name, place, wanted).await?;
        self.note(&connected)
    }

    /// Disconnects a workload from its node; returns the addresses that it had.
    pub(super) async fn disconnect(&mut self, name: &str) -> Result<Vec<IpAddr>> {
        self.containers.del(&self.fabric, name).await?;
        let all = &mut self.fabric.workloads;
        let workload = all.iter_mut().find(|w| w.name == name);
        let workload = workload.context("the workload is gone")?;
        let had: Vec<IpAddr> = workload.addresses().collect();
        workload.disconnected();
        for address in &had {
            self.owners.remove(&IpNet::from(*address));
        }
        Ok(had)
    }

    /// Adds one more workload to a node, and waits until every kernel leads to it.
    pub(super) async fn add_workload(&mut self, name: &str, node: &str) -> Result<Vec<IpAddr>> {
        if self.fabric.host(name).is_some() {
            bail!("there is a {name} already");
        }
        let nodes = &self.fabric.nodes;
        let place = nodes.iter().position(|machine| machine.plan.name == node);
        let place = place.with_context(|| format!("there is no node {node}"))?;
        self.fabric.add_workload(name, place).await?;
        if let Err(error) = self.connect(name, place, &[]).await {
            self.fabric.workloads.retain(|w| w.name != name);
            return Err(error);
        }
        self.kernels.agree(&mut self.fabric, &self.owners).await?;
        let workload = containers::workload(&self.fabric, name)?;
        Ok(workload.addresses().collect())
    }

    /// Takes a workload away, and waits until no kernel leads to it.
    pub(super) async fn delete_workload(&mut self, name: &str) -> Result<()> {
        containers::workload(&self.fabric, name)?;
        self.disconnect(name).await?;
        self.fabric.workloads.retain(|w| w.name != name);
        self.kernels.agree(&mut self.fabric, &self.owners).await?;
        Ok(())
    }
}

/// What became of a connection.
#[derive(Clone, Debug)]
struct Connected {
    name: String,
    place: Place,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    took: Duration,
}
