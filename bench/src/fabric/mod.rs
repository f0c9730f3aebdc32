//! A whole fabric under measurement: etcd, nodes with Felix and the BGP client, reflectors, and
//! listeners to the nodes' kernels.

mod agent;
mod cluster;
mod lists;
mod neighbor;
mod notifications;
mod origins;
mod presence;
mod records;
mod set_changes;
mod store;
mod workloads;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use calico_store::resources::Resources;
use netns_lab::fabric::{Fabric, Plan, Programs, Shape};
use netns_lab::{Lab, VethEnd};

pub use agent::{fill, put};
pub use cluster::Cluster;
pub use lists::{Lists, Order};
pub use neighbor::{Neighbor, Picture};
pub use notifications::{News, Notifications};
pub use origins::{Origins, figures};
pub use presence::{Presence, Turned};
pub use records::{Endpoint, write};
pub use set_changes::SetChanges;
pub use store::Etcd;
pub use workloads::Workload;

use crate::limits::{FABRIC_WITHIN, STARTED_WITHIN};
use crate::stage::Measures;

/// A fabric with running daemons, in the namespaces of the thread that made it.
#[derive(Debug)]
pub struct Ground {
    /// Hosts and processes.
    pub fabric: Fabric,
    /// The datastore.
    pub etcd: Etcd,
    /// Endpoints made so far.
    count: u32,
}

/// Runs a workload in a thread of its own, with namespaces of its own.
pub fn apart(work: impl AsyncFnOnce(Lab) -> Result<Measures> + Send) -> Result<Measures> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async { work(Lab::new().await?).await })
        });
        match thread.join() {
            Ok(done) => done,
            Err(_) => bail!("the work panicked"),
        }
    })
}

/// Runs a workload on a fabric of a node and a reflector, of which only the datastore runs. It has the
/// resources for a reflector with this mode.
pub fn beside_records(
    origins: Origins,
    work: impl AsyncFnOnce(&mut Fabric, &Etcd) -> Result<Measures> + Send,
) -> Result<Measures> {
    apart(async |lab: Lab| {
        let plan = Plan::new(Shape {
            nodes: 1,
            reflectors: 1,
            workloads_per_node: 0,
            mesh: false,
        })?;
        let mut fabric = Fabric::build(lab, origins.plan(plan)).await?;
        let etcd = Etcd::start(&mut fabric).await?;
        let resources = Resources::from(Arc::clone(&etcd.store));
        resources.initialize().await?;
        origins::record(&*etcd.store, &fabric.plan).await?;
        work(&mut fabric, &etcd).await
    })
}

/// Runs a workload on a fabric of a node and two reflectors, of which only the datastore runs.
pub fn beside_etcd(
    work: impl AsyncFnOnce(&mut Fabric, &Etcd) -> Result<Measures> + Send,
) -> Result<Measures> {
    apart(async |lab: Lab| {
        let plan = Plan::new(Shape {
            nodes: 1,
            reflectors: 2,
            workloads_per_node: 0,
            mesh: false,
        })?;
        let mut fabric = Fabric::build(lab, plan).await?;
        let etcd = Etcd::start(&mut fabric).await?;
        work(&mut fabric, &etcd).await
    })
}

impl Ground {
    /// Starts etcd, beside so many nodes without daemons.
    pub async fn at_rest(lab: Lab, nodes: u16) -> Result<Self> {
        let plan = Plan::new(Shape {
            nodes,
            reflectors: 1,
            workloads_per_node: 0,
            mesh: false,
        })?;
        let mut fabric = Fabric::build(lab, plan).await?;
        let etcd = Etcd::start(&mut fabric).await?;
        Resources::from(Arc::clone(&etcd.store))
            .initialize()
            .await?;
        Ok(Self {
            fabric,
            etcd,
            count: 0,
        })
    }

    /// Starts etcd, two reflectors and so many nodes, with an empty datastore.
    pub async fn raise(lab: Lab, nodes: u16) -> Result<Self> {
        Self::raise_with(lab, nodes, None).await
    }

    /// Does the same with a mode of origin validation, which the files of a fabric do not have: then
    /// the datastore configures BGP.
    pub async fn raise_with(lab: Lab, nodes: u16, origins: Option<Origins>) -> Result<Self> {
        let mut plan = Plan::new(Shape {
            nodes,
            reflectors: 2,
            workloads_per_node: 0,
            mesh: false,
        })?;
        if let Some(origins) = origins {
            plan = origins.plan(plan);
        }
        let mut fabric = Fabric::build(lab, plan).await?;
        let etcd = Etcd::start(&mut fabric).await?;
        let resources = Resources::from(Arc::clone(&etcd.store));
        resources.initialize().await?;
        if origins.is_some() {
            origins::record(&*etcd.store, &fabric.plan).await?;
        }
        let programs = programs()?;
        fabric.start_reflectors(&programs)?;
        // A node that finds no listening reflector dials again only after seconds.
        for reflector in &fabric.reflectors {
            let socket = reflector.control("route-reflector");
            let there = async || anyhow::Ok(socket.exists().then_some(()).ok_or(String::new()));
            netns_lab::until(STARTED_WITHIN, "a reflector listens", there).await?;
        }
        fabric.start_nodes(&programs)?;
        Ok(Self {
            fabric,
            etcd,
            count: 0,
        })
    }

    /// Makes the interfaces of so many endpoints at a node, without endpoints in the datastore yet.
    pub async fn endpoints(&mut self, node: usize, count: u32) -> Result<Vec<Endpoint>> {
        let machine = self.fabric.node(node)?;
        let mut endpoints = vec![];
        for number in self.count..self.count + count {
            let endpoint = Endpoint::new(number, &machine.plan.name);
            let (name, other) = (endpoint.interface(), format!("in{number}"));
            let end = |name| VethEnd {
                host: &machine.host,
                name,
                mac: None,
            };
            machine.links.add_veth(end(&name), end(&other)).await?;
            machine.links.up(&other).await?;
            machine.links.up(&name).await?;
            endpoints.push(endpoint);
        }
        self.count += count;
        Ok(endpoints)
    }

    /// Waits until a first endpoint at the node `from` is in the kernel of the node `to`: all
    /// sessions in between are established.
    pub async fn first(&mut self, from: usize, to: usize) -> Result<()> {
        let endpoints = self.endpoints(from, 1).await?;
        let mut notifications = self.listen(to)?;
        for endpoint in endpoints {
            write(&*self.etcd.store, &endpoint, endpoint.address()).await?;
            notifications
                .until(endpoint.address(), FABRIC_WITHIN)
                .await?;
        }
        self.fabric.check()?;
        Ok(())
    }

    /// Listens to route notifications of a node's kernel.
    pub fn listen(&self, node: usize) -> Result<Notifications> {
        Notifications::listen(&self.fabric.node(node)?.host)
    }

    /// Returns the resident octets of a daemon of a node.
    pub fn resident(&self, node: usize, name: &str) -> Result<u64> {
        let mut daemons = self.fabric.node(node)?.daemons.iter();
        let found = daemons.find(|daemon| daemon.name == name);
        let used = found.and_then(|daemon| daemon.process.usage());
        Ok(used
            .with_context(|| format!("{name} has ended"))?
            .resident_octets)
    }

    /// Returns the CPU time that all processes of a name have used so far, including the datastore.
    pub fn cpu(&self, name: &str) -> Duration {
        let machines = self.fabric.reflectors.iter().chain(&self.fabric.nodes);
        let daemons = machines.flat_map(|machine| &machine.daemons);
        let named = daemons
            .chain(&self.fabric.store)
            .filter(|daemon| daemon.name == name);
        named
            .filter_map(|daemon| Some(daemon.process.usage()?.cpu))
            .sum()
    }

    /// Adds the end of the daemons' logs to an error.
    pub fn with_logs<T>(&self, result: Result<T>) -> Result<T> {
        result.with_context(|| {
            let machines = self.fabric.reflectors.iter().chain(&self.fabric.nodes);
            let logs = machines.flat_map(|machine| &machine.daemons).map(|daemon| {
                let process = &daemon.process;
                format!("{}:\n{}", process.name(), process.log_tail())
            });
            logs.collect::<Vec<_>>().join("\n")
        })
    }
}

/// Returns whether all programs that a fabric needs are installed.
pub fn can_run() -> bool {
    let others = ["cambric", "cambric-kube"];
    let are_built = others.iter().all(|name| program(name).is_ok());
    programs().is_ok() && are_built && store::is_installed()
}

/// Returns Cambric's programs of a fabric.
pub fn programs() -> Result<Programs> {
    Ok(Programs {
        bgp_client: program("cambric-bgp-client")?,
        felix: program("cambric-felix")?,
        route_reflector: program("cambric-route-reflector")?,
    })
}

/// Returns the path of one of Cambric's programs: beside this one, or in another profile's
/// directory.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    // A test is one directory further down.
    let beside = ["", "..", "../release", "../debug", "../../release"]
        .into_iter()
        .filter_map(|way| Some(own.parent()?.join(way).join(name)));
    let mut there = beside.filter(|path| path.is_file());
    there
        .next()
        .with_context(|| format!("{name} is not there: `make bench` builds it"))
}

/// Returns the milliseconds from an instant until a node's kernel had a route.
pub fn milliseconds(from: Instant, news: &News) -> f64 {
    news.at.saturating_duration_since(from).as_secs_f64() * 1e3
}

/// Returns the address of the `number`th endpoint, or the `number`th address that endpoints move
/// to.
pub const fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be_bytes([10, 65, 0, 0]) + number)
}
