//! Incoming connections that fail before their session is established: they are counted by reason,
//! and reported in one event per neighbor or range and period, however many there are.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::String,
};
use core::{fmt, net::IpAddr};

use bgp_fsm::{Conn, DownReason, Instant};
use bgp_proto::notification::{cease, code, open};
use bgp_proto::{Ipv4Prefix, Ipv6Prefix, Notification, Prefix};
use rib::PeerId;

use crate::{
    event::{Event, Output, Refusal},
    limits::HANDSHAKE_REPORT_EVERY,
    speaker::Speaker,
};

/// The reason why a connection did not become a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeFailure {
    /// Its octets were not a message, or a message that is invalid before a session is established.
    Garbage,
    /// It was not Established within the handshake timeout.
    Timeout,
    /// The other end closed it without a NOTIFICATION.
    Closed,
    /// The other end sent a NOTIFICATION.
    Notified,
    /// Its OPEN has an AS that differs from the configuration.
    WrongAs,
    /// Its OPEN was rejected for another reason.
    BadOpen,
    /// It failed GTSM (RFC 5082).
    TtlSecurity {
        /// The received TTL, if the kernel reported it.
        ttl: Option<u8>,
        /// The lowest TTL that the configuration accepts.
        least: u8,
    },
    /// A password is configured, and the connection was not checked against it.
    Unsigned,
    /// All neighbors of the full range had a session, or retained routes.
    Full,
    /// The range was full, and a newer connection replaced this one.
    Evicted,
    /// The same address opened a newer connection.
    Replaced,
    /// The neighbor has a session, or is in idle hold after a prefix limit.
    Rejected,
}

/// The reasons in the order of [`HandshakeFailure::place`].
const REASONS: [&str; 12] = [
    "garbage",
    "timeout",
    "closed",
    "notification",
    "wrong AS",
    "bad OPEN",
    "TTL security",
    "no key",
    "range full",
    "evicted",
    "replaced",
    "rejected",
];

impl HandshakeFailure {
    /// Returns the reason in a word or two, as in metrics and tables.
    #[must_use]
    pub fn reason(self) -> &'static str {
        REASONS.get(self.place()).copied().unwrap_or_default()
    }

    /// Returns its index in [`REASONS`].
    const fn place(self) -> usize {
        match self {
            Self::Garbage => 0,
            Self::Timeout => 1,
            Self::Closed => 2,
            Self::Notified => 3,
            Self::WrongAs => 4,
            Self::BadOpen => 5,
            Self::TtlSecurity { .. } => 6,
            Self::Unsigned => 7,
            Self::Full => 8,
            Self::Evicted => 9,
            Self::Replaced => 10,
            Self::Rejected => 11,
        }
    }

    /// Returns why a connection ended before its session was established; `None` for a regular end,
    /// and for an eviction, which is counted where it is decided.
    fn of(reason: &DownReason) -> Option<Self> {
        let notification = match reason {
            DownReason::TransportLost => return Some(Self::Closed),
            DownReason::Received(_) => return Some(Self::Notified),
            DownReason::Reopened | DownReason::LocalRestart => return None,
            DownReason::Sent(notification) => notification,
        };
        match (notification.code, notification.subcode) {
            (code::OPEN_MESSAGE, open::BAD_PEER_AS) => Some(Self::WrongAs),
            (code::OPEN_MESSAGE, _) => Some(Self::BadOpen),
            (code::HOLD_TIMER_EXPIRED, _) => Some(Self::Timeout),
            (code::CEASE, cease::CONNECTION_COLLISION_RESOLUTION) => Some(Self::Replaced),
            (code::CEASE, _) => None,
            _ => Some(Self::Garbage),
        }
    }
}

impl fmt::Display for HandshakeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())?;
        match self {
            Self::TtlSecurity {
                ttl: Some(ttl),
                least,
            } => write!(f, ": TTL {ttl}, at least {least} expected"),
            Self::TtlSecurity { ttl: None, .. } => f.write_str(": TTL not known"),
            Self::Unsigned => f.write_str(
                ": there is a password, but the connection came before the kernel had it",
            ),
            _ => Ok(()),
        }
    }
}

/// Numbers of failed connections, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeFailures([u64; REASONS.len()]);

impl HandshakeFailures {
    fn add(&mut self, failure: HandshakeFailure) {
        if let Some(count) = self.0.get_mut(failure.place()) {
            *count = count.saturating_add(1);
        }
    }

    /// Returns the number of failures with a reason.
    #[must_use]
    pub fn count(&self, failure: HandshakeFailure) -> u64 {
        self.0.get(failure.place()).copied().unwrap_or_default()
    }

    /// Returns the number of all failures.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the reasons that occurred, each with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let all = REASONS.into_iter().zip(self.0);
        all.filter(|&(_, count)| count > 0)
    }
}

impl fmt::Display for HandshakeFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (reason, count)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{count} {reason}")?;
        }
        Ok(())
    }
}

/// The failures of one neighbor or range.
#[derive(Clone, Debug, Default)]
struct Tally {
    total: HandshakeFailures,
    /// Failures that were not reported yet.
    pending: HandshakeFailures,
    /// The last one, with its address.
    last: Option<(Instant, IpAddr, HandshakeFailure)>,
    /// When the next report is due.
    due: Option<Instant>,
}

/// The failures of all neighbors and ranges, by their prefix: as many as are configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallies {
    all: BTreeMap<Prefix, Tally>,
    due: BTreeSet<(Instant, Prefix)>,
}

impl Tallies {
    /// Returns all failures of a neighbor or range.
    pub(crate) fn total(&self, of: Prefix) -> HandshakeFailures {
        self.all
            .get(&of)
            .map(|tally| tally.total)
            .unwrap_or_default()
    }

    /// Removes those that are no longer configured.
    pub(crate) fn retain(&mut self, is_configured: impl Fn(Prefix) -> bool) {
        self.all.retain(|&of, _| is_configured(of));
        self.due.retain(|&(_, of)| is_configured(of));
    }

    /// Returns when a report is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|&(at, _)| at)
    }
}

impl Speaker {
    /// Counts a connection that failed before it reached its session, because of its TTL or its
    /// key. An address outside all neighbors and ranges is not counted.
    pub fn count_failure(&mut self, now: Instant, remote: IpAddr, failure: HandshakeFailure) {
        let is_neighbor = self.config.peers.iter().any(|peer| peer.remote == remote);
        let of = match self.config.range_of(remote) {
            _ if is_neighbor => host(remote),
            Some((_, range)) => range.prefix,
            None => return,
        };
        self.tally(now, of, remote, failure);
    }

    /// Returns the last connection of a configured neighbor that failed because of its TTL or its
    /// key.
    #[must_use]
    pub fn last_failure(&self, neighbor: IpAddr) -> Option<(Instant, HandshakeFailure)> {
        let tally = self.tallies.all.get(&host(neighbor))?;
        tally.last.map(|(at, _, failure)| (at, failure))
    }

    /// Counts a rejected connection, if it belongs to a range.
    pub(crate) fn count_refusal(&mut self, now: Instant, remote: IpAddr, refusal: &Refusal) {
        let failure = match refusal {
            Refusal::RangeFull { .. } | Refusal::TooManyPeers => HandshakeFailure::Full,
            Refusal::Session(_) => HandshakeFailure::Rejected,
            Refusal::Unknown | Refusal::WrongLocal => return,
        };
        let is_neighbor = self.config.peers.iter().any(|peer| peer.remote == remote);
        if !is_neighbor {
            self.count_failure(now, remote, failure);
        }
    }

    /// Counts a connection that ended before it was Established, if it belongs to a range. For
    /// configured neighbors there are separate events.
    pub(crate) fn count_end(&mut self, now: Instant, id: PeerId, conn: Conn, why: &DownReason) {
        let Some(peer) = self.roster.get(id) else {
            return;
        };
        let range = peer.range.and_then(|range| self.config.ranges.get(range));
        let (Some(range), Some(failure), Conn::Inbound) = (range, HandshakeFailure::of(why), conn)
        else {
            return;
        };
        self.tally(now, range.prefix, peer.config.remote, failure);
    }

    fn tally(&mut self, now: Instant, of: Prefix, remote: IpAddr, failure: HandshakeFailure) {
        let tally = self.tallies.all.entry(of).or_default();
        tally.total.add(failure);
        tally.pending.add(failure);
        tally.last = Some((now, remote, failure));
        if tally.due.is_none() {
            // The first failure after a while is reported at once.
            self.report(now, of);
        }
    }

    /// Emits the reports that are due.
    pub(crate) fn report_failures(&mut self, now: Instant) {
        while let Some(&(at, of)) = self.tallies.due.first()
            && at <= now
        {
            self.tallies.due.pop_first();
            self.report(now, of);
        }
    }

    /// Reports the failures since the last report, if there are any, and schedules the next report.
    fn report(&mut self, now: Instant, of: Prefix) {
        let name = self.name_of(of);
        let Some(tally) = self.tallies.all.get_mut(&of) else {
            return;
        };
        let failures = core::mem::take(&mut tally.pending);
        tally.due = None;
        if let Some((_, remote, last)) = tally.last.filter(|_| failures.total() > 0) {
            let at = now + HANDSHAKE_REPORT_EVERY;
            tally.due = Some(at);
            self.tallies.due.insert((at, of));
            self.outputs.push_back(Output::Event(Event::Handshakes {
                of: name,
                failures,
                remote,
                last,
            }));
        }
    }

    /// Removes the failures of neighbors and ranges that are no longer configured.
    pub(crate) fn forget_failures(&mut self) {
        let config = &self.config;
        let hosts = config.peers.iter().map(|peer| host(peer.remote));
        let ranges = config.ranges.iter().map(|range| range.prefix);
        let configured: BTreeSet<Prefix> = hosts.chain(ranges).collect();
        self.tallies.retain(|of| configured.contains(&of));
    }

    /// Removes the failures of a neighbor that is no longer configured.
    pub(crate) fn forget_failures_of(&mut self, remote: IpAddr) {
        let gone = host(remote);
        if self.config.ranges.iter().all(|range| range.prefix != gone) {
            self.tallies.retain(|of| of != gone);
        }
    }

    /// Returns the configured name of a neighbor or a range.
    fn name_of(&self, of: Prefix) -> String {
        let mut peers = self.config.peers.iter();
        match peers.find(|peer| host(peer.remote) == of) {
            Some(peer) => format!("neighbor {}", peer.name),
            None => format!("neighbor_range {of}"),
        }
    }

    /// Makes room in a full range: closes the oldest connection that is not Established, of the
    /// source that has most of these. Returns false if all neighbors have a session, or retained
    /// routes.
    pub(crate) fn evict(&mut self, now: Instant, newcomer: IpAddr) -> bool {
        let range = self.config.range_of(newcomer).map(|(at, _)| at);
        let victim = range.and_then(|range| self.roster.to_evict(range, newcomer));
        let Some(victim) = victim else {
            return false;
        };
        let evicted = self.roster.get(victim).map(|peer| peer.config.remote);
        let why = Notification::out_of_resources("a newer connection takes the place in the range");
        self.stop(now, victim, why);
        self.roster.doom(victim);
        self.retire(victim);
        if let Some(evicted) = evicted {
            self.count_failure(now, evicted, HandshakeFailure::Evicted);
        }
        true
    }
}

/// Returns the host prefix of an address.
pub(crate) fn host(address: IpAddr) -> Prefix {
    match address {
        IpAddr::V4(address) => Prefix::V4(Ipv4Prefix::host(address)),
        IpAddr::V6(address) => Prefix::V6(Ipv6Prefix::host(address)),
    }
}
