//! A follower that starts with the snapshot of an earlier one.

use std::path::Path;
use std::sync::Arc;

use crate::common::{Picture, Served, free_port, soon};
use calico_store::resources::Resources;
use calico_store::{
    EtcdOptions, EtcdStore, Follower, KeyRange, LeaseId, SnapshotOptions, Status, Store,
    follow_ready,
};

fn begin(store: &EtcdStore, options: &SnapshotOptions) -> Follower {
    let ranges = ["/a/", "/b/"].map(KeyRange::prefix);
    follow_ready(Arc::new(store.clone()), ranges, 1, Some(options))
}

async fn put(store: &EtcdStore, key: &'static str, value: &'static str) {
    let put = store.put(key.into(), value.into(), LeaseId::NONE);
    put.await.unwrap();
}

async fn ready(store: &EtcdStore) {
    let resources = Resources::new(store.clone());
    resources.declare_ready().await.unwrap();
}

async fn written(path: &Path) {
    let there = async {
        while !path.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    soon("the snapshot", there).await;
}

#[tokio::test]
async fn restart_without_the_store_uses_the_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let options = SnapshotOptions::new(directory.path().join("snapshot"));
    let served = Served::start().await;
    let began = std::time::Instant::now();
    let client = served.client().await;
    ready(&client).await;
    put(&client, "/a/1", "one").await;
    put(&client, "/b/1", "two").await;
    let mut follower = begin(&client, &options);
    let mut picture = Picture::default();
    let in_sync = |p: &Picture| p.status == Some(Status::InSync);
    picture.until(&mut follower, "sync", in_sync).await;
    written(&options.file).await;
    drop(follower);
    let address = served.address;
    served.stop().await;

    // The store is unreachable, but the snapshot exists.
    let unreachable = EtcdOptions::new([format!("http://{}", free_port())]);
    let unreachable = EtcdStore::connect(&unreachable).await.unwrap();
    let mut follower = begin(&unreachable, &options);
    let mut picture = Picture::default();
    let restored = |p: &Picture| match p.status {
        Some(Status::Snapshot { age_s }) => age_s <= began.elapsed().as_secs() + 1,
        _ => false,
    };
    picture.until(&mut follower, "the snapshot", restored).await;
    assert!(picture.keys_below("/") == 3 && picture.holds("/a/1", "one"));
    drop(follower);

    // The store is reachable again, with another history: keys that it lacks are deleted.
    let served = Served::at(address).await;
    let client = served.client().await;
    ready(&client).await;
    put(&client, "/a/1", "new").await;
    let mut follower = begin(&client, &options);
    let mut picture = Picture::default();
    picture.until(&mut follower, "sync", in_sync).await;
    assert!(picture.keys_below("/") == 2 && picture.holds("/a/1", "new"));
    served.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_is_broken_or_not_to_be_used_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = SnapshotOptions::new(directory.path().join("snapshot"));
    let served = Served::start().await;
    let client = served.client().await;
    ready(&client).await;
    put(&client, "/a/1", "one").await;
    std::fs::write(&options.file, "something else").unwrap();
    for max_age_s in [options.max_age_s, 0] {
        options.max_age_s = max_age_s;
        let mut follower = begin(&client, &options);
        let mut picture = Picture::default();
        let first = soon("the first update", follower.next()).await;
        assert!(matches!(
            first[0],
            calico_store::Update::Status(Status::Syncing)
        ));
        picture.take(first);
        let done = |p: &Picture| p.status == Some(Status::InSync);
        picture.until(&mut follower, "sync", done).await;
        assert!(!picture.was_restored && picture.holds("/a/1", "one"));
        std::fs::remove_file(&options.file).unwrap();
        written(&options.file).await;
    }
    served.stop().await;
}
