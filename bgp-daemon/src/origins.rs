//! Origin validation as a driver: it reads the records of the datastore, and reports the routes of
//! neighbors that no record confirms. In the mode `enforce` such routes are not used.
//! `docs/design/origin-validation.md` has the rules.
//!
//! The records are read only when a neighbor has another mode than `off`, and those of workloads only
//! when such a session leads to a node that is no reflector, or to a switch that passes on its routes.

mod modes;
mod records;
mod seen;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::sync::Arc;

use bgp_config::{Intent, OriginMode};
use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_proto::Prefix;
use bgp_io::{Event, Speaker};
use calico_bgp::validation::OriginIndex;
use calico_store::{Change, EtcdStore, Follower, KeyRange, Update, follow_ready};
use daemon_common::events::{self, Text, emit};
use daemon_common::report::{Fact, Routes, Status};

pub use self::records::Known;
use self::watch::net_of;
pub use self::watch::{OriginWatch, Suspect, Unconfirmed};
use crate::limits::ORIGIN_UPDATES_MAX;
use crate::{Driver, DriverError, Round, Settings};

/// How many invalid values a status names.
const FAULTS_SHOWN: usize = 3;

/// The records of the datastore, and the routes that they do not confirm.
pub(crate) struct Origins {
    store: Arc<EtcdStore>,
    seed: u64,
    mode: OriginMode,
    /// `None` as long as all modes are `off`.
    nodes: Option<Reading>,
    /// `None` as long as no session needs them.
    workloads: Option<Reading>,
    watch: OriginWatch,
    /// Whether the tables evaluate paths by the records.
    is_checked: bool,
    /// Whether all needed records were read once, and all paths evaluated with them.
    is_complete: bool,
    /// When the last turn was.
    now: Instant,
    /// Whether the neighbors may have changed.
    has_new_neighbors: bool,
    /// Whether their configuration may have changed.
    has_new_config: bool,
}

/// The reading of the records in some ranges.
struct Reading {
    follower: Follower,
    /// The results of [`Driver::wait`] that no turn has taken yet.
    news: VecDeque<Update>,
    /// Whether all of them were read once.
    is_whole: bool,
    status: calico_store::Status,
}

impl Reading {
    fn follow(store: &Arc<EtcdStore>, prefixes: Vec<String>, seed: u64) -> Self {
        let ranges = prefixes.into_iter().map(KeyRange::prefix);
        Self {
            follower: follow_ready(store.clone(), ranges, seed, None),
            news: VecDeque::new(),
            is_whole: false,
            status: calico_store::Status::Syncing,
        }
    }

    async fn next(&mut self) {
        if self.news.is_empty() {
            self.news = self.follower.next().await.into();
        }
    }

    /// Takes some updates. The others make [`Driver::wait`] return at once, after the sockets.
    fn take(&mut self, now: Instant, watch: &mut OriginWatch) {
        let end = self.news.len().min(ORIGIN_UPDATES_MAX);
        for update in self.news.drain(..end) {
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
    /// Creates the driver of a datastore. Must be called within a Tokio runtime.
    pub(crate) fn new(store: Arc<EtcdStore>, mode: OriginMode, seed: u64) -> Self {
        Self {
            nodes: None,
            workloads: None,
            watch: OriginWatch::new(seed, mode),
            is_checked: false,
            is_complete: false,
            now: Instant::ZERO,
            mode,
            has_new_neighbors: true,
            has_new_config: true,
            store,
            seed,
        }
    }

    /// Lets a speaker that has not started use confirmed paths only, if a mode requires that.
    pub(crate) fn enforce(&mut self, speaker: &mut Speaker) {
        self.adopt(Instant::ZERO, speaker);
        if self.watch.modes().enforces() {
            self.check(speaker);
        }
    }

    fn check(&mut self, speaker: &mut Speaker) {
        self.watch.enforce(speaker);
        self.is_checked = true;
    }

    /// Adopts the modes of the neighbors, and begins to read the records if one needs them.
    fn adopt(&mut self, now: Instant, speaker: &Speaker) {
        if !std::mem::take(&mut self.has_new_config) {
            return;
        }
        self.has_new_neighbors = true;
        self.watch.adopt(now, speaker.config());
        if self.nodes.is_none() && self.watch.modes().is_enabled() {
            let prefixes = OriginIndex::prefixes_of_nodes();
            self.nodes = Some(Reading::follow(&self.store, prefixes, self.seed));
        }
    }

    /// Passes the records that were read to the evaluation.
    fn take(&mut self, now: Instant, speaker: &Speaker) {
        let Some(nodes) = &mut self.nodes else {
            return;
        };
        self.has_new_neighbors |= !nodes.news.is_empty();
        nodes.take(now, &mut self.watch);
        let is_whole = nodes.is_whole;
        self.extend(is_whole, speaker);
        if is_whole {
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
        self.nodes.as_ref().is_some_and(|nodes| nodes.is_whole)
            && workloads.is_none_or(|workloads| workloads.is_whole)
    }

    /// Begins to read the records of workloads, if a neighbor needs them.
    fn extend(&mut self, is_whole: bool, speaker: &Speaker) {
        if !self.has_new_neighbors || !is_whole || self.workloads.is_some() {
            return;
        }
        self.has_new_neighbors = false;
        if self.watch.needs_workloads(speaker) {
            let prefixes = OriginIndex::prefixes_of_workloads();
            self.workloads = Some(Reading::follow(&self.store, prefixes, self.seed));
        }
    }

    /// Lets the tables evaluate paths by the records, when these were read. A mode that changes to
    /// `enforce` during the operation has accepted paths, so it takes effect with the records. Returns
    /// whether the tables have work from it.
    fn complete(&mut self, speaker: &mut Speaker) -> bool {
        if !self.watch.modes().enforces() || self.is_complete || !self.has_records() {
            return false;
        }
        if !self.is_checked {
            self.check(speaker);
        }
        self.is_complete = true;
        speaker.origins_complete();
        true
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
        let nodes = async {
            match &mut self.nodes {
                Some(nodes) => nodes.next().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = nodes => {}
            () = workloads => {}
        }
    }

    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        let now = round.now;
        self.now = now;
        self.adopt(now, round.io.speaker());
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
        round.io.read_with(|speaker| self.complete(speaker));
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

    fn adopted(&mut self, _: Instant, _: &Intent) {
        self.has_new_config = true;
    }

    fn locate(&self, page: &mut Routes) {
        self.watch.locate(page);
    }

    fn report(&self, status: &mut Status) {
        let Some(nodes) = &self.nodes else {
            return;
        };
        let mut figures = self.watch.figures();
        figures.in_sync = self.has_records();
        let records = match &self.workloads {
            None if nodes.is_whole => "no neighbor is a plain node".to_owned(),
            None => format!("records {}", nodes.status.name()),
            Some(workloads) => format!("records {}", workloads.status.name()),
        };
        let oldest = self.watch.oldest();
        let oldest = oldest.map(|since| self.now.saturating_duration_since(since).as_secs());
        let since = oldest.map_or_else(String::new, |time_s| format!(", oldest for {time_s} s"));
        let mode = self.watch.modes();
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
    let own = speaker.peer_config(suspect.peer);
    let mode = own.and_then(|peer| peer.origin_validation).unwrap_or(mode);
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
