//! A mirror with its store and its consumer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::ready_key;
use calico_store::Error;
use calico_store::limits::{PROBE_TIMEOUT, QUIET_MAX, RETRY_MAX};
use calico_store::mirror::{Change, FeedId, Mirror, Output, Status, Update};
use calico_store::{Delete, Op, Put, Txn};
use calico_store::{KeyRange, KeyValue, Query, Revision};
use etcd_lite::core::{Core, CoreConfig, Faults, WatchCursor, WatchPoll};

const PREFIXES: [&str; 2] = ["/a/", "/b/"];

/// A mirror with its store and its consumer, in virtual time, without a network.
pub(crate) struct World {
    /// Creates its mirror.
    make: fn([KeyRange; 2], u64) -> Mirror,
    pub(crate) core: Core,
    pub(crate) mirror: Mirror,
    pub(crate) now: Duration,
    /// Unanswered requests to the store, oldest first.
    pub(crate) asked: VecDeque<Output>,
    pub(crate) watches: BTreeMap<FeedId, WatchCursor>,
    pub(crate) consumer: Consumer,
    pub(crate) clusters: u64,
    /// Number of queries for newer keys.
    pub(crate) newer: usize,
    /// The lists of each range.
    pub(crate) lists: BTreeMap<FeedId, Lists>,
}

/// The lists of a range.
#[derive(Default)]
pub(crate) struct Lists {
    /// How many were begun.
    pub(crate) begun: usize,
    /// The history that the last page was of.
    pub(crate) cluster: u64,
    /// Whether that page was the last of its list.
    pub(crate) is_whole: bool,
}

/// The consumer's state, built from the updates.
#[derive(Default)]
pub(crate) struct Consumer {
    pub(crate) state: BTreeMap<Bytes, KeyValue>,
    pub(crate) status: Option<Status>,
    pub(crate) statuses: Vec<Status>,
    pub(crate) deletes: usize,
    pub(crate) puts: usize,
    /// The newest state seen of each key, including deleted ones: history and revision.
    pub(crate) newest: BTreeMap<Bytes, (Bytes, Revision)>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(Mirror::new)
    }

    /// Returns a world with a gated mirror; its store has no ClusterInformation yet.
    pub(crate) fn gated() -> Self {
        Self::of(Mirror::gated)
    }

    fn of(mirror: fn([KeyRange; 2], u64) -> Mirror) -> Self {
        Self {
            make: mirror,
            core: Core::new(CoreConfig::default()),
            mirror: mirror(PREFIXES.map(KeyRange::prefix), 7),
            now: Duration::ZERO,
            asked: VecDeque::new(),
            watches: BTreeMap::new(),
            consumer: Consumer::default(),
            clusters: 1,
            newer: 0,
            lists: BTreeMap::new(),
        }
    }

    /// Restarts the mirror's program with its consumer's state as a snapshot.
    pub(crate) fn restart(&mut self) {
        let cluster = self.mirror.cluster().unwrap_or_default();
        let items: Vec<_> = self.consumer.state.values().cloned().collect();
        self.begin();
        self.mirror
            .restore(self.now, cluster, Duration::from_secs(5), items);
    }

    /// Restarts the mirror's program without a snapshot.
    pub(crate) fn begin(&mut self) {
        self.mirror = (self.make)(PREFIXES.map(KeyRange::prefix), 8);
        self.consumer = Consumer::default();
        self.watches.clear();
        self.asked.clear();
        self.lists.clear();
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) {
        // The value starts with the cluster ID, so that it identifies its history.
        let value = format!("{:04}:{value}", self.core.header().cluster);
        self.write(key.to_owned().into(), &value);
    }

    /// Writes the ClusterInformation: its `clusterGUID`, and whether it is ready.
    pub(crate) fn set_information(&mut self, guid: &str, is_ready: bool) {
        let text = format!(r#"{{"spec":{{"clusterGUID":"{guid}","datastoreReady":{is_ready}}}}}"#);
        self.write(ready_key(), &text);
    }

    pub(crate) fn write(&mut self, key: Bytes, value: &str) {
        let put = Op::Put(Put::new(key, value.to_owned()));
        let _ = self.core.txn(&Txn {
            then: vec![put],
            ..Txn::default()
        });
    }

    pub(crate) fn delete(&mut self, range: KeyRange) {
        let delete = Op::Delete(Delete {
            range,
            previous: false,
        });
        let _ = self.core.txn(&Txn {
            then: vec![delete],
            ..Txn::default()
        });
    }

    /// Lets the mirror handle deadlines and send requests.
    pub(crate) fn ask(&mut self) {
        self.mirror.handle_timeout(self.now);
        while let Some(output) = self.mirror.poll_output() {
            match output {
                Output::Cancel { feed } => {
                    self.watches.remove(&feed);
                    self.asked.retain(|asked| feed_of(asked) != feed);
                }
                output => {
                    self.note_list(&output);
                    self.asked.push_back(output);
                }
            }
        }
    }

    /// Counts what begins a list: neither a further page, nor a question for what is newer.
    fn note_list(&mut self, output: &Output) {
        if let Output::List { feed, query } = output
            && query.at.is_none()
            && !query.bounds.is_any()
        {
            self.lists.entry(*feed).or_default().begun += 1;
        }
    }

    /// Lets the store answer the oldest request.
    pub(crate) fn answer(&mut self) -> bool {
        self.ask();
        let Some(output) = self.asked.pop_front() else {
            return false;
        };
        match output {
            Output::List { feed, query } => {
                let is_newer = query.bounds.is_any();
                self.newer += usize::from(is_newer);
                // Small pages, so that lists take several.
                let page = self.core.range(&Query { limit: 2, ..query });
                if let (false, Ok(page)) = (is_newer, &page) {
                    let lists = self.lists.entry(feed).or_default();
                    (lists.cluster, lists.is_whole) = (page.header.cluster, !page.more);
                }
                self.mirror.listed(self.now, feed, page);
            }
            Output::Watch { feed, request } => {
                let watch = self.core.watch(request);
                let header = watch.map(|watch| {
                    self.watches.insert(feed, watch);
                    self.core.header()
                });
                self.mirror.opened(self.now, feed, header);
            }
            Output::Probe { feed } => {
                if let (true, Some(progress)) =
                    (self.watches.contains_key(&feed), self.core.progress())
                {
                    self.mirror.watched(self.now, feed, Ok(progress));
                }
            }
            Output::Cancel { .. } => unreachable!("carried out at once"),
        }
        true
    }

    /// Delivers the events of every watch.
    pub(crate) fn bring(&mut self) -> bool {
        let mut brought = false;
        for feed in (0..self.mirror.feeds()).map(FeedId) {
            brought |= self.bring_of(feed);
        }
        brought
    }

    /// Delivers the events of one watch.
    pub(crate) fn bring_of(&mut self, feed: FeedId) -> bool {
        self.ask();
        let Some(watch) = self.watches.get_mut(&feed) else {
            return false;
        };
        let batch = match self.core.poll_watch(watch) {
            WatchPoll::Idle => return false,
            WatchPoll::Events(batch) => Ok(batch),
            WatchPoll::Ended(error) => {
                self.watches.remove(&feed);
                Err(error)
            }
        };
        self.mirror.watched(self.now, feed, batch);
        true
    }

    pub(crate) fn consume(&mut self, max: usize) -> bool {
        self.ask();
        let updates = self.mirror.take(self.now, max);
        let any = !updates.is_empty();
        for update in updates {
            self.consumer.take(update);
        }
        any
    }

    /// Advances the time to the next deadline.
    pub(crate) fn pass(&mut self) {
        if let Some(at) = self.mirror.poll_timeout(self.now) {
            self.now = self.now.max(at);
        }
    }

    /// Performs everything that is possible without advancing the time.
    pub(crate) fn settle(&mut self) {
        while self.answer() || self.bring() || self.consume(usize::MAX) {}
    }

    /// Runs without faults, as long as a mirror may take to recover.
    pub(crate) fn calm(&mut self) {
        self.core.set_faults(Faults::default());
        let end = self.now + QUIET_MAX + PROBE_TIMEOUT + RETRY_MAX * 4;
        while self.now < end {
            self.settle();
            self.pass();
        }
        self.settle();
    }

    /// Replaces the store by a new one, with other content and another history.
    pub(crate) fn replace(&mut self) {
        self.clusters += 1;
        self.core = Core::new(CoreConfig {
            cluster: self.clusters,
            ..CoreConfig::default()
        });
        self.watches.clear();
        for feed in (0..self.mirror.feeds()).map(FeedId) {
            self.mirror
                .watched(self.now, feed, Err(Error::WatchLost("restarted".into())));
        }
    }

    pub(crate) fn check_in_sync(&self) {
        assert_eq!(self.consumer.status, Some(Status::InSync));
        let listing = self
            .core
            .range(&Query::new(KeyRange::prefix("/")))
            .expect("listed");
        let mirrored = listing.items.iter().filter(|item| {
            let mut prefixes = PREFIXES.iter();
            let is_gates = self.mirror.feeds() > PREFIXES.len() && item.key == ready_key();
            is_gates || prefixes.any(|prefix| item.key.starts_with(prefix.as_bytes()))
        });
        assert!(
            self.consumer.state.values().eq(mirrored),
            "{:?}\n{listing:?}",
            self.consumer.state
        );
        let revisions = self.consumer.state.values().map(|item| item.mod_revision);
        let newest = revisions.max().unwrap_or_default();
        let revision = self.mirror.revision().expect("all was reported");
        assert!((newest..=listing.header.revision).contains(&revision));
    }

    /// Returns whether the mirror holds back changes from a consumer with a complete picture.
    pub(crate) fn is_held(&self) -> bool {
        let is_picture =
            |status: &Status| matches!(status, Status::InSync | Status::Snapshot { .. });
        self.consumer.statuses.iter().any(is_picture) && self.mirror.cluster().is_none()
    }
}

fn feed_of(output: &Output) -> FeedId {
    match output {
        Output::List { feed, .. }
        | Output::Watch { feed, .. }
        | Output::Probe { feed }
        | Output::Cancel { feed } => *feed,
    }
}

impl Consumer {
    fn take(&mut self, update: Update) {
        match update {
            Update::Status(status) => {
                assert_ne!(self.status, Some(status), "reported twice");
                self.status = Some(status);
                self.statuses.push(status);
            }
            Update::Change(Change::Put(item)) => {
                assert_ne!(self.status, None, "a change before the first status");
                let newest = self.newest.entry(item.key.clone()).or_default();
                let seen = (
                    item.value.slice(..4.min(item.value.len())),
                    item.mod_revision,
                );
                let is_in_history = item.key != ready_key();
                assert!(seen >= *newest || !is_in_history, "back in time: {item:?}");
                *newest = seen;
                self.puts += 1;
                self.state.insert(item.key.clone(), item);
            }
            Update::Change(Change::Delete(key)) => {
                self.deletes += 1;
                assert!(
                    self.state.remove(&key).is_some(),
                    "deleted what it never had: {key:?}"
                );
            }
        }
    }
}
