//! Gated mirrors, and a real etcd that loses all its data.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Etcd, Picture, initialize, insist, put, soon};
use calico_store::{
    Delete, EtcdOptions, EtcdStore, Follower, KeyRange, LeaseId, Op, Revision, SnapshotOptions,
    Status, Store, Txn, Unready, follow_ready,
};

/// Number of deletions of all keys.
const ROUNDS: usize = 30;

/// A store, and a consumer with a picture of it.
struct Bench {
    etcd: Etcd,
    store: EtcdStore,
    follower: Follower,
    picture: Picture,
}

fn follow(store: &EtcdStore, snapshot: Option<&SnapshotOptions>) -> Follower {
    let ranges = ["/a/", "/b/"].map(KeyRange::prefix);
    follow_ready(Arc::new(store.clone()), ranges, 1, snapshot)
}

impl Bench {
    /// Returns `None` without etcd.
    async fn new() -> Option<Self> {
        let etcd = Etcd::start().await?;
        let options = EtcdOptions::new(etcd.urls());
        let store = EtcdStore::connect(&options).await.unwrap();
        let mut bench = Self {
            follower: follow(&store, None),
            picture: Picture::default(),
            store,
            etcd,
        };
        // An empty store must not be applied.
        bench.is_unready(Unready::Silent).await;
        bench.put("/a/1").await;
        bench.put("/b/1").await;
        bench.initialize().await;
        bench.until("sync", Status::InSync).await;
        assert_eq!(bench.held(), 2);
        Some(bench)
    }

    async fn put(&self, key: &'static str) -> Revision {
        put(&self.store, key, "x").await
    }

    async fn initialize(&self) {
        initialize(&self.store).await;
    }

    async fn until(&mut self, what: &str, status: Status) {
        let done = |p: &Picture| p.status == Some(status);
        self.picture.until(&mut self.follower, what, done).await;
    }

    async fn is_unready(&mut self, why: Unready) {
        self.until(&format!("{why:?}"), Status::Unready(why)).await;
    }

    fn held(&self) -> usize {
        self.picture.keys_below("/a/") + self.picture.keys_below("/b/")
    }

    /// Deletes all its data. With another token it is another cluster.
    async fn wipe(&mut self, token: &str, until_lost: bool) {
        let member = &mut self.etcd.members[0];
        member.kill().await;
        std::fs::remove_dir_all(member.directory.path().join("data")).unwrap();
        member.with(&["--initial-cluster-token", token]);
        if until_lost {
            self.until("the loss", Status::Lost).await;
        }
        assert!(self.etcd.members[0].start().await);
    }
}

async fn another_cluster(until_lost: bool) {
    let Some(mut bench) = Bench::new().await else {
        return;
    };
    bench.wipe("again", until_lost).await;
    bench.is_unready(Unready::Silent).await;
    // Filled in part, and marked as ready, by a program without knowledge of the earlier content.
    bench.put("/a/2").await;
    bench.initialize().await;
    bench.is_unready(Unready::Other).await;
    assert_eq!(bench.held(), 2);
    assert!(bench.picture.holds("/a/1", "x") && bench.picture.holds("/b/1", "x"));
    // A consumer without an earlier picture accepts it as it is.
    bench.follower = follow(&bench.store, None);
    bench.picture = Picture::default();
    bench.until("sync", Status::InSync).await;
    assert!(bench.held() == 1 && bench.picture.holds("/a/2", "x"));
}

// Promise (Datastore): A datastore that is emptied, locked or started empty deletes nothing.
#[tokio::test]
async fn an_etcd_that_lost_all_takes_nothing_away() {
    another_cluster(false).await;
}

#[tokio::test]
async fn an_etcd_that_was_away_and_lost_all_takes_nothing_away() {
    another_cluster(true).await;
}

/// A store created again with the same members and token has the same cluster ID.
#[tokio::test]
async fn empty_etcd_with_its_old_id_deletes_nothing() {
    let Some(mut bench) = Bench::new().await else {
        return;
    };
    let known = bench.put("/b/2").await;
    let done = |p: &Picture| p.holds("/b/2", "x");
    let Bench {
        picture, follower, ..
    } = &mut bench;
    picture.until(follower, "a change", done).await;
    bench.wipe("etcd-cluster", false).await;
    bench.until("the loss", Status::Lost).await;
    // Up to the known revision, and beyond.
    let filled = async { while bench.put("/c/1").await <= known {} };
    soon("the writes", filled).await;
    bench.is_unready(Unready::Silent).await;
    assert_eq!(bench.held(), 3);
    assert!(!bench.picture.was_restored);
}

#[tokio::test]
async fn a_snapshot_is_not_forgotten_for_an_etcd_that_lost_all() {
    let Some(mut bench) = Bench::new().await else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let options = SnapshotOptions::new(directory.path().join("snapshot"));
    bench.follower = follow(&bench.store, Some(&options));
    let bytes = async {
        loop {
            if let Ok(octets) = std::fs::read(&options.file) {
                return octets;
            }
            tokio::select! {
                updates = bench.follower.next() => bench.picture.take(updates),
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    };
    let snapshot = soon("the snapshot", bytes).await;
    bench.wipe("again", false).await;
    bench.put("/a/2").await;
    bench.initialize().await;
    bench.follower = follow(&bench.store, Some(&options));
    bench.picture = Picture::default();
    bench.is_unready(Unready::Other).await;
    assert!(bench.picture.was_restored && bench.held() == 2);
    assert_eq!(std::fs::read(&options.file).unwrap(), snapshot);
}

// Promise: as calico-store an_etcd_that_lost_all_takes_nothing_away
/// Deletes all keys as `etcdctl del --prefix` does, with mirrors running. Each range has its own
/// watch, and the order of their events is random.
#[tokio::test]
async fn etcd_with_all_keys_deleted_removes_nothing() {
    let Some(mut bench) = Bench::new().await else {
        return;
    };
    let key = format!("{}default", calico_model::Kind::ClusterInformation.prefix());
    let words = soon("its word", bench.store.get(key.clone().into())).await;
    let words = words.unwrap().unwrap().value;
    for _ in 0..ROUNDS {
        let all = Txn {
            then: vec![Op::Delete(Delete {
                range: KeyRange::prefix("/"),
                previous: false,
            })],
            ..Txn::default()
        };
        insist("the deletion", async || bench.store.txn(all.clone()).await).await;
        let Bench {
            picture, follower, ..
        } = &mut bench;
        while picture.status != Some(Status::Unready(Unready::Silent)) {
            picture.take(soon("the end", follower.next()).await);
            let held = picture.keys_below("/a/") + picture.keys_below("/b/");
            assert_eq!(held, 2);
        }
        for key in ["/a/1", "/b/1"] {
            bench.put(key).await;
        }
        insist("a write", async || {
            let (key, words) = (key.clone().into(), words.clone());
            bench.store.put(key, words, LeaseId::NONE).await
        })
        .await;
        bench.until("sync", Status::InSync).await;
        assert_eq!(bench.held(), 2);
    }
}
