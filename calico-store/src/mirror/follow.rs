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
use crate::kv::{Batch, KeyRange, Listing, Revision};
use crate::limits::UPDATES_MAX;
use crate::port::{Prober, Store, Watch};

/// Keeps up with ranges of a store in a task of its own, until it is dropped.
#[derive(Debug)]
pub struct Follower {
    updates: mpsc::Receiver<Vec<Update>>,
    troubles: watch::Receiver<Vec<String>>,
    /// How many were taken.
    taken: u64,
    /// As of which revision those were that were taken before the last.
    before: Option<Revision>,
    progress: watch::Receiver<Progress>,
    task: JoinHandle<()>,
}

/// How far the task is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    /// How often it has sent updates.
    sent: u64,
    /// As of which revision they are; an older one while there is more to send.
    revision: Option<Revision>,
    /// When the store has last answered.
    heard: Option<Instant>,
}

impl Follower {
    /// The next updates, at least one. Cancelling loses nothing. A consumer that does not ask for a
    /// long time gets each key's latest state only.
    pub async fn next(&mut self) -> Vec<Update> {
        let before = self.revision();
        match self.updates.recv().await {
            Some(updates) => {
                (self.taken, self.before) = (self.taken + 1, before);
                updates
            }
            // The task ends only with this value, or with the runtime.
            None => std::future::pending().await,
        }
    }

    /// Why ranges cannot be read or watched now, for people; each reason names its range, or the
    /// members if it is theirs.
    pub fn troubles(&self) -> Vec<String> {
        self.troubles.borrow().clone()
    }

    /// The newest revision of the store that the updates that were taken bring about; `None` before
    /// the first whole picture.
    pub fn revision(&self) -> Option<Revision> {
        let progress = *self.progress.borrow();
        if progress.sent == self.taken {
            progress.revision
        } else {
            self.before
        }
    }

    /// How long ago the store has last answered, be it that nothing has changed; `None` if it never
    /// did. One that has nothing to tell is asked for a sign of life about every minute.
    pub fn heard(&self) -> Option<Duration> {
        let heard = self.progress.borrow().heard;
        heard.map(|at| at.elapsed())
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
    let (troubles, why) = watch::channel(Vec::new());
    let (told, progress) = watch::channel(Progress::default());
    let runner = Runner {
        slots: (0..mirror.feeds()).map(|_| Slot::default()).collect(),
        mirror,
        keeper,
        store,
        answers: FuturesUnordered::new(),
        origin: Instant::now(),
        troubles: Troubles::new(troubles),
        progress: Progress::default(),
        told,
    };
    Follower {
        updates,
        troubles: why,
        taken: 0,
        before: None,
        progress,
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
    progress: Progress,
    /// The consumer's end is told of it here.
    told: watch::Sender<Progress>,
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

impl Arrived {
    /// Whether the store has answered what it was asked.
    const fn is_answer(&self) -> bool {
        match self {
            Self::Page(_, page) => page.is_ok(),
            Self::Opened(_, opened) => opened.is_ok(),
            Self::Batch(_, _, batch) => batch.is_ok(),
        }
    }
}

impl Runner {
    async fn run(mut self, sender: mpsc::Sender<Vec<Update>>) {
        loop {
            self.mirror.handle_timeout(self.now());
            while let Some(output) = self.mirror.poll_output() {
                self.carry_out(output);
            }
            self.tell_progress();
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
                            self.progress.sent += 1;
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

    fn tell_progress(&mut self) {
        if let Some(revision) = self.mirror.revision() {
            self.progress.revision = Some(revision);
        }
        self.told.send_if_modified(|told| {
            let is_new = *told != self.progress;
            *told = self.progress;
            is_new
        });
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
        if arrived.is_answer() {
            self.progress.heard = Some(self.origin + now);
        }
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
                // What the history no longer has is asked for in another way.
                if !matches!(error, Error::Compacted { .. }) {
                    self.failed(feed, &error);
                }
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
