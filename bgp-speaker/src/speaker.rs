//! The speaker: one value that takes inputs with an instant and returns outputs.
//!
//! This file is the facade; its parts are in [`crate::peer`], [`crate::roster`], [`crate::ingest`],
//! [`crate::outgroup`], [`crate::refresh`], [`crate::restart`] and [`crate::defer`].

use alloc::{
    boxed::Box,
    collections::{BTreeSet, VecDeque},
    vec::Vec,
};
use core::net::SocketAddr;

use bgp_fsm::{Conn, Instant};
use bgp_proto::{Family, FamilySet, Net, Notification, notification::cease};
use bytes::Bytes;
use rib::{Budget, Cursor, PeerId, Progress, Rib, SentPath};

use crate::{
    addresses::InterfaceAddress,
    config::SpeakerConfig,
    defer::{Deferral, Origins},
    event::{Event, Input, Malformed, Output, Refusal},
    handshake::Tallies,
    keys::PeerConfig,
    limits::STEP_PREFIXES,
    memory::Memory,
    monitor::Monitoring,
    octets::Encoded,
    outgroup::OutGroup,
    outlet::Outlet,
    peer::{Peer, PeerView},
    readers::Readers,
    roster::Roster,
    usage::Level,
};

/// A BGP speaker: sessions, tables and export in one plain struct (RFC 4271).
///
/// Pass inputs to [`handle`](Self::handle), then drain [`poll_output`](Self::poll_output); call
/// [`run`](Self::run) until it returns `Done`; transfer octets with [`fill`](Self::fill) and
/// [`sent`](Self::sent) for the peers that [`poll_writable`](Self::poll_writable) returns; call
/// again at [`poll_timeout`](Self::poll_timeout). It reads no clock and opens no socket.
#[derive(Debug)]
pub struct Speaker {
    pub(crate) config: SpeakerConfig,
    pub(crate) rib: Rib,
    pub(crate) roster: Roster,
    pub(crate) groups: Vec<Option<OutGroup>>,
    timers: BTreeSet<(Instant, PeerId)>,
    pub(crate) outputs: VecDeque<Output>,
    writable: VecDeque<PeerId>,
    pub(crate) malformed: VecDeque<Malformed>,
    pub(crate) malformed_total: u64,
    /// Peers with sessions that must be reset.
    lost: Vec<PeerId>,
    /// Peers with sessions that were ended to be started again.
    pub(crate) parted: Vec<PeerId>,
    /// Removed peers with paths that the tables still sweep.
    leaving: VecDeque<PeerId>,
    pub(crate) readers: Readers,
    /// The wait after a restart of this speaker.
    pub(crate) deferral: Option<Deferral>,
    /// The data of the validation of origins.
    pub(crate) origins: Origins,
    /// Whether all VPN routes are wanted, whatever route targets other peers want.
    pub(crate) wants_all: bool,
    /// The families with forwarding state that was preserved over the restart.
    pub(crate) forwarding: FamilySet,
    /// Octets in the fullest ring and the fullest feed at the last measurement.
    pub(crate) ring_octets: Level,
    pub(crate) feed_octets: Level,
    /// The most octets that ever waited for one peer.
    pub(crate) session_peak: usize,
    /// The limit of the octets in all accounts.
    pub(crate) memory: Memory,
    /// The octets of encoded messages, wherever they wait.
    pub(crate) encoded: Encoded,
    /// The addresses of the machine, sorted; empty if the driver does not set them.
    pub(crate) addresses: Vec<InterfaceAddress>,
    /// Failed handshakes.
    pub(crate) tallies: Tallies,
    /// The monitor, while there is one.
    pub(crate) monitor: Option<Box<Monitoring>>,
    /// The instant of the last call with one.
    pub(crate) now: Instant,
}

impl Speaker {
    /// Makes a speaker with its configured peers, all still idle: start them with
    /// [`start`](Self::start). The seed determines timer jitter and hash functions.
    #[must_use]
    pub fn new(config: SpeakerConfig, seed: u64) -> Self {
        let rib = Rib::new(config.rib(), seed);
        Self {
            roster: Roster::new(&config, seed),
            config,
            rib,
            groups: Vec::new(),
            timers: BTreeSet::new(),
            outputs: VecDeque::new(),
            writable: VecDeque::new(),
            malformed: VecDeque::new(),
            malformed_total: 0,
            lost: Vec::new(),
            parted: Vec::new(),
            leaving: VecDeque::new(),
            readers: Readers::default(),
            deferral: None,
            origins: Origins::Known,
            wants_all: false,
            forwarding: FamilySet::all(),
            ring_octets: Level::default(),
            feed_octets: Level::default(),
            session_peak: 0,
            memory: Memory::default(),
            encoded: Encoded::default(),
            addresses: Vec::new(),
            tallies: Tallies::default(),
            monitor: None,
            now: Instant::ZERO,
        }
    }

    /// Starts every configured peer (RFC 4271 §8.1.2, events 1 and 4).
    pub fn start(&mut self, now: Instant) {
        self.begin_deferral(now);
        for peer in self.roster.ids() {
            self.session_input(now, peer, bgp_fsm::Input::Start);
        }
    }

    /// Handles one input.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.now = now;
        self.monitor_at(now);
        match input {
            Input::Session(peer, input) => self.session_input(now, peer, input),
            Input::Local {
                family,
                net,
                attributes: Some(attributes),
                interface,
            } => self.rib.announce(family, net, attributes, interface),
            Input::Local { family, net, .. } => self.rib.withdraw(family, net),
            Input::Resolved { next_hop, reach } => self.rib.resolve(next_hop, reach),
            Input::Reevaluate { family, range } => self.rib.reevaluate(family, &range),
            Input::Path(remote, path) => self.path_state(now, remote, path),
            Input::Timeout => self.timeout(now),
        }
        self.collect_routes();
        self.reselect();
        self.drain_tracks();
    }

    /// Finds or makes the peer for an incoming connection, and returns its place; the driver then
    /// passes `Opened` for that place: [`Conn::Inbound`], or [`Conn::Held`] while another
    /// connection of the peer is in use.
    ///
    /// # Errors
    /// The connection is rejected; the driver sends the NOTIFICATION of [`Refusal::notification`].
    pub fn accept(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(PeerId, Conn), Refusal> {
        let verdict = self.place(now, local, remote);
        if let Err(refusal) = &verdict {
            self.count_refusal(now, remote.ip(), refusal);
        }
        verdict
    }

    fn place(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(PeerId, Conn), Refusal> {
        let mut found = self.roster.accept(&self.config, local.ip(), remote.ip());
        if matches!(found, Err(Refusal::RangeFull { .. })) && self.evict(now, remote.ip()) {
            found = self.roster.accept(&self.config, local.ip(), remote.ip());
        }
        let (peer, new) = found?;
        if new {
            self.introduce(peer);
            self.session_input(now, peer, bgp_fsm::Input::Start);
        }
        let state = self.roster.get_mut(peer).ok_or(Refusal::Unknown)?;
        let verdict = state.session.admit(now);
        self.settle(now, peer);
        verdict.map(|conn| (peer, conn)).map_err(Refusal::Session)
    }

    /// Returns the next output for the driver, if there is one.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the instant at which [`Input::Timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|&(at, _)| at);
        let others = [self.deferred_until(), self.tallies.poll_timeout()];
        timer.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Returns the next peer that may have octets to write on a connection. A peer that was
    /// returned is returned again only after it got more octets, so the driver has to
    /// [`fill`](Self::fill) until nothing remains or the socket accepts no more.
    pub fn poll_writable(&mut self) -> Option<PeerId> {
        let peer = self.writable.pop_front()?;
        if let Some(peer) = self.roster.get_mut(peer) {
            peer.listed = false;
        }
        Some(peer)
    }

    /// Appends the octets to be written next on a connection, about `octets_max` octets. The same
    /// octets are returned again until [`sent`](Self::sent) has recorded them.
    pub fn fill(&mut self, peer: PeerId, conn: Conn, slices: &mut Vec<Bytes>, octets_max: usize) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        if let Some(group) = state
            .group
            .and_then(|group| self.groups.get_mut(group)?.as_mut())
        {
            let noted = self.monitor.as_mut().and_then(|monitor| monitor.sent());
            let mut outlet = Outlet::new(&mut state.session, noted);
            if group.pull(peer, &mut outlet, &mut self.rib).is_err() {
                self.lost.push(peer);
            }
            self.watch_sent(peer);
        }
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        state.session.fill(conn, slices, octets_max);
        self.session_peak = self.session_peak.max(state.session.queued_octets());
        self.monitor_sent(peer);
    }

    /// Records that the socket has accepted this many octets.
    pub fn sent(&mut self, peer: PeerId, conn: Conn, octets: usize) {
        if let Some(state) = self.roster.get_mut(peer) {
            state.session.sent(conn, octets);
            self.rearm(peer);
            self.retire(peer);
        }
    }

    /// Returns whether a peer has octets to write on a connection.
    #[must_use]
    pub fn wants_write(&self, peer: PeerId, conn: Conn) -> bool {
        let Some(state) = self.roster.get(peer) else {
            return false;
        };
        let group = state
            .group
            .and_then(|group| self.groups.get(group)?.as_ref());
        state.session.wants_write(conn)
            || (state.session.established() == Some(conn)
                && group.is_some_and(|group| group.has_more(peer)))
    }

    /// Returns whether no established session has anything to be written, and no route is held back
    /// after a restart. While [`run`](Self::run) returns [`Progress::More`], more may follow.
    #[must_use]
    pub fn all_sent(&self) -> bool {
        let mut up = self
            .roster
            .iter()
            .filter_map(|(id, peer)| Some((id, peer.session.established()?)));
        self.deferred().is_empty()
            && up.all(|(id, conn)| !self.wants_write(id, conn) && !self.is_sent_later(id))
    }

    /// Returns the longest message that may arrive on a connection, in octets (RFC 8654 §4).
    #[must_use]
    pub fn octets_max(&self, peer: PeerId, conn: Conn) -> usize {
        let session = self.roster.get(peer).map(|state| &state.session);
        session.map_or(bgp_proto::MESSAGE_OCTETS_MAX, |session| {
            session.octets_max(conn)
        })
    }

    /// Returns whether the messages of a connection may be passed on now: see
    /// [`bgp_fsm::Session::reads`].
    #[must_use]
    pub fn reads(&self, peer: PeerId, conn: Conn) -> bool {
        let state = self.roster.get(peer);
        state.is_none_or(|state| state.session.reads(conn))
    }

    /// Performs a bounded step of background work: route selection, export, sweeping. Call it again
    /// while it returns `More`, with I/O in between.
    pub fn run(&mut self, now: Instant, budget: Budget) -> Progress {
        self.now = now;
        self.monitor_at(now);
        for peer in core::mem::take(&mut self.parted) {
            self.session_input(now, peer, bgp_fsm::Input::Start);
        }
        let mut progress = self.rib.decide(Budget(budget.0.min(STEP_PREFIXES)));
        self.origins_evaluated(progress);
        self.collect_routes();
        self.reselect();
        let mut woken = Vec::new();
        for group in self.groups.iter_mut().flatten() {
            if group.export(now, &mut self.rib, &mut woken, &mut self.lost) == Progress::More {
                progress = Progress::More;
            }
        }
        self.gauge_rings();
        for peer in woken {
            self.list(peer);
        }
        for peer in core::mem::take(&mut self.lost) {
            let why = Notification::cease(cease::OUT_OF_RESOURCES);
            self.session_input(now, peer, bgp_fsm::Input::Rejected(why));
        }
        self.watch_memory(now);
        self.release_settled();
        self.trim();
        self.drain_tracks();
        progress
    }

    /// Releases the numbers of removed peers that have no path left.
    fn release_settled(&mut self) {
        let rib = &self.rib;
        let settled = self
            .leaving
            .iter()
            .take_while(|&&peer| rib.is_settled(peer));
        let settled = settled.count();
        let settled: Vec<PeerId> = self.leaving.drain(..settled).collect();
        self.rib.disown(&settled);
        for peer in settled {
            self.monitor_gone(peer);
            self.roster.release(peer);
        }
    }

    /// Lets the tables drop the changes that every reader has read.
    fn trim(&mut self) {
        for family in self.config.families.iter() {
            let members = self
                .groups
                .iter()
                .flatten()
                .flat_map(OutGroup::held_cursors);
            let held: Vec<Cursor> = members
                .filter_map(|(of, cursor)| (of == family).then_some(cursor))
                .chain(self.readers.cursors(family))
                .collect();
            self.rib.trim(family, &held);
        }
    }

    /// Returns the configuration in effect.
    #[must_use]
    pub fn config(&self) -> &SpeakerConfig {
        &self.config
    }

    /// Returns the tables, for reading.
    #[must_use]
    pub fn rib(&self) -> &Rib {
        &self.rib
    }

    /// Returns every peer, configured and dynamic.
    pub fn peers(&self) -> impl Iterator<Item = PeerView<'_>> + '_ {
        self.roster.iter().map(|(id, peer)| self.view(id, peer))
    }

    /// Returns the current state of one peer.
    #[must_use]
    pub fn peer(&self, peer: PeerId) -> Option<PeerView<'_>> {
        let state = self.roster.get(peer)?;
        Some(self.view(peer, state))
    }

    /// Returns the connection of a peer's established session.
    #[must_use]
    pub fn established(&self, peer: PeerId) -> Option<Conn> {
        self.roster.get(peer)?.session.established()
    }

    /// Returns the configuration of a peer, by the operator or from the range's template.
    #[must_use]
    pub fn peer_config(&self, peer: PeerId) -> Option<&PeerConfig> {
        self.roster.get(peer).map(|peer| &peer.config)
    }

    /// Returns the name of a peer, for logs.
    #[must_use]
    pub fn peer_name(&self, peer: PeerId) -> &str {
        self.roster.get(peer).map_or("?", |peer| &peer.config.name)
    }

    /// Returns the peers and the paths of a prefix that each is sent, once every current decision
    /// has been sent.
    pub fn sent_paths<'a>(
        &'a self,
        family: Family,
        net: Net<'a>,
    ) -> impl Iterator<Item = (PeerId, SentPath)> + 'a {
        let groups = self.groups.iter().flatten();
        groups.flat_map(move |group| group.sent(&self.rib, family, net))
    }

    /// Returns the number of malformed messages.
    pub const fn malformed_total(&self) -> u64 {
        self.malformed_total
    }

    /// Returns the last malformed messages, oldest first.
    pub fn malformed(&self) -> impl Iterator<Item = &Malformed> {
        self.malformed.iter()
    }

    /// Returns the octets of encoded UPDATEs that wait for slower members of their groups.
    #[must_use]
    pub fn ring_octets(&self) -> usize {
        self.groups
            .iter()
            .flatten()
            .map(OutGroup::ring_octets)
            .sum()
    }

    /// Handles one input of one session, and all its consequences.
    pub(crate) fn session_input(&mut self, now: Instant, peer: PeerId, input: bgp_fsm::Input) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        if let bgp_fsm::Input::Received { conn, .. } = &input
            && state.session.established() == Some(*conn)
        {
            self.rib.message_received(peer);
        }
        state.session.handle(now, input);
        self.settle(now, peer);
    }

    /// Handles all consequences of a session's input.
    pub(crate) fn settle(&mut self, now: Instant, peer: PeerId) {
        while let Some(rejected) = self.drain_session(now, peer) {
            let Some(state) = self.roster.get_mut(peer) else {
                return;
            };
            state.session.handle(now, rejected);
        }
        self.list(peer);
        self.rearm(peer);
        self.retire(peer);
    }

    /// Performs the outputs of a session. A returned input requests the session's end because of an
    /// UPDATE.
    fn drain_session(&mut self, now: Instant, peer: PeerId) -> Option<bgp_fsm::Input> {
        let mut rejected = None;
        while let Some(output) = self.roster.get_mut(peer)?.session.poll_output() {
            match output {
                bgp_fsm::Output::Update(body) if rejected.is_none() => {
                    rejected = self.update(now, peer, &body);
                }
                bgp_fsm::Output::Update(_) => {}
                other => self.session_output(now, peer, other),
            }
        }
        rejected
    }

    /// Performs an output that is not an UPDATE. It stands apart from the code for UPDATEs, which
    /// must fit into the processor's instruction cache.
    #[cold]
    fn session_output(&mut self, now: Instant, peer: PeerId, output: bgp_fsm::Output) {
        match output {
            bgp_fsm::Output::Dial => self.dial(peer),
            bgp_fsm::Output::Close(conn) => self.outputs.push_back(Output::Close { peer, conn }),
            bgp_fsm::Output::State(state) => {
                let name = self.peer_name(peer).into();
                let event = Event::State { peer, name, state };
                self.outputs.push_back(Output::Event(event));
            }
            bgp_fsm::Output::Established(params) => self.up(now, peer, *params),
            bgp_fsm::Output::Update(_) => {}
            bgp_fsm::Output::Refresh(refresh) => self.refresh(now, peer, refresh),
            bgp_fsm::Output::Unopened { conn, reason } => self.count_end(now, peer, conn, &reason),
            bgp_fsm::Output::Down(reason) => self.down(now, peer, reason),
            bgp_fsm::Output::Promote => self.outputs.push_back(Output::Promote(peer)),
            bgp_fsm::Output::Probe { conn, begins } => {
                let probe = Output::Probe { peer, conn, begins };
                self.outputs.push_back(probe);
            }
            bgp_fsm::Output::HeldEnded(end) => {
                let ended = Event::HeldEnded { peer, end };
                self.outputs.push_back(Output::Event(ended));
            }
        }
    }

    fn dial(&mut self, peer: PeerId) {
        let Some(state) = self.roster.get(peer) else {
            return;
        };
        let config = &state.config;
        self.outputs.push_back(Output::Dial {
            peer,
            remote: SocketAddr::new(config.remote, config.port),
            local: config.local,
            ttl_security_hops: config.ttl_security_hops,
            password: config.password.clone(),
            second_password: config.second_password.clone(),
        });
    }

    fn timeout(&mut self, now: Instant) {
        self.expire_deferral(now);
        self.report_failures(now);
        while let Some(&(at, peer)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            if let Some(state) = self.roster.get_mut(peer) {
                state.armed = None;
            }
            self.expire_stale(now, peer);
            self.expire_failed(now, peer);
            self.dial_path(now, peer);
            self.expire_refreshes(now, peer);
            self.check_capped(now, peer);
            self.check_limited(now, peer);
            self.resume_sent(now, peer);
            self.expire_targets(now, peer);
            self.session_input(now, peer, bgp_fsm::Input::Timeout);
        }
    }

    /// Updates a peer's next timeout.
    pub(crate) fn rearm(&mut self, peer: PeerId) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        let wanted = state.poll_timeout();
        if state.armed == wanted {
            return;
        }
        if let Some(armed) = state.armed.take() {
            self.timers.remove(&(armed, peer));
        }
        if let Some(at) = wanted {
            self.timers.insert((at, peer));
        }
        state.armed = wanted;
    }

    /// Adds a peer to the list of those with octets to write.
    pub(crate) fn list(&mut self, peer: PeerId) {
        if let Some(state) = self.roster.get_mut(peer)
            && !core::mem::replace(&mut state.listed, true)
        {
            self.writable.push_back(peer);
        }
    }

    /// Removes a peer whose session has ended for good.
    pub(crate) fn retire(&mut self, peer: PeerId) {
        if self.roster.get(peer).is_some_and(Peer::is_spent) {
            self.remove_spent(peer);
        }
    }

    #[cold]
    fn remove_spent(&mut self, peer: PeerId) {
        if let Some(at) = self.roster.get(peer).and_then(|peer| peer.armed) {
            self.timers.remove(&(at, peer));
        }
        self.restore_next_hop(peer);
        self.roster.remove(peer);
        self.leaving.push_back(peer);
        self.outputs.push_back(Output::PeerRemoved(peer));
    }

    fn drain_tracks(&mut self) {
        while let Some(track) = self.rib.poll_track() {
            self.outputs.push_back(Output::Track(track));
        }
    }
}
