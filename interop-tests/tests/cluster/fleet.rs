//! The fabric of the lab, and the events that it must survive.

use std::net::SocketAddr;
use std::time::Duration;

use calico_model::{FabricKey, RESOURCES_PREFIX, ReflectorState, Registration};
use calico_store::{EtcdOptions, EtcdStore, LeaseId, Store as _};
use daemon_common::report::Status;
use interop_tests::{Etcd, Ground, Kind, Own, READY, Site, Speaker};
use netns_lab::{Error, until};

use crate::settled::has_begun;
use crate::watch::{Node, Watch};

const NODES: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

pub(crate) const REFLECTORS: [u8; 3] = [11, 12, 13];

pub(crate) const ETCDS: [u8; 3] = [21, 22, 23];

/// How long any step may take.
const SETTLED: Duration = Duration::from_secs(90);

/// Sessions of a node with its two chosen reflectors, one for each family.
pub(crate) const CHOSEN: usize = 2 * 2;

/// Sessions of a node in the full mesh.
const MESH: usize = (NODES.len() - 1) * 2;

/// How long a silent reflector still counts, as the daemons are configured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub(crate) registration_ttl: Duration,
    pub(crate) absence_wait: Duration,
}

impl Patience {
    fn keys(self, kind: Kind) -> String {
        let absence_wait = self.absence_wait.as_secs();
        let registration_ttl = self.registration_ttl.as_secs();
        let keys = format!("absence_wait = {absence_wait}\n");
        match kind {
            Kind::Reflector => format!("{keys}registration_ttl = {registration_ttl}\n"),
            _ => keys,
        }
    }
}

pub(crate) struct Fleet<'g> {
    pub(crate) ground: &'g Ground,
    pub(crate) etcd: Etcd,
    pub(crate) stores: Vec<SocketAddr>,
    pub(crate) store: EtcdStore,
    pub(crate) nodes: Vec<Node>,
    pub(crate) reflectors: Vec<Speaker>,
}

impl<'g> Fleet<'g> {
    /// Starts everything except the reflectors; all nodes form a full mesh. Returns `None` without
    /// etcd.
    pub(crate) async fn start(ground: &'g Ground, patience: Patience) -> Option<Self> {
        let mut fleet = Self::begin(ground, &ETCDS).await?;
        fleet.mesh(true).await;
        let stores = fleet.stores.clone();
        for number in NODES {
            let keys = patience.keys(Kind::Client);
            let start = |site| Speaker::start_stored_with(Kind::Client, site, &stores, &keys);
            fleet.add_node(number, start).await;
        }
        fleet.sessions(MESH).await;
        fleet.whole().await;
        Some(fleet)
    }

    /// Starts the datastore only. Returns `None` without etcd.
    pub(crate) async fn begin(ground: &'g Ground, etcds: &[u8]) -> Option<Self> {
        ground.join().await.expect("an address");
        let etcd = Etcd::start(ground, etcds).await.expect("etcds")?;
        let stores = etcd.endpoints();
        let urls = stores.iter().map(|store| format!("http://{store}"));
        let options = EtcdOptions::new(urls.collect::<Vec<_>>());
        let store = EtcdStore::connect(&options).await.expect("a store");
        let fleet = Self {
            ground,
            etcd,
            stores,
            store,
            nodes: Vec::new(),
            reflectors: Vec::new(),
        };
        fleet.a_word_passes().await;
        fleet.cluster(READY).await;
        fleet.pools().await;
        Some(fleet)
    }

    /// Starts a node.
    pub(crate) async fn add_node(
        &mut self,
        number: u8,
        start: impl FnOnce(Site) -> Result<Speaker, Error>,
    ) {
        self.write_node(number).await;
        let site = self.ground.site(number).await.expect("a host");
        let node = Node::begin(site, start).await.expect("a node");
        self.nodes.push(node);
    }

    /// Starts reflectors, then disables the mesh.
    pub(crate) async fn move_to_reflectors(&mut self, patience: Patience) {
        let watch = self.watch("from mesh to reflectors");
        for number in REFLECTORS {
            self.write_node(number).await;
            let site = self.ground.site(number).await.expect("a host");
            let (kind, stores) = (Kind::Reflector, &self.stores);
            let speaker = Speaker::start_stored_with(kind, site, stores, &patience.keys(kind));
            self.reflectors.push(speaker.expect("a reflector"));
        }
        self.registered(ReflectorState::Active, &REFLECTORS).await;
        self.sessions(MESH + CHOSEN).await;
        self.mesh(false).await;
        self.sessions(CHOSEN).await;
        watch.end(&self.nodes).await;
    }

    /// Kills a reflector, waits until its absence is noticed, and restarts it.
    pub(crate) async fn a_reflector_is_killed(&mut self, nth: usize) {
        self.settled().await;
        let watch = self.watch("a reflector is killed");
        self.reflectors[nth].kill().await.expect("killed");
        self.someone_misses_a_session().await;
        self.reflectors[nth].start_stored_again().expect("started");
        self.sessions(CHOSEN).await;
        watch.end(&self.nodes).await;
        self.whole().await;
    }

    /// Kills an etcd member and restarts it; its clients use the other members.
    pub(crate) async fn an_etcd_is_killed(&mut self, nth: usize) {
        let watch = self.watch("an etcd is killed");
        self.etcd.kill(nth).await.expect("killed");
        self.a_word_passes().await;
        self.etcd.run(nth).expect("started");
        self.a_word_passes().await;
        self.sessions(CHOSEN).await;
        watch.end(&self.nodes).await;
    }

    /// Kills all etcd members, and restarts them.
    pub(crate) async fn the_store_is_away(&mut self, time: Duration) {
        let watch = self.watch("the store is away");
        for nth in 0..self.etcd.members() {
            self.etcd.kill(nth).await.expect("killed");
        }
        tokio::time::sleep(time).await;
        for nth in 0..self.etcd.members() {
            self.etcd.run(nth).expect("started");
        }
        self.a_word_passes().await;
        self.registered(ReflectorState::Active, &REFLECTORS).await;
        self.sessions(CHOSEN).await;
        watch.end(&self.nodes).await;
    }

    /// Kills all reflectors at once, and restarts them.
    pub(crate) async fn all_reflectors_are_away(&mut self, time: Duration) {
        self.settled().await;
        let watch = self.watch("all reflectors are away");
        for reflector in &mut self.reflectors {
            reflector.kill().await.expect("killed");
        }
        self.sessions(0).await;
        tokio::time::sleep(time).await;
        for reflector in &mut self.reflectors {
            reflector.start_stored_again().expect("started");
        }
        self.sessions(CHOSEN).await;
        watch.end(&self.nodes).await;
        self.whole().await;
    }

    /// Drains a reflector while routes change: its clients choose others, and return afterwards.
    pub(crate) async fn a_reflector_is_drained_under_load(&mut self, nth: usize) {
        let before = self.choices().await;
        let watch = self.watch("a reflector is drained under load");
        let host = REFLECTORS[nth];
        let key = FabricKey::Drain(format!("h{host}")).to_string();
        self.put(&key, "{}").await;
        let drained = [host];
        tokio::select! {
            () = self.churn() => {}
            () = self.registered(ReflectorState::Drained, &drained) => {}
        }
        self.wait("a reflector without neighbors", async || {
            let left = self.reflectors[nth].neighbors().await.neighbors;
            Ok(left
                .is_empty()
                .then_some(())
                .ok_or_else(|| format!("{left:?}")))
        })
        .await;
        self.sessions(CHOSEN).await;
        watch.end(&self.nodes).await;

        let watch = self.watch("and undrained");
        self.delete(&key).await;
        self.registered(ReflectorState::Active, &drained).await;
        self.chosen_are(&before).await;
        watch.end(&self.nodes).await;
    }

    /// Enables the mesh, then drains and stops the reflectors.
    pub(crate) async fn move_to_mesh(&mut self) {
        let watch = self.watch("from reflectors to mesh");
        self.mesh(true).await;
        self.sessions(MESH + CHOSEN).await;
        for host in REFLECTORS {
            let key = FabricKey::Drain(format!("h{host}")).to_string();
            self.put(&key, "{}").await;
        }
        self.registered(ReflectorState::Drained, &REFLECTORS).await;
        for reflector in &mut self.reflectors {
            reflector.kill().await.expect("killed");
        }
        self.sessions(MESH).await;
        watch.end(&self.nodes).await;
        self.whole().await;
    }

    pub(crate) fn watch(&self, what: &'static str) -> Watch {
        Watch::begin(what, &self.nodes)
    }

    /// Adds and removes a node's routes, many each second.
    async fn churn(&self) {
        let node = &self.nodes[0].speaker;
        for round in 0_u32.. {
            let net = format!("10.66.{}.{}/32", round / 200 % 200, round % 200);
            let own = Own::plain(net.parse().expect("a prefix"));
            node.announce(&own).await.expect("announced");
            tokio::time::sleep(Duration::from_millis(2)).await;
            node.withdraw(own.net).await.expect("withdrawn");
        }
    }

    /// Waits until every node has exactly so many sessions, all of them up.
    pub(crate) async fn sessions(&self, count: usize) {
        for node in &self.nodes {
            node.speaker.reports("that it has begun", has_begun).await;
        }
        let what = format!("{count} sessions of every node");
        self.wait(&what, async || {
            for node in &self.nodes {
                let neighbors = node.speaker.neighbors().await.neighbors;
                let up = |state: &str| state == "Established";
                let found = neighbors.iter().filter(|one| up(&one.state)).count();
                if found != count || (count > 0 && neighbors.len() != count) {
                    let states = neighbors
                        .iter()
                        .map(|one| format!("{} {}", one.name, one.state));
                    let states: Vec<String> = states.collect();
                    return Ok(Err(format!("host {}: {states:?}", node.number)));
                }
            }
            Ok(Ok(()))
        })
        .await;
    }

    pub(crate) async fn someone_misses_a_session(&self) {
        self.wait("a session that ends", async || {
            for node in &self.nodes {
                let neighbors = node.speaker.neighbors().await.neighbors;
                if neighbors.iter().any(|one| one.state != "Established") {
                    return Ok(Ok(()));
                }
            }
            Ok(Err("all are up".to_owned()))
        })
        .await;
    }

    /// Waits until every kernel has a route to every workload.
    pub(crate) async fn whole(&self) {
        let all: Vec<u8> = self.nodes.iter().map(|node| node.number).collect();
        self.wait("every route in every kernel", async || {
            for node in &self.nodes {
                let lacks = node.lacks(&all).await?;
                if !lacks.is_empty() {
                    return Ok(Err(format!("host {} lacks {lacks:?}", node.number)));
                }
            }
            Ok(Ok(()))
        })
        .await;
    }

    /// Waits until the datastore has this state for these reflectors.
    pub(crate) async fn registered(&self, state: ReflectorState, hosts: &[u8]) {
        self.wait(&format!("{hosts:?} are {state}"), async || {
            for host in hosts {
                let key = FabricKey::Reflector(format!("h{host}")).to_string();
                let found = match self.store.get(key.into()).await {
                    Ok(Some(found)) => Registration::parse(&found.value).expect("reads"),
                    other => return Ok(Err(format!("host {host}: {other:?}"))),
                };
                if found.state != state {
                    return Ok(Err(format!("host {host}: {found:?}")));
                }
            }
            Ok(Ok(()))
        })
        .await;
    }

    /// Waits until the datastore accepts a write and every daemon has processed it: each reports an
    /// invalid value until that value is deleted.
    pub(crate) async fn a_word_passes(&self) {
        let key = format!("{RESOURCES_PREFIX}nodes/rumour");
        self.put(&key, "?").await;
        let nodes = self.nodes.iter().map(|node| &node.speaker);
        let speakers: Vec<&Speaker> = nodes.chain(&self.reflectors).collect();
        let complains = |status: &Status| {
            let mut notes = status.notes.iter();
            notes.any(|note| note.contains("nodes/rumour"))
        };
        for speaker in &speakers {
            speaker.reports("a rumour", complains).await;
        }
        self.delete(&key).await;
        for speaker in &speakers {
            let calm = |status: &Status| !complains(status);
            speaker.reports("that the rumour is over", calm).await;
        }
    }

    pub(crate) async fn wait(
        &self,
        what: &str,
        probe: impl AsyncFnMut() -> Result<Result<(), String>, Error>,
    ) {
        if let Err(error) = until(SETTLED, what, probe).await {
            let speakers = self
                .nodes
                .iter()
                .map(|node| &node.speaker)
                .chain(&self.reflectors);
            for speaker in speakers {
                println!("host {}:\n{}", speaker.site.number, speaker.log_tail());
            }
            panic!("{error}");
        }
    }

    /// Retries without an answer: a connection to an etcd member that was just killed is lost.
    pub(crate) async fn put(&self, key: &str, value: &str) {
        let put = async || {
            let (key, value) = (key.to_owned().into(), value.to_owned().into());
            let done = self.store.put(key, value, LeaseId::NONE).await;
            Ok(done.map(drop).map_err(|error| error.to_string()))
        };
        self.wait(&format!("{key} written"), put).await;
    }

    pub(crate) async fn delete(&self, key: &str) {
        let delete = async || {
            let done = self.store.delete(key.to_owned().into()).await;
            Ok(done.map(drop).map_err(|error| error.to_string()))
        };
        self.wait(&format!("{key} deleted"), delete).await;
    }

    pub(crate) async fn write_node(&self, number: u8) {
        let (v4, v6) = (Site::v4(number), Site::v6(number));
        let text = format!(
            r#"{{"kind":"Node","metadata":{{"name":"h{number}",
                "labels":{{"topology.kubernetes.io/zone":"zone-{number}"}}}},
                "spec":{{"bgp":{{"ipv4Address":"{v4}/24","ipv6Address":"{v6}/64"}}}}}}"#
        );
        self.put(&format!("{RESOURCES_PREFIX}nodes/h{number}"), &text)
            .await;
    }

    /// Writes the ClusterInformation.
    pub(crate) async fn cluster(&self, text: &str) {
        let key = format!("{RESOURCES_PREFIX}clusterinformations/default");
        self.put(&key, text).await;
    }

    pub(crate) async fn pools(&self) {
        let pools = ["10.65.0.0/16", "10.66.0.0/16", "fd65::/64"];
        for (nth, cidr) in pools.into_iter().enumerate() {
            let text = format!(
                r#"{{"kind":"IPPool","metadata":{{"name":"pool{nth}"}},"spec":{{"cidr":"{cidr}"}}}}"#
            );
            let key = format!("{RESOURCES_PREFIX}ippools/pool{nth}");
            self.put(&key, &text).await;
        }
    }

    pub(crate) async fn mesh(&self, on: bool) {
        let text = format!(
            r#"{{"kind":"BGPConfiguration","metadata":{{"name":"default"}},
                "spec":{{"nodeToNodeMeshEnabled":{on}}}}}"#
        );
        let key = format!("{RESOURCES_PREFIX}bgpconfigurations/default");
        self.put(&key, &text).await;
    }
}
