//! A small fabric with a datastore that is unreachable, or has lost all its data.

use std::time::Duration;

use calico_model::{FabricKey, ReflectorState};
use daemon_common::report::Status;
use interop_tests::{Ground, Kind, READY, Speaker};

use crate::fleet::Fleet;

const NODES: [u8; 3] = [1, 2, 3];

const REFLECTOR: u8 = 11;

const ETCD: [u8; 1] = [21];

/// Longer than any test.
const DAY_S: u32 = 86_400;

/// Sessions of a node with the reflector, one for each family.
const CHOSEN: usize = 2;

/// Sessions of a node in the full mesh.
const MESH: usize = (NODES.len() - 1) * 2;

/// A ClusterInformation with another clusterGUID, as written into a new datastore.
const BEGUN: &str = r#"{"spec":{"clusterGUID":"begun anew","datastoreReady":true}}"#;

const LOCKED: &str = r#"{"spec":{"clusterGUID":"lab","datastoreReady":false}}"#;

/// Returns a predicate: a daemon reports this text in a note or as its reason for waiting.
fn reports(what: &str) -> impl Fn(&Status) -> bool {
    move |status| {
        let mut lines = status.notes.iter().chain(&status.waiting_for);
        lines.any(|line| line.contains(what))
    }
}

fn is_in_sync(status: &Status) -> bool {
    status.store.as_ref().is_some_and(|store| store.in_sync)
}

impl<'g> Fleet<'g> {
    /// Starts three nodes in a full mesh. Returns `None` without etcd.
    pub(crate) async fn meshed(ground: &'g Ground) -> Option<Self> {
        let mut fleet = Self::begin(ground, &ETCD).await?;
        fleet.mesh(true).await;
        fleet.keeping_nodes().await;
        fleet.sessions(MESH).await;
        fleet.whole().await;
        Some(fleet)
    }

    /// Starts three nodes with a reflector; each daemon has a complete snapshot. Returns `None`
    /// without etcd.
    pub(crate) async fn reflected(ground: &'g Ground) -> Option<Self> {
        let mut fleet = Self::begin(ground, &ETCD).await?;
        fleet.mesh(false).await;
        for number in NODES.into_iter().chain([REFLECTOR]) {
            fleet.write_node(number).await;
        }
        let site = ground.site(REFLECTOR).await.expect("a host");
        let reflector = Speaker::start_keeping(Kind::Reflector, site, &fleet.stores, DAY_S);
        fleet.reflectors.push(reflector.expect("a reflector"));
        let registered = [REFLECTOR];
        fleet.registered(ReflectorState::Active, &registered).await;
        // The reflector's first snapshot was written before its registration.
        let stores = fleet.stores.clone();
        restart(&mut fleet.reflectors[0], &stores, DAY_S).await;
        fleet.keeping_nodes().await;
        fleet.sessions(CHOSEN).await;
        fleet.whole().await;
        let key = FabricKey::Reflector(format!("h{REFLECTOR}")).to_string();
        fleet
            .wait("snapshots", async || {
                let speakers = fleet.speakers().into_iter();
                let mut lacks = speakers.filter(|speaker| {
                    let kept = speaker.kept();
                    !kept.windows(key.len()).any(|part| part == key.as_bytes())
                });
                let lacks = lacks.next().map(|speaker| speaker.site.number);
                Ok(lacks.map_or(Ok(()), |host| Err(format!("host {host} lacks {key}"))))
            })
            .await;
        Some(fleet)
    }

    async fn keeping_nodes(&mut self) {
        let stores = self.stores.clone();
        for number in NODES {
            self.write_node(number).await;
        }
        for number in NODES {
            let start = |site| Speaker::start_keeping(Kind::Client, site, &stores, DAY_S);
            self.add_node(number, start).await;
        }
    }

    fn speakers(&self) -> Vec<&Speaker> {
        let nodes = self.nodes.iter().map(|node| &node.speaker);
        nodes.chain(&self.reflectors).collect()
    }

    /// Kills all daemons one after another; each starts from its snapshot.
    pub(crate) async fn all_restart_without_the_store(&mut self) {
        let watch = self.watch("all restart without the store");
        let stores = self.stores.clone();
        self.settled().await;
        self.etcd.kill(0).await.expect("killed");
        for nth in 0..=NODES.len() {
            let speaker = match self.nodes.get_mut(nth) {
                Some(node) => &mut node.speaker,
                None => &mut self.reflectors[0],
            };
            restart(speaker, &stores, DAY_S).await;
            let from_snapshot = "the store is away: a snapshot of ";
            speaker.reports(from_snapshot, reports(from_snapshot)).await;
            self.sessions(CHOSEN).await;
            self.whole().await;
            self.settled().await;
        }
        self.etcd.run(0).expect("started");
        for speaker in self.speakers() {
            speaker.reports("that the store is back", is_in_sync).await;
        }
        self.a_word_passes().await;
        watch.end(&self.nodes).await;
    }

    /// Tests a snapshot that is too old, and one that is disabled: the daemon waits for the
    /// datastore, and no existing route changes.
    pub(crate) async fn a_snapshot_is_not_to_be_used(&mut self) {
        let watch = self.watch("a snapshot is not to be used");
        let stores = self.stores.clone();
        self.etcd.kill(0).await.expect("killed");
        for (nth, max_age_s) in [(0, 0), (1, 1)] {
            self.nodes[nth].speaker.kill().await.expect("killed");
            self.snapshot_is_older(nth, max_age_s).await;
            let speaker = &mut self.nodes[nth].speaker;
            let started = speaker.start_keeping_again(&stores, max_age_s);
            started.expect("started");
            let waits = "a full read of the store";
            speaker.reports(waits, reports(waits)).await;
            let reason = format!("{max_age_s} s are allowed");
            speaker.writes(&reason).await;
        }
        self.etcd.run(0).expect("started");
        self.sessions(CHOSEN).await;
        self.whole().await;
        watch.end(&self.nodes).await;
    }

    /// Waits until the snapshot of a stopped node is older than that. While the daemon runs it may
    /// write the snapshot again.
    async fn snapshot_is_older(&self, nth: usize, age_s: u32) {
        let age = Duration::from_secs(age_s.into());
        self.wait("an older snapshot", async || {
            let kept_for = self.nodes[nth].speaker.kept_for();
            let is_older = age.is_zero() || kept_for.is_some_and(|kept| kept > age);
            Ok(is_older
                .then_some(())
                .ok_or_else(|| format!("{kept_for:?}")))
        })
        .await;
    }

    /// Deletes all data of the datastore, which is back at once or later, and is filled step by
    /// step.
    pub(crate) async fn the_store_is_emptied(&mut self, later: bool) {
        let watch = self.watch(match later {
            true => "the store is away, then emptied",
            false => "the store is emptied",
        });
        self.etcd.kill(0).await.expect("killed");
        self.etcd.wipe();
        if later {
            for speaker in self.speakers() {
                speaker
                    .reports("the loss", reports("the store is away"))
                    .await;
            }
        }
        self.etcd.run(0).expect("started");
        for speaker in self.speakers() {
            let empty = "it has no ClusterInformation default";
            speaker.reports(empty, reports(empty)).await;
        }
        // The datastore is initialized with another clusterGUID; one Node is stored, so the mesh
        // has no other members.
        self.write_node(NODES[0]).await;
        self.mesh(true).await;
        self.cluster(BEGUN).await;
        for speaker in self.speakers() {
            let other = "its clusterGUID is not that of the store before";
            speaker.reports(other, reports(other)).await;
        }
        // The original clusterGUID is restored, and the data is written before the datastore is
        // unlocked.
        self.cluster(LOCKED).await;
        for speaker in self.speakers() {
            let locked = "does not have datastoreReady: true";
            speaker.reports(locked, reports(locked)).await;
        }
        for number in NODES {
            self.write_node(number).await;
        }
        self.pools().await;
        self.cluster(READY).await;
        for speaker in self.speakers() {
            speaker.reports("that it is in sync", is_in_sync).await;
            speaker.stood(|_| true).await;
        }
        self.whole().await;
        watch.end(&self.nodes).await;
    }
}

/// Kills a daemon and starts it again.
async fn restart(speaker: &mut Speaker, stores: &[std::net::SocketAddr], max_age_s: u32) {
    speaker.kill().await.expect("killed");
    speaker
        .start_keeping_again(stores, max_age_s)
        .expect("started");
}
