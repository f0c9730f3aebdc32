//! Origin validation with `enforce` while the datastore is away, or restored from a backup under its
//! old token: then the cluster ID is the known one, and the revision is older.

use std::time::Duration;

use calico_model::{RESOURCES_PREFIX, ReflectorState};
use calico_store::{Op, Put, Store as _, Txn};
use daemon_common::report::Status;
use interop_tests::{Ground, Kind, Own, Site, Speaker};
use ipnet::IpNet;
use tokio::time::{Instant, sleep_until};

use crate::fleet::Fleet;

const NODES: [u8; 3] = [1, 2, 3];
const REFLECTOR: u8 = 11;
const ETCD: [u8; 1] = [21];

/// Sessions of a node with the reflector, one for each family.
const CHOSEN: usize = 2;

/// An address of node 1. Its record is not in the backup, and is not written again.
const FORGOTTEN: (u8, &str) = (1, "10.66.1.9/32");
/// An address that node 3 announces while the datastore is behind.
const NEW: (u8, &str) = (3, "10.66.3.9/32");

/// Writes that the backup does not have. The daemons write only a few times before the reflector
/// reports that the datastore is behind.
const WRITES_LOST: u32 = 500;

/// Further lines of the reflector's file.
const ENFORCE: &str = "origin_validation = \"enforce\"\n";

/// Returns a predicate: origin validation has this state of its records.
fn records(state: &str) -> impl Fn(&Status) -> bool {
    let state = format!("enforce, records {state}, ");
    move |status| {
        let mut facts = status.facts.iter();
        facts.any(|fact| fact.name == "origin validation" && fact.value.starts_with(&state))
    }
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

/// The reflectors of a fabric with many endpoints; nodes choose both.
const TWO: [u8; 2] = [REFLECTOR, 12];
/// The sessions of a node with them.
const CHOSEN_OF_TWO: usize = 2 * CHOSEN;

/// Endpoints of the nodes, and those in one transaction: etcd's limit of operations.
const ENDPOINTS: u16 = 10_000;
const ENDPOINTS_OF_TXN: usize = 128;

/// How long the datastore is away.
const AWAY: Duration = Duration::from_secs(60);

/// Returns an endpoint's node and address, by the number of the endpoint.
fn endpoint(number: u16) -> (u8, IpNet) {
    let node = NODES[usize::from(number) % NODES.len()];
    let [high, low] = number.to_be_bytes();
    (node, net(&format!("10.65.{}.{low}/32", 64 + high)))
}

impl<'g> Fleet<'g> {
    /// Starts three nodes with two reflectors that validate their routes, and many endpoints. Each
    /// reflector can start without the datastore. Returns `None` without etcd.
    async fn with_many_endpoints(ground: &'g Ground) -> Option<Self> {
        let mut fleet = Self::begin(ground, &ETCD).await?;
        fleet.mesh(false).await;
        for number in TWO {
            fleet.write_reflector(number).await;
        }
        for number in NODES {
            fleet.write_workload(number).await;
        }
        fleet.write_endpoints().await;
        let stores = fleet.stores.clone();
        for number in TWO {
            let site = ground.site(number).await.expect("a host");
            let file = site.host.directory().join("route-reflector.snapshot");
            let snapshot =
                format!("datastore_snapshot = {{ file = {file:?}, max_age_s = 86400 }}\n");
            let keys = format!("{ENFORCE}{snapshot}");
            let reflector = Speaker::start_stored_with(Kind::Reflector, site, &stores, &keys);
            fleet.reflectors.push(reflector.expect("a reflector"));
        }
        fleet.registered(ReflectorState::Active, &TWO).await;
        for number in NODES {
            let start = |site| Speaker::start_stored(Kind::Client, site, &stores);
            fleet.add_node(number, start).await;
        }
        for node in &fleet.nodes {
            let endpoints = (0..ENDPOINTS).map(endpoint);
            let own = endpoints.filter(|(home, _)| *home == node.number);
            node.announce(own.map(|(_, address)| address))
                .await
                .expect("announced");
        }
        fleet.sessions(CHOSEN_OF_TWO).await;
        fleet.whole().await;
        fleet.has_endpoints().await;
        Some(fleet)
    }

    /// Writes the records of all endpoints.
    async fn write_endpoints(&self) {
        let numbers: Vec<u16> = (0..ENDPOINTS).collect();
        for numbers in numbers.chunks(ENDPOINTS_OF_TXN) {
            let puts = numbers.iter().map(|&number| {
                let (node, address) = endpoint(number);
                let key = format!("{RESOURCES_PREFIX}workloadendpoints/ns/e{number}");
                let text = format!(r#"{{"spec":{{"node":"h{node}","ipNetworks":["{address}"]}}}}"#);
                Op::Put(Put::new(key, text))
            });
            let txn = Txn {
                then: puts.collect(),
                ..Txn::default()
            };
            self.store.txn(txn).await.expect("written");
        }
    }

    /// Waits until each kernel has the routes to all endpoints of the other nodes.
    async fn has_endpoints(&self) {
        self.wait("the routes of all endpoints", async || {
            for node in &self.nodes {
                let own = (0..ENDPOINTS).filter(|number| endpoint(*number).0 == node.number);
                let others = usize::from(ENDPOINTS) - own.count();
                // And those of the workloads of the other nodes.
                let expected = others + NODES.len() - 1;
                let found = node.learned("10.65.").await?;
                if found != expected {
                    return Ok(Err(format!("host {}: {found} of {expected}", node.number)));
                }
            }
            Ok(Ok(()))
        })
        .await;
    }

    /// Kills the datastore, then a reflector, which starts again while the datastore is away.
    pub(crate) async fn a_reflector_restarts_without_the_store(&mut self) {
        self.settled().await;
        let watch = self.watch("a reflector restarts without the store");
        self.etcd.kill(0).await.expect("killed");
        let killed = Instant::now();
        self.reflectors[0].kill().await.expect("killed");
        self.someone_misses_a_session().await;
        self.reflectors[0].start_stored_again().expect("started");
        self.sessions(CHOSEN_OF_TWO).await;
        self.reflectors[1]
            .reports("the loss", records("away"))
            .await;
        sleep_until(killed + AWAY).await;
        self.has_endpoints().await;
        self.etcd.run(0).expect("started");
        self.a_word_passes().await;
        for reflector in &self.reflectors {
            reflector.reports("the return", records("in-sync")).await;
        }
        self.sessions(CHOSEN_OF_TWO).await;
        self.has_endpoints().await;
        watch.end(&self.nodes).await;
    }

    /// Starts three nodes with a reflector that validates their routes; returns with it a backup of
    /// the datastore without any record of a workload. Returns `None` without etcd and etcdctl.
    async fn validated(ground: &'g Ground) -> Option<Self> {
        let mut fleet = Self::begin(ground, &ETCD).await?;
        fleet.mesh(false).await;
        fleet.write_reflector(REFLECTOR).await;
        for number in NODES {
            fleet.write_node(number).await;
        }
        if !fleet.etcd.back_up().await.expect("etcdctl runs") {
            return None;
        }
        for number in NODES {
            fleet.write_workload(number).await;
        }
        fleet.write_endpoint(FORGOTTEN).await;
        let site = ground.site(REFLECTOR).await.expect("a host");
        let stores = fleet.stores.clone();
        let reflector = Speaker::start_stored_with(Kind::Reflector, site, &stores, ENFORCE);
        fleet.reflectors.push(reflector.expect("a reflector"));
        let registered = [REFLECTOR];
        fleet.registered(ReflectorState::Active, &registered).await;
        for number in NODES {
            let start = |site| Speaker::start_stored(Kind::Client, site, &stores);
            fleet.add_node(number, start).await;
        }
        fleet.sessions(CHOSEN).await;
        fleet.whole().await;
        fleet.announce(FORGOTTEN).await;
        fleet.is_used(FORGOTTEN, true).await;
        Some(fleet)
    }

    /// Writes the Node of a reflector; its label is the operator's record that it is one.
    async fn write_reflector(&self, number: u8) {
        let at = Site::v4(number);
        let v6 = Site::v6(number);
        let text = format!(
            r#"{{"kind":"Node","metadata":{{"name":"h{number}",
                "labels":{{"cambric.io/reflector-weight":"1"}}}},
                "spec":{{"bgp":{{"ipv4Address":"{at}/24","ipv6Address":"{v6}/64"}}}}}}"#
        );
        let key = format!("{RESOURCES_PREFIX}nodes/h{number}");
        self.put(&key, &text).await;
    }

    /// Writes the record of a node's workload.
    async fn write_workload(&self, number: u8) {
        let nets = format!(r#""10.65.{number}.1/32","fd65::{number}/128""#);
        self.write_record(&format!("w{number}"), number, &nets)
            .await;
    }

    async fn write_endpoint(&self, (number, address): (u8, &str)) {
        let name = address.replace(['.', '/'], "-");
        self.write_record(&name, number, &format!("\"{address}\""))
            .await;
    }

    async fn write_record(&self, name: &str, number: u8, nets: &str) {
        let key = format!("{RESOURCES_PREFIX}workloadendpoints/ns/{name}");
        let text = format!(r#"{{"spec":{{"node":"h{number}","ipNetworks":[{nets}]}}}}"#);
        self.put(&key, &text).await;
    }

    /// Writes a key that no daemon reads.
    async fn write_many(&self, count: u32) {
        for nth in 0..count {
            self.put("/lab/revisions", &nth.to_string()).await;
        }
    }

    async fn announce(&self, (number, address): (u8, &str)) {
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|node| node.number == number).expect("a node");
        let announced = node.speaker.announce(&Own::plain(net(address))).await;
        announced.expect("announced");
    }

    /// Waits until the reflector has a node's route, and uses it or does not use it.
    async fn is_used(&self, (_, address): (u8, &str), used: bool) {
        self.wait(&format!("{address}, used: {used}"), async || {
            let paths = self.reflectors[0].paths(net(address)).await;
            let mut paths = paths.iter();
            let is_so = paths.any(|path| path.best == used);
            Ok(is_so.then_some(()).ok_or_else(|| format!("{paths:?}")))
        })
        .await;
    }

    /// Restores the backup with the same token: records stay, and new ones wait.
    pub(crate) async fn the_store_goes_back(&mut self) {
        self.write_many(WRITES_LOST).await;
        let watch = self.watch("the store goes back");
        self.etcd.kill(0).await.expect("killed");
        self.etcd.restore().await.expect("restored");
        self.etcd.run(0).expect("started");
        // The datastore answers: it has no record of a workload.
        self.wait("the backup is served", async || {
            let key = format!("{RESOURCES_PREFIX}workloadendpoints/ns/w1");
            Ok(match self.store.get(key.into()).await {
                Ok(None) => Ok(()),
                other => Err(format!("{other:?}")),
            })
        })
        .await;
        let reflector = &self.reflectors[0];
        reflector.reports("the loss", records("away")).await;
        self.announce(NEW).await;
        self.is_used(NEW, false).await;
        self.is_used(FORGOTTEN, true).await;
        self.whole().await;
        watch.end(&self.nodes).await;
    }

    /// Writes the records again, except one, until the revision is the known one: the content of
    /// the datastore applies.
    pub(crate) async fn the_store_catches_up(&mut self) {
        let watch = self.watch("the store catches up");
        for number in NODES {
            self.write_workload(number).await;
        }
        self.write_endpoint(NEW).await;
        // The known revision is that of these writes and a few others.
        self.write_many(2 * WRITES_LOST).await;
        let reflector = &self.reflectors[0];
        reflector.reports("the return", records("in-sync")).await;
        self.is_used(NEW, true).await;
        self.is_used(FORGOTTEN, false).await;
        self.a_word_passes().await;
        self.whole().await;
        watch.end(&self.nodes).await;
    }
}

// Promise: as bgp-daemon route_is_used_as_long_as_it_has_a_record
#[test]
fn accepted_routes_stay_while_a_restored_store_is_behind() {
    let name = "accepted_routes_stay_while_a_restored_store_is_behind";
    interop_tests::in_ground(&[], name, async |ground: Ground| {
        let Some(mut fleet) = Fleet::validated(&ground).await else {
            return;
        };
        fleet.the_store_goes_back().await;
        fleet.the_store_catches_up().await;
    });
}

// Promise: as bgp-daemon route_is_used_as_long_as_it_has_a_record
#[test]
fn many_routes_stay_without_the_store_and_a_reflector() {
    let name = "many_routes_stay_without_the_store_and_a_reflector";
    interop_tests::in_ground(&[], name, async |ground: Ground| {
        let Some(mut fleet) = Fleet::with_many_endpoints(&ground).await else {
            return;
        };
        fleet.a_reflector_restarts_without_the_store().await;
    });
}
