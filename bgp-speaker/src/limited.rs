//! The output for one member with a limit of sent paths (`prefix_limit_out`), or that is sent the
//! routes of certain route targets only (RFC 4684).
//!
//! Members of such a group share nothing. With a limit, the paths that a member holds depend on the
//! order in which it received them, and its own routes do not count. Route targets differ from
//! client to client. So each reads the tables itself as long as its session lasts, and keeps the
//! paths that it was sent: at most as many as the limit.
//!
//! A path above the limit is suppressed. The tables do not advertise it again, so once a withdrawal
//! makes room, a pass over the whole table finds paths that the member does not hold. A pass only
//! adds paths: the log has their changes. It ends when the limit is reached again. Passes keep a
//! distance in time, because a member with many withdrawals would otherwise cause one after the
//! other.
//!
//! The same pass follows a change of the member's route targets. It also withdraws paths that are
//! not wanted any more.

use alloc::{boxed::Box, collections::BTreeSet, sync::Arc, vec::Vec};
use core::ops::ControlFlow;

use bgp_fsm::Instant;
use bgp_proto::{Family, Ipv4Prefix, Ipv6Prefix, Net, Nlri};
use bytes::BytesMut;
use rib::{Budget, Cursor, ExportSink, PeerId, Progress, Rib, Room, RouteTargets, Run};

use crate::{
    config::PrefixLimitOut,
    encode::Encoder,
    feed::FeedPlace,
    limits::{
        FEED_PREFIXES, FEED_STEP_OCTETS_MAX, SENT_KEY_OCTETS, SENT_PASS_EVERY, SENT_PATH_OCTETS,
        SILENT_STEPS_MAX,
    },
    member::{Dump, DumpEnd, Lost, MemberState, Mode, queue},
    outlet::Outlet,
};

/// The paths that a peer was sent in a family with a limit of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentPaths {
    /// The family.
    pub family: Family,
    /// The limit.
    pub limit: PrefixLimitOut,
    /// The paths that the peer holds.
    pub paths: u32,
    /// The highest number of them.
    pub peak: u32,
    /// How often a path was not advertised because of the limit.
    pub suppressed: u64,
    /// Whether paths may be missing at the peer because of the limit.
    pub is_short: bool,
}

/// Why a member has an output of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnOutput {
    /// The limit of sent paths.
    pub(crate) limit: Option<PrefixLimitOut>,
    /// Whether only routes are sent that the member's route targets select.
    pub(crate) selects: bool,
}

/// A path that a member holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SentKey {
    V4(Ipv4Prefix, u32),
    V6(Ipv6Prefix, u32),
    /// The octets that identify the route in its family.
    Opaque(Box<[u8]>, u32),
}

impl SentKey {
    fn of(family: Family, nlri: &Nlri<'_>) -> Self {
        match nlri.net {
            Net::V4(prefix) => Self::V4(prefix, nlri.path_id),
            Net::V6(prefix) => Self::V6(prefix, nlri.path_id),
            Net::Opaque(octets) => {
                let mut key = Vec::new();
                if let Some(row) = family.row() {
                    row.key(octets, &mut key);
                }
                Self::Opaque(key.into(), nlri.path_id)
            }
        }
    }

    fn octets(&self) -> usize {
        match self {
            Self::V4(..) | Self::V6(..) => SENT_PATH_OCTETS,
            Self::Opaque(octets, _) => SENT_KEY_OCTETS + octets.len(),
        }
    }
}

/// The state of one member in one family with an output of its own.
#[derive(Debug)]
pub(crate) struct Limited {
    family: Family,
    limit: Option<PrefixLimitOut>,
    /// Whether only routes are sent that the member's route targets select.
    selects: bool,
    /// The route targets have changed since the last pass began.
    reselect: bool,
    /// The pass is for changed route targets, so it does not end at the limit.
    reselects: bool,
    /// The paths that the member holds.
    sent: BTreeSet<SentKey>,
    /// Their octets in the account of the member.
    octets: usize,
    peak: u32,
    suppressed: u64,
    /// Paths may be suppressed.
    short: bool,
    /// A path was suppressed since the pass began.
    short_in_pass: bool,
    /// The session began without a limit: the member may hold paths that are not in `sent`.
    unsure: bool,
    /// It has read the log to its end.
    idle: bool,
    /// The position of a pass over the table.
    pass: Option<Cursor>,
    /// When the next pass may begin.
    next_pass: Instant,
    /// Consecutive steps without output.
    silent_steps: u32,
}

impl Limited {
    /// Makes the state of a member. `unsure`: it may hold paths.
    pub(crate) const fn new(family: Family, how: OwnOutput, unsure: bool) -> Self {
        Self {
            family,
            limit: how.limit,
            selects: how.selects,
            reselect: false,
            reselects: false,
            sent: BTreeSet::new(),
            octets: 0,
            peak: 0,
            suppressed: 0,
            short: false,
            short_in_pass: false,
            unsure,
            idle: false,
            pass: None,
            next_pass: Instant::ZERO,
            silent_steps: 0,
        }
    }

    /// Applies another limit, or the same one with other rules: the member reads the whole table
    /// again.
    pub(crate) fn again_with(mut self, how: OwnOutput) -> Self {
        self.limit = how.limit;
        self.selects = how.selects;
        self.short = false;
        self.pass = None;
        self.silent_steps = 0;
        self.wake();
        self
    }

    /// Records that the member's route targets have changed.
    pub(crate) const fn reselect(&mut self) {
        self.reselect = self.selects;
    }

    /// Records that there is something to read.
    pub(crate) const fn wake(&mut self) {
        self.idle = false;
    }

    /// Returns whether a step can be done now.
    pub(crate) const fn has_more(&self) -> bool {
        !self.is_paused() && (!self.idle || self.pass.is_some())
    }

    const fn is_paused(&self) -> bool {
        self.silent_steps >= SILENT_STEPS_MAX
    }

    fn has_room(&self) -> bool {
        let limit = self.limit;
        limit.is_none_or(|limit| self.sent.len() < limit.max as usize)
    }

    /// Returns whether the member holds more paths than a limit that was lowered: the dump that
    /// follows withdraws them.
    fn is_exceeded(&self) -> bool {
        let limit = self.limit;
        limit.is_some_and(|limit| self.sent.len() > limit.max as usize)
    }

    fn needs_pass(&self) -> bool {
        (self.reselect || self.short && self.has_room()) && self.pass.is_none()
    }

    /// Returns when [`resume`](Self::resume) is due, if it is.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        match (self.is_paused(), self.needs_pass()) {
            (true, _) => Some(now),
            (false, true) => Some(self.next_pass.max(now)),
            (false, false) => None,
        }
    }

    /// Continues after a pause, and begins a pass that is due.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.silent_steps = 0;
        if self.needs_pass() && self.next_pass <= now {
            self.pass = Some(Cursor::initial());
            self.short_in_pass = false;
            self.reselects = core::mem::take(&mut self.reselect);
            self.next_pass = now + SENT_PASS_EVERY;
        }
    }

    /// Returns the position of the pass.
    pub(crate) const fn held_cursor(&self) -> Option<Cursor> {
        self.pass
    }

    /// Returns the octets of the list of sent paths.
    pub(crate) const fn octets(&self) -> usize {
        self.octets
    }

    /// Returns whether the member was sent a path.
    pub(crate) fn holds(&self, nlri: &Nlri<'_>) -> bool {
        self.sent.contains(&SentKey::of(self.family, nlri))
    }

    /// Returns the state of the limit, if there is one.
    pub(crate) fn usage(&self) -> Option<SentPaths> {
        Some(SentPaths {
            family: self.family,
            limit: self.limit?,
            paths: self.paths(),
            peak: self.peak,
            suppressed: self.suppressed,
            is_short: self.short,
        })
    }

    fn paths(&self) -> u32 {
        u32::try_from(self.sent.len()).unwrap_or(u32::MAX)
    }

    /// Performs one step of the member. Breaks if there is nothing to do now.
    pub(crate) fn step(
        &mut self,
        dump: &Dump,
        member: &mut MemberState,
        session: &mut Outlet<'_>,
        rib: &mut Rib,
    ) -> Result<ControlFlow<()>, Lost> {
        let (from, adds) = match (member.mode, self.pass) {
            _ if self.is_paused() => return Ok(ControlFlow::Break(())),
            (Mode::Private(cursor, _), _) if !self.idle => (cursor, false),
            (_, Some(cursor)) => (cursor, true),
            (_, None) => return Ok(ControlFlow::Break(())),
        };
        let (family, octets_max) = (dump.family, FEED_STEP_OCTETS_MAX);
        let mut sink = LimitedSink {
            encoder: Encoder::new(family, dump.params, octets_max, BytesMut::new()),
            member: dump.peer,
            adds,
            targets: self.selects.then(|| rib.route_targets(dump.peer)),
            wanted: (0, true),
            out: self,
        };
        let (mut cursor, budget) = (from, Budget(FEED_PREFIXES));
        let progress = rib.export_private(dump.group, family, &mut cursor, budget, &mut sink);
        let pieces = sink.encoder.finish_exact(&dump.encoded);
        queue(session, dump.peer, &pieces);
        self.silent_steps = match pieces.is_empty() {
            true => self.silent_steps + 1,
            false => 0,
        };
        match adds {
            true => self.passed(cursor, progress),
            false if progress == Progress::Lost => return Err(Lost),
            false => {
                let mode = Mode::Private(cursor, FeedPlace::ELSEWHERE);
                member.mode = mode;
                if progress == Progress::Done {
                    *member = member.dumped(cursor, family, mode, session);
                    self.idle = member.dump_end == DumpEnd::Nothing;
                    self.silent_steps = 0;
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Records a step of the pass: it ends at the end of the table, or at the limit.
    fn passed(&mut self, cursor: Cursor, progress: Progress) {
        self.pass = (progress == Progress::More && !cursor.has_full_table()).then_some(cursor);
        if progress != Progress::Lost && self.pass.is_none() {
            self.short = self.short_in_pass;
        }
        if !self.has_room() && !self.reselects {
            self.pass = None;
        }
        if self.pass.is_none() {
            self.silent_steps = 0;
        }
    }

    fn suppress(&mut self) {
        self.suppressed += 1;
        self.short = true;
        self.short_in_pass = true;
    }

    /// Adds a path.
    fn insert(&mut self, key: SentKey) {
        self.octets += key.octets();
        self.sent.insert(key);
        self.peak = self.peak.max(self.paths());
    }

    /// Removes a path; returns whether the member may have held it.
    fn remove(&mut self, key: &SentKey) -> bool {
        let held = self.sent.remove(key);
        if held {
            self.octets = self.octets.saturating_sub(key.octets());
        }
        held || self.unsure
    }
}

/// The sink of one step of a member: it passes what the member may be sent to the encoder.
#[derive(Debug)]
struct LimitedSink<'l> {
    encoder: Encoder,
    member: PeerId,
    /// Whether it is a step of a pass, which does not repeat paths.
    adds: bool,
    /// The route targets that select the routes, if any do.
    targets: Option<Arc<RouteTargets>>,
    /// The last run, and whether the member wants it.
    wanted: (u64, bool),
    out: &'l mut Limited,
}

impl LimitedSink<'_> {
    fn wants(&mut self, run: &Run<'_>) -> bool {
        if let Some(targets) = &self.targets
            && self.wanted.0 != run.id
        {
            self.wanted = (run.id, targets.wants(run.attributes));
        }
        self.wanted.1
    }
}

impl ExportSink for LimitedSink<'_> {
    fn room(&self) -> Room {
        self.encoder.room()
    }

    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>) {
        if run.source == self.member {
            return;
        }
        let key = SentKey::of(self.out.family, nlri);
        if !self.wants(run) {
            if self.out.remove(&key) {
                self.encoder.unreach(nlri, None);
            }
        } else if self.out.sent.contains(&key) {
            if self.out.is_exceeded() {
                self.out.remove(&key);
                self.out.suppress();
                self.encoder.unreach(nlri, None);
            } else if !self.adds {
                self.encoder.reach(nlri, run);
            }
        } else if self.out.has_room() {
            self.out.insert(key);
            self.encoder.reach(nlri, run);
        } else {
            self.out.suppress();
            if self.out.unsure && !self.adds {
                self.encoder.unreach(nlri, None);
            }
        }
    }

    fn unreach(&mut self, nlri: &Nlri<'_>, except: Option<PeerId>) {
        let key = SentKey::of(self.out.family, nlri);
        if except != Some(self.member) && self.out.remove(&key) {
            self.encoder.unreach(nlri, None);
        }
    }

    fn unreach_only(&mut self, net: Net<'_>, to: PeerId) {
        if to == self.member {
            self.unreach(&Nlri::new(net), None);
        }
    }
}

/// The sink of the shared output of a group whose members have outputs of their own. It has no
/// receivers.
#[derive(Debug)]
pub(crate) struct NoMember;

impl ExportSink for NoMember {
    fn reach(&mut self, _: &Nlri<'_>, _: &Run<'_>) {}
    fn unreach(&mut self, _: &Nlri<'_>, _: Option<PeerId>) {}
    fn unreach_only(&mut self, _: Net<'_>, _: PeerId) {}
}
