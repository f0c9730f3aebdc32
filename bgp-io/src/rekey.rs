//! Changes of the TCP-MD5 key on open connections that this side dialed.

use bgp_speaker::bgp_fsm::Instant;
use socket2::{SockRef, TcpKeepalive};

use crate::Io;
use crate::dial_keys::DialKeys;
use crate::io::Entry;
use crate::limits::{KEY_CHECK, KEY_PROBES_MAX};
use crate::link::{Link, Stage};
use crate::sockets::set_password;
use crate::sockopt::tcp_figures;

impl Link {
    /// Applies configured keys to a connection that this side dialed.
    pub(crate) fn configure_keys(&mut self, new: Option<DialKeys>) {
        let old = self.dial_keys.take();
        self.dial_keys = new.map(|new| {
            Box::new(match old {
                Some(old) => old.configured(new),
                None => new,
            })
        });
        self.probe_idle();
    }

    /// Notes with which key the peer has answered.
    pub(crate) fn opened_with(&mut self, second: bool, now: Instant) {
        if let Some(keys) = &mut self.dial_keys {
            if second {
                keys.answered_with_other(now);
            }
            self.probe_idle();
        }
    }

    /// Sets the negotiated hold time of a connection with keys.
    pub(crate) fn set_hold_time(&mut self, seconds: u16) {
        if let Some(keys) = &mut self.dial_keys {
            keys.set_hold_time(seconds);
            self.probe_idle();
        }
    }

    /// Has the kernel probe the connection while it is idle, so that a silent peer is noticed early,
    /// or no longer. Without the probes the silence is noticed later, by the next message.
    pub(crate) fn probe_idle(&self) {
        let Stage::Open(stream) = &self.stage else {
            return;
        };
        let socket = SockRef::from(stream);
        let keys = self.dial_keys.as_ref();
        let _ = match keys.and_then(|keys| keys.probe()) {
            None => socket.set_keepalive(false),
            Some(probe) => socket.set_tcp_keepalive(
                &TcpKeepalive::new()
                    .with_time(probe)
                    .with_interval(probe)
                    .with_retries(KEY_PROBES_MAX),
            ),
        };
    }

    /// Changes the key of a connection with a silent peer; returns whether it has two keys. If the
    /// kernel fails, the hold timer decides.
    fn check_keys(&mut self, now: Instant) -> bool {
        let Some(keys) = self.dial_keys.as_mut().filter(|keys| keys.are_two()) else {
            return false;
        };
        if let Stage::Open(stream) = &self.stage
            && let (Ok(figures), Ok(remote)) = (tcp_figures(stream), stream.peer_addr())
            && let Some(other) = keys.due(now, &figures)
            && set_password(stream, remote.ip(), other).is_ok()
        {
            keys.swap(now);
        }
        true
    }
}

impl Io {
    /// Has the connections with two keys checked from now on.
    pub(crate) fn watch_keys(&mut self) {
        let at = self.clock.now() + KEY_CHECK;
        self.keys_at.get_or_insert(at);
    }

    /// Looks for connections with two keys whose peers are silent.
    pub(crate) fn check_keys(&mut self) {
        let now = self.clock.now();
        let mut waits = false;
        for (_, entry) in &mut self.entries {
            if let Entry::Link(link) = entry {
                waits |= link.check_keys(now);
            }
        }
        self.keys_at = waits.then(|| now + KEY_CHECK);
    }
}
