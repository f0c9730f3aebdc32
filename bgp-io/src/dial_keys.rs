//! Two valid TCP-MD5 keys, on connections that this side dialed.
//!
//! The kernel has one key per address on a socket. So the side that accepts a connection decides
//! which of two keys is used, and the side that dials finds it out: beside a dial without an
//! answer there is soon one with the other key, and a connection whose peer is silent gets the other
//! key. Both directions fail while the keys differ, and TCP retransmits what was lost (RFC 4808).

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use bgp_speaker::Password;
use bgp_speaker::bgp_fsm::Instant;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::limits::{
    AGE_ROUNDING, KEY_ANSWER, KEY_ANSWERS_PER_HOLD, KEY_ATTEMPTS, KEY_PROBE, KEY_PROBES_MAX,
    KEY_TRY,
};
use crate::sockets::dialing;
use crate::sockopt::TcpFigures;

/// The keys of a connection that this side dialed.
pub(crate) struct DialKeys {
    /// The key on the socket.
    used: Password,
    /// Another key that the peer may have.
    other: Option<Password>,
    /// Whether the peer has not used the key on the socket yet, but the other one.
    is_trial: bool,
    /// The peer's silence with the key on the socket.
    silence: Silence,
    pace: Pace,
}

/// The times of a connection, as its hold time demands.
#[derive(Clone, Copy)]
struct Pace {
    /// The interval of the kernel's probes of an idle connection; `None` without a hold time.
    probe: Option<Duration>,
    /// The time for an answer to the attempts to reach the peer.
    answer: Duration,
}

impl Pace {
    /// The kernel ends a connection after too many probes without an answer: the hold timer must be
    /// earlier. So there are no probes without a hold time.
    fn new(hold_time_s: u16) -> Self {
        let hold_time_s = u32::from(hold_time_s);
        if hold_time_s == 0 {
            return Self {
                probe: None,
                answer: KEY_ANSWER,
            };
        }
        let share = Duration::from_secs(hold_time_s.into()) / KEY_ANSWERS_PER_HOLD;
        Self {
            probe: Some(KEY_PROBE * (hold_time_s / KEY_PROBES_MAX + 1)),
            answer: KEY_ANSWER.min(share),
        }
    }
}

/// The attempts to reach a silent peer: retransmissions, and probes of the kernel.
struct Silence {
    /// When the socket got its key, or when the last valid segment after that arrived.
    since: Instant,
    /// The kernel's count of attempts at that time; unknown before the first check.
    before: Option<u32>,
    /// The kernel's count at the last check.
    count: u32,
    /// When a check found enough attempts.
    enough_at: Option<Instant>,
}

impl Silence {
    const fn begin(since: Instant, before: Option<u32>, count: u32) -> Self {
        Self {
            since,
            before,
            count,
            enough_at: None,
        }
    }
}

impl DialKeys {
    /// Returns the keys of a new connection.
    pub(crate) fn new(
        used: Password,
        other: Option<Password>,
        hold_time_s: u16,
        since: Instant,
    ) -> Self {
        Self {
            used,
            other,
            is_trial: false,
            silence: Silence::begin(since, None, 0),
            pace: Pace::new(hold_time_s),
        }
    }

    /// Sets the negotiated hold time.
    pub(crate) fn set_hold_time(&mut self, seconds: u16) {
        self.pace = Pace::new(seconds);
    }

    /// Returns the interval at which the kernel probes the connection while it is idle.
    pub(crate) fn probe(&self) -> Option<Duration> {
        self.other.as_ref().and(self.pace.probe)
    }

    /// Returns the key on the socket.
    pub(crate) const fn used(&self) -> &Password {
        &self.used
    }

    /// Returns whether there are two keys.
    pub(crate) const fn are_two(&self) -> bool {
        self.other.is_some()
    }

    /// Returns the keys of another configuration. The key on the socket stays as long as it is
    /// valid: the peer has it.
    pub(crate) fn configured(self, new: Self) -> Self {
        let is_valid = self.used == new.used || new.other.as_ref() == Some(&self.used);
        if !is_valid {
            return new;
        }
        let other = match new.other {
            Some(other) if other == self.used => Some(new.used),
            other => other,
        };
        if other != self.other {
            return Self {
                used: self.used,
                other,
                ..new
            };
        }
        Self {
            pace: new.pace,
            ..self
        }
    }

    /// Notes that the peer has answered a dial with the other key.
    pub(crate) fn answered_with_other(&mut self, now: Instant) {
        self.swap(now);
        self.is_trial = false;
    }

    /// Notes that the socket has the other key.
    pub(crate) fn swap(&mut self, now: Instant) {
        if let Some(other) = &mut self.other {
            std::mem::swap(&mut self.used, other);
            self.is_trial = !self.is_trial;
            let count = self.silence.count;
            self.silence = Silence::begin(now, Some(count), count);
        }
    }

    /// Returns the other key if the peer may have it: attempts with the key on the socket are
    /// unanswered for [`KEY_ANSWER`] or less. A time alone is no sign, because a retransmission may be
    /// minutes after the one before. The key that the peer has used last gets more attempts, so that
    /// most retransmissions after an outage of the network have it.
    pub(crate) fn due(&mut self, now: Instant, figures: &TcpFigures) -> Option<&Password> {
        let count = figures.repeats.saturating_add(figures.probes);
        self.note_received(now, figures, count);
        let silence = &mut self.silence;
        silence.count = count;
        // An acknowledgment sets the kernel's counts to zero.
        let before = silence.before.map_or(count, |before| before.min(count));
        silence.before = Some(before);
        let enough = if self.is_trial { 1 } else { KEY_ATTEMPTS };
        if count - before < enough {
            silence.enough_at = None;
            return None;
        }
        let enough_at = *silence.enough_at.get_or_insert(now);
        let is_due = now.saturating_duration_since(enough_at) >= self.pace.answer;
        self.other.as_ref().filter(|_| is_due)
    }

    /// Begins the silence after a valid segment: the peer has the key on the socket.
    fn note_received(&mut self, now: Instant, figures: &TcpFigures, count: u32) {
        let silent = Duration::from_millis(figures.received_ms_ago.into());
        let had = now.saturating_duration_since(self.silence.since);
        if silent + AGE_ROUNDING < had {
            let since = self.silence.since + (had - silent);
            self.silence = Silence::begin(since, Some(count), count);
            self.is_trial = false;
        }
    }
}

/// A dial of a peer that may have either of two keys.
pub(crate) struct Dialing {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) ttl_security_hops: Option<u8>,
    /// The key to try, too, if there is no answer to a dial with the first one.
    pub(crate) second: Option<Password>,
    /// How long the session waits for the connection.
    pub(crate) retry: Duration,
}

impl Dialing {
    /// Connects. The kernel of a peer with another key does not answer, and the second key is
    /// tried, too. Returns whether the connection has the second key.
    pub(crate) async fn connect(self, first: TcpSocket) -> io::Result<(TcpStream, bool)> {
        let first = first.connect(self.remote);
        let Some(second) = self.second else {
            return Ok((first.await?, false));
        };
        let (remote, local, hops) = (self.remote, self.local, self.ttl_security_hops);
        let second = async move {
            let socket = dialing(remote, local, hops, Some(&second))?;
            socket.connect(remote).await
        };
        first_answer(first, KEY_TRY.min(self.retry / 2), second).await
    }
}

/// Returns the result of the first of two attempts that succeeds, and whether it is the second one,
/// which begins after `patience`. The first one continues beside it: its silence may be a lost packet,
/// which the kernel sends again.
async fn first_answer<T>(
    first: impl Future<Output = io::Result<T>>,
    patience: Duration,
    second: impl Future<Output = io::Result<T>>,
) -> io::Result<(T, bool)> {
    let mut first = pin!(first);
    if let Ok(done) = timeout(patience, first.as_mut()).await {
        return Ok((done?, false));
    }
    let mut second = pin!(second);
    let (done, is_second) = tokio::select! {
        biased;
        done = &mut first => (done, false),
        done = &mut second => (done, true),
    };
    match (done, is_second) {
        (Ok(done), _) => Ok((done, is_second)),
        (Err(_), true) => Ok((first.await?, false)),
        (Err(_), false) => Ok((second.await?, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::KEY_CHECK;

    fn keys(used: &str, other: Option<&str>) -> DialKeys {
        DialKeys::new(used.into(), other.map(Into::into), 90, Instant::ZERO)
    }

    /// A connection without a valid segment for so many milliseconds.
    fn silent(received_ms_ago: u32) -> TcpFigures {
        TcpFigures {
            repeats: 0,
            probes: 0,
            in_flight: 0,
            received_ms_ago,
            segments_in: 100,
            data_out: 50,
        }
    }

    fn both(keys: &DialKeys) -> (&str, Option<&str>) {
        (&keys.used, keys.other.as_deref())
    }

    #[test]
    fn key_of_connection_stays_while_valid() {
        for (new, expected) in [
            (("old", None), ("old", None)),
            (("old", Some("new")), ("old", Some("new"))),
            (("new", Some("old")), ("old", Some("new"))),
            (("old", Some("old")), ("old", Some("old"))),
            (("new", None), ("new", None)),
            (("new", Some("third")), ("new", Some("third"))),
        ] {
            let before = [keys("old", None), keys("old", Some("new"))];
            for old in before {
                let found = old.configured(keys(new.0, new.1));
                assert_eq!(both(&found), expected, "{new:?}");
            }
        }
    }

    /// Retransmissions after a timeout of so many milliseconds that doubles each time, in
    /// milliseconds after the lost segment.
    fn retransmissions(timeout_ms: u64) -> Vec<u64> {
        (1..12).map(|n| timeout_ms * ((1 << n) - 1)).collect()
    }

    /// Returns which of the retransmissions a peer with this key answers after an outage.
    fn answered(sent_ms: &[u64], outage_ms: u64, key: &str) -> Option<usize> {
        let mut keys = keys("old", Some("new"));
        let mut sent = 0;
        let check_ms = usize::try_from(KEY_CHECK.as_millis()).expect("short");
        for ms in (0..).step_by(check_ms) {
            while *sent_ms.get(sent)? <= ms {
                if sent_ms[sent] >= outage_ms && &*keys.used == key {
                    return Some(sent);
                }
                sent += 1;
            }
            let figures = TcpFigures {
                repeats: sent.try_into().expect("few"),
                probes: 0,
                ..silent(ms.try_into().expect("short"))
            };
            let now = Instant::ZERO + Duration::from_millis(ms);
            if keys.due(now, &figures).is_some() {
                keys.swap(now);
            }
        }
        None
    }

    #[test]
    fn outage_costs_at_most_one_retransmission() {
        for timeout_ms in 200..=400 {
            let sent = retransmissions(timeout_ms);
            for (first, outage_ms) in sent.iter().enumerate().take(10) {
                let found = answered(&sent, *outage_ms, "old");
                let is_early = found == Some(first) || found == Some(first + 1);
                assert!(is_early, "{timeout_ms} {first} {found:?}");
            }
        }
    }

    #[test]
    fn other_key_is_found_by_the_fourth_retransmission() {
        for timeout_ms in 200..=400 {
            let found = answered(&retransmissions(timeout_ms), 0, "new");
            assert!(
                found <= Some(3) && found.is_some(),
                "{timeout_ms} {found:?}"
            );
        }
    }

    /// Checks the keys after so many milliseconds.
    fn is_due(keys: &mut DialKeys, ms: u64, (repeats, probes): (u32, u32), received: u64) -> bool {
        let figures = TcpFigures {
            repeats,
            probes,
            ..silent((ms - received).try_into().expect("short"))
        };
        let now = Instant::ZERO + Duration::from_millis(ms);
        let due = keys.due(now, &figures).is_some();
        if due {
            keys.swap(now);
        }
        due
    }

    #[test]
    fn other_key_is_due_after_unanswered_attempts_alone() {
        let mut keys = keys("old", Some("new"));
        assert!(!is_due(&mut keys, 0, (0, 0), 0));
        assert!(!is_due(&mut keys, 60_000, (0, 0), 0), "a closed window");
        assert!(!is_due(&mut keys, 60_500, (0, 1), 0), "one probe");
        assert!(!is_due(&mut keys, 61_500, (0, 2), 0), "no time to answer");
        assert!(!is_due(&mut keys, 62_499, (0, 3), 0), "no time to answer");
        assert!(is_due(&mut keys, 62_500, (0, 3), 0));
        assert_eq!(both(&keys), ("new", Some("old")));
        assert!(
            !is_due(&mut keys, 99_000, (0, 3), 0),
            "nothing sent with it"
        );
        assert!(!is_due(&mut keys, 99_500, (1, 3), 0), "no time to answer");
        assert!(is_due(&mut keys, 100_500, (1, 3), 0));
        assert_eq!(both(&keys), ("old", Some("new")));
        keys.other = None;
        assert!(!is_due(&mut keys, 200_000, (9, 3), 0));
        assert!(!is_due(&mut keys, 300_000, (9, 3), 0));
    }

    #[test]
    fn answered_key_stays_until_new_attempts_fail() {
        let mut keys = keys("old", Some("new"));
        for (ms, repeats) in [(0, 0), (500, 2), (1_500, 3), (2_000, 4), (3_000, 4)] {
            is_due(&mut keys, ms, (repeats, 0), 0);
        }
        // The peer has sent a valid segment, and acknowledged nothing.
        for ms in (4_000..60_000).step_by(500) {
            assert!(!is_due(&mut keys, ms, (4, 0), 3_500), "{ms}");
        }
        let used = keys.used().clone();
        assert!(!is_due(&mut keys, 60_000, (5, 0), 3_500));
        assert!(!is_due(&mut keys, 62_000, (5, 0), 3_500), "one attempt");
        assert!(!is_due(&mut keys, 62_500, (6, 0), 3_500));
        assert!(is_due(&mut keys, 63_500, (6, 0), 3_500));
        assert_ne!(keys.used(), &used);
    }

    #[test]
    fn probes_end_no_connection_before_the_hold_time() {
        for hold in [3, 90, 126, 127, 240, u16::MAX] {
            let probe = Pace::new(hold).probe.expect("probes");
            let end = probe * KEY_PROBES_MAX;
            assert!(end > Duration::from_secs(hold.into()), "{hold}");
        }
        assert_eq!(Pace::new(0).probe, None);
    }

    #[test]
    fn times_follow_the_negotiated_hold_time() {
        let mut keys = DialKeys::new("old".into(), Some("new".into()), 240, Instant::ZERO);
        let secs = Duration::from_secs;
        assert_eq!((keys.probe(), keys.pace.answer), (Some(secs(2)), secs(1)));
        keys.set_hold_time(3);
        let half = Duration::from_millis(500);
        assert_eq!((keys.probe(), keys.pace.answer), (Some(secs(1)), half));
        assert!(!is_due(&mut keys, 0, (0, 0), 0));
        assert!(!is_due(&mut keys, 2_000, (0, 2), 0));
        assert!(is_due(&mut keys, 2_500, (0, 2), 0));
        keys.set_hold_time(0);
        assert_eq!((keys.probe(), keys.pace.answer), (None, secs(1)));
        keys.set_hold_time(90);
        keys.other = None;
        assert_eq!(keys.probe(), None, "one key");
    }

    /// An attempt whose first packets are lost: Linux repeats a SYN after 1, 3 and 7 seconds.
    /// Without an answer it never ends.
    async fn attempt(is_answered: bool, lost: u32) -> io::Result<()> {
        if !is_answered {
            return std::future::pending().await;
        }
        tokio::time::sleep(Duration::from_secs((1 << lost) - 1)).await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn either_key_connects_although_packets_are_lost() {
        for (retry, lost) in [(1, 0), (2, 0), (5, 0), (5, 1), (5, 2), (120, 0), (120, 3)] {
            let retry = Duration::from_secs(retry);
            let patience = KEY_TRY.min(retry / 2);
            for has_second in [false, true] {
                let begun = tokio::time::Instant::now();
                let (first, second) = (attempt(!has_second, lost), attempt(has_second, lost));
                let dial = timeout(retry, first_answer(first, patience, second));
                let found = dial
                    .await
                    .expect("before the next dial")
                    .expect("connected");
                assert_eq!(found, ((), has_second), "{retry:?} {lost}");
                let wait = if has_second { patience } else { Duration::ZERO };
                let repeated = Duration::from_secs((1 << lost) - 1);
                let late = begun.elapsed().saturating_sub(wait + repeated);
                assert!(
                    late <= Duration::from_millis(5),
                    "{retry:?} {lost} {late:?}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failed_attempt_leaves_the_other_one() {
        let fails = async |after_s| {
            tokio::time::sleep(Duration::from_secs(after_s)).await;
            Err(io::Error::from(io::ErrorKind::HostUnreachable))
        };
        let found = first_answer(fails(2), KEY_TRY, attempt(true, 2)).await;
        assert!(matches!(found, Ok(((), true))), "{found:?}");
        let found = first_answer(attempt(true, 2), KEY_TRY, fails(0)).await;
        assert!(matches!(found, Ok(((), false))), "{found:?}");
        for (first, second) in [(0, 9), (2, 9), (9, 0)] {
            let found = first_answer(fails(first), KEY_TRY, fails(second)).await;
            let error = found.expect_err("no connection").kind();
            assert_eq!(error, io::ErrorKind::HostUnreachable, "{first} {second}");
        }
    }
}
