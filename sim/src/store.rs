//! The store behind a network: questions and answers that take time, watches that bring changes.

use std::collections::BTreeMap;

use calico_store::mirror::{FeedId, Mirror, Output};
use calico_store::{
    Batch, Delete, Error, Header, KeyRange, Listing, Op, Put, Query, Txn, WatchRequest,
};
use cambric_felix::store::ranges;
use etcd_lite::core::{WatchCursor, WatchPoll};
use etcd_lite::{Core, CoreConfig};

use crate::agenda::{Agenda, At, Event};
use crate::chance::Chance;
use crate::net::Net;

/// A question of a node's mirror.
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

/// What comes back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) at: At,
    feed: usize,
    token: u64,
    what: Told,
}

#[derive(Debug)]
enum Told {
    Page(Result<Listing, Error>),
    Opened(Result<Header, Error>),
    Batch(Result<Batch, Error>),
}

/// The store and who watches it.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) core: Core,
    watches: BTreeMap<(At, usize), Watcher>,
    /// The number that the store has in the network.
    pub(crate) place: At,
}

#[derive(Debug)]
struct Watcher {
    token: u64,
    cursor: WatchCursor,
    /// The one who watches knows that the watch has begun: nothing comes before that.
    opened: bool,
    /// A sign of life is asked for; it comes behind everything that there is to tell.
    probed: bool,
    /// A look at it is on the agenda.
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

    /// Writes and deletes keys at one revision; false if the store does not answer.
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

    /// Has every watch looked at soon. To be called after anything that may concern them.
    pub(crate) fn stir(&mut self, now: u64, net: &Net, agenda: &mut Agenda, chance: &mut Chance) {
        for ((at, feed), watcher) in &mut self.watches {
            if watcher.opened && !std::mem::replace(&mut watcher.due, true) {
                let (at, feed, token) = (*at, *feed, watcher.token);
                agenda.push(now + net.delay(chance), Event::Watch { at, feed, token });
            }
        }
    }

    /// The program that watched is gone.
    pub(crate) fn forget(&mut self, at: At) {
        self.watches.retain(|(watching, _), _| *watching != at);
    }

    /// Answers a question that has arrived; a probe is answered by the watch.
    pub(crate) fn ask(&mut self, question: Question) -> Option<Answer> {
        let Question {
            at,
            feed,
            token,
            what,
        } = question;
        let what = match what {
            Ask::List(query) => Told::Page(self.core.range(&query)),
            Ask::Watch(request) => Told::Opened(self.core.watch(request).map(|cursor| {
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

    /// The one who asked for a watch knows that it has begun.
    pub(crate) fn opened(&mut self, at: At, feed: usize, token: u64) {
        if let Some(watcher) = self.watches.get_mut(&(at, feed)) {
            watcher.opened |= watcher.token == token;
        }
    }

    /// What a watch has to tell.
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
            what: Told::Batch(batch),
        })
    }
}

impl Answer {
    /// The feed and the watch that has begun, if that is what it tells.
    pub(crate) fn opened(&self) -> Option<(usize, u64)> {
        matches!(self.what, Told::Opened(Ok(_))).then_some((self.feed, self.token))
    }
}

/// A node's view of the store.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) mirror: Mirror,
    at: At,
    /// What is under way for each feed, and the watch that it has.
    under_way: Vec<Option<u64>>,
    /// Different for every question of every life.
    token: u64,
}

impl Follower {
    pub(crate) fn new(at: At, seed: u64, first_token: u64) -> Self {
        let mirror = Mirror::new(ranges(), seed);
        Self {
            under_way: vec![None; mirror.feeds()],
            mirror,
            at,
            token: first_token,
        }
    }

    /// The questions to ask now.
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
            // A probe is one of the watch's that is under way.
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

    /// Takes an answer; false if it is to a question that is not open any more.
    pub(crate) fn answer(&mut self, now: std::time::Duration, answer: Answer) -> bool {
        let slot = self.under_way.get(answer.feed).copied().flatten();
        if slot != Some(answer.token) {
            return false;
        }
        let feed = FeedId(answer.feed);
        match answer.what {
            Told::Page(page) => self.mirror.listed(now, feed, page),
            Told::Opened(opened) => self.mirror.opened(now, feed, opened),
            Told::Batch(batch) => self.mirror.watched(now, feed, batch),
        }
        true
    }
}
