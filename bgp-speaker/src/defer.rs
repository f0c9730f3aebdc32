//! A restart of this speaker (RFC 4724 §4.1): routes are selected and advertised only when all
//! peers that retained this speaker's routes have sent their own again.
//!
//! Families open in two steps, because advertisements to a non-client iBGP peer do not depend on
//! other such peers (RFC 4456 §6). It receives routes once all routes except those of its kind are
//! complete; so two speakers that restart at the same time can wait for each other without a
//! deadlock. Otherwise reflectors that all restart at once would send End-of-RIB before they have
//! received each other's routes, and their clients would remove routes that still exist.
//!
//! The tables themselves defer nothing. In a deferred family, peers get no place in an update group
//! and readers no changes to read, so early selections are not visible.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::{net::IpAddr, time::Duration};

use bgp_fsm::{DownReason, Instant, Session};
use bgp_proto::{
    Capability, Family, FamilySet, GracefulRestart,
    notification::{cease, code},
};
use rib::{OriginCheck, PeerId, Progress, Role};

use crate::{
    PeerConfig,
    event::{Event, Output},
    speaker::Speaker,
};

/// Subcodes of a Cease after which a peer does not come back, and the hard reset (RFC 8538 §3).
const FOR_GOOD: [u8; 3] = [
    cease::ADMINISTRATIVE_SHUTDOWN,
    cease::PEER_DECONFIGURED,
    cease::HARD_RESET,
];

/// The state of a speaker's former process at its restart.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Restart {
    /// The longest deferral of route selection (RFC 4724 §4.1, `Selection_Deferral_Timer`).
    pub wait: Duration,
    /// Dynamic neighbors with a session before the restart. They are waited for like configured
    /// ones, unless their range disables that ([`crate::RangeConfig::awaited`]); other dynamic
    /// neighbors are unknown.
    pub dynamic: BTreeSet<IpAddr>,
    /// Whether locally originated routes are awaited, too, until [`Speaker::own_routes_complete`].
    pub own_routes: bool,
}

impl Restart {
    /// Returns a restart in which the selection of routes waits for this time at most.
    #[must_use]
    pub fn new(wait: Duration) -> Self {
        Self {
            wait,
            ..Self::default()
        }
    }

    /// Returns the restart with these dynamic neighbors.
    #[must_use]
    pub fn with_dynamic(mut self, dynamic: BTreeSet<IpAddr>) -> Self {
        self.dynamic = dynamic;
        self
    }

    /// Returns the restart with this value of [`own_routes`](Self::own_routes).
    #[must_use]
    pub const fn with_own_routes(mut self, own_routes: bool) -> Self {
        self.own_routes = own_routes;
        self
    }
}

/// A source of routes that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Awaited {
    /// The locally originated routes.
    OwnRoutes,
    /// The data of the validation of origins.
    Origins,
    /// The End-of-RIB marker of this peer.
    Peer(IpAddr),
    /// The End-of-RIB marker of a non-client iBGP peer.
    NonClient(IpAddr),
}

impl Awaited {
    const fn peer(address: IpAddr, role: Role) -> Self {
        match role {
            Role::Internal => Self::NonClient(address),
            _ => Self::Peer(address),
        }
    }

    /// Returns the peer of the marker; `None` for the data of this host.
    const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::OwnRoutes | Self::Origins => None,
            Self::Peer(address) | Self::NonClient(address) => Some(*address),
        }
    }
}

/// The data of the validation of origins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origins {
    /// No validation, or its data is complete.
    #[default]
    Known,
    /// Its data is not complete.
    Awaited,
    /// Its data is complete, and the tables evaluate all paths with it.
    Evaluated,
}

/// The wait after a restart.
#[derive(Debug)]
pub(crate) struct Deferral {
    restart: Restart,
    /// The latest end of the wait; known once the speaker has started.
    until: Option<Instant>,
    waiting: BTreeMap<Family, BTreeSet<Awaited>>,
    /// The families of these that non-client iBGP peers already receive.
    half_open: FamilySet,
}

impl Deferral {
    fn families(&self) -> FamilySet {
        self.waiting.keys().copied().collect()
    }

    /// Returns the families that are not advertised to peers of this role.
    fn withheld(&self, role: Role) -> FamilySet {
        match role {
            Role::Internal => self.families().difference(self.half_open),
            _ => self.families(),
        }
    }

    /// Opens the families to non-client iBGP peers in which at most such peers are still awaited.
    /// Returns those that were not open before.
    fn open_half(&mut self) -> FamilySet {
        let non_client = |awaited: &Awaited| matches!(awaited, Awaited::NonClient(_));
        let ready = self
            .waiting
            .iter()
            .filter(|(_, who)| who.iter().all(non_client));
        let ready: FamilySet = ready.map(|(&family, _)| family).collect();
        let news = ready.difference(self.half_open);
        self.half_open = self.half_open.union(news);
        news
    }

    /// Waits for a source in exactly these families.
    fn wait_for(&mut self, awaited: Awaited, families: FamilySet) {
        for (family, waiting) in &mut self.waiting {
            if families.contains(*family) {
                waiting.insert(awaited);
            } else {
                waiting.remove(&awaited);
            }
        }
    }
}

impl Speaker {
    /// Marks this start as a restart; must be called before the start. Peers may have retained the
    /// speaker's routes: its OPENs have the R bit, and route selection is deferred.
    pub fn restarted(&mut self, restart: Restart) {
        let families = self.config.families.iter();
        self.deferral = Some(Deferral {
            waiting: families.map(|family| (family, BTreeSet::new())).collect(),
            until: None,
            half_open: FamilySet::EMPTY,
            restart,
        });
        for peer in self.roster.ids() {
            self.introduce(peer);
        }
    }

    /// Sets the families whose forwarding state was preserved over the restart (RFC 4724 §3, the F
    /// bits); must be called before the start. The default is all families.
    pub fn forwarding_kept(&mut self, families: FamilySet) {
        self.forwarding = families;
        for peer in self.roster.ids() {
            self.introduce(peer);
        }
    }

    /// Reports that all locally originated routes have been announced once.
    pub fn own_routes_complete(&mut self) {
        if let Some(deferral) = &mut self.deferral {
            deferral.restart.own_routes = false;
        }
        self.stop_waiting(Awaited::OwnRoutes, FamilySet::all());
    }

    /// Validates the origin of received paths from now on ([`rib::OriginCheck`]). Before the start of
    /// a restarted speaker it also defers route selection until
    /// [`origins_complete`](Self::origins_complete), at most for [`Restart::wait`].
    pub fn check_origins(&mut self, check: Arc<dyn OriginCheck>) {
        self.rib.set_origin_check(Some(check));
        self.origins = Origins::Awaited;
    }

    /// Reports that the validation of origins has all of its data, after a request to evaluate all
    /// paths again. The deferral of route selection ends when that is done.
    pub fn origins_complete(&mut self) {
        self.origins = Origins::Evaluated;
    }

    /// Returns whether route selection is still deferred for the data of the validation of origins.
    #[must_use]
    pub fn awaits_origins(&self) -> bool {
        let mut waiting = self.deferral.iter().flat_map(|d| d.waiting.values());
        waiting.any(|waiting| waiting.contains(&Awaited::Origins))
    }

    /// Stops waiting for the data of the validation of origins, after the tables have evaluated all
    /// paths with it.
    pub(crate) fn origins_evaluated(&mut self, progress: Progress) {
        if self.origins == Origins::Evaluated && progress == Progress::Done {
            self.origins = Origins::Known;
            self.stop_waiting(Awaited::Origins, FamilySet::all());
        }
    }

    /// Returns the families in which route selection is still deferred after a restart.
    #[must_use]
    pub fn deferred(&self) -> FamilySet {
        self.deferral
            .as_ref()
            .map_or(FamilySet::EMPTY, Deferral::families)
    }

    /// Returns the configured peers and those of [`Restart::dynamic`] that are still waited for,
    /// with [`None`] for locally originated routes.
    pub fn awaited(&self) -> BTreeSet<Option<IpAddr>> {
        let waiting = self.deferral.iter().flat_map(|d| d.waiting.values());
        let waiting = waiting.flatten();
        let waiting = waiting.filter(|awaited| **awaited != Awaited::Origins);
        waiting.map(Awaited::address).collect()
    }

    /// Returns the configurations of the dynamic neighbors of the former process ([`Restart::dynamic`]) that
    /// had no connection to this one yet, while route selection is deferred.
    pub fn former_dynamic(&self) -> impl Iterator<Item = PeerConfig> + '_ {
        let dynamic = self.deferral.iter().flat_map(|d| &d.restart.dynamic);
        dynamic.filter_map(|&address| {
            let is_new = self.roster.at(address).is_none();
            let (_, range) = self.config.range_of(address).filter(|_| is_new)?;
            Some(range.peer(address))
        })
    }

    /// Returns whether an address is that of a dynamic neighbor of the former process, while route selection
    /// is deferred.
    pub(crate) fn is_former_dynamic(&self, address: IpAddr) -> bool {
        let mut deferral = self.deferral.iter();
        deferral.any(|deferral| deferral.restart.dynamic.contains(&address))
    }

    /// Sets the restart flags of a peer's first OPEN.
    pub(crate) fn introduce(&mut self, peer: PeerId) {
        let restarting = self.deferral.is_some();
        if let Some(state) = self.roster.get_mut(peer) {
            let forwarding = self.forwarding.intersection(state.config.session.families);
            state.session.set_restarting(restarting);
            state.session.set_forwarding(forwarding);
        }
    }

    /// Starts the wait together with the speaker.
    pub(crate) fn begin_deferral(&mut self, now: Instant) {
        let peers: Vec<(Awaited, FamilySet)> = self.kept_by().collect();
        let needs_origins = self.origins == Origins::Awaited;
        let Some(deferral) = &mut self.deferral else {
            return;
        };
        if needs_origins {
            deferral.wait_for(Awaited::Origins, FamilySet::all());
        }
        deferral.until = Some(now + deferral.restart.wait);
        if deferral.restart.own_routes {
            deferral.wait_for(Awaited::OwnRoutes, FamilySet::all());
        }
        for (awaited, families) in peers {
            deferral.wait_for(awaited, families);
        }
        self.end_waits();
    }

    /// Returns the families that are not advertised to a peer of this role yet.
    pub(crate) fn withheld(&self, role: Role) -> FamilySet {
        let deferral = self.deferral.as_ref();
        deferral.map_or(FamilySet::EMPTY, |deferral| deferral.withheld(role))
    }

    /// Waits for a non-client iBGP peer that is configured during the wait, too: such reflectors
    /// find each other as they come back.
    pub(crate) fn await_non_client(&mut self, peer: PeerId) {
        let Some(config) = self.roster.get(peer).map(|state| &state.config) else {
            return;
        };
        let ranges = self.config.ranges.iter().map(|range| &range.template);
        let mut peers = self.config.peers.iter().chain(ranges);
        let keeps = config.session.graceful_restart.is_some();
        let awaited = Awaited::peer(config.remote, config.role);
        if let (true, Awaited::NonClient(_)) = (keeps, awaited)
            && let Some(deferral) = self.deferral.as_mut().filter(|d| d.until.is_some())
            && peers.any(|peer| peer.role == Role::Client)
        {
            let address = config.remote;
            deferral.wait_for(awaited, config.session.families);
            self.stop_waiting(Awaited::Peer(address), FamilySet::all());
        }
    }

    /// Returns the peers that may have retained this speaker's routes, as far as known before they
    /// connect.
    fn kept_by(&self) -> impl Iterator<Item = (Awaited, FamilySet)> + '_ {
        let configured = self.config.peers.iter().map(|peer| (peer.remote, peer));
        let dynamic = self.deferral.iter().flat_map(|d| &d.restart.dynamic);
        let dynamic = dynamic.filter_map(|&address| {
            let (_, range) = self.config.range_of(address)?;
            range.awaited.then_some((address, &range.template))
        });
        configured.chain(dynamic).filter_map(|(address, peer)| {
            peer.session.graceful_restart.as_ref()?;
            Some((Awaited::peer(address, peer.role), peer.session.families))
        })
    }

    /// Decides by an established peer's OPEN whether its markers are awaited. They never are from a
    /// peer without graceful restart, nor from one that has restarted itself: it might wait for
    /// this speaker's (RFC 4724 §4.1). A non-client iBGP peer receives this speaker's markers
    /// before it must send its own.
    pub(crate) fn await_markers(&mut self, peer: PeerId, negotiated: FamilySet) {
        let Some(state) = self.roster.get(peer) else {
            return;
        };
        let awaited = Awaited::peer(state.config.remote, state.config.role);
        let families = match (awaited, restarts(&state.session)) {
            (Awaited::NonClient(_), _) | (_, false) => markers_of(&state.session),
            _ => FamilySet::EMPTY,
        };
        if let Some(deferral) = &mut self.deferral {
            deferral.wait_for(awaited, families.intersection(negotiated));
            self.end_waits();
        }
    }

    /// Records an End-of-RIB marker of a peer.
    pub(crate) fn marker_came(&mut self, peer: PeerId, family: Family) {
        if let Some(address) = self.roster.get(peer).map(|state| state.config.remote) {
            self.stop_waiting_for(address, family.into());
        }
    }

    /// Applies a new configuration. Disconnected dynamic neighbors are waited for only as long as a
    /// range covers them and enables waiting.
    pub(crate) fn review_awaited(&mut self) {
        let Some(deferral) = self.deferral.as_ref().filter(|d| d.until.is_some()) else {
            return;
        };
        let configured: BTreeSet<IpAddr> = self.config.peers.iter().map(|p| p.remote).collect();
        let stays = |address: IpAddr| {
            let peer = self.roster.at(address).and_then(|id| self.roster.get(id));
            let range = self.config.range_of(address);
            configured.contains(&address)
                || peer.is_some_and(|peer| peer.params.is_some())
                || range.is_some_and(|(_, range)| range.awaited)
        };
        let waiting = deferral.waiting.values().flatten();
        let addresses = waiting.filter_map(Awaited::address);
        let gone: BTreeSet<IpAddr> = addresses.filter(|address| !stays(*address)).collect();
        for address in gone {
            self.forget_awaited(address);
        }
    }

    /// Records the end of a peer's session. A peer that shut down for good will not send its routes
    /// soon.
    pub(crate) fn marker_lost(&mut self, address: IpAddr, reason: &DownReason) {
        if let DownReason::Received(why) = reason
            && why.code == code::CEASE
            && FOR_GOOD.contains(&why.subcode)
        {
            self.forget_awaited(address);
        }
    }

    /// Stops waiting for a peer that is no longer configured, or was removed for good.
    pub(crate) fn forget_awaited(&mut self, address: IpAddr) {
        self.stop_waiting_for(address, FamilySet::all());
    }

    /// The peer may have had another role when the wait began.
    fn stop_waiting_for(&mut self, address: IpAddr, families: FamilySet) {
        for awaited in [Awaited::Peer(address), Awaited::NonClient(address)] {
            self.stop_waiting(awaited, families);
        }
    }

    /// Returns the latest end of the wait.
    pub(crate) fn deferred_until(&self) -> Option<Instant> {
        self.deferral.as_ref()?.until
    }

    /// Ends the wait if its time has expired.
    pub(crate) fn expire_deferral(&mut self, now: Instant) {
        if self.deferred_until().is_some_and(|until| until <= now)
            && let Some(deferral) = &mut self.deferral
        {
            deferral.waiting.values_mut().for_each(BTreeSet::clear);
            self.end_waits();
        }
    }

    fn stop_waiting(&mut self, awaited: Awaited, families: FamilySet) {
        let Some(deferral) = &mut self.deferral else {
            return;
        };
        for (family, waiting) in &mut deferral.waiting {
            if families.contains(*family) {
                waiting.remove(&awaited);
            }
        }
        if deferral.until.is_some() {
            self.end_waits();
        }
    }

    /// Opens the families in which no source is awaited any more, and to non-client iBGP peers
    /// those in which only such peers are awaited.
    fn end_waits(&mut self) {
        let Some(deferral) = &mut self.deferral else {
            return;
        };
        let half_open = deferral.open_half();
        let over = deferral.waiting.iter().filter(|(_, who)| who.is_empty());
        let over: FamilySet = over.map(|(&family, _)| family).collect();
        deferral.waiting.retain(|family, _| !over.contains(*family));
        let last = deferral.waiting.is_empty();
        if last {
            self.deferral = None;
        }
        for peer in self.roster.ids() {
            let families = self.roster.get_mut(peer).and_then(|state| {
                if last {
                    state.session.set_restarting(false);
                }
                let open = match state.config.role {
                    Role::Internal => over.union(half_open),
                    _ => over,
                };
                Some(state.params.as_ref()?.families.intersection(open))
            });
            self.join(peer, families.unwrap_or_default());
        }
        for family in over.iter() {
            self.outputs
                .push_back(Output::Event(Event::Selected { family }));
        }
    }
}

/// Returns the families in which a peer will send an End-of-RIB marker: those in its graceful
/// restart capability; all if it lists none (RFC 4724 §3).
fn markers_of(session: &Session) -> FamilySet {
    let Some(graceful) = graceful_of(session) else {
        return FamilySet::EMPTY;
    };
    if graceful.families.is_empty() {
        return FamilySet::all();
    }
    let families = graceful.families.iter();
    families.map(|&(family, _)| family).collect()
}

/// Returns whether a peer's OPEN has the Restart State bit.
fn restarts(session: &Session) -> bool {
    graceful_of(session).is_some_and(|graceful| graceful.restart_state)
}

fn graceful_of(session: &Session) -> Option<&GracefulRestart> {
    let open = session.peer_open()?;
    let mut capabilities = open.capabilities.iter().rev();
    capabilities.find_map(|capability| match capability {
        Capability::GracefulRestart(graceful) => Some(graceful),
        _ => None,
    })
}
