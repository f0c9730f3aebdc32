//! Origin validation as a driver: it reads the records of the datastore, and reports the routes of
//! nodes that no record confirms. In the mode `enforce` such routes are not used.
//! `docs/design/origin-validation.md` has the rules.
//!
//! The records of workloads are read only when a session leads to a node that is no reflector.

mod records;
mod watch;

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use bgp_config::OriginMode;
use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_proto::Prefix;
use bgp_io::{Event, Speaker};
use calico_bgp::validation::OriginIndex;
use calico_store::{Change, EtcdOptions, EtcdStore, Follower, KeyRange, Update, follow_ready};
use daemon_common::events::{self, Text, emit};
use daemon_common::report::{Fact, Routes, Status};

use self::records::Known;
use self::watch::{OriginWatch, Unconfirmed, net_of};
use crate::{Driver, DriverError, Round, Settings};

/// How many invalid values a status names.
const FAULTS_SHOWN: usize = 3;

/// The records of the datastore, and the routes that they do not confirm.
pub(crate) struct Origins {
    store: Arc<EtcdStore>,
    seed: u64,
    mode: OriginMode,
    nodes: Reading,
    /// `None` as long as no session needs them.
    workloads: Option<Reading>,
    watch: OriginWatch,
    /// Whether all needed records were read once, and all paths evaluated with them.
    is_complete: bool,
    /// When the last turn was.
    now: Instant,
    /// Whether the neighbors may have changed.
    has_new_neighbors: bool,
}

/// The reading of the records in some ranges.
struct Reading {
    follower: Follower,
    /// The result of [`Driver::wait`].
    news: Vec<Update>,
    /// Whether all of them were read once.
    is_whole: bool,
    status: calico_store::Status,
}

impl Reading {
    fn follow(store: &Arc<EtcdStore>, prefixes: Vec<String>, seed: u64) -> Self {
        let ranges = prefixes.into_iter().map(KeyRange::prefix);
        Self {
            follower: follow_ready(store.clone(), ranges, seed, None),
            news: Vec::new(),
            is_whole: false,
            status: calico_store::Status::Syncing,
        }
    }

    async fn next(&mut self) {
        if self.news.is_empty() {
            self.news = self.follower.next().await;
        }
    }

    fn take(&mut self, now: Instant, watch: &mut OriginWatch) {
        for update in self.news.drain(..) {
            match update {
                Update::Change(Change::Put(item)) => watch.take(now, &item.key, Some(&item.value)),
                Update::Change(Change::Delete(key)) => watch.take(now, &key, None),
                Update::Status(status) => {
                    self.is_whole |= status == calico_store::Status::InSync;
                    self.status = status;
                }
            }
        }
    }
}

impl fmt::Debug for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origins")
            .field("watch", &self.watch.figures())
            .finish_non_exhaustive()
    }
}

impl Origins {
    /// Begins to read the records. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// The options cannot work, or the datastore requires a user and is unreachable.
    pub(crate) async fn open(
        options: &EtcdOptions,
        mode: OriginMode,
        seed: u64,
    ) -> Result<Self, calico_store::Error> {
        let store = Arc::new(EtcdStore::connect(options).await?);
        Ok(Self {
            nodes: Reading::follow(&store, OriginIndex::prefixes_of_nodes(), seed),
            workloads: None,
            watch: OriginWatch::new(seed, mode == OriginMode::Enforce),
            is_complete: false,
            now: Instant::ZERO,
            mode,
            has_new_neighbors: true,
            store,
            seed,
        })
    }

    /// Lets a speaker that has not started use confirmed paths only, if the mode requires that.
    pub(crate) fn enforce(&self, speaker: &mut Speaker) {
        if self.mode == OriginMode::Enforce {
            speaker.check_origins(Arc::new(self.watch.records()));
        }
    }

    /// Passes the records that were read to the evaluation.
    fn take(&mut self, now: Instant, speaker: &Speaker) {
        self.has_new_neighbors |= !self.nodes.news.is_empty();
        self.nodes.take(now, &mut self.watch);
        self.extend(speaker);
        if self.nodes.is_whole {
            self.watch.begin(now, Known::Nodes);
        }
        if let Some(workloads) = &mut self.workloads {
            workloads.take(now, &mut self.watch);
            if workloads.is_whole {
                self.watch.begin(now, Known::All);
            }
        }
    }

    /// Returns whether all records were read that the present neighbors need.
    fn has_records(&self) -> bool {
        let workloads = self.workloads.as_ref();
        self.nodes.is_whole && workloads.is_none_or(|workloads| workloads.is_whole)
    }

    /// Begins to read the records of workloads, if a neighbor needs them.
    fn extend(&mut self, speaker: &Speaker) {
        if !self.has_new_neighbors || !self.nodes.is_whole || self.workloads.is_some() {
            return;
        }
        self.has_new_neighbors = false;
        if self.watch.needs_workloads(speaker) {
            let prefixes = OriginIndex::prefixes_of_workloads();
            self.workloads = Some(Reading::follow(&self.store, prefixes, self.seed));
        }
    }
}

impl<S: Settings> Driver<S> for Origins {
    async fn wait(&mut self) {
        let workloads = async {
            match &mut self.workloads {
                Some(workloads) => workloads.next().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = self.nodes.next() => {}
            () = workloads => {}
        }
    }

    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        let now = round.now;
        self.now = now;
        self.take(now, round.io.speaker());
        let mut found = Vec::new();
        let mut has_more = false;
        round.io.read_with(|speaker| {
            let (looked, unconfirmed) = self.watch.look(now, speaker);
            (found, has_more) = (unconfirmed, looked.has_more);
            looked.has_read
        });
        for unconfirmed in found {
            report(round.io.speaker(), self.mode, unconfirmed);
        }
        if self.mode == OriginMode::Enforce && !self.is_complete && self.has_records() {
            self.is_complete = true;
            round.io.speaker_mut().origins_complete();
        }
        if has_more {
            round.more();
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.watch.poll_timeout()
    }

    fn observe(&mut self, _: Instant, _: &Speaker, event: &Event) {
        self.has_new_neighbors |= matches!(event, Event::Speaker(_));
    }

    fn locate(&self, page: &mut Routes) {
        self.watch.locate(page);
    }

    fn report(&self, status: &mut Status) {
        let mut figures = self.watch.figures();
        if self.mode == OriginMode::Enforce {
            figures.in_sync = self.has_records();
        }
        let records = match &self.workloads {
            None if self.nodes.is_whole => "no neighbor is a plain node".to_owned(),
            None => format!("records {}", self.nodes.status.name()),
            Some(workloads) => format!("records {}", workloads.status.name()),
        };
        let oldest = self.watch.oldest();
        let oldest = oldest.map(|since| self.now.saturating_duration_since(since).as_secs());
        let since = oldest.map_or_else(String::new, |time_s| format!(", oldest for {time_s} s"));
        let mode = self.mode.name();
        status.facts.push(Fact {
            name: "origin validation".to_owned(),
            value: format!("{mode}, {records}, {figures}{since}"),
        });
        let faults = self.watch.faults();
        let faults = faults.take(FAULTS_SHOWN);
        status
            .notes
            .extend(faults.map(|fault| format!("the last valid record stays in effect: {fault}")));
        status.origins = Some(Box::new(figures));
    }
}

fn report(speaker: &Speaker, mode: OriginMode, unconfirmed: Unconfirmed) {
    let Unconfirmed {
        prefix,
        address,
        suspect,
    } = unconfirmed;
    emit(events::Event::RouteUnconfirmed {
        prefix: net_of(prefix),
        family: Text::new(match prefix {
            Prefix::V4(_) => "ipv4-unicast",
            Prefix::V6(_) => "ipv6-unicast",
        }),
        neighbor: Text::new(speaker.peer_name(suspect.peer)),
        address: Some(address),
        node: Text::new(&suspect.node),
        next_hop: suspect.next_hop.map(Text::new),
        reason: Text::new(&suspect.reason),
        mode: Text::new(mode.name()),
    });
}
