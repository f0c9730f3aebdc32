//! The recovery procedure of docs/operate/etcd.md after the loss of all data, with real etcds.

use std::path::Path;
use std::sync::Arc;

use crate::common::{Etcd, Picture, command, initialize, insist, program, put};
use calico_store::{EtcdOptions, EtcdStore, Follower, KeyRange, Status, Store, follow_ready};

fn mirror(store: &EtcdStore) -> Follower {
    let store = Arc::new(store.clone());
    follow_ready(store, [KeyRange::prefix("/a/")], 1, None)
}

fn in_sync(picture: &Picture) -> bool {
    picture.status == Some(Status::InSync)
}

/// Kills all members and deletes their data; creates each again from the backup.
async fn restore(etcd: &mut Etcd, etcdctl: &Path, backup: &Path, token: &str) {
    let members = etcd.members.iter();
    let cluster: Vec<_> = members
        .map(|m| format!("{}={}", m.name, m.peer_url))
        .collect();
    let cluster = cluster.join(",");
    for member in &mut etcd.members {
        member.kill().await;
        let directory = member.directory.path();
        std::fs::remove_dir_all(directory.join("data")).unwrap();
        let arguments = format!(
            "snapshot restore {} --name {} --data-dir data --initial-cluster {cluster} \
             --initial-advertise-peer-urls {} --initial-cluster-token {token}",
            backup.display(),
            member.name,
            member.peer_url,
        );
        command(etcdctl, directory, &arguments).await;
    }
    assert!(etcd.run().await);
}

/// Creates a backup of a cluster, with writes after it; returns its file, and a store client.
async fn backed_up(etcd: &Etcd, etcdctl: &Path) -> (tempfile::TempDir, EtcdStore) {
    let store = EtcdStore::connect(&EtcdOptions::new(etcd.urls()))
        .await
        .unwrap();
    initialize(&store).await;
    put(&store, "/a/1", "saved").await;
    put(&store, "/a/2", "saved").await;
    // The member that creates the backup has all writes, whichever members accepted them.
    let first = EtcdOptions::new([etcd.url()]);
    let first = EtcdStore::connect(&first).await.unwrap();
    let all = insist("a read", async || first.list(KeyRange::prefix("/a/")).await);
    assert_eq!(all.await.items.len(), 2);
    let directory = tempfile::tempdir().unwrap();
    let arguments = format!("--endpoints {} snapshot save backup", etcd.url());
    command(etcdctl, directory.path(), &arguments).await;
    put(&store, "/a/1", "lost").await;
    put(&store, "/a/3", "lost").await;
    insist("a deletion", async || store.delete("/a/2".into()).await).await;
    (directory, store)
}

// Promise (Datastore): All mirrors accept a cluster that is restored as the operator's page
// describes.
#[tokio::test]
async fn mirrors_take_what_was_restored() {
    let Some(etcdctl) = program("etcdctl") else {
        return;
    };
    let Some(mut etcd) = Etcd::cluster(3).await else {
        return;
    };
    let (backup, store) = backed_up(&etcd, &etcdctl).await;
    let (mut follower, mut picture) = (mirror(&store), Picture::default());
    picture
        .until(&mut follower, "what is lost later", |p| {
            in_sync(p) && p.holds("/a/1", "lost") && p.holds("/a/3", "lost")
        })
        .await;

    // Another token creates another cluster: every mirror notices.
    let file = backup.path().join("backup");
    restore(&mut etcd, &etcdctl, &file, "restored").await;
    picture
        .until(&mut follower, "what was saved", |p| {
            in_sync(p)
                && p.holds("/a/1", "saved")
                && p.holds("/a/2", "saved")
                && p.keys_below("/a/") == 2
        })
        .await;
    put(&store, "/a/1", "goes on").await;
    picture
        .until(&mut follower, "what comes next", |p| {
            p.holds("/a/1", "goes on")
        })
        .await;
}

#[tokio::test]
async fn under_the_old_token_mirrors_wait_for_a_restart() {
    let Some(etcdctl) = program("etcdctl") else {
        return;
    };
    let Some(mut etcd) = Etcd::start().await else {
        return;
    };
    let (backup, store) = backed_up(&etcd, &etcdctl).await;
    let (mut follower, mut picture) = (mirror(&store), Picture::default());
    picture.until(&mut follower, "sync", in_sync).await;

    let file = backup.path().join("backup");
    restore(&mut etcd, &etcdctl, &file, "etcd-cluster").await;
    let lost = |p: &Picture| p.status == Some(Status::Lost);
    picture.until(&mut follower, "the loss", lost).await;
    assert!(picture.holds("/a/1", "lost"), "never back in time");

    let (mut follower, mut picture) = (mirror(&store), Picture::default());
    picture.until(&mut follower, "sync", in_sync).await;
    assert!(picture.holds("/a/1", "saved") && picture.keys_below("/a/") == 2);
}
