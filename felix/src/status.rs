//! Decides the reports into the datastore, and their times: pure, one write at a time.
//!
//! There are two reports. The process's own: `…/status` under a lease, and the same value without a
//! lease under `…/last_reported_status`; first ten seconds after the start, then every
//! `reportingInterval`. The endpoints': one key each, written when its state changes, at most one
//! write per tick of `endpointReportingDelay`, so that a flapping endpoint costs no more; every 180
//! ticks this host's keys in the datastore are listed and corrected.
//!
//! Nothing is reported before the settings of the reports have been read from the datastore.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use calico_model::{EndpointState, EndpointStatus, HostStatus, StatusKey};
use fib_sync::Instant;

use crate::calc::{EndpointId, Settings};
use crate::limits::{FIRST_REPORT, RETRY_MAX, RETRY_MIN, STATUS_RESYNC_TICKS};

#[cfg(test)]
mod tests;

/// An operation on the datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Write a value.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// Time to live; `None`: permanent. Every write gets its own lease.
        ttl: Option<Duration>,
    },
    /// Remove a key.
    Delete {
        /// The key.
        key: String,
    },
    /// List the keys with a prefix.
    List {
        /// The prefix.
        prefix: String,
    },
}

/// The outcome of a [`Job`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A write or removal succeeded.
    Done,
    /// The keys found, with their values.
    Listed(Vec<(String, Vec<u8>)>),
    /// It failed and will be repeated.
    Failed,
}

/// Decides what to report.
#[derive(Debug)]
pub(crate) struct Reporter {
    hostname: String,
    started: Instant,
    settings: Settings,
    /// The settings are known.
    settled: bool,
    /// Random state of the jitter.
    chance: u64,
    under_way: Option<UnderWay>,
    /// When the process's own report is due.
    own_due: Instant,
    /// The value to write without a lease, after the write with one.
    own_value: Option<Vec<u8>>,
    first_done: bool,
    /// States to report, by key, each with its endpoint. `None` until the host is in sync with the
    /// datastore.
    wanted: Option<BTreeMap<String, (EndpointId, EndpointStatus)>>,
    /// The values believed to be stored; `None`: they must be listed.
    held: Option<BTreeMap<String, Option<EndpointStatus>>>,
    /// Endpoints of which an earlier run has seen the interface, until they are taken.
    known: Known,
    /// The key that was written last; the next one follows in order.
    last: String,
    ticks: u32,
    tick: Instant,
    failures: u32,
}

/// The earlier run's endpoints from the first listing.
#[derive(Debug)]
enum Known {
    NotListed,
    Listed(Vec<EndpointId>),
    Taken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum UnderWay {
    Own,
    OwnLast,
    Endpoint(String, Option<EndpointStatus>),
    Listing,
}

impl Reporter {
    /// Returns a reporter for the host of this name. `seed` spreads the ticks of many hosts.
    pub(crate) fn new(now: Instant, hostname: impl Into<String>, seed: u64) -> Self {
        Self {
            hostname: hostname.into(),
            started: now,
            settings: Settings::default(),
            settled: false,
            chance: seed,
            under_way: None,
            own_due: now + FIRST_REPORT,
            own_value: None,
            first_done: false,
            wanted: None,
            held: None,
            known: Known::NotListed,
            last: String::new(),
            ticks: 0,
            tick: now,
            failures: 0,
        }
    }

    /// Sets the settings in effect; may be called repeatedly. After a change of region, all reports
    /// start again under the new keys.
    pub(crate) fn settings(&mut self, now: Instant, settings: &Settings) {
        if self.settled && settings.reporting_interval < self.settings.reporting_interval {
            // A shorter interval takes effect before the end of the present one.
            self.own_due = self.own_due.min(now + settings.reporting_interval);
        }
        self.settled = true;
        if self.settings == *settings {
            return;
        }
        let moved = self.settings.region != settings.region;
        self.settings = settings.clone();
        if moved {
            self.held = None;
            let wanted = self.wanted.take().map(BTreeMap::into_values);
            let wanted = wanted.map(|all| all.map(|(id, state)| (self.key(&id), (id, state))));
            self.wanted = wanted.map(Iterator::collect);
        }
    }

    /// Sets the states of these endpoints, some of which may be deleted; all others are unchanged.
    /// Must be called only after the host is in sync with the datastore: before that no endpoint is
    /// known to be deleted.
    pub(crate) fn endpoints<'e>(
        &mut self,
        changed: impl IntoIterator<Item = (&'e EndpointId, Option<EndpointStatus>)>,
    ) {
        let mut wanted = self.wanted.take().unwrap_or_default();
        for (id, state) in changed {
            let key = self.key(id);
            match state {
                Some(state) => wanted.insert(key, (id.clone(), state)),
                None => wanted.remove(&key),
            };
        }
        self.wanted = Some(wanted);
    }

    fn key(&self, id: &EndpointId) -> String {
        StatusKey::Workload {
            region: self.settings.region.clone(),
            host: self.hostname.clone(),
            orchestrator: id.orchestrator.clone(),
            workload: id.workload.clone(),
            endpoint: id.endpoint.clone(),
        }
        .to_string()
    }

    /// Returns the endpoints that an earlier run has reported as up or down, which means that it
    /// had seen their interfaces; once, after the first listing.
    pub(crate) fn take_known(&mut self) -> Vec<EndpointId> {
        match std::mem::replace(&mut self.known, Known::Taken) {
            Known::Listed(known) => known,
            other => {
                self.known = other;
                Vec::new()
            }
        }
    }

    /// Returns the next operation; `None` while one is pending. `unix_s` is the time of day.
    pub(crate) fn poll(&mut self, now: Instant, unix_s: u64) -> Option<Job> {
        if self.under_way.is_some() {
            return None;
        }
        self.poll_own(now, unix_s)
            .or_else(|| self.poll_endpoints(now))
    }

    /// Returns when to call [`poll`](Self::poll) again without an event.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.under_way.is_some() {
            return None;
        }
        let own = self.reports_own().then_some(self.own_due);
        let endpoints = self.has_endpoint_work().then_some(self.tick);
        own.into_iter().chain(endpoints).min()
    }

    /// Records the outcome of the pending operation.
    pub(crate) fn done(&mut self, now: Instant, outcome: Outcome) {
        let Some(job) = self.under_way.take() else {
            return;
        };
        if outcome == Outcome::Failed {
            self.failed(now, &job);
            return;
        }
        self.failures = 0;
        match (job, outcome) {
            (UnderWay::Own, _) => self.first_done = true,
            (UnderWay::OwnLast, _) => {
                self.own_value = None;
                self.own_due = now + self.settings.reporting_interval;
            }
            (UnderWay::Endpoint(key, state), _) => {
                self.last.clone_from(&key);
                if let Some(held) = &mut self.held {
                    match state {
                        Some(state) => held.insert(key, Some(state)),
                        None => held.remove(&key),
                    };
                }
            }
            (UnderWay::Listing, Outcome::Listed(found)) => {
                let held = states(found);
                if matches!(self.known, Known::NotListed) {
                    self.known = Known::Listed(seen(&held));
                }
                self.held = Some(held);
            }
            (UnderWay::Listing, _) => {}
        }
    }

    fn failed(&mut self, now: Instant, job: &UnderWay) {
        self.failures = self.failures.saturating_add(1);
        let delay = RETRY_MIN
            .saturating_mul(1 << self.failures.min(16))
            .min(RETRY_MAX);
        match job {
            UnderWay::Own | UnderWay::OwnLast => {
                self.own_value = None;
                self.own_due = now + delay;
            }
            UnderWay::Endpoint(..) => {
                // It may have been carried out nevertheless.
                self.held = None;
                self.tick = now + delay;
            }
            UnderWay::Listing => self.tick = now + delay,
        }
    }

    const fn reports_own(&self) -> bool {
        self.settled && !self.settings.reporting_interval.is_zero()
    }

    fn poll_own(&mut self, now: Instant, unix_s: u64) -> Option<Job> {
        if !self.reports_own() || now < self.own_due {
            return None;
        }
        let (region, host) = (self.settings.region.clone(), self.hostname.clone());
        if self.first_done
            && let Some(value) = self.own_value.clone()
        {
            self.under_way = Some(UnderWay::OwnLast);
            let key = StatusKey::LastReported { region, host }.to_string();
            let ttl = None;
            return Some(Job::Put { key, value, ttl });
        }
        let status = HostStatus {
            time: calico_model::rfc3339_utc(unix_s),
            uptime: now.saturating_duration_since(self.started).as_millis() as f64 / 1000.0,
            first_update: !self.first_done,
        };
        let value = serde_json::to_vec(&status).ok()?;
        self.own_value = Some(value.clone());
        self.under_way = Some(UnderWay::Own);
        let key = StatusKey::Host { region, host }.to_string();
        let ttl = Some(self.settings.reporting_ttl.max(Duration::from_secs(1)));
        Some(Job::Put { key, value, ttl })
    }

    fn has_endpoint_work(&self) -> bool {
        self.settings.endpoint_reporting && self.wanted.is_some()
    }

    fn poll_endpoints(&mut self, now: Instant) -> Option<Job> {
        if !self.has_endpoint_work() || now < self.tick {
            return None;
        }
        let delay = self.delay();
        self.tick = now + delay;
        self.ticks += 1;
        if self.ticks >= STATUS_RESYNC_TICKS {
            self.ticks = 0;
            self.held = None;
        }
        let Some(held) = &self.held else {
            self.under_way = Some(UnderWay::Listing);
            let prefix = StatusKey::workloads_prefix(&self.settings.region, &self.hostname);
            return Some(Job::List { prefix });
        };
        let (key, status) = next_difference(self.wanted.as_ref()?, held, &self.last)?;
        let job = match &status {
            Some(status) => Job::Put {
                key: key.clone(),
                value: serde_json::to_vec(status).ok()?,
                ttl: None,
            },
            None => Job::Delete { key: key.clone() },
        };
        self.under_way = Some(UnderWay::Endpoint(key, status));
        Some(job)
    }

    /// Returns one tick, with 10 % jitter.
    fn delay(&mut self) -> Duration {
        // Knuth's constants for a 64-bit linear congruential generator; its quality is sufficient.
        self.chance = self
            .chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let per_mille = u32::try_from(self.chance >> 33).unwrap_or(0) % 201;
        self.settings.endpoint_reporting_delay * (900 + per_mille) / 1000
    }
}

/// Returns the first key after `last`, in circular order, with a stored value that differs from the
/// wanted one: its state, or `None` to delete it. A key that changes all the time does not delay
/// the others.
fn next_difference(
    wanted: &BTreeMap<String, (EndpointId, EndpointStatus)>,
    held: &BTreeMap<String, Option<EndpointStatus>>,
    last: &str,
) -> Option<(String, Option<EndpointStatus>)> {
    let keys: BTreeSet<&str> = wanted
        .keys()
        .chain(held.keys())
        .map(String::as_str)
        .collect();
    let after = keys.range::<str, _>((Bound::Excluded(last), Bound::Unbounded));
    let before = keys.range::<str, _>((Bound::Unbounded, Bound::Included(last)));
    after.chain(before).find_map(|key| {
        let want = wanted.get(*key).map(|(_, state)| state);
        let have = held.get(*key);
        let same = have.is_some_and(|have| have.as_ref() == want) && want.is_some();
        (!same).then(|| ((*key).to_owned(), want.cloned()))
    })
}

/// Returns listed keys with their states; `None` for an unparsable value.
fn states(found: Vec<(String, Vec<u8>)>) -> BTreeMap<String, Option<EndpointStatus>> {
    let found = found.into_iter();
    found
        .map(|(key, value)| (key, serde_json::from_slice(&value).ok()))
        .collect()
}

/// Returns the endpoints stored as up or down.
fn seen(held: &BTreeMap<String, Option<EndpointStatus>>) -> Vec<EndpointId> {
    let seen = held.iter().filter(|(_, status)| {
        let status = status.as_ref();
        status.is_some_and(|status| status.status != EndpointState::Error)
    });
    seen.filter_map(|(key, _)| match key.parse() {
        Ok(StatusKey::Workload {
            orchestrator,
            workload,
            endpoint,
            ..
        }) => Some(EndpointId {
            orchestrator,
            workload,
            endpoint,
        }),
        _ => None,
    })
    .collect()
}
