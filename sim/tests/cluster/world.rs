//! Machines, the datastore, and a network between them in which octets arrive within a tick.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bgp_speaker::bgp_fsm::Instant;
use calico_model::{FabricKey, RESOURCES_PREFIX};
use calico_store::{Delete, KeyRange, Op, Put, Txn};
use etcd_lite::{Core, CoreConfig};
use testkit::Network;

use crate::machine::Machine;

/// The step of the virtual time.
const TICK: Duration = Duration::from_millis(250);

pub(crate) struct World {
    network: Network<Machine>,
    pub(crate) clients: usize,
    pub(crate) core: Core,
    /// Whether every client has every route, and must have them from now on.
    pub(crate) whole: bool,
}

impl World {
    /// Makes clients first, then reflectors, each of these in a zone of its own; all run.
    pub(crate) fn new(clients: usize, reflectors: usize) -> Self {
        let mut world = Self::empty(clients);
        for at in 0..clients + reflectors {
            let name = match at < clients {
                true => format!("node{at}"),
                false => format!("rr{}", at - clients),
            };
            world.add(name, at >= clients);
        }
        world
    }

    /// Makes clients, then nodes that are reflectors for the nodes whose BGPPeer selects their
    /// label, as with Calico's own daemons; all run.
    pub(crate) fn labeled(clients: usize, reflectors: usize) -> Self {
        let mut world = Self::empty(clients);
        let all = r#"{"spec":{"peerSelector":"has(route-reflector)"}}"#;
        world.put(&format!("{RESOURCES_PREFIX}bgppeers/reflectors"), all);
        for at in 0..clients + reflectors {
            world.add(format!("node{at}"), false);
        }
        world
    }

    /// Makes a datastore without a mesh.
    fn empty(clients: usize) -> Self {
        let mut world = Self {
            network: Network::new(0),
            clients,
            core: Core::new(CoreConfig::default()),
            whole: false,
        };
        world.lock(false);
        let mesh = r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false}}"#;
        world.put(
            &format!("{RESOURCES_PREFIX}bgpconfigurations/default"),
            mesh,
        );
        world.write_pool();
        world
    }

    fn add(&mut self, name: String, reflects: bool) {
        let at = self.len();
        let [high, low] = u16::try_from(at + 1).expect("few").to_be_bytes();
        let address = Ipv4Addr::new(10, 0, high, low);
        let mut machine = Machine::new(name, address, reflects);
        machine.start();
        self.network.add(at, address.into(), machine);
        self.write_node(at, None);
    }

    /// Returns the number of machines.
    pub(crate) fn len(&self) -> usize {
        self.network.numbers().len()
    }

    pub(crate) fn machine(&self, at: usize) -> &Machine {
        self.network.node(at)
    }

    /// Returns all machines: clients, then reflectors.
    pub(crate) fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.network.nodes().map(|(_, machine)| machine)
    }

    /// Writes the Node of a machine: an ordinary one, or one of a possible reflector, with the
    /// label or without.
    pub(crate) fn write_node(&mut self, at: usize, label: Option<bool>) {
        let Machine { name, address, .. } = self.machine(at);
        let (label, cluster) = match label {
            None => ("", ""),
            Some(false) => ("", r#","routeReflectorClusterID":"244.0.0.1""#),
            Some(true) => (
                r#","route-reflector":"""#,
                r#","routeReflectorClusterID":"244.0.0.1""#,
            ),
        };
        let node = format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"topology.kubernetes.io/zone":"{name}"{label}}}}},
                "spec":{{"bgp":{{"ipv4Address":"{address}/16"{cluster}}}}}}}"#
        );
        let key = format!("{RESOURCES_PREFIX}nodes/{name}");
        self.put(&key, &node);
    }

    pub(crate) fn delete_node(&mut self, at: usize) {
        let name = &self.machine(at).name;
        self.delete(format!("{RESOURCES_PREFIX}nodes/{name}"));
    }

    pub(crate) fn write_pool(&mut self) {
        let pool = r#"{"metadata":{"name":"pool"},"spec":{"cidr":"10.65.0.0/16"}}"#;
        self.put(&format!("{RESOURCES_PREFIX}ippools/pool"), pool);
    }

    pub(crate) fn delete_pool(&mut self) {
        self.delete(format!("{RESOURCES_PREFIX}ippools/pool"));
    }

    /// Sets whether the datastore is locked.
    pub(crate) fn lock(&mut self, locked: bool) {
        let ready = !locked;
        let information = format!(r#"{{"spec":{{"clusterGUID":"one","datastoreReady":{ready}}}}}"#);
        self.put(
            &format!("{RESOURCES_PREFIX}clusterinformations/default"),
            &information,
        );
    }

    /// Returns the index of a reflector among the machines.
    pub(crate) const fn reflector(&self, nth: usize) -> usize {
        self.clients + nth
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) {
        let then = vec![Op::Put(Put::new(key.to_owned(), value.to_owned()))];
        self.core
            .txn(&Txn {
                then,
                ..Txn::default()
            })
            .expect("written");
    }

    pub(crate) fn drain(&mut self, nth: usize, on: bool) {
        let key = FabricKey::Drain(format!("rr{nth}")).to_string();
        if on {
            return self.put(&key, "{}");
        }
        self.delete(key);
    }

    fn delete(&mut self, key: String) {
        let range = KeyRange::key(key);
        let previous = false;
        let then = vec![Op::Delete(Delete { range, previous })];
        self.core
            .txn(&Txn {
                then,
                ..Txn::default()
            })
            .expect("deleted");
    }

    /// Cuts these machines off from the datastore.
    pub(crate) fn cut(&mut self, machines: impl Iterator<Item = usize>) {
        for at in machines {
            self.network.node_mut(at).cut = true;
        }
    }

    /// Reconnects a machine with the datastore.
    pub(crate) fn reach(&mut self, at: usize) {
        self.network.node_mut(at).cut = false;
    }

    /// Reconnects all machines with the datastore.
    pub(crate) fn mend(&mut self) {
        (0..self.len()).for_each(|at| self.reach(at));
    }

    pub(crate) fn start(&mut self, at: usize) {
        self.network.node_mut(at).start();
    }

    pub(crate) fn kill(&mut self, at: usize) {
        self.network.node_mut(at).kill();
        self.network.disconnect(at);
    }

    /// Returns the sessions of clients that have ended since the last call: the client, and the
    /// peer.
    pub(crate) fn take_downs(&mut self) -> BTreeSet<(usize, IpAddr)> {
        let clients = 0..self.clients;
        let downs = clients.flat_map(|at| {
            let downs = std::mem::take(&mut self.network.node_mut(at).downs);
            downs.into_iter().map(move |with| (at, with))
        });
        downs.collect()
    }

    /// Lets time pass. Once all clients have all routes, none may ever lack one.
    pub(crate) fn pass(&mut self, seconds: u64) {
        let end = self.network.now() + Duration::from_secs(seconds);
        while self.network.now() < end {
            self.network.advance(TICK);
            let now = self.network.now();
            self.core
                .expire(now.saturating_duration_since(Instant::ZERO));
            for at in self.network.numbers() {
                let route = (at < self.clients).then(|| u16::try_from(at).expect("few"));
                let machine = self.network.node_mut(at);
                machine.turn(now, &mut self.core, route);
            }
            self.network.settle();
            self.check();
        }
    }

    fn check(&mut self) {
        let lacks = |machine: &&Machine| machine.prefixes() < self.clients;
        let lacking = self.machines().take(self.clients).find(lacks);
        match lacking {
            Some(machine) if self.whole => panic!(
                "{:?}: {} has {} of {} routes; sessions with {:?}",
                self.network.now(),
                machine.name,
                machine.prefixes(),
                self.clients,
                machine.sessions()
            ),
            Some(_) => {}
            None => self.whole = true,
        }
    }
}
