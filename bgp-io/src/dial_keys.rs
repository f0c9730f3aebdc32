//! Two valid TCP-MD5 keys, on connections that this side dialed.
//!
//! The kernel has one key per address on a socket. So the side that accepts a connection decides
//! which of two keys is used, and the side that dials finds it out: a dial without an answer is
//! repeated with the other key, and a connection whose peer is silent gets the other key. Both
//! directions fail while the keys differ, and TCP retransmits what was lost (RFC 4808).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bgp_speaker::Password;
use bgp_speaker::bgp_fsm::Instant;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::limits::{KEY_PROBE, KEY_PROBES_MAX, KEY_TRY};
use crate::sockets::dialing;
use crate::sockopt::TcpFigures;

/// The keys of a connection that this side dialed.
pub(crate) struct DialKeys {
    /// The key on the socket.
    used: Password,
    /// Another key that the peer may have.
    other: Option<Password>,
    /// When the socket got its key.
    since: Instant,
    /// The interval of the kernel's probes of an idle connection.
    pub(crate) probe: Duration,
}

impl DialKeys {
    /// Returns the keys of a new connection. The kernel ends a connection after too many probes
    /// without an answer: the hold timer must be earlier.
    pub(crate) fn new(
        used: Password,
        other: Option<Password>,
        hold_time_s: u16,
        since: Instant,
    ) -> Self {
        let probe = KEY_PROBE * (u32::from(hold_time_s) / KEY_PROBES_MAX + 1);
        Self {
            used,
            other,
            since,
            probe,
        }
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
        Self {
            other,
            probe: new.probe,
            ..self
        }
    }

    /// Notes that the socket has the other key.
    pub(crate) fn swap(&mut self, now: Instant) {
        if let Some(other) = &mut self.other {
            std::mem::swap(&mut self.used, other);
            self.since = now;
        }
    }

    /// Returns the other key if the peer may have it: nothing valid has arrived since the socket
    /// has its key, for longer than two probes. A peer with a closed window is probed less often and
    /// answers, so something must be unanswered.
    pub(crate) fn due(&self, now: Instant, figures: &TcpFigures) -> Option<&Password> {
        let patience = self.probe * 5 / 2;
        let silent = Duration::from_millis(figures.received_ms_ago.into());
        let had = now.saturating_duration_since(self.since);
        let is_unanswered = figures.repeats > 0 || figures.probes > 0;
        let is_due = is_unanswered && silent >= patience && had >= patience;
        self.other.as_ref().filter(|_| is_due)
    }
}

/// A dial of a peer that may have either of two keys.
pub(crate) struct Dialing {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<IpAddr>,
    pub(crate) ttl_security_hops: Option<u8>,
    /// The key to try if there is no answer to a dial with the first one.
    pub(crate) second: Option<Password>,
    /// How long the session waits for the connection.
    pub(crate) retry: Duration,
}

impl Dialing {
    /// Connects. The kernel of a peer with another key does not answer, and the second key is
    /// tried. Returns whether the connection has the second key.
    pub(crate) async fn connect(self, first: TcpSocket) -> io::Result<(TcpStream, bool)> {
        let Some(second) = self.second else {
            return Ok((first.connect(self.remote).await?, false));
        };
        let patience = KEY_TRY.min(self.retry / 2);
        if let Ok(done) = timeout(patience, first.connect(self.remote)).await {
            return Ok((done?, false));
        }
        let (local, hops) = (self.local, self.ttl_security_hops);
        let socket = dialing(self.remote, local, hops, Some(&second))?;
        Ok((socket.connect(self.remote).await?, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(60_000_000_000);

    fn keys(used: &str, other: Option<&str>) -> DialKeys {
        DialKeys::new(used.into(), other.map(Into::into), 90, Instant::ZERO)
    }

    /// A connection on which probes are unanswered for so many milliseconds.
    fn silent(received_ms_ago: u32) -> TcpFigures {
        TcpFigures {
            repeats: 0,
            probes: 2,
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

    #[test]
    fn other_key_is_due_after_silence_alone() {
        let mut keys = keys("old", Some("new"));
        assert_eq!(keys.due(NOW, &silent(2_500)), Some(&"new".into()));
        assert!(keys.due(NOW, &silent(2_499)).is_none());
        let answered = TcpFigures {
            probes: 0,
            ..silent(60_000)
        };
        assert!(keys.due(NOW, &answered).is_none(), "a closed window");
        let repeats = TcpFigures {
            repeats: 1,
            ..answered
        };
        assert!(keys.due(NOW, &repeats).is_some());
        keys.swap(NOW);
        assert_eq!(both(&keys), ("new", Some("old")));
        // The silence from before the change does not count.
        let soon = NOW + Duration::from_millis(2_499);
        assert!(keys.due(soon, &silent(5_000)).is_none());
        let later = NOW + Duration::from_millis(2_500);
        assert_eq!(keys.due(later, &silent(5_000)), Some(&"old".into()));
        keys.other = None;
        assert!(keys.due(later, &silent(5_000)).is_none());
    }

    #[test]
    fn probes_end_no_connection_before_the_hold_time() {
        for hold in [0, 3, 90, 126, 127, 240, u16::MAX] {
            let keys = DialKeys::new("old".into(), None, hold, NOW);
            let end = keys.probe * KEY_PROBES_MAX;
            assert!(end > Duration::from_secs(hold.into()), "{hold}");
        }
    }
}
