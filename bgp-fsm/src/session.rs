//! The peer's session: its state and its interface.

use alloc::{collections::VecDeque, vec::Vec};
use core::net::SocketAddr;

use bgp_proto::{FamilySet, MESSAGE_OCTETS_MAX, Notification, Open, SessionParams};
use bytes::Bytes;

use crate::chance::Chance;
use crate::connection::{Connection, Transport};
use crate::timer::{Timer, Timers};
use crate::{Conn, Input, Instant, Output, SessionConfig, State, Stats};

/// One peer's session: it survives its transports.
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) config: SessionConfig,
    pub(crate) outbound: Connection,
    pub(crate) inbound: Connection,
    /// A connection that waits while another is in use: a transport and an OPEN, without a state
    /// machine.
    pub(crate) held: Connection,
    /// The probe of the established connection, for which the held one waits.
    pub(crate) probe: Option<Probe>,
    /// Whether the driver must move the held transport to the place of the inbound one.
    pub(crate) moving: bool,
    /// Holds the idle hold timer only.
    pub(crate) timers: Timers,
    pub(crate) chance: Chance,
    pub(crate) outputs: VecDeque<Output>,
    /// Whether the operator has stopped the session.
    pub(crate) stopped: bool,
    /// Until when an exceeded limit keeps the session down.
    pub(crate) idle_hold_until: Option<Instant>,
    /// Whether the path to the peer is up.
    pub(crate) path_is_up: bool,
    /// The Established connection, and since when.
    pub(crate) established: Option<(Conn, Instant)>,
    /// The last reported state.
    pub(crate) reported: State,
    pub(crate) stats: Stats,
}

/// A probe of the established connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) began: Instant,
    /// When the transport was first found to have sent a segment since the probe began.
    pub(crate) sent_at: Option<Instant>,
}

impl Session {
    /// Makes an idle session. `seed` determines the jitter of its timers.
    #[must_use]
    pub fn new(config: SessionConfig, seed: u64) -> Self {
        Self {
            config,
            outbound: Connection::new(Conn::Outbound),
            inbound: Connection::new(Conn::Inbound),
            held: Connection::new(Conn::Held),
            probe: None,
            moving: false,
            timers: Timers::default(),
            chance: Chance::new(seed),
            outputs: VecDeque::new(),
            stopped: true,
            idle_hold_until: None,
            path_is_up: false,
            established: None,
            reported: State::Idle,
            stats: Stats::default(),
        }
    }

    /// Handles one input. All outputs of [`Session::poll_output`] must have been taken before.
    pub fn handle(&mut self, now: Instant, input: Input) {
        self.begin(now);
        self.dispatch(now, input);
        self.end(now);
    }

    /// Decides whether a connection that the peer has opened is accepted. `Ok` is its place, where
    /// an older connection is closed (drain [`Session::poll_output`] before you pass `Opened`).
    /// While another connection is in use the place is [`Conn::Held`]. `Err` is the NOTIFICATION to
    /// send before the connection is closed.
    ///
    /// # Errors
    ///
    /// The session is stopped, is in idle hold after errors, or already holds a connection.
    pub fn admit(&mut self, now: Instant) -> Result<Conn, Notification> {
        self.begin(now);
        let verdict = self.admission(now);
        self.end(now);
        verdict
    }

    /// Applies another configuration. An established session stays up and keeps its negotiated
    /// parameters: KEEPALIVEs follow the new interval at once, other keys apply to the next OPEN.
    /// Attempts in progress start again, so that no OPEN of the old configuration is compared with
    /// the new one.
    pub fn reconfigure(&mut self, now: Instant, mut config: SessionConfig) {
        self.begin(now);
        if let (Some(new), Some(old)) =
            (&mut config.graceful_restart, &self.config.graceful_restart)
        {
            // A state of this process, not a part of the configuration.
            new.restarting = old.restarting;
            new.families_forwarding = old.families_forwarding;
        }
        self.config = config;
        if let Some((conn, _)) = self.established {
            let (connection, mut env) = self.parts(now, conn);
            connection.pace(&mut env);
        } else {
            self.start_over(now);
        }
        self.end(now);
    }

    /// Returns the next output for the caller.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns when [`Input::Timeout`] is due at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let machines = [&self.outbound, &self.inbound, &self.held];
        let timers = machines.into_iter().map(Connection::timers);
        timers.chain([&self.timers]).filter_map(Timers::next).min()
    }

    /// Appends up to `octets_max` waiting octets of a connection to `slices`. They stay in the
    /// queue until [`Session::sent`]; report sent octets before the next input.
    pub fn fill(&self, conn: Conn, slices: &mut Vec<Bytes>, octets_max: usize) {
        self.conn(conn).outbox.fill(slices, octets_max);
    }

    /// Records that the socket has accepted the first `octets` of those from [`Session::fill`].
    pub fn sent(&mut self, conn: Conn, octets: usize) {
        let Self {
            outbound,
            inbound,
            held,
            stats,
            ..
        } = self;
        let connection = match conn {
            Conn::Outbound => outbound,
            Conn::Inbound => inbound,
            Conn::Held => held,
        };
        connection.outbox.sent(octets, &mut stats.sent);
    }

    /// Returns whether octets wait on a connection.
    #[must_use]
    pub fn wants_write(&self, conn: Conn) -> bool {
        self.conn(conn).outbox.octets() > 0
    }

    /// Queues whole messages (UPDATE, ROUTE-REFRESH) on the established connection; without one
    /// they are dropped. The caller limits the queue by calling [`Session::queued_octets`] first.
    pub fn queue(&mut self, messages: Bytes) {
        if let Some((conn, _)) = self.established {
            self.conn_mut(conn).outbox.push(messages);
        }
    }

    /// Returns the waiting pieces of the established connection, as passed to [`Session::queue`]; 0
    /// without one.
    #[must_use]
    pub fn queued_pieces(&self) -> usize {
        self.established
            .map_or(0, |(conn, _)| self.conn(conn).outbox.chunks())
    }

    /// Returns the waiting octets of the established connection; 0 without one.
    #[must_use]
    pub fn queued_octets(&self) -> usize {
        self.established
            .map_or(0, |(conn, _)| self.conn(conn).outbox.octets())
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Sets the Restart State bit of the next OPEN (RFC 4724 §3, the R bit).
    pub fn set_restarting(&mut self, restarting: bool) {
        if let Some(graceful) = &mut self.config.graceful_restart {
            graceful.restarting = restarting;
        }
    }

    /// Sets the families for which the next OPEN reports that forwarding state was preserved since
    /// the last session (RFC 4724 §3, the F bits).
    pub fn set_forwarding(&mut self, families: FamilySet) {
        if let Some(graceful) = &mut self.config.graceful_restart {
            graceful.families_forwarding = families;
        }
    }

    /// Returns the state of the session: that of the connection that has progressed further.
    #[must_use]
    pub fn state(&self) -> State {
        let (outbound, inbound) = (self.outbound.state(), self.inbound.state());
        let furthest = outbound.max(inbound);
        if furthest >= State::OpenSent || outbound == State::Idle {
            furthest
        } else {
            outbound
        }
    }

    /// Returns the state of one of the two connections; Idle for a held one, which has no state.
    #[must_use]
    pub fn state_of(&self, conn: Conn) -> State {
        self.conn(conn).state()
    }

    /// Returns the Established connection.
    #[must_use]
    pub fn established(&self) -> Option<Conn> {
        self.established.map(|(conn, _)| conn)
    }

    /// Returns since when the session is Established.
    #[must_use]
    pub fn established_at(&self) -> Option<Instant> {
        self.established.map(|(_, since)| since)
    }

    /// Returns the negotiated parameters of the established session.
    #[must_use]
    pub fn params(&self) -> Option<&SessionParams> {
        self.conn(self.established?.0).params.as_deref()
    }

    /// Returns the OPEN of the peer: of the established connection, else of the one that has
    /// progressed further.
    #[must_use]
    pub fn peer_open(&self) -> Option<&Open> {
        let conns = match self.established {
            Some((conn, _)) => [conn, conn],
            None => Conn::ALL,
        };
        conns
            .into_iter()
            .find_map(|conn| self.conn(conn).open.as_deref())
    }

    /// Returns the local and the remote end of a connection's transport.
    #[must_use]
    pub fn ends(&self, conn: Conn) -> Option<(SocketAddr, SocketAddr)> {
        self.conn(conn).ends
    }

    /// Returns whether a connection waits in OpenConfirm until the path to the peer is up
    /// ([`SessionConfig::bfd_strict`]).
    #[must_use]
    pub fn awaits_path(&self) -> bool {
        let machines = [&self.outbound, &self.inbound];
        machines.into_iter().any(Connection::awaits_path)
    }

    /// Returns whether there was a transport and there is none now, nor one requested or just
    /// accepted: the final state of a peer that is never dialed.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        let machines = [&self.outbound, &self.inbound];
        machines
            .iter()
            .all(|machine| machine.transport() == Transport::None)
            && machines.iter().any(|machine| machine.ends.is_some())
    }

    /// Returns whether messages of a connection may be passed on: those of a held one after its
    /// OPEN only once it is promoted.
    #[must_use]
    pub fn reads(&self, conn: Conn) -> bool {
        conn != Conn::Held || self.held.open.is_none()
    }

    /// Returns until when an exceeded limit keeps the session down.
    #[must_use]
    pub fn idle_hold_until(&self) -> Option<Instant> {
        self.idle_hold_until
    }

    /// Returns the longest message that may arrive on a connection, in octets (RFC 8654 §4).
    #[must_use]
    pub fn octets_max(&self, conn: Conn) -> usize {
        let params = self.conn(conn).params.as_ref();
        params.map_or(MESSAGE_OCTETS_MAX, |params| params.receive_octets_max())
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the running timers: the session's own with `None`, else with their connection.
    pub fn running_timers(&self) -> impl Iterator<Item = (Option<Conn>, Timer)> + '_ {
        let own = self.timers.running().map(|timer| (None, timer));
        own.chain(Conn::PLACES.into_iter().flat_map(|conn| {
            self.conn(conn)
                .timers()
                .running()
                .map(move |timer| (Some(conn), timer))
        }))
    }
}
