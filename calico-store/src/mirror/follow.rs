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

/// Follows ranges of a store in a task, until it is dropped.
#[derive(Debug)]
pub struct Follower {
    updates: mpsc::Receiver<Vec<Update>>,
    troubles: watch::Receiver<Vec<String>>,
    /// Number of taken updates.
    taken: u64,
    /// The revision of the updates taken before the last ones.
    before: Option<Revision>,
    progress: watch::Receiver<Progress>,
    task: JoinHandle<()>,
}

/// The progress of the task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    /// Number of sent updates.
    sent: u64,
    /// Their revision; an older one while there are more to send.
    revision: Option<Revision>,
    /// When the store last answered.
    last_answer: Option<Instant>,
}

impl Follower {
    /// Returns the next updates, at least one. Cancellation loses nothing. A slow consumer gets
    /// only the latest state of each key.
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

    /// Returns the reasons why ranges cannot be read or watched now, as text. Each reason names its
    /// range, or the member if it concerns one.
    pub fn troubles(&self) -> Vec<String> {
        self.troubles.borrow().clone()
    }

    /// Returns the newest revision of the store that the taken updates lead to; `None` before the
    /// first complete picture.
    pub fn revision(&self) -> Option<Revision> {
        let progress = *self.progress.borrow();
        if progress.sent == self.taken {
            progress.revision
        } else {
            self.before
        }
    }

    /// Returns the time since the store last answered, even without changes; `None` if it never
    /// did. Progress of a store without events is requested about every minute.
    pub fn last_answer(&self) -> Option<Duration> {
        let last_answer = self.progress.borrow().last_answer;
        last_answer.map(|at| at.elapsed())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts to follow ranges of a store. Must be called within a tokio runtime. The seed spreads the
/// requests of many followers.
pub fn follow(
    store: Arc<dyn Store>,
    ranges: impl IntoIterator<Item = KeyRange>,
    seed: u64,
) -> Follower {
    run(store, Mirror::new(ranges, seed), None)
}

/// Starts a follower with a gated mirror ([`Mirror::gated`]): while the datastore is not ready, a
/// consumer with a complete picture gets no updates.
///
/// It starts with the snapshot in a file if there is a valid one: its content comes first, followed
/// by [`Status::Snapshot`](super::Status::Snapshot), and the store's content as differences from
/// it. The file is kept up to date. This function reads the file before it returns.
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
    // One batch is queued here; everything else is coalesced in the mirror.
    let (sender, updates) = mpsc::channel(1);
    let (troubles, why) = watch::channel(Vec::new());
    let (published, progress) = watch::channel(Progress::default());
    let runner = Runner {
        slots: (0..mirror.feeds()).map(|_| Slot::default()).collect(),
        mirror,
        keeper,
        store,
        answers: FuturesUnordered::new(),
        origin: Instant::now(),
        troubles: Troubles::new(troubles),
        progress: Progress::default(),
        published,
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
    /// Writes the snapshot, if one is kept.
    keeper: Option<Keeper>,
    store: Arc<dyn Store>,
    /// At most one per feed.
    answers: FuturesUnordered<BoxFuture<'static, Option<Arrived>>>,
    slots: Vec<Slot>,
    origin: Instant,
    troubles: Troubles,
    progress: Progress,
    /// Publishes the progress to the consumer's end.
    published: watch::Sender<Progress>,
}

/// The pending request of a feed.
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
    /// Returns whether the store has answered a request.
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
            self.publish_progress();
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

    fn publish_progress(&mut self) {
        if let Some(revision) = self.mirror.revision() {
            self.progress.revision = Some(revision);
        }
        self.published.send_if_modified(|published| {
            let is_new = *published != self.progress;
            *published = self.progress;
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

    /// Waits for an answer, and drops the earlier pending request of the feed.
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
            self.progress.last_answer = Some(self.origin + now);
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
                // Compacted history is read in another way.
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

    /// Logs the reason, once for all attempts that fail for the same reason.
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
