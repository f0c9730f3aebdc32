//! Mirrors of a real cluster of which members and proxies die, freeze and recover.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::common::{Counted, Cut, Etcd, Picture, Proxy, command, insist, program, put};
use calico_store::limits::RETRY_MAX;
use calico_store::{Error, EtcdOptions, EtcdStore, Follower, KeyRange, Status, Store, follow};
use futures_util::future::join_all;

/// A mirror of `/a/` and `/b/`, in sync.
struct Mirrored {
    asked: Arc<Counted>,
    follower: Follower,
    picture: Picture,
}

impl Mirrored {
    async fn new(urls: Vec<String>, seed: u64) -> Self {
        let store = EtcdStore::connect(&EtcdOptions::new(urls)).await.unwrap();
        let asked = Counted::new(Arc::new(store));
        let ranges = ["/a/", "/b/"].map(KeyRange::prefix);
        let mut mirrored = Self {
            follower: follow(Arc::clone(&asked) as Arc<dyn Store>, ranges, seed),
            asked,
            picture: Picture::default(),
        };
        mirrored
            .until("the first picture", |p| p.status == Some(Status::InSync))
            .await;
        mirrored
    }

    async fn until(&mut self, what: &str, done: impl Fn(&Picture) -> bool) {
        self.picture.until(&mut self.follower, what, done).await;
    }

    /// Checks that it gets this value, and is in sync.
    async fn gets(&mut self, key: &str, value: &str) {
        let what = format!("{key} = {value}");
        self.until(&what, |p| {
            p.holds(key, value) && p.status == Some(Status::InSync)
        })
        .await;
    }
}

async fn client(urls: Vec<String>) -> EtcdStore {
    EtcdStore::connect(&EtcdOptions::new(urls)).await.unwrap()
}

// Promise (Datastore): A mirror of a real cluster survives the loss of members, leaders and
// proxies, and does not read again what it can continue to watch.
#[tokio::test]
async fn mirror_survives_member_and_leader_loss() {
    let Some(mut etcd) = Etcd::cluster(3).await else {
        return;
    };
    let writer = client(etcd.urls()).await;
    put(&writer, "/a/1", "begin").await;
    let mut mirror = Mirrored::new(etcd.urls(), 1).await;
    let reads = mirror.asked.reads();

    // The member of its watch dies, and recovers.
    let at = etcd.watched(2.0).await;
    etcd.members[at].kill().await;
    put(&writer, "/a/1", "member lost").await;
    mirror.gets("/a/1", "member lost").await;
    assert!(etcd.members[at].start().await);

    // The leader dies, and recovers.
    let leader = etcd.leader().await;
    etcd.members[leader].kill().await;
    put(&writer, "/b/1", "leader lost").await;
    mirror.gets("/b/1", "leader lost").await;
    assert!(etcd.members[leader].start().await);

    // Two of three members die: writes fail, every mirror reports it; then they recover.
    let stays = etcd.watched(2.0).await;
    let others: Vec<_> = (0..3).filter(|at| *at != stays).collect();
    for &at in &others {
        etcd.members[at].kill().await;
    }
    mirror
        .until("the loss", |p| p.status == Some(Status::Lost))
        .await;
    assert_eq!(mirror.picture.state.len(), 2, "nothing is forgotten");
    let back = etcd.members.iter_mut().filter(|member| !member.runs());
    join_all(back.map(|member| member.start())).await;
    put(&writer, "/a/1", "all back").await;
    mirror.gets("/a/1", "all back").await;
    assert_eq!(
        mirror.asked.reads(),
        reads,
        "watches went on from where they ended"
    );
}

#[tokio::test]
async fn a_mirror_leaves_a_member_that_is_cut_off_from_the_others() {
    let (Some(etcdctl), Some((etcd, wires))) = (program("etcdctl"), Etcd::wired(3).await) else {
        return;
    };
    let mut mirror = Mirrored::new(etcd.urls(), 1).await;
    let reads = mirror.asked.reads();
    let at = etcd.watched(2.0).await;
    let (name, url) = (&etcd.members[at].name, &etcd.members[at].url);
    let list = format!("--endpoints {url} member list");
    let list = command(&etcdctl, Path::new("/"), &list).await;
    let line = list
        .lines()
        .find(|line| line.contains(&format!(", {name}, ")));
    let (id, _) = line.unwrap().split_once(',').unwrap();
    for (nth, wire) in wires.iter().enumerate() {
        wire.cut(match nth == at {
            true => Cut::All,
            false => Cut::One(id.to_owned()),
        });
    }

    // It still answers its clients, but is cut off from the cluster's consensus.
    let mut others = etcd.urls();
    others.remove(at);
    put(&client(others).await, "/a/1", "the majority's").await;
    mirror.gets("/a/1", "the majority's").await;
    wires.iter().for_each(|wire| wire.cut(Cut::None));
    put(&client(vec![url.clone()]).await, "/a/1", "everybody's").await;
    mirror.gets("/a/1", "everybody's").await;
    assert_eq!(mirror.asked.reads(), reads);
}

#[tokio::test]
async fn a_connection_that_went_silent_is_found() {
    let Some(etcd) = Etcd::cluster(3).await else {
        return;
    };
    let mut mirror = Mirrored::new(etcd.urls(), 1).await;
    let reads = mirror.asked.reads();
    // Its connections stay but it answers nothing, as behind a firewall that drops packets.
    let at = etcd.watched(2.0).await;
    etcd.members[at].freeze();
    let mut others = etcd.urls();
    others.remove(at);
    put(&client(others).await, "/a/1", "silence").await;
    mirror.gets("/a/1", "silence").await;
    assert_eq!(mirror.asked.reads(), reads);
    etcd.members[at].thaw();
}

#[tokio::test]
async fn mirror_behind_proxies_survives_their_loss() {
    let Some(mut etcd) = Etcd::cluster(3).await else {
        return;
    };
    let writer = client(etcd.urls()).await;
    let mut proxies = [
        Proxy::start(&etcd.urls()).await.unwrap(),
        Proxy::start(&etcd.urls()).await.unwrap(),
    ];
    let urls: Vec<_> = proxies.iter().map(|proxy| proxy.url.clone()).collect();
    // Watches of one range are joined: only the proxy answers for the second one.
    let mut mirrors = join_all((1..5).map(|seed| Mirrored::new(urls.clone(), seed))).await;
    put(&writer, "/a/1", "through proxies").await;
    for mirror in &mut mirrors {
        mirror.gets("/a/1", "through proxies").await;
    }

    for at in 0..3 {
        etcd.members[at].kill().await;
        assert!(etcd.members[at].start().await);
    }
    put(&writer, "/a/1", "members restarted").await;
    for mirror in &mut mirrors {
        mirror.gets("/a/1", "members restarted").await;
    }

    // One dies: its clients move to the other one, which does not have the earlier revisions.
    compact(&writer).await;
    let lists = lists_of(&mirrors);
    let [dies, _stays] = &mut proxies;
    dies.kill().await;
    put(&writer, "/b/1", "one proxy").await;
    for mirror in &mut mirrors {
        mirror.gets("/b/1", "one proxy").await;
    }
    assert_eq!(lists_of(&mirrors), lists);
}

/// Returns the number of complete reads of each mirror.
fn lists_of(mirrors: &[Mirrored]) -> Vec<usize> {
    let lists = mirrors.iter().map(|mirror| mirror.asked.lists());
    lists.collect()
}

/// Compacts the whole history.
async fn compact(store: &EtcdStore) {
    let now = insist("a read", async || store.list(KeyRange::key("/")).await).await;
    let at = now.header.revision;
    insist("a compaction", async || match store.compact(at).await {
        // It was done, and the answer was lost.
        Err(Error::Compacted { .. }) => Ok(()),
        done => done,
    })
    .await;
}

// Promise: as calico-store mirror_survives_member_and_leader_loss
#[tokio::test]
async fn a_restart_under_many_mirrors_makes_none_of_them_read_again() {
    let Some(mut etcd) = Etcd::start().await else {
        return;
    };
    let writer = client(etcd.urls()).await;
    put(&writer, "/a/1", "before").await;
    put(&writer, "/b/1", "quiet").await;
    let urls = etcd.urls();
    let mut mirrors = join_all((0..40).map(|seed| Mirrored::new(urls.clone(), seed))).await;

    // With the history that they need, all resume their watches.
    let reads: Vec<_> = mirrors.iter().map(|mirror| mirror.asked.reads()).collect();
    let watches: usize = mirrors.iter().map(|mirror| mirror.asked.watches()).sum();
    let began = Instant::now();
    restart(&mut etcd, &mut mirrors).await;
    put(&writer, "/a/1", "after").await;
    for mirror in &mut mirrors {
        mirror.gets("/a/1", "after").await;
    }
    let away = began.elapsed();
    let read_again: Vec<_> = mirrors.iter().map(|mirror| mirror.asked.reads()).collect();
    assert_eq!(read_again, reads);
    // Each of the two ranges of each mirror was tried a few times during the outage: ten times, and
    // then at the rate of the longest delay.
    let tries = mirrors
        .iter()
        .map(|mirror| mirror.asked.watches())
        .sum::<usize>()
        - watches;
    let paced = usize::try_from(2 * away.as_secs() / RETRY_MAX.as_secs()).unwrap();
    let most = 80 * (10 + paced);
    assert!((80..=most).contains(&tries), "{tries} tries of {most}");

    // Without it, because one range had no changes for too long, they query newer keys. There is
    // none, or one more key; no mirror reads the whole range.
    let lists = lists_of(&mirrors);
    for (round, key) in ["/a/2", "/b/2"].into_iter().enumerate() {
        put(&writer, "/a/1", "forgotten").await;
        for mirror in &mut mirrors {
            mirror.gets("/a/1", "forgotten").await;
        }
        compact(&writer).await;
        restart(&mut etcd, &mut mirrors).await;
        put(&writer, key, "new").await;
        for mirror in &mut mirrors {
            mirror.gets(key, "new").await;
            assert_eq!(mirror.picture.state.len(), 3 + round);
        }
    }
    assert_eq!(lists_of(&mirrors), lists);
    let asked = mirrors.iter().zip(&reads);
    for (mirror, reads) in asked {
        assert!(mirror.asked.reads() > *reads, "it has asked");
    }
}

/// Kills the store, waits until all mirrors notice, and starts it again.
async fn restart(etcd: &mut Etcd, mirrors: &mut [Mirrored]) {
    etcd.members[0].kill().await;
    for mirror in mirrors {
        mirror
            .until("the loss", |p| p.status == Some(Status::Lost))
            .await;
    }
    assert!(etcd.members[0].start().await);
}
