//! The peer's session: what it holds and how its owner talks to it.

use alloc::{collections::VecDeque, vec::Vec};
use core::net::SocketAddr;

use bgp_proto::{FamilySet, MESSAGE_OCTETS_MAX, Notification, Open, SessionParams};
use bytes::Bytes;

use crate::chance::Chance;
use crate::connection::{Connection, Transport};
use crate::timer::{Timer, Timers};
use crate::{Conn, Input, Instant, Output, SessionConfig, State, Stats};

/// One peer's session: outlives its transports.
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) config: SessionConfig,
    pub(crate) outbound: Connection,
    pub(crate) inbound: Connection,
    /// A connection that waits while another is in use: a transport and an OPEN, no machine.
    pub(crate) held: Connection,
    /// The probe of the established connection, while the held one waits for it.
    pub(crate) probe: Option<Probe>,
    /// Whether the driver is to move the held transport to the place of the inbound one.
    pub(crate) moving: bool,
    /// Holds the idle hold timer only.
    pub(crate) timers: Timers,
    pub(crate) chance: Chance,
    pub(crate) outputs: VecDeque<Output>,
    /// Whether the operator wants the session down.
    pub(crate) stopped: bool,
    /// Until when a limit that the peer has passed keeps the session down.
    pub(crate) barred_until: Option<Instant>,
    /// The connection that is Established, and since when.
    pub(crate) established: Option<(Conn, Instant)>,
    /// The state last told.
    pub(crate) told: State,
    pub(crate) stats: Stats,
}

/// A probe of the established connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) began: Instant,
    /// When the transport was first seen to have sent something since the probe began.
    pub(crate) sent_at: Option<Instant>,
}

impl Session {
    /// A session at rest. `seed` decides the jitter of its timers.
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
            barred_until: None,
            established: None,
            told: State::Idle,
            stats: Stats::default(),
        }
    }

    /// Takes one thing that happened. Everything that [`Session::poll_output`] had to say must
    /// have been taken before.
    pub fn handle(&mut self, now: Instant, input: Input) {
        self.begin(now);
        self.dispatch(now, input);
        self.end(now);
    }

    /// Asks whether a connection that the peer has opened is wanted. `Ok` is its place, and makes
    /// room for it: an older one there is closed (drain [`Session::poll_output`] before you hand over
    /// `Opened`). While another connection is in use the place is [`Conn::Held`]. `Err` is the
    /// NOTIFICATION to send before the connection is closed.
    ///
    /// # Errors
    ///
    /// The session is stopped, waits after errors, or holds a connection already.
    pub fn admit(&mut self, now: Instant) -> Result<Conn, Notification> {
        self.begin(now);
        let verdict = self.admission(now);
        self.end(now);
        verdict
    }

    /// Takes another configuration. An established session stays up and keeps what its OPENs have
    /// settled: our KEEPALIVEs follow the new interval at once, the rest is for the next OPEN.
    /// Attempts to get a connection up start over, so that no OPEN of the old configuration is
    /// measured by the new one.
    pub fn reconfigure(&mut self, now: Instant, mut config: SessionConfig) {
        self.begin(now);
        if let (Some(new), Some(old)) =
            (&mut config.graceful_restart, &self.config.graceful_restart)
        {
            // What has happened to us, not what is configured.
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

    /// The next thing for the caller to do or know.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back with [`Input::Timeout`] at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let machines = [&self.outbound, &self.inbound, &self.held];
        let timers = machines.into_iter().map(Connection::timers);
        timers.chain([&self.timers]).filter_map(Timers::next).min()
    }

    /// Appends up to `octets_max` octets that wait on a connection to `slices`. They stay in place until
    /// [`Session::sent`]; hand over what was sent before the next input.
    pub fn fill(&self, conn: Conn, slices: &mut Vec<Bytes>, octets_max: usize) {
        self.conn(conn).outbox.fill(slices, octets_max);
    }

    /// The socket has taken the first `octets` of what [`Session::fill`] gave.
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

    /// Whether octets wait on a connection.
    #[must_use]
    pub fn wants_write(&self, conn: Conn) -> bool {
        self.conn(conn).outbox.octets() > 0
    }

    /// Queues whole messages (UPDATE, ROUTE-REFRESH) on the established connection; without one they
    /// are dropped. The caller keeps the queue short by asking [`Session::queued_octets`] first.
    pub fn queue(&mut self, messages: Bytes) {
        if let Some((conn, _)) = self.established {
            self.conn_mut(conn).outbox.push(messages);
        }
    }

    /// Pieces that wait on the established connection, as [`Session::queue`] was given them; 0
    /// without one.
    #[must_use]
    pub fn queued_pieces(&self) -> usize {
        self.established
            .map_or(0, |(conn, _)| self.conn(conn).outbox.chunks())
    }

    /// Octets that wait on the established connection; 0 without one.
    #[must_use]
    pub fn queued_octets(&self) -> usize {
        self.established
            .map_or(0, |(conn, _)| self.conn(conn).outbox.octets())
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// What the next OPEN says about a restart of ours (RFC 4724 §3, the R bit).
    pub fn set_restarting(&mut self, restarting: bool) {
        if let Some(graceful) = &mut self.config.graceful_restart {
            graceful.restarting = restarting;
        }
    }

    /// In which families the next OPEN says that forwarding outlived what ended the last session
    /// (RFC 4724 §3, the F bits).
    pub fn set_forwarding(&mut self, families: FamilySet) {
        if let Some(graceful) = &mut self.config.graceful_restart {
            graceful.families_forwarding = families;
        }
    }

    /// The state of the session: that of the connection that has come further.
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

    /// The state of one of the two connections; a held one has none, and Idle is returned.
    #[must_use]
    pub fn state_of(&self, conn: Conn) -> State {
        self.conn(conn).state()
    }

    /// The connection that is Established.
    #[must_use]
    pub fn established(&self) -> Option<Conn> {
        self.established.map(|(conn, _)| conn)
    }

    /// Since when the session is Established.
    #[must_use]
    pub fn established_at(&self) -> Option<Instant> {
        self.established.map(|(_, since)| since)
    }

    /// What the OPENs of the established session settled.
    #[must_use]
    pub fn params(&self) -> Option<&SessionParams> {
        self.conn(self.established?.0).params.as_deref()
    }

    /// The OPEN of the peer: of the established connection, else of the one that has come further.
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

    /// Our and the peer's end of a connection's transport.
    #[must_use]
    pub fn ends(&self, conn: Conn) -> Option<(SocketAddr, SocketAddr)> {
        self.conn(conn).ends
    }

    /// Whether there was a transport and there is none now, nor one asked for or just admitted: all
    /// that a peer which we never dial can leave behind.
    #[must_use]
    pub fn is_deserted(&self) -> bool {
        let machines = [&self.outbound, &self.inbound];
        machines
            .iter()
            .all(|machine| machine.transport() == Transport::None)
            && machines.iter().any(|machine| machine.ends.is_some())
    }

    /// Whether messages of a connection may be handed over: of a held one nothing is wanted behind
    /// its OPEN until it is promoted.
    #[must_use]
    pub fn reads(&self, conn: Conn) -> bool {
        conn != Conn::Held || self.held.open.is_none()
    }

    /// Until when the session rests because of a limit that the peer has passed.
    #[must_use]
    pub fn barred_until(&self) -> Option<Instant> {
        self.barred_until
    }

    /// The longest message that may arrive on a connection, in octets (RFC 8654 §4).
    #[must_use]
    pub fn octets_max(&self, conn: Conn) -> usize {
        let params = self.conn(conn).params.as_ref();
        params.map_or(MESSAGE_OCTETS_MAX, |params| params.receive_octets_max())
    }

    /// What was counted.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The timers that run: the session's own with `None`, else with their connection.
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
