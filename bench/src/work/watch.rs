//! watch: etcd restarts with many watchers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use calico_model::Kind;
use calico_store::{Change, KeyRange, LeaseId, Status, Update, follow};
use netns_lab::fabric::Fabric;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::fabric::{self, Endpoint, Etcd, write};
use crate::limits::FABRIC_WITHIN;
use crate::stage::{Measures, Options};

/// The kinds that each watcher mirrors: those of Felix.
const KINDS: [Kind; 4] = [
    Kind::WorkloadEndpoint,
    Kind::Profile,
    Kind::FelixConfiguration,
    Kind::ClusterInformation,
];

/// The state of a watcher.
#[derive(Clone, Copy, Debug, Default)]
struct Picture {
    in_sync: bool,
    keys: usize,
    /// The last value of the mark.
    mark: u64,
    /// Keys that were reported as deleted; none ever is.
    gone: usize,
}

/// Kills etcd and restarts it with its data: measures until every watcher has a later write, and
/// how many lists that needs; then the same after a compaction, and how many octets etcd had to
/// send.
pub(super) fn watch(options: &Options) -> Result<Measures> {
    let (watchers, keys) = if options.quick {
        (20, 100)
    } else {
        (200, 10_000)
    };
    fabric::beside_etcd(async |fabric, etcd| {
        for number in 0..keys {
            let endpoint = Endpoint::new(number, &format!("node{}", number % 100));
            write(&*etcd.store, &endpoint, endpoint.address()).await?;
        }
        measure(fabric, etcd, watchers, keys as usize).await
    })
}

async fn measure(fabric: &mut Fabric, etcd: &Etcd, watchers: u64, keys: usize) -> Result<Measures> {
    let (mut pictures, mut tasks) = (vec![], JoinSet::new());
    for seed in 0..watchers {
        let store = Arc::new(etcd.connect().await?);
        let (sender, picture) = watch::channel(Picture::default());
        pictures.push(picture);
        tasks.spawn(follow_on(store, seed, sender));
    }
    mark(etcd, 1).await?;
    all(&mut pictures, keys, 1).await?;
    let lists_at_first = etcd.calls(fabric, "Range").await?;

    let (now, synced) = restart(fabric, etcd, &mut pictures, (keys, 2)).await?;
    let lists = etcd.calls(fabric, "Range").await?;

    // Ranges that have not changed since the compacted revision: all except that of the mark.
    let newest = etcd.store.list(KeyRange::key(mark_key())).await?;
    etcd.store.compact(newest.header.revision).await?;
    let (forgotten, _) = restart(fabric, etcd, &mut pictures, (keys, 3)).await?;
    let sent = etcd.sent(fabric).await? / watchers as f64;
    ensure!(sent > 0.0, "etcd does not tell what it has sent");
    let gone: usize = pictures.iter().map(|picture| picture.borrow().gone).sum();
    ensure!(
        gone == 0,
        "{gone} keys were reported as deleted, but no key was"
    );
    Ok(Measures::from([
        ("watch_s", now.as_secs_f64()),
        ("watch_after_up_s", synced.as_secs_f64()),
        ("watch_lists", lists),
        ("watch_lists_at_first", lists_at_first),
        ("watch_forgotten_s", forgotten.as_secs_f64()),
        ("watch_forgotten_kb", sent / 1000.0),
    ]))
}

/// Kills and restarts etcd, and then writes a key: measures until all watchers have it, from the
/// kill and from etcd's first answer.
async fn restart(
    fabric: &mut Fabric,
    etcd: &Etcd,
    pictures: &mut [watch::Receiver<Picture>],
    (keys, value): (usize, u64),
) -> Result<(Duration, Duration)> {
    let mut store = fabric.store.take().context("there is no store")?;
    let began = Instant::now();
    store.process.kill().await?;
    etcd.serve(fabric)?;
    etcd.answers(fabric).await?;
    let up = Instant::now();
    mark(etcd, value).await?;
    all(pictures, keys, value).await?;
    Ok((began.elapsed(), up.elapsed()))
}

/// Follows the datastore forever.
async fn follow_on(
    store: Arc<calico_store::EtcdStore>,
    seed: u64,
    picture: watch::Sender<Picture>,
) {
    let ranges = KINDS.map(|kind| KeyRange::prefix(kind.prefix()));
    let mut follower = follow(store, ranges, seed);
    let mark = mark_key();
    let mut seen = std::collections::BTreeSet::new();
    loop {
        let mut next = *picture.borrow();
        for update in follower.next().await {
            match update {
                Update::Change(Change::Put(item)) if item.key == mark => {
                    let text = String::from_utf8_lossy(&item.value).into_owned();
                    next.mark = text.parse().unwrap_or_default();
                }
                Update::Change(Change::Put(item)) => {
                    seen.insert(item.key);
                }
                Update::Change(Change::Delete(_)) => next.gone += 1,
                Update::Status(status) => next.in_sync = status == Status::InSync,
            }
        }
        next.keys = seen.len();
        picture.send_replace(next);
    }
}

/// Returns a key that all watchers see.
fn mark_key() -> String {
    format!("{}mark", Kind::ClusterInformation.prefix())
}

/// Retries a write without an answer: an etcd that was killed takes the connection with it.
async fn mark(etcd: &Etcd, value: u64) -> Result<()> {
    netns_lab::until(FABRIC_WITHIN, "the mark is written", async || {
        let (key, value) = (mark_key(), value.to_string());
        let put = etcd.store.put(key.into(), value.into(), LeaseId::NONE);
        match put.await {
            Ok(_) => anyhow::Ok(Ok(())),
            Err(error) if error.is_transient() => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        }
    })
    .await?;
    Ok(())
}

/// Waits until every watcher has all keys and the mark, and is in sync.
async fn all(pictures: &mut [watch::Receiver<Picture>], keys: usize, mark: u64) -> Result<()> {
    for (at, picture) in pictures.iter_mut().enumerate() {
        let whole = picture
            .wait_for(|picture| picture.in_sync && picture.keys == keys && picture.mark == mark);
        let waited = netns_lab::within(FABRIC_WITHIN, "a watcher is in sync", whole).await;
        let waited = waited.map(|found| found.map(drop));
        waited.with_context(|| format!("watcher {at} has {:?}", *picture.borrow()))??;
    }
    Ok(())
}
