//! The datastore behind a network: requests and responses that take time, and watches that deliver
//! changes.

use std::collections::BTreeMap;

use calico_store::mirror::{FeedId, Mirror, Output};
use calico_store::{
    Batch, Delete, Error, Header, KeyRange, Listing, Op, Put, Query, Txn, WatchRequest,
};
use etcd_lite::core::{WatchCursor, WatchPoll};
use etcd_lite::{Core, CoreConfig};

use crate::agenda::{Agenda, At, Event};
use crate::chance::Chance;
use crate::net::Net;

/// A request of a machine's mirror.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) at: At,
    feed: usize,
    token: u64,
    what: Ask,
}

#[derive(Debug)]
enum Ask {
    List(Query),
    Watch(WatchRequest),
    Probe,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) at: At,
    feed: usize,
    token: u64,
    what: Content,
}

#[derive(Debug)]
enum Content {
    Page(Result<Listing, Error>),
    Opened(Result<Header, Error>),
    Batch(Result<Batch, Error>),
}

/// The datastore and its watchers.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) core: Core,
    watches: BTreeMap<(At, usize), Watcher>,
    /// The index of the datastore in the network.
    pub(crate) place: At,
}

#[derive(Debug)]
struct Watcher {
    token: u64,
    cursor: WatchCursor,
    /// The watcher has received the start of the watch: no event is delivered before.
    opened: bool,
    /// A progress request is pending; its response follows all pending events.
    probed: bool,
    /// A check of the watch is on the agenda.
    due: bool,
}

impl Store {
    pub(crate) fn new(place: At) -> Self {
        Self {
            core: Core::new(CoreConfig::default()),
            watches: BTreeMap::new(),
            place,
        }
    }

    /// Writes and deletes keys at one revision; returns false if the datastore does not answer.
    pub(crate) fn change(&mut self, put: &[(String, Vec<u8>)], delete: &[String]) -> bool {
        let deletes = delete.iter().map(|key| {
            let range = KeyRange::key(key.clone());
            Op::Delete(Delete {
                range,
                previous: false,
            })
        });
        let puts = put
            .iter()
            .map(|(key, value)| Op::Put(Put::new(key.clone(), value.clone())));
        let then = deletes.chain(puts).collect();
        self.core
            .txn(&Txn {
                then,
                ..Txn::default()
            })
            .is_ok()
    }

    /// Schedules a check of every watch. Must be called after every change that may concern them.
    pub(crate) fn stir(&mut self, now: u64, net: &Net, agenda: &mut Agenda, chance: &mut Chance) {
        for ((at, feed), watcher) in &mut self.watches {
            if watcher.opened && !std::mem::replace(&mut watcher.due, true) {
                let (at, feed, token) = (*at, *feed, watcher.token);
                agenda.push(now + net.delay(chance), Event::Watch { at, feed, token });
            }
        }
    }

    /// Removes the watches of a stopped program.
    pub(crate) fn forget(&mut self, at: At) {
        self.watches.retain(|(watching, _), _| *watching != at);
    }

    /// Answers a request that has arrived; the watch answers a progress request.
    pub(crate) fn ask(&mut self, question: Question) -> Option<Answer> {
        let Question {
            at,
            feed,
            token,
            what,
        } = question;
        let what = match what {
            Ask::List(query) => Content::Page(self.core.range(&query)),
            Ask::Watch(request) => Content::Opened(self.core.watch(request).map(|cursor| {
                let watcher = Watcher {
                    token,
                    cursor,
                    opened: false,
                    probed: false,
                    due: false,
                };
                self.watches.insert((at, feed), watcher);
                self.core.header()
            })),
            Ask::Probe => {
                if let Some(watcher) = self.watches.get_mut(&(at, feed)) {
                    watcher.probed |= watcher.token == token;
                }
                return None;
            }
        };
        Some(Answer {
            at,
            feed,
            token,
            what,
        })
    }

    /// Reports that the watcher has received the start of its watch.
    pub(crate) fn opened(&mut self, at: At, feed: usize, token: u64) {
        if let Some(watcher) = self.watches.get_mut(&(at, feed)) {
            watcher.opened |= watcher.token == token;
        }
    }

    /// Returns the pending response of a watch.
    pub(crate) fn look(&mut self, at: At, feed: usize, token: u64) -> Option<Answer> {
        let watcher = self.watches.get_mut(&(at, feed))?;
        if watcher.token != token {
            return None;
        }
        watcher.due = false;
        let batch = match self.core.poll_watch(&mut watcher.cursor) {
            WatchPoll::Idle if watcher.probed => {
                let batch = self.core.progress()?;
                watcher.probed = false;
                Ok(batch)
            }
            WatchPoll::Idle => return None,
            WatchPoll::Events(batch) => Ok(batch),
            WatchPoll::Ended(error) => {
                self.watches.remove(&(at, feed));
                Err(error)
            }
        };
        Some(Answer {
            at,
            feed,
            token,
            what: Content::Batch(batch),
        })
    }
}

impl Answer {
    /// Returns the feed and the watch that has started, if this is such a response.
    pub(crate) fn opened(&self) -> Option<(usize, u64)> {
        matches!(self.what, Content::Opened(Ok(_))).then_some((self.feed, self.token))
    }
}

/// A machine's view of the datastore.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) mirror: Mirror,
    at: At,
    /// The pending request of each feed, and its watch.
    under_way: Vec<Option<u64>>,
    /// Unique for every request of every run.
    token: u64,
}

impl Follower {
    pub(crate) fn new(
        at: At,
        ranges: impl Iterator<Item = KeyRange>,
        seed: u64,
        first_token: u64,
    ) -> Self {
        let mirror = Mirror::new(ranges, seed);
        Self {
            under_way: vec![None; mirror.feeds()],
            mirror,
            at,
            token: first_token,
        }
    }

    /// Returns the requests to send now.
    pub(crate) fn questions(&mut self) -> Vec<Question> {
        let mut questions = Vec::new();
        while let Some(output) = self.mirror.poll_output() {
            let (FeedId(feed), what) = match output {
                Output::List { feed, query } => (feed, Ask::List(query)),
                Output::Watch { feed, request } => (feed, Ask::Watch(request)),
                Output::Probe { feed } => (feed, Ask::Probe),
                Output::Cancel { feed } => {
                    if let Some(slot) = self.under_way.get_mut(feed.0) {
                        *slot = None;
                    }
                    continue;
                }
            };
            let Some(slot) = self.under_way.get_mut(feed) else {
                continue;
            };
            // A progress request uses the token of the existing watch.
            let token = match (&what, *slot) {
                (Ask::Probe, Some(token)) => token,
                (Ask::Probe, None) => continue,
                _ => {
                    self.token += 1;
                    *slot = Some(self.token);
                    self.token
                }
            };
            questions.push(Question {
                at: self.at,
                feed,
                token,
                what,
            });
        }
        questions
    }

    /// Handles a response; returns false if no request for it is pending.
    pub(crate) fn answer(&mut self, now: std::time::Duration, answer: Answer) -> bool {
        let slot = self.under_way.get(answer.feed).copied().flatten();
        if slot != Some(answer.token) {
            return false;
        }
        let feed = FeedId(answer.feed);
        match answer.what {
            Content::Page(page) => self.mirror.listed(now, feed, page),
            Content::Opened(opened) => self.mirror.opened(now, feed, opened),
            Content::Batch(batch) => self.mirror.watched(now, feed, batch),
        }
        true
    }
}
