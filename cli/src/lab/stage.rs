//! A running fabric, with its store, its sessions and its workloads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use futures_util::future::try_join_all;
use ipnet::IpNet;
use netns_lab::fabric::{Bgp, Fabric, MachinePlan, Owners, Place, Programs};
use netns_lab::{Lab, until};
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
    /// The fabric's resources in the store.
    pub(super) records: Records,
    /// The role of the container runtime.
    containers: Containers,
    /// The wanted destination of every workload prefix.
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
        containers: Containers::of(&fabric)?,
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
    let (records, _) = opened.await?;
    let written = records.write(&fabric.plan).await;
    written.context("writing the fabric's resources to the store")?;
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
        match self.fabric.plan.bgp {
            Bgp::Files => self.start_from_files(&programs, limit).await?,
            Bgp::Store => self.start_from_store(&programs, limit).await?,
        }
        let (up, _) = until(limit, "all BGP sessions are up", async || {
            self.fabric.check()?;
            anyhow::Ok(sessions::all_up(&self.fabric).await)
        })
        .await?;
        let plan = &self.fabric.plan;
        let each = match (plan.shape.mesh, plan.bgp) {
            (true, _) => "every node to every other",
            (false, Bgp::Files) => "every node to every reflector",
            (false, Bgp::Store) => "every node to the reflectors that it chose",
        };
        let outcome = format!("{up} BGP sessions are up, {each}");
        journal.good("sessions", Some(began.elapsed()), outcome);
        Ok(())
    }

    async fn start_from_files(&mut self, programs: &Programs, limit: Duration) -> Result<()> {
        self.fabric.start_reflectors(programs)?;
        // A node that finds no listening reflector tries again only after seconds.
        until(limit, "the reflectors listen", async || {
            self.fabric.check()?;
            for machine in &self.fabric.reflectors {
                if let Err(why) = sessions::listens(machine, sessions::REFLECTOR).await {
                    return Ok(Err(why));
                }
            }
            anyhow::Ok(Ok(()))
        })
        .await?;
        Ok(self.fabric.start_nodes(programs)?)
    }

    /// Of two reflectors, and of two nodes of a mesh, the one with the greater address as text
    /// connects. The other one must listen and have it as a neighbor by then: a rejected connection
    /// is tried again only after seconds.
    async fn start_from_store(&mut self, programs: &Programs, limit: Duration) -> Result<()> {
        let mut reflectors = by_address(&self.fabric.plan.reflectors);
        reflectors.reverse();
        for (before, nth) in reflectors.into_iter().enumerate() {
            self.fabric.start_reflector(nth, programs)?;
            until(limit, "the reflector registers", async || {
                self.fabric.check()?;
                let registered = self.records.registered().await;
                anyhow::Ok(match registered {
                    Ok(number) if number > before => Ok(()),
                    Ok(number) => Err(format!("{number} are registered")),
                    Err(error) => Err(format!("{error:#}")),
                })
            })
            .await?;
        }
        if !self.fabric.plan.shape.mesh {
            return Ok(self.fabric.start_nodes(programs)?);
        }
        for place in by_address(&self.fabric.plan.nodes) {
            self.fabric.start_node(place, programs)?;
            until(limit, "the node listens", async || {
                self.fabric.check()?;
                let node = self.fabric.node(place)?;
                anyhow::Ok(sessions::listens(node, sessions::NODE).await)
            })
            .await?;
        }
        Ok(())
    }

    /// Connects all workloads of the plan and waits until every kernel has routes to them.
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
        let outcome = format!(
            "{} containers connected by CNI, the slowest in {}:\n{} kernels lead to {} addresses",
            workloads.len(),
            milliseconds(slowest.as_secs_f64() * 1e3),
            self.fabric.nodes.len(),
            self.owners.len(),
        );
        journal.good("converged", Some(agreed - began), outcome);
        Ok(())
    }

    /// All nodes concurrently, the workloads of each one by one.
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
        let workload = workload.context("the workload was removed")?;
        workload.connected(connected.place, connected.v4, connected.v6)?;
        let nets = workload.nets().map(|net| (net, connected.place));
        self.owners.extend(nets);
        Ok(())
    }

    /// Connects a workload to a node, with these addresses or with automatic ones.
    pub(super) async fn connect(
        &mut self,
        name: &str,
        place: Place,
        wanted: &[IpAddr],
    ) -> Result<()> {
        let connected = self.ask_for(name, place, wanted).await?;
        self.note(&connected)
    }

    /// Disconnects a workload from its node; returns its former addresses.
    pub(super) async fn disconnect(&mut self, name: &str) -> Result<Vec<IpAddr>> {
        self.containers.del(&self.fabric, name).await?;
        let all = &mut self.fabric.workloads;
        let workload = all.iter_mut().find(|w| w.name == name);
        let workload = workload.context("the workload was removed")?;
        let had: Vec<IpAddr> = workload.addresses().collect();
        workload.disconnected();
        for address in &had {
            self.owners.remove(&IpNet::from(*address));
        }
        Ok(had)
    }

    /// Adds a workload to a node, and waits until every kernel has routes to it.
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

    /// Removes a workload, and waits until no kernel has a route to it.
    pub(super) async fn delete_workload(&mut self, name: &str) -> Result<()> {
        containers::workload(&self.fabric, name)?;
        self.disconnect(name).await?;
        self.fabric.workloads.retain(|w| w.name != name);
        self.kernels.agree(&mut self.fabric, &self.owners).await?;
        Ok(())
    }
}

/// The places of machines in the order of their addresses as text.
fn by_address(machines: &[MachinePlan]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..machines.len()).collect();
    places.sort_by_key(|place| machines.get(*place).map(|one| one.v4.to_string()));
    places
}

/// The result of a connection.
#[derive(Clone, Debug)]
struct Connected {
    name: String,
    place: Place,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    took: Duration,
}
