//! A fabric of hosts, links and processes.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use super::config;
use super::plan::{MachinePlan, Place, Plan};
use super::workload::Workload;
use crate::init::ensure_directory;
use crate::limits::NEIGHBORS_ASKED_MAX;
use crate::{Error, Host, Lab, Links, Process, Program, VethEnd};

/// Paths of the daemons' programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `cambric-bgp-client`
    pub bgp_client: PathBuf,
    /// `cambric-felix`
    pub felix: PathBuf,
    /// `cambric-route-reflector`
    pub route_reflector: PathBuf,
}

/// A program of a machine, with its process.
#[derive(Debug)]
pub struct Daemon {
    /// `bfd`, `bgp-client`, `felix`, `route-reflector`, `store`.
    pub name: &'static str,
    /// The process.
    pub process: Process,
}

/// A node or a reflector.
#[derive(Debug)]
pub struct Machine {
    /// Name and addresses.
    pub plan: MachinePlan,
    /// Its namespaces.
    pub host: Host,
    /// Its rtnetlink connection.
    pub links: Links,
    /// Its running programs.
    pub daemons: Vec<Daemon>,
}

/// A fabric. Dropping it ends its processes.
#[derive(Debug)]
pub struct Fabric {
    /// Names and addresses.
    pub plan: Plan,
    /// Route reflectors, in the plan's order.
    pub reflectors: Vec<Machine>,
    /// Nodes, in the plan's order.
    pub nodes: Vec<Machine>,
    /// Workloads, in the order of their creation.
    pub workloads: Vec<Workload>,
    /// The store, or its first member, after its start.
    pub store: Option<Daemon>,
    /// The machines of the store's further members.
    pub stores: Vec<Machine>,
    lab: Lab,
    links: Links,
}

/// The underlay: a bridge in the lab's first host.
const BRIDGE: &str = "fabric";
/// A machine's link to the bridge.
const UPLINK: &str = "eth0";

impl Machine {
    /// Returns the path of the control socket of one of its daemons.
    pub fn control(&self, daemon: &str) -> PathBuf {
        self.host.directory().join(format!("{daemon}.sock"))
    }

    /// Returns one of its daemons.
    pub fn daemon(&mut self, name: &'static str) -> Result<&mut Daemon, Error> {
        let found = self.daemons.iter_mut().find(|daemon| daemon.name == name);
        found.ok_or_else(|| Error::Unknown {
            kind: "daemon",
            name: name.to_owned(),
        })
    }

    /// Writes `<name>.toml` and starts `program` with it.
    fn start(&mut self, name: &'static str, program: PathBuf, config: &str) -> Result<(), Error> {
        let file = self.host.directory().join(format!("{name}.toml"));
        let path = file.display().to_string();
        fs::write(&file, config).map_err(|e| Error::io("writing", path, e))?;
        // The path as the host itself sees it, so that the shown path is valid inside.
        let seen = format!("/run/cambric/{name}.toml");
        let process = self
            .host
            .spawn(name, &Program::new(program).arg("--config").arg(seen))?;
        self.daemons.push(Daemon { name, process });
        Ok(())
    }
}

impl Fabric {
    /// Builds the underlay and all its machines; nothing runs yet.
    ///
    /// # Errors
    ///
    /// If the kernel rejects a request.
    pub async fn build(lab: Lab, plan: Plan) -> Result<Self, Error> {
        let links = lab.root().links()?;
        links.add_bridge(BRIDGE).await?;
        let own = plan.store();
        links.add_address(BRIDGE, own.net_v4()).await?;
        links.add_address(BRIDGE, own.net_v6()).await?;
        links.up(BRIDGE).await?;
        let mut fabric = Self {
            reflectors: Vec::new(),
            nodes: Vec::new(),
            workloads: Vec::new(),
            store: None,
            stores: Vec::new(),
            lab,
            links,
            plan,
        };
        for machine in fabric.plan.stores.clone().into_iter().skip(1) {
            let machine = fabric.machine(machine).await?;
            fabric.stores.push(machine);
        }
        for machine in fabric.plan.reflectors.clone() {
            let machine = fabric.machine(machine).await?;
            fabric.reflectors.push(machine);
        }
        for machine in fabric.plan.nodes.clone() {
            let machine = fabric.machine(machine).await?;
            // An operator sets this on every router; Felix sets it for workloads' links.
            machine.host.sysctl("net/ipv4/ip_forward", "1")?;
            machine.host.sysctl("net/ipv6/conf/all/forwarding", "1")?;
            fabric.nodes.push(machine);
        }
        if fabric.nodes.len() > NEIGHBORS_ASKED_MAX {
            fabric.introduce().await?;
        }
        Ok(fabric)
    }

    /// Configures on every machine the MAC addresses of all others.
    async fn introduce(&self) -> Result<(), Error> {
        let all = || {
            self.reflectors
                .iter()
                .chain(&self.nodes)
                .chain(&self.stores)
        };
        for machine in all() {
            for other in all().filter(|other| other.plan.v4 != machine.plan.v4) {
                for address in [IpAddr::V4(other.plan.v4), IpAddr::V6(other.plan.v6)] {
                    machine
                        .links
                        .add_neighbor(UPLINK, address, other.plan.mac)
                        .await?;
                }
            }
        }
        Ok(())
    }

    async fn machine(&self, plan: MachinePlan) -> Result<Machine, Error> {
        let host = self.lab.host(&plan.name).await?;
        let links = host.links()?;
        let port = VethEnd {
            host: self.lab.root(),
            name: &plan.name,
            mac: None,
        };
        let uplink = VethEnd {
            host: &host,
            name: UPLINK,
            mac: Some(plan.mac),
        };
        self.links.add_veth(port, uplink).await?;
        self.links.attach(&plan.name, BRIDGE).await?;
        links.up(UPLINK).await?;
        links.add_address(UPLINK, plan.net_v4()).await?;
        links.add_address(UPLINK, plan.net_v6()).await?;
        Ok(Machine {
            plan,
            host,
            links,
            daemons: Vec::new(),
        })
    }

    /// Returns the lab it is in.
    pub const fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Starts the members of the store: the first in the lab's first host, each other one on its
    /// own.
    ///
    /// # Errors
    ///
    /// If one of them cannot be started.
    pub fn start_store(&mut self, programs: &[Program]) -> Result<(), Error> {
        let name = "store";
        let mut programs = programs.iter();
        if let Some(program) = programs.next() {
            let process = self.lab.root().spawn(name, program)?;
            self.store = Some(Daemon { name, process });
        }
        for (machine, program) in self.stores.iter_mut().zip(programs) {
            let process = machine.host.spawn(name, program)?;
            machine.daemons.push(Daemon { name, process });
        }
        Ok(())
    }

    /// Creates an empty directory of this name for each member of the store, on the lab's tmpfs.
    ///
    /// # Errors
    ///
    /// If it cannot be created.
    pub fn store_directories(&self, name: &str) -> Result<Vec<PathBuf>, Error> {
        let hosts = self.stores.iter().map(|machine| &machine.host);
        let directories = std::iter::once(self.lab.root()).chain(hosts).map(|host| {
            let directory = host.directory().join(name);
            ensure_directory(&directory)?;
            Ok(directory)
        });
        directories.collect()
    }

    /// Starts `cambric-bfd` on every reflector and node.
    ///
    /// # Errors
    ///
    /// If one of them cannot be started.
    pub fn start_bfd(&mut self, program: &Path) -> Result<(), Error> {
        let mut machines = self.reflectors.iter_mut().chain(&mut self.nodes);
        machines.try_for_each(|machine| machine.start("bfd", program.to_owned(), config::BFD))
    }

    /// Lets the underlay's bridge discard all packets from and to a node, or forward them again. The link of
    /// the node stays up.
    ///
    /// # Errors
    ///
    /// If the node does not exist, or the kernel rejects the request.
    pub async fn discard(&self, place: Place, discards: bool) -> Result<(), Error> {
        let name = &self.node(place)?.plan.name;
        self.links.discard(name, discards).await
    }

    /// Starts all reflectors.
    ///
    /// # Errors
    ///
    /// If one of them cannot be started.
    pub fn start_reflectors(&mut self, programs: &Programs) -> Result<(), Error> {
        (0..self.reflectors.len()).try_for_each(|i| self.start_reflector(i, programs))
    }

    /// Starts one reflector.
    ///
    /// # Errors
    ///
    /// If it does not exist, or cannot be started.
    pub fn start_reflector(&mut self, nth: usize, programs: &Programs) -> Result<(), Error> {
        let text = config::route_reflector(&self.plan, nth);
        let machine = at(&mut self.reflectors, "reflector", nth)?;
        machine.start("route-reflector", programs.route_reflector.clone(), &text)
    }

    /// Starts the BGP client and Felix on every node.
    ///
    /// # Errors
    ///
    /// If one of them cannot be started.
    pub fn start_nodes(&mut self, programs: &Programs) -> Result<(), Error> {
        (0..self.nodes.len()).try_for_each(|place| self.start_node(place, programs))
    }

    /// Starts the BGP client and Felix on one node.
    ///
    /// # Errors
    ///
    /// If the node does not exist, or one of them cannot be started.
    pub fn start_node(&mut self, place: Place, programs: &Programs) -> Result<(), Error> {
        self.start_felix(place, &programs.felix)?;
        self.start_bgp_client(place, &programs.bgp_client)
    }

    /// Starts only the BGP client on one node.
    ///
    /// # Errors
    ///
    /// If the node does not exist, or the client cannot be started.
    pub fn start_bgp_client(&mut self, place: Place, program: &Path) -> Result<(), Error> {
        let bgp_client = config::bgp_client(&self.plan, place);
        let machine = at(&mut self.nodes, "node", place)?;
        machine.start("bgp-client", program.to_owned(), &bgp_client)
    }

    /// Starts only Felix on one node.
    ///
    /// # Errors
    ///
    /// If the node does not exist, or Felix cannot be started.
    pub fn start_felix(&mut self, place: Place, program: &Path) -> Result<(), Error> {
        let felix = config::felix(&self.plan, place);
        let machine = at(&mut self.nodes, "node", place)?;
        machine.start("felix", program.to_owned(), &felix)
    }

    /// Fails if any daemon has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`], with the end of its log.
    pub fn check(&mut self) -> Result<(), Error> {
        let machines = self.reflectors.iter_mut().chain(&mut self.nodes);
        let machines = machines.chain(&mut self.stores);
        let daemons = machines
            .flat_map(|machine| &mut machine.daemons)
            .chain(&mut self.store);
        for daemon in daemons {
            daemon.process.check()?;
        }
        Ok(())
    }

    /// Adds a workload for a node, without connecting it yet.
    ///
    /// # Errors
    ///
    /// If the kernel rejects a request.
    pub async fn add_workload(&mut self, name: &str, place: Place) -> Result<(), Error> {
        let host = self.lab.host(name).await?;
        let workload = Workload::new(host, name.to_owned(), place);
        self.workloads.push(workload);
        Ok(())
    }

    /// Returns a node.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if the plan has no such place.
    pub fn node(&self, place: Place) -> Result<&Machine, Error> {
        self.nodes.get(place).ok_or_else(|| unknown("node", place))
    }

    /// Returns the host of this name: a node, a reflector, a workload, the store's `fabric` or
    /// `store2`.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts().find(|host| host.name() == name)
    }

    /// Returns all hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        let machines = self
            .reflectors
            .iter()
            .chain(&self.nodes)
            .chain(&self.stores)
            .map(|machine| &machine.host);
        let workloads = self.workloads.iter().map(|workload| &workload.host);
        std::iter::once(self.lab.root())
            .chain(machines)
            .chain(workloads)
    }

    /// Returns the prefixes of all workloads' addresses.
    pub fn workload_nets() -> [IpNet; 2] {
        use std::net::{Ipv4Addr, Ipv6Addr};
        let v6 = Ipv6Addr::new(0xfd65, 0, 0, 0, 0, 0, 0, 0);
        [
            IpNet::V4(ipnet::Ipv4Net::new_assert(Ipv4Addr::new(10, 65, 0, 0), 16)),
            IpNet::V6(ipnet::Ipv6Net::new_assert(v6, 64)),
        ]
    }
}

fn at<'m>(
    all: &'m mut [Machine],
    kind: &'static str,
    nth: usize,
) -> Result<&'m mut Machine, Error> {
    all.get_mut(nth).ok_or_else(|| unknown(kind, nth))
}

fn unknown(kind: &'static str, nth: usize) -> Error {
    let name = nth.to_string();
    Error::Unknown { kind, name }
}
