//! Routes that no record of the datastore confirms: a value without I/O.
//!
//! In the mode `warn` it reads the log of changes, and evaluates the paths in use: the others attract
//! no packet. A change of the records concerns some prefixes, which are looked up again, or many,
//! and then the whole table is read again in bounded steps, after the prefixes of all suspects. The
//! same is done when the log has lost changes.
//!
//! In the mode `enforce` the tables evaluate each path by the records, and the prefixes of rejected
//! paths are looked up. The log has no changes of such paths, so all suspects are looked up again
//! from time to time: some may be withdrawn.
//!
//! Each neighbor may have a mode of its own, so both may be in effect.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Bound;
use std::sync::Arc;

use bgp_io::Speaker;
use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_proto::{Family, Ipv4Prefix, Ipv6Prefix, Net, Prefix};
use bgp_io::bgp_speaker::{Input, PeerConfig, ReaderId, SpeakerConfig};
use bgp_io::rib::{Budget, OriginMode, PeerId, PrefixRange, Progress};
use calico_bgp::Fault;
use calico_bgp::validation::{Affected, Neighbor, ReceivedRoute};
use daemon_common::report::{OriginFigures, Routes};
use ipnet::IpNet;

use super::modes::{Modes, rules_of};
use super::records::{FAMILIES, Known, SharedRecords, prefix_of};
use super::seen::{Seen, seen, suspicion};
use crate::limits::{
    ORIGIN_FAULTS_MAX, ORIGIN_LOOKUPS_MAX, ORIGIN_RESCAN_AFTER, ORIGIN_SCAN_STEP,
    ORIGIN_SUSPECTS_MAX, ORIGIN_SUSPECTS_RESCAN, ORIGIN_TURN_MAX, ORIGIN_WAIT,
};
use crate::route_events::Looked;

/// A path: its prefix, the address of the neighbor, and its path identifier.
type Place = (Prefix, IpAddr, u32);

/// A path without a confirming record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    pub(crate) peer: PeerId,
    /// The node that is its neighbor, or the name of a neighbor that is no node.
    pub(crate) node: String,
    pub(crate) next_hop: Option<IpAddr>,
    pub(crate) reason: String,
    since: Instant,
    is_reported: bool,
}

/// A path without a confirming record for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    pub(crate) prefix: Prefix,
    pub(crate) address: IpAddr,
    pub(crate) suspect: Suspect,
}

/// The position of a reading of everything.
#[derive(Clone, Copy, Debug)]
enum Scan {
    /// After this suspect, or before the first one: the table does not have their prefixes if these
    /// were withdrawn, and the log may have lost that. Then the whole table, if that is requested.
    Suspects(Option<Place>, bool),
    /// A family, and a place in its table.
    Table(usize, u32),
}

/// Evaluates the routes of a speaker by the records of the datastore.
#[derive(Debug)]
pub struct OriginWatch {
    records: SharedRecords,
    modes: Modes,
    /// The records that the neighbors need.
    needed: Known,
    /// Prefixes that the tables must evaluate again.
    reevaluated: BTreeSet<PrefixRange>,
    /// When the tables must evaluate all paths again.
    reevaluate_all_at: Option<Instant>,
    /// Its position in the logs of changes.
    reader: Option<ReaderId>,
    /// Changes that it has missed.
    missed: u64,
    /// The position of the reading of all suspects and of the whole table.
    scan: Option<Scan>,
    scan_at: Option<Instant>,
    /// When to look up all suspects again.
    suspects_at: Option<Instant>,
    /// Prefixes to look up again.
    lookups: BTreeSet<Prefix>,
    suspects: BTreeMap<Place, Suspect>,
    /// When to check which suspects are to be reported.
    check_at: Option<Instant>,
    /// How many paths of each node were reported.
    reported: BTreeMap<String, u64>,
    /// How often a path was not held because there were too many suspects, since the start.
    overflow: u64,
    /// The same when the last scan began.
    overflow_before_scan: u64,
    /// Whether there may be paths without a record that are not held.
    is_incomplete: bool,
    faults: BTreeMap<String, Fault>,
}

impl OriginWatch {
    /// Creates a value without records. The mode is that of neighbors without one of their own.
    #[must_use]
    pub fn new(seed: u64, mode: OriginMode) -> Self {
        Self {
            records: SharedRecords::new(seed, mode),
            modes: Modes::new(mode),
            needed: Known::Nodes,
            reevaluated: BTreeSet::new(),
            reevaluate_all_at: None,
            reader: None,
            missed: 0,
            scan: None,
            scan_at: None,
            suspects_at: None,
            lookups: BTreeSet::new(),
            suspects: BTreeMap::new(),
            check_at: None,
            reported: BTreeMap::new(),
            overflow: 0,
            overflow_before_scan: 0,
            is_incomplete: false,
            faults: BTreeMap::new(),
        }
    }

    /// Applies a key's new value or its deletion.
    pub fn take(&mut self, now: Instant, key: &[u8], value: Option<&[u8]>) {
        let taken = self.records.lock().take(key, value);
        match taken {
            Ok(affected) => {
                self.faults.remove(&*String::from_utf8_lossy(key));
                if self.is_in_effect() {
                    self.affect(now, affected);
                }
            }
            Err(fault) if self.faults.len() < ORIGIN_FAULTS_MAX => {
                self.faults.insert(fault.key.clone(), fault);
            }
            Err(_) => {}
        }
    }

    /// Begins to evaluate routes: these records were read.
    pub fn begin(&mut self, now: Instant, known: Known) {
        if self.records.lock().learn(known) {
            self.evaluate_all(now);
        }
    }

    /// Evaluates all paths again.
    fn evaluate_all(&mut self, now: Instant) {
        self.scan_at = Some(now);
        self.reevaluate_all_at = self.modes.enforces().then_some(now);
    }

    /// Lets a speaker that has not started use confirmed paths only.
    pub fn enforce(&self, speaker: &mut Speaker) {
        speaker.check_origins(Arc::new(self.records()));
    }

    /// Adopts the modes of the speaker's neighbors.
    pub(crate) fn adopt(&mut self, now: Instant, config: &SpeakerConfig) {
        if self.modes.adopt(config) && self.is_in_effect() {
            self.evaluate_all(now);
        }
    }

    /// Returns the modes of the neighbors.
    pub(crate) const fn modes(&self) -> &Modes {
        &self.modes
    }

    /// Returns whether routes are evaluated.
    fn is_in_effect(&self) -> bool {
        self.modes.is_enabled() && self.records.lock().known() >= Known::Nodes
    }

    /// Returns whether a neighbor of the speaker is a node whose routes need records of workloads,
    /// or passes such routes on. In the mode `enforce` that is also assumed of each dynamic neighbor:
    /// its routes must not wait for the records after its End-of-RIB.
    pub(crate) fn needs_workloads(&mut self, speaker: &Speaker) -> bool {
        let records = self.records.lock();
        let mode = |peer: &PeerConfig| self.records.mode_of(peer.origin_validation);
        let is_node = |peer: &PeerConfig| {
            let neighbor = records.neighbor_at(peer.remote, rules_of(peer), None);
            matches!(neighbor, Neighbor::Node(_))
        };
        let needs =
            |peer: &PeerConfig| mode(peer) != OriginMode::Off && (peer.is_transit || is_node(peer));
        let mut ranges = speaker.config().ranges.iter();
        let has_ranges = ranges.any(|range| mode(&range.template) == OriginMode::Enforce);
        let is_needed = has_ranges || speaker.peers().any(|peer| needs(peer.config));
        drop(records);
        if is_needed {
            self.needed = Known::All;
        }
        is_needed
    }

    fn affect(&mut self, now: Instant, affected: Affected) {
        let concerns_all = !affected.nodes.is_empty() || affected.transit;
        let mut is_wide = concerns_all;
        for range in affected.ranges {
            let prefix = range.prefix();
            if self.modes.enforces() {
                self.reevaluated.insert(range.clone());
            }
            match range.lengths() == (prefix.len()..=prefix.len()) {
                true if self.lookups.len() < ORIGIN_LOOKUPS_MAX => {
                    self.lookups.insert(prefix);
                }
                _ => is_wide = true,
            }
        }
        if is_wide {
            self.scan_at.get_or_insert(now + ORIGIN_RESCAN_AFTER);
        }
        if self.reevaluated.len() > ORIGIN_LOOKUPS_MAX {
            self.reevaluated.clear();
            self.reevaluate_all_at = Some(now);
        }
        if self.modes.enforces() && concerns_all {
            let at = now + ORIGIN_RESCAN_AFTER;
            self.reevaluate_all_at.get_or_insert(at);
        }
    }

    /// Requests the tables to evaluate paths again by the changed records, within one bounded step.
    fn reevaluate(&mut self, now: Instant, speaker: &mut Speaker, looked: &mut Looked) {
        if self.reevaluate_all_at.is_some_and(|at| at <= now) {
            self.reevaluate_all_at = None;
            self.reevaluated.clear();
            for all in [Ipv4Prefix::DEFAULT.into(), Ipv6Prefix::DEFAULT.into()] {
                reevaluate(now, speaker, PrefixRange::inside(all));
            }
            looked.has_read = true;
        }
        for _ in 0..ORIGIN_SCAN_STEP {
            let Some(range) = self.reevaluated.pop_first() else {
                break;
            };
            reevaluate(now, speaker, range);
            looked.has_read = true;
        }
        looked.has_more |= !self.reevaluated.is_empty();
        let (rejected, has_more) = self.records.lock().take_rejected();
        let room = ORIGIN_LOOKUPS_MAX.saturating_sub(self.lookups.len());
        let has_more = has_more || rejected.len() > room;
        self.lookups.extend(rejected.into_iter().take(room));
        if has_more {
            self.scan_at.get_or_insert(now + ORIGIN_RESCAN_AFTER);
        }
    }

    /// Evaluates what has changed, within one bounded step. Returns the paths to report.
    pub fn look(&mut self, now: Instant, speaker: &mut Speaker) -> (Looked, Vec<Unconfirmed>) {
        let mut looked = Looked::default();
        if !self.is_in_effect() {
            return (looked, Vec::new());
        }
        if self.modes.enforces() {
            self.reevaluate(now, speaker, &mut looked);
        }
        if self.modes.warns() {
            for family in FAMILIES {
                self.read(now, speaker, family, &mut looked);
            }
        }
        for _ in 0..ORIGIN_SCAN_STEP {
            let Some(prefix) = self.lookups.pop_first() else {
                break;
            };
            self.look_up(now, speaker, prefix);
        }
        if self.scan.is_none() && self.scan_at.is_some_and(|at| at <= now) {
            (self.scan, self.scan_at) = (Some(Scan::Suspects(None, true)), None);
            self.overflow_before_scan = self.overflow;
        }
        if self.scan.is_none() && self.suspects_at.is_some_and(|at| at <= now) {
            self.scan = Some(Scan::Suspects(None, false));
            self.suspects_at = None;
        }
        self.scan(now, speaker);
        if self.modes.enforces() && self.scan.is_none() && !self.suspects.is_empty() {
            self.suspects_at.get_or_insert(now + ORIGIN_WAIT);
        }
        let unconfirmed = self.check(now, speaker);
        let has_room = self.suspects.len() < ORIGIN_SUSPECTS_RESCAN;
        if self.is_incomplete && has_room && self.scan.is_none() {
            self.scan_at.get_or_insert(now + ORIGIN_RESCAN_AFTER);
        }
        let is_due = self.check_at.is_some_and(|at| at <= now);
        looked.has_more |= is_due || self.scan.is_some() || !self.lookups.is_empty();
        (looked, unconfirmed)
    }

    /// Returns when to [`look`](Self::look) again without a change.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let times = [
            self.scan_at,
            self.check_at,
            self.suspects_at,
            self.reevaluate_all_at,
        ];
        times.into_iter().flatten().min()
    }

    /// Reads changes of one family.
    fn read(&mut self, now: Instant, speaker: &mut Speaker, family: Family, looked: &mut Looked) {
        let reader = *self.reader.get_or_insert_with(|| speaker.add_follower());
        let mut changes = Vec::new();
        let budget = Budget(ORIGIN_TURN_MAX);
        let progress = speaker.read(reader, family, budget, &mut |change| {
            let Some(prefix) = prefix_of(change.net) else {
                return;
            };
            let route = change.route.iter();
            let paths = route.flat_map(|route| route.paths().collect::<Vec<_>>());
            let paths = paths.map(|path| Seen::new(path.peer, path.path_id, &path.attributes));
            changes.push((prefix, paths.collect::<Vec<_>>()));
        });
        looked.has_read |= !changes.is_empty();
        looked.has_more |= progress != Progress::Done;
        let missed = speaker.missed(reader);
        if missed > self.missed {
            self.missed = missed;
            self.scan_at.get_or_insert(now);
        }
        for (prefix, paths) in changes {
            match self.modes.enforces() {
                // A change has no rejected paths.
                true => self.look_up(now, speaker, prefix),
                false => self.evaluate(now, speaker, prefix, paths),
            }
        }
    }

    /// Continues to read all suspects, then the whole table.
    fn scan(&mut self, now: Instant, speaker: &Speaker) {
        self.scan = match self.scan {
            None => return,
            Some(Scan::Suspects(after, whole)) => match self.scan_suspects(now, speaker, after) {
                Some(last) => Some(Scan::Suspects(Some(last), whole)),
                None if whole => self.scan_table(now, speaker, (0, 0)),
                None => None,
            },
            Some(Scan::Table(at, place)) => self.scan_table(now, speaker, (at, place)),
        };
    }

    /// Looks up the prefixes of further suspects. Returns the last of these suspects.
    fn scan_suspects(
        &mut self,
        now: Instant,
        speaker: &Speaker,
        after: Option<Place>,
    ) -> Option<Place> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let places = self.suspects.range((from, Bound::Unbounded));
        let places: Vec<Place> = places
            .map(|(place, _)| *place)
            .take(ORIGIN_SCAN_STEP)
            .collect();
        let prefixes: BTreeSet<Prefix> = places.iter().map(|place| place.0).collect();
        for prefix in prefixes {
            self.look_up(now, speaker, prefix);
        }
        places.last().copied()
    }

    /// Reads further prefixes of the table. Returns the position after them.
    fn scan_table(
        &mut self,
        now: Instant,
        speaker: &Speaker,
        (at, place): (usize, u32),
    ) -> Option<Scan> {
        let Some(family) = FAMILIES.get(at) else {
            // The scan has evaluated all paths; it has held those without a record unless it has counted more.
            self.is_incomplete = self.overflow > self.overflow_before_scan;
            return None;
        };
        let views = speaker.rib().prefixes_from(*family, place);
        let mut next = None;
        for (number, (place, view)) in views.enumerate() {
            if number >= ORIGIN_SCAN_STEP {
                next = Some(Scan::Table(at, place));
                break;
            }
            if let Some(prefix) = prefix_of(view.net) {
                self.evaluate(now, speaker, prefix, seen(&view));
            }
        }
        next.or(Some(Scan::Table(at + 1, 0)))
    }

    fn look_up(&mut self, now: Instant, speaker: &Speaker, prefix: Prefix) {
        let (family, net) = match prefix {
            Prefix::V4(prefix) => (Family::IPV4_UNICAST, Net::V4(prefix)),
            Prefix::V6(prefix) => (Family::IPV6_UNICAST, Net::V6(prefix)),
        };
        let view = speaker.rib().lookup(family, net);
        let paths = view.as_ref().map(seen).unwrap_or_default();
        self.evaluate(now, speaker, prefix, paths);
    }

    /// Compares the paths of a prefix with the records.
    fn evaluate(&mut self, now: Instant, speaker: &Speaker, prefix: Prefix, paths: Vec<Seen>) {
        let mut found = BTreeMap::new();
        let shared = self.records.clone();
        let records = shared.lock();
        for path in paths {
            let Some(peer) = speaker.peer_config(path.peer) else {
                continue; // A route of this host.
            };
            let mode = shared.mode_of(peer.origin_validation);
            if mode == OriginMode::Off {
                continue;
            }
            let (rules, origin) = (rules_of(peer), path.origin_as(peer));
            let neighbor = records.neighbor_at(peer.remote, rules, origin);
            let route = ReceivedRoute {
                prefix,
                next_hop: path.next_hop,
                has_originator_id: path.has_originator_id,
            };
            let reason = suspicion(&records, (neighbor, mode), &route);
            if let Some(reason) = reason {
                let suspect = Suspect {
                    peer: path.peer,
                    node: match neighbor {
                        Neighbor::Node(node) | Neighbor::Reflector(node) => node.to_owned(),
                        _ => speaker.peer_name(path.peer).to_owned(),
                    },
                    next_hop: path.next_hop,
                    reason,
                    since: now,
                    is_reported: false,
                };
                found.insert((prefix, peer.remote, path.path_id), suspect);
            }
        }
        let first = (prefix, IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let former = self.suspects.range(first..).map(|(place, _)| *place);
        let former = former.take_while(|(of, ..)| *of == prefix);
        let gone: Vec<Place> = former.filter(|place| !found.contains_key(place)).collect();
        for place in gone {
            self.suspects.remove(&place);
        }
        for (place, new) in found {
            self.suspect(now, place, new);
        }
    }

    fn suspect(&mut self, now: Instant, place: Place, new: Suspect) {
        let has_room = self.suspects.len() < ORIGIN_SUSPECTS_MAX;
        match self.suspects.get_mut(&place) {
            Some(known) => {
                *known = Suspect {
                    since: known.since,
                    is_reported: known.is_reported,
                    ..new
                }
            }
            None if has_room => {
                self.suspects.insert(place, new);
                self.check_at.get_or_insert(now + ORIGIN_WAIT);
            }
            None => {
                self.overflow += 1;
                self.is_incomplete = true;
            }
        }
    }

    /// Returns the suspects that have waited long enough, within one bounded step. Each is evaluated
    /// once more before: a record may have arrived that is not read yet.
    fn check(&mut self, now: Instant, speaker: &Speaker) -> Vec<Unconfirmed> {
        if self.check_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        if self.records.lock().known() < self.needed {
            // The datastore is unreachable: no record is missing yet.
            self.check_at = Some(now + ORIGIN_WAIT);
            return Vec::new();
        }
        let waiting = self.suspects.iter();
        let waiting = waiting.filter(|(_, suspect)| !suspect.is_reported);
        let due = waiting.filter(|(_, suspect)| suspect.since + ORIGIN_WAIT <= now);
        let due: Vec<Place> = due
            .map(|(place, _)| *place)
            .take(ORIGIN_SCAN_STEP)
            .collect();
        let mut unconfirmed = Vec::new();
        for place in due {
            self.look_up(now, speaker, place.0);
            if let Some(suspect) = self.suspects.get_mut(&place) {
                suspect.is_reported = true;
                *self.reported.entry(suspect.node.clone()).or_default() += 1;
                unconfirmed.push(Unconfirmed {
                    prefix: place.0,
                    address: place.1,
                    suspect: suspect.clone(),
                });
            }
        }
        let waiting = self.suspects.values();
        let waiting = waiting.filter(|suspect| !suspect.is_reported);
        self.check_at = waiting.map(|suspect| suspect.since + ORIGIN_WAIT).min();
        unconfirmed
    }

    /// Adds the reason to the paths that no record confirms.
    pub(crate) fn locate(&self, page: &mut Routes) {
        for route in &mut page.routes {
            let Ok(prefix) = route.prefix.parse() else {
                continue;
            };
            for path in &mut route.paths {
                let path_id = path.path_id.unwrap_or(0);
                let place = path.neighbor_address.map(|at| (prefix, at, path_id));
                let suspect = place.and_then(|place| self.suspects.get(&place));
                path.unconfirmed = suspect.map(|suspect| suspect.reason.clone());
            }
        }
    }

    /// Returns its counts.
    pub(crate) fn figures(&self) -> OriginFigures {
        let unconfirmed = self.suspects.values();
        let unconfirmed = unconfirmed.filter(|suspect| suspect.is_reported).count();
        OriginFigures {
            in_sync: self.is_in_effect(),
            pending: (self.suspects.len() - unconfirmed) as u64,
            unconfirmed: unconfirmed as u64,
            overflow: self.overflow,
            incomplete: self.is_incomplete,
            reported: self.reported.clone(),
            ..OriginFigures::default()
        }
    }

    /// Returns the records, for the tables.
    pub(crate) fn records(&self) -> SharedRecords {
        self.records.clone()
    }

    /// Returns when the oldest path without a record was first seen.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.suspects.values().map(|suspect| suspect.since).min()
    }

    /// Returns the values that are invalid.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.faults.values()
    }
}

/// Requests the tables to evaluate the paths in a range of prefixes again.
fn reevaluate(now: Instant, speaker: &mut Speaker, range: PrefixRange) {
    let family = match range.prefix() {
        Prefix::V4(_) => Family::IPV4_UNICAST,
        Prefix::V6(_) => Family::IPV6_UNICAST,
    };
    speaker.handle(now, Input::Reevaluate { family, range });
}

/// Returns the same prefix in the type of events.
pub(crate) fn net_of(prefix: Prefix) -> IpNet {
    prefix.into()
}
