//! A restart of our own (RFC 4724 §4.1): routes are chosen and passed on only when all who kept
//! theirs have sent them again.
//!
//! Families open in two steps, for what an internal peer that is no client of ours is told does not
//! depend on others of its kind (RFC 4456 §6). It has our routes once they are whole but for those of
//! its kind; then whoever restarts beside us can be waited for without that both wait for ever. Without
//! that, reflectors that all restart at once would send markers before they have heard each other, and
//! their clients would sweep what is still there.
//!
//! Nothing is held back inside the tables. Peers get no place in an update group and readers
//! nothing to read in a family that is deferred, so what was decided early is seen by nobody.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::{net::IpAddr, time::Duration};

use bgp_fsm::{DownReason, Instant, Session};
use bgp_proto::{
    Capability, Family, FamilySet, GracefulRestart,
    notification::{cease, code},
};
use rib::{PeerId, Role};

use crate::{
    event::{Event, Output},
    speaker::Speaker,
};

/// What a peer says with a Cease that leaves for good, or as a hard reset (RFC 8538 §3).
const FOR_GOOD: [u8; 3] = [
    cease::ADMINISTRATIVE_SHUTDOWN,
    cease::PEER_DECONFIGURED,
    cease::HARD_RESET,
];

/// What a speaker knows of its former self when it starts again.
#[derive(Clone, Debug, Default)]
pub struct Restart {
    /// How long the choice of routes is deferred at most (RFC 4724 §4.1,
    /// `Selection_Deferral_Timer`).
    pub wait: Duration,
    /// Neighbors out of ranges that were there before. They are waited for as the configured
    /// ones are, unless their range says otherwise ([`crate::RangeConfig::awaited`]); of others that
    /// may come nothing is known.
    pub dynamic: BTreeSet<IpAddr>,
    /// Whether our own routes are awaited, too: until [`Speaker::own_routes_complete`].
    pub own_routes: bool,
}

/// Who is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Awaited {
    /// Our own routes.
    OwnRoutes,
    /// The End-of-RIB marker of this peer.
    Peer(IpAddr),
    /// The same of an internal peer that is no client of ours.
    Fellow(IpAddr),
}

impl Awaited {
    const fn peer(address: IpAddr, role: Role) -> Self {
        match role {
            Role::Internal => Self::Fellow(address),
            _ => Self::Peer(address),
        }
    }

    /// Whose marker it is; `None` for our own routes.
    const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::OwnRoutes => None,
            Self::Peer(address) | Self::Fellow(address) => Some(*address),
        }
    }
}

/// The wait after a restart.
#[derive(Debug)]
pub(crate) struct Deferral {
    restart: Restart,
    /// When it ends at the latest; known once the speaker has started.
    until: Option<Instant>,
    waiting: BTreeMap<Family, BTreeSet<Awaited>>,
    /// The families of these that fellows are fed already.
    half_open: FamilySet,
}

impl Deferral {
    fn families(&self) -> FamilySet {
        self.waiting.keys().copied().collect()
    }

    /// The families that peers of this role are not fed.
    fn withheld(&self, role: Role) -> FamilySet {
        match role {
            Role::Internal => self.families().difference(self.half_open),
            _ => self.families(),
        }
    }

    /// The families in which only fellows are waited for, or nobody, and were not before.
    fn open_half(&mut self) -> FamilySet {
        let fellow = |awaited: &Awaited| matches!(awaited, Awaited::Fellow(_));
        let ready = self
            .waiting
            .iter()
            .filter(|(_, who)| who.iter().all(fellow));
        let ready: FamilySet = ready.map(|(&family, _)| family).collect();
        let news = ready.difference(self.half_open);
        self.half_open = self.half_open.union(news);
        news
    }

    /// Waits for someone in these families, and in no others.
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
    /// Tells the speaker, before it starts, that it has been here before and that its peers may
    /// have kept its routes: the R bit goes into its OPENs, and the choice of routes is deferred.
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

    /// Tells the speaker, before it starts, for which families forwarding has outlived its former
    /// self (RFC 4724 §3, the F bits): for all, unless it is told otherwise.
    pub fn forwarding_kept(&mut self, families: FamilySet) {
        self.forwarding = families;
        for peer in self.roster.ids() {
            self.introduce(peer);
        }
    }

    /// Our own routes have all been announced once.
    pub fn own_routes_complete(&mut self) {
        if let Some(deferral) = &mut self.deferral {
            deferral.restart.own_routes = false;
        }
        self.stop_waiting(Awaited::OwnRoutes, FamilySet::all());
    }

    /// The families whose routes are not chosen yet after a restart.
    #[must_use]
    pub fn deferred(&self) -> FamilySet {
        self.deferral
            .as_ref()
            .map_or(FamilySet::EMPTY, Deferral::families)
    }

    /// The configured peers and those of [`Restart::dynamic`] that are still waited for, with
    /// [`None`] for our own routes.
    pub fn awaited(&self) -> BTreeSet<Option<IpAddr>> {
        let waiting = self.deferral.iter().flat_map(|d| d.waiting.values());
        waiting.flatten().map(Awaited::address).collect()
    }

    /// What a peer's first OPEN says of our restart.
    pub(crate) fn introduce(&mut self, peer: PeerId) {
        let restarting = self.deferral.is_some();
        if let Some(state) = self.roster.get_mut(peer) {
            let forwarding = self.forwarding.intersection(state.config.session.families);
            state.session.set_restarting(restarting);
            state.session.set_forwarding(forwarding);
        }
    }

    /// The speaker starts, and with it the wait.
    pub(crate) fn begin_deferral(&mut self, now: Instant) {
        let peers: Vec<(Awaited, FamilySet)> = self.kept_by().collect();
        let Some(deferral) = &mut self.deferral else {
            return;
        };
        deferral.until = Some(now + deferral.restart.wait);
        if deferral.restart.own_routes {
            deferral.wait_for(Awaited::OwnRoutes, FamilySet::all());
        }
        for (awaited, families) in peers {
            deferral.wait_for(awaited, families);
        }
        self.end_waits();
    }

    /// The families that a peer of this role is not told of yet.
    pub(crate) fn withheld(&self, role: Role) -> FamilySet {
        let deferral = self.deferral.as_ref();
        deferral.map_or(FamilySet::EMPTY, |deferral| deferral.withheld(role))
    }

    /// A reflector waits for a fellow, too, that is configured meanwhile: they find each other as they
    /// come back.
    pub(crate) fn await_fellow(&mut self, peer: PeerId) {
        let Some(config) = self.roster.get(peer).map(|state| &state.config) else {
            return;
        };
        let ranges = self.config.ranges.iter().map(|range| &range.template);
        let mut peers = self.config.peers.iter().chain(ranges);
        let keeps = config.session.graceful_restart.is_some();
        let awaited = Awaited::peer(config.remote, config.role);
        if let (true, Awaited::Fellow(_)) = (keeps, awaited)
            && let Some(deferral) = self.deferral.as_mut().filter(|d| d.until.is_some())
            && peers.any(|peer| peer.role == Role::Client)
        {
            let address = config.remote;
            deferral.wait_for(awaited, config.session.families);
            self.stop_waiting(Awaited::Peer(address), FamilySet::all());
        }
    }

    /// The peers that may have kept our routes, as far as can be told before they come.
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

    /// A session is up: what its OPEN says decides whether the peer's markers are awaited. They
    /// never are from one without graceful restart, nor from one that has restarted itself: it
    /// might wait for ours (RFC 4724 §4.1). A fellow has ours before we have its.
    pub(crate) fn await_markers(&mut self, peer: PeerId, negotiated: FamilySet) {
        let Some(state) = self.roster.get(peer) else {
            return;
        };
        let awaited = Awaited::peer(state.config.remote, state.config.role);
        let families = match (awaited, restarts(&state.session)) {
            (Awaited::Fellow(_), _) | (_, false) => markers_of(&state.session),
            _ => FamilySet::EMPTY,
        };
        if let Some(deferral) = &mut self.deferral {
            deferral.wait_for(awaited, families.intersection(negotiated));
            self.end_waits();
        }
    }

    /// A peer has sent a family whole.
    pub(crate) fn marker_came(&mut self, peer: PeerId, family: Family) {
        if let Some(address) = self.roster.get(peer).map(|state| state.config.remote) {
            self.stop_waiting_for(address, family.into());
        }
    }

    /// There is a new configuration. Neighbors out of ranges that are away are waited for only as
    /// long as it has them, and says that they are to be waited for.
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

    /// A peer's session is over. Who has said that it leaves for good will not send its routes soon.
    pub(crate) fn marker_lost(&mut self, address: IpAddr, reason: &DownReason) {
        if let DownReason::Received(why) = reason
            && why.code == code::CEASE
            && FOR_GOOD.contains(&why.subcode)
        {
            self.forget_awaited(address);
        }
    }

    /// A peer is configured no more, or gone for good.
    pub(crate) fn forget_awaited(&mut self, address: IpAddr) {
        self.stop_waiting_for(address, FamilySet::all());
    }

    /// It may have had another role when the wait began.
    fn stop_waiting_for(&mut self, address: IpAddr, families: FamilySet) {
        for awaited in [Awaited::Peer(address), Awaited::Fellow(address)] {
            self.stop_waiting(awaited, families);
        }
    }

    /// When the wait ends at the latest.
    pub(crate) fn deferred_until(&self) -> Option<Instant> {
        self.deferral.as_ref()?.until
    }

    /// Ends the wait if it has lasted long enough.
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

    /// Opens the families in which nobody is waited for any more, and to fellows those in which only
    /// fellows are.
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

/// The families whose End-of-RIB marker a peer will send: those that its OPEN lists for graceful
/// restart; all, if it lists none (RFC 4724 §3).
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

/// Whether a peer says that it has restarted itself.
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
