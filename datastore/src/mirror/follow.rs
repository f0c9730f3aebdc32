//! Runs a mirror against a store.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::keep::{Keeper, SnapshotOptions, Turn};
use super::troubles::Troubles;
use super::{FeedId, Mirror, Output, Update};
use crate::error::Error;
use crate::kv::{Batch, KeyRange, Listing};
use crate::limits::UPDATES_MAX;
use crate::port::{Prober, Store, Watch};

/// Keeps up with ranges of a store in a task of its own, until it is dropped.
#[derive(Debug)]
pub struct Follower {
    updates: mpsc::Receiver<Vec<Update>>,
    troubles: watch::Receiver<Vec<String>>,
    task: JoinHandle<()>,
}

impl Follower {
    /// The next updates, at least one. Cancelling loses nothing. A consumer that does not ask for a
    /// long time gets each key's latest state only.
    pub async fn next(&mut self) -> Vec<Update> {
        match self.updates.recv().await {
            Some(updates) => updates,
            // The task ends only with this value, or with the runtime.
            None => std::future::pending().await,
        }
    }

    /// Why ranges cannot be read or watched now, for people; each reason names its range, or the
    /// members if it is theirs.
    pub fn troubles(&self) -> Vec<String> {
        self.troubles.borrow().clone()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Begins to follow ranges of a store. Must be called within a tokio runtime. The seed spreads the
/// tries of many followers.
pub fn follow(
    store: Arc<dyn Store>,
    ranges: impl IntoIterator<Item = KeyRange>,
    seed: u64,
) -> Follower {
    run(store, Mirror::new(ranges, seed), None)
}

/// The same for a consumer that acts by what the store says: as long as the store does not say that
/// it may be acted upon, nothing of it is told to a consumer that had a picture before
/// ([`Mirror::gated`]).
///
/// It begins with the snapshot in a file if there is one that can be used: then its content comes
/// first, followed by [`Status::Snapshot`](super::Status::Snapshot), and the store's content as
/// differences from it. The file is kept up to date. Reads it before it returns.
pub fn follow_ready(
    store: Arc<dyn Store>,
    ranges: impl IntoIterator<Item = KeyRange>,
    seed: u64,
    snapshot: Option<&SnapshotOptions>,
) -> Follower {
    let mut mirror = Mirror::gated(ranges, seed);
    let keeper = snapshot.map(|options| {
        let ranges: Vec<_> = mirror.ranges().cloned().collect();
        if let Some(loaded) = options.load(&ranges) {
            mirror.restore(Duration::ZERO, loaded.cluster, loaded.age, loaded.items);
        }
        Keeper::new(options.clone(), ranges)
    });
    run(store, mirror, keeper)
}

fn run(store: Arc<dyn Store>, mirror: Mirror, keeper: Option<Keeper>) -> Follower {
    // One batch waits here; everything else waits, coalesced, in the mirror.
    let (sender, updates) = mpsc::channel(1);
    let (troubles, told) = watch::channel(Vec::new());
    let runner = Runner {
        slots: (0..mirror.feeds()).map(|_| Slot::default()).collect(),
        mirror,
        keeper,
        store,
        answers: FuturesUnordered::new(),
        origin: Instant::now(),
        troubles: Troubles::new(troubles),
    };
    Follower {
        updates,
        troubles: told,
        task: tokio::spawn(runner.run(sender)),
    }
}

struct Runner {
    mirror: Mirror,
    /// Of the snapshot, if one is kept.
    keeper: Option<Keeper>,
    store: Arc<dyn Store>,
    /// At most one a feed.
    answers: FuturesUnordered<BoxFuture<'static, Option<Arrived>>>,
    slots: Vec<Slot>,
    origin: Instant,
    troubles: Troubles,
}

/// What is under way for a feed.
#[derive(Default)]
struct Slot {
    abort: Option<AbortHandle>,
    prober: Option<Prober>,
}

/// An answer of the store.
enum Arrived {
    Page(FeedId, Result<Listing, Error>),
    Opened(FeedId, Result<Watch, Error>),
    Batch(FeedId, Watch, Result<Batch, Error>),
}

impl Runner {
    async fn run(mut self, sender: mpsc::Sender<Vec<Update>>) {
        loop {
            self.mirror.handle_timeout(self.now());
            while let Some(output) = self.mirror.poll_output() {
                self.carry_out(output);
            }
            let now = self.now();
            let deadline = self.mirror.poll_timeout(now).map(|at| self.origin + at);
            tokio::select! {
                Some(arrived) = self.answers.next() => {
                    if let Some(arrived) = arrived {
                        self.handle(arrived);
                    }
                }
                () = sleep_until(deadline) => {}
                permit = sender.reserve(), if self.mirror.has_updates(now) => match permit {
                    Ok(permit) => {
                        let updates = self.mirror.take(now, UPDATES_MAX);
                        if !updates.is_empty() {
                            if let Some(keeper) = &mut self.keeper {
                                keeper.note(&updates);
                            }
                            permit.send(updates);
                        }
                    }
                    Err(_) => return,
                },
                turn = keepers_turn(self.keeper.as_mut()) => {
                    let cluster = self.mirror.cluster();
                    if let Some(keeper) = &mut self.keeper {
                        keeper.act(turn, cluster);
                    }
                }
            }
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::List { feed, query } => {
                let store = Arc::clone(&self.store);
                self.begin(feed, async move {
                    Arrived::Page(feed, store.range(query).await)
                });
            }
            Output::Watch { feed, request } => {
                let store = Arc::clone(&self.store);
                self.begin(feed, async move {
                    Arrived::Opened(feed, store.watch(request).await)
                });
            }
            Output::Probe { feed } => {
                if let Some(prober) = self.slots.get(feed.0).and_then(|slot| slot.prober.as_ref()) {
                    prober.probe();
                }
            }
            Output::Cancel { feed } => {
                if let Some(slot) = self.slots.get_mut(feed.0) {
                    slot.prober = None;
                    if let Some(abort) = slot.abort.take() {
                        abort.abort();
                    }
                }
            }
        }
    }

    /// Waits for an answer in place of whatever was under way for the feed.
    fn begin(&mut self, feed: FeedId, answer: impl Future<Output = Arrived> + Send + 'static) {
        let (abort, registration) = AbortHandle::new_pair();
        let answer = Abortable::new(answer, registration);
        self.answers
            .push(Box::pin(async move { answer.await.ok() }));
        if let Some(slot) = self.slots.get_mut(feed.0)
            && let Some(before) = slot.abort.replace(abort)
        {
            before.abort();
        }
    }

    fn handle(&mut self, arrived: Arrived) {
        let now = self.now();
        match arrived {
            Arrived::Page(feed, page) => {
                if let Err(error) = &page {
                    self.failed(feed, error);
                }
                self.mirror.listed(now, feed, page);
            }
            Arrived::Opened(feed, Ok(watch)) => {
                let header = watch.header();
                if let Some(slot) = self.slots.get_mut(feed.0) {
                    slot.prober = Some(watch.prober());
                }
                self.await_batch(feed, watch);
                if let Some(trouble) = self.troubles.is_over(feed) {
                    info!(trouble, "the store can be read again");
                }
                self.mirror.opened(now, feed, Ok(header));
            }
            Arrived::Opened(feed, Err(error)) => {
                self.failed(feed, &error);
                self.mirror.opened(now, feed, Err(error));
            }
            Arrived::Batch(feed, watch, Ok(batch)) => {
                self.await_batch(feed, watch);
                self.mirror.watched(now, feed, Ok(batch));
            }
            Arrived::Batch(feed, _, Err(error)) => {
                debug!(feed = feed.0, %error, "the watch is over");
                self.mirror.watched(now, feed, Err(error));
            }
        }
    }

    /// Says why, once for all tries that fail for the same reason.
    fn failed(&mut self, feed: FeedId, error: &Error) {
        let Some(range) = self.mirror.ranges().nth(feed.0) else {
            return;
        };
        if let Some(trouble) = self.troubles.note(feed, range, error) {
            warn!("{trouble}; will try again");
        }
    }

    fn await_batch(&mut self, feed: FeedId, mut watch: Watch) {
        self.begin(feed, async move {
            let batch = watch.next().await;
            Arrived::Batch(feed, watch, batch)
        });
    }
}

async fn keepers_turn(keeper: Option<&mut Keeper>) -> Turn {
    match keeper {
        Some(keeper) => keeper.turn().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
