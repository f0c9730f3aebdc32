//! Start and end of sessions, and the paths that are retained over their end (RFC 4724 and RFC 9494,
//! helper side).

use alloc::collections::{BTreeMap, BTreeSet};

use bgp_fsm::{DownReason, Instant};
use bgp_proto::{Family, FamilySet, SessionParams};
use core::{net::IpAddr, time::Duration};
use rib::{DownMode, GroupId, GroupRules, PeerId, PeerInfo, SendPaths};

use crate::{
    config::BfdGraceful,
    event::{Event, Output},
    limits::TARGETS_WAIT_MAX,
    outgroup::{GroupKey, OutGroup},
    path_failure::is_next_hop_of_all,
    path_state::PathState,
    peer::Peer,
    speaker::Speaker,
    targets::selected,
};

impl Speaker {
    /// Handles an established session: its peer gets a place in the tables and in an update group.
    pub(crate) fn up(&mut self, now: Instant, peer: PeerId, params: SessionParams) {
        let link = (self.roster.get(peer)).map(|state| self.link_of(&state.config));
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        let ends = state
            .session
            .established()
            .and_then(|conn| state.session.ends(conn));
        let local = ends.map(|(local, _)| local.ip());
        state.local = local;
        let (role, cluster_id) = (state.config.role, state.config.cluster_id);
        self.rib.peer_up(
            peer,
            PeerInfo {
                role,
                asn: params.peer_asn,
                id: params.peer_id,
                address: state.config.remote,
                local,
                import: state.config.import.clone(),
                local_asn: params.local_asn,
                as_path: state.config.as_path,
                cluster_id: cluster_id.unwrap_or_else(|| self.config.cluster_id()),
                domain: state.config.domain(),
                link: link.flatten(),
                origin: state.config.origin(),
            },
        );
        self.limit_paths(peer);
        self.restore_next_hop(peer);
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        state.targets_until = (!selected(&params).is_empty()).then(|| now + TARGETS_WAIT_MAX);
        let lost = state.stale.difference(forwarding(state, &params));
        // RFC 4724 §4.2: from now on the timer limits the wait for the End-of-RIB markers.
        let time_s = state.config.stale_time_s.into();
        let is_stale = !state.stale.is_empty();
        state.restart_until = is_stale.then(|| now + Duration::from_secs(time_s));
        state.schedule_stale();
        let families = params.families;
        // RFC 4724 §3: however this session ends, this process has not restarted since.
        state.session.set_forwarding(state.config.session.families);
        self.await_markers(peer, families);
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        state.params = Some(params);
        for family in lost.iter() {
            self.sweep(peer, family);
        }
        self.join(peer, families.difference(self.withheld(role)));
        self.want_all_routes(families);
        self.monitor_up(peer);
        if let Some(params) = self.roster.get(peer).and_then(|state| state.params.clone()) {
            let params = alloc::boxed::Box::new(params);
            let name = self.peer_name(peer).into();
            self.outputs
                .push_back(Output::Event(Event::Up { peer, name, params }));
        }
        self.list(peer);
    }

    /// Adds an established peer to its update group: it receives a full dump of these families, except
    /// of those that wait for its route targets.
    pub(crate) fn join(&mut self, peer: PeerId, families: FamilySet) {
        let waits = self.roster.get(peer).map(Peer::waits_for_targets);
        let families = families.difference(waits.unwrap_or_default());
        if families.is_empty() {
            return;
        }
        let joined = self.roster.get(peer).and_then(|state| state.group);
        let Some(group) = joined.or_else(|| Some(self.group_key(peer)?).map(|k| self.group_at(k)))
        else {
            return;
        };
        if let Some(out) = self.groups.get_mut(group).and_then(Option::as_mut) {
            out.join(peer, families);
        }
        if let Some(state) = self.roster.get_mut(peer) {
            state.group = Some(group);
        }
        self.list(peer);
    }

    /// Moves a peer to the group of its current configuration, if that is another: it receives
    /// everything by the new rules, and withdrawals. `ways` are the moves that other peers have
    /// already made.
    pub(crate) fn regroup(&mut self, peer: PeerId, ways: &mut BTreeSet<(GroupId, GroupId)>) {
        let Some(old) = self.roster.get(peer).and_then(|state| state.group) else {
            return;
        };
        let Some(key) = self.group_key(peer) else {
            return;
        };
        let Some(out) = self.groups.get_mut(old).and_then(Option::as_mut) else {
            return;
        };
        if out.key == key {
            return;
        }
        let limits_changed = out.key.limits != key.limits;
        let several = !key.rules.add_path.is_empty();
        let (from, members) = (out.id(), out.hand_over(&mut self.rib, peer));
        let new = self.group_at(key);
        if let Some(out) = self.groups.get_mut(new).and_then(Option::as_mut) {
            if several && ways.insert((from, out.id())) {
                self.rib.adopt(out.id(), from);
            }
            out.take_over(peer, members);
        }
        self.leave(peer, old);
        if let Some(state) = self.roster.get_mut(peer) {
            state.group = Some(new);
            if limits_changed {
                state.sent_levels.clear();
            }
        }
        self.list(peer);
    }

    /// Handles the end of an established session.
    pub(crate) fn down(&mut self, now: Instant, peer: PeerId, reason: DownReason) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        let params = state.params.take();
        let remote = state.config.remote;
        state.local = None;
        state.refreshes.clear();
        state.capped = None;
        state.sent_levels.clear();
        state.sent_resume = None;
        state.targets_until = None;
        let group = state.group.take();
        let retained = (params.as_ref()).and_then(|params| retained(now, state, params, &reason));
        let Retained {
            kept,
            graceful,
            time_s,
            long_lived_s,
        } = retained.unwrap_or_default();
        let long_lived: FamilySet = long_lived_s.keys().copied().collect();
        state.retains = false;
        state.stale = kept;
        // RFC 9494 §4.2: the end of the stale time does not move before the peer has sent its routes.
        (state.long_lived_until).retain(|family, _| long_lived.contains(*family));
        state.long_lived_s = long_lived_s;
        let has_restart_time = !graceful.is_empty();
        state.restart_until = has_restart_time.then(|| now + Duration::from_secs(time_s.into()));
        self.rib.peer_down(
            peer,
            if kept.is_empty() {
                DownMode::Flush
            } else {
                DownMode::Stale { kept, long_lived }
            },
        );
        // RFC 9494 §4.2: the restart time of other families is 0.
        self.begin_long_lived(now, peer, kept.difference(graceful));
        if let Some(group) = group {
            self.leave(peer, group);
        }
        self.marker_lost(remote, &reason);
        self.monitor_down(peer, &reason, kept);
        let name = self.peer_name(peer).into();
        self.outputs
            .push_back(Output::Event(Event::Down { peer, name, reason }));
    }

    /// Handles an End-of-RIB marker: stale paths that the peer did not send again are removed (RFC
    /// 4724 §4.2).
    pub(crate) fn end_of_rib(&mut self, peer: PeerId, family: Family) {
        self.sweep(peer, family);
        self.monitor_end_of_rib(peer, family);
        let name = self.peer_name(peer).into();
        self.outputs
            .push_back(Output::Event(Event::EndOfRib { peer, name, family }));
        self.marker_came(peer, family);
        if family == Family::ROUTE_TARGET {
            self.targets_complete(peer);
        }
    }

    /// Removes stale paths when their time has expired, or begins their long-lived stale time.
    pub(crate) fn expire_stale(&mut self, now: Instant, peer: PeerId) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        if state.stale_until.is_none_or(|until| until > now) {
            return;
        }
        let is_up = state.params.is_some();
        let is_over = state.restart_until.is_some_and(|until| until <= now);
        let goes_on = is_over && !is_up && !is_dead(state);
        let (mut begins, mut ends) = (FamilySet::EMPTY, FamilySet::EMPTY);
        for family in state.stale.iter() {
            let until = state.long_lived_until.get(&family);
            if until.is_some_and(|until| *until <= now) {
                ends.insert(family);
            } else if goes_on && state.long_lived_s.contains_key(&family) {
                begins.insert(family);
            } else if is_over {
                // No long-lived stale time, or the End-of-RIB marker did not arrive.
                ends.insert(family);
                state.long_lived_until.remove(&family);
            }
        }
        if is_over {
            state.restart_until = None;
        }
        state.stale = state.stale.difference(ends);
        if !is_up {
            state.long_lived_until.retain(|_, until| *until > now);
        }
        for family in ends.iter() {
            self.rib.end_of_rib(peer, family);
        }
        self.begin_long_lived(now, peer, begins);
        self.path_works(peer);
    }

    /// Begins the long-lived stale time of these families: their stale paths are the least preferred ones
    /// from now on (RFC 9494 §4.2). A time that has begun before is not extended.
    fn begin_long_lived(&mut self, now: Instant, peer: PeerId, families: FamilySet) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        for family in families.iter() {
            let time_s = state.long_lived_s.get(&family).copied().unwrap_or_default();
            let until = now + Duration::from_secs(time_s.into());
            state.long_lived_until.entry(family).or_insert(until);
            self.rib.begin_long_lived(peer, family);
        }
        state.schedule_stale();
        if !families.is_empty() {
            let name = self.peer_name(peer).into();
            self.outputs.push_back(Output::Event(Event::LongLivedStale {
                peer,
                name,
                families,
            }));
        }
    }

    /// Removes all stale paths of a peer.
    pub(crate) fn remove_stale(&mut self, peer: PeerId) {
        if let Some(state) = self.roster.get_mut(peer) {
            state.stale = FamilySet::default();
            state.long_lived_until.clear();
            state.restart_until = None;
            state.schedule_stale();
            self.rib.stale_expired(peer);
        }
    }

    fn sweep(&mut self, peer: PeerId, family: Family) {
        self.rib.end_of_rib(peer, family);
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        state.stale.remove(family);
        state.long_lived_until.remove(&family);
        if state.stale.is_empty() {
            state.restart_until = None;
        }
        state.schedule_stale();
    }

    fn leave(&mut self, peer: PeerId, group: usize) {
        let Some(place) = self.groups.get_mut(group) else {
            return;
        };
        let Some(out) = place else { return };
        out.leave(peer);
        if out.is_empty()
            && let Some(out) = place.take()
        {
            out.close(&mut self.rib);
        }
    }

    /// Returns the parameters that determine the octets sent to this peer.
    fn group_key(&self, peer: PeerId) -> Option<GroupKey> {
        let state = self.roster.get(peer)?;
        let params = state.params.as_ref()?;
        let local_v4 = match state.local {
            Some(IpAddr::V4(local)) => Some(local),
            _ => None,
        };
        let local_v6 = match state.local {
            Some(IpAddr::V6(local)) => Some(local),
            _ => None,
        };
        Some(GroupKey {
            rules: GroupRules {
                role: state.config.role,
                local_asn: params.local_asn,
                peer_asn: params.peer_asn,
                next_hop: state.config.next_hop,
                own_next_hop_v4: self.config.own_next_hop_v4.or(local_v4),
                own_next_hop_v6: self.config.own_next_hop_v6.or(local_v6),
                cluster_id: (state.config.cluster_id).unwrap_or_else(|| self.config.cluster_id()),
                domain: state.config.domain(),
                extended_next_hop: params.extended_next_hop,
                long_lived: params.peer_long_lived.is_some(),
                link_bandwidth: state.config.link_bandwidth,
                export: state.config.export.clone(),
                add_path: send_paths(state, params),
            },
            as4: params.as4,
            octets_max: params.send_octets_max(),
            limits: state.config.prefix_limits_out.clone(),
            selected: selected(params),
        })
    }

    /// Returns the group with a key; makes it if there is none.
    fn group_at(&mut self, key: GroupKey) -> usize {
        let same = |group: &Option<OutGroup>| group.as_ref().is_some_and(|group| group.key == key);
        if let Some(at) = self.groups.iter().position(same) {
            return at;
        }
        let group = OutGroup::new(key, &mut self.rib, self.encoded.clone());
        if let Some(at) = self.groups.iter().position(Option::is_none)
            && let Some(place) = self.groups.get_mut(at)
        {
            *place = Some(group);
            return at;
        }
        self.groups.push(Some(group));
        self.groups.len() - 1
    }
}

/// Returns the families in which the peer is sent several paths of a prefix, and which ones (RFC
/// 7911).
fn send_paths(state: &Peer, params: &SessionParams) -> BTreeMap<Family, SendPaths> {
    let wanted = &state.config.send_paths;
    let families = params.add_path_send.intersection(params.families);
    let send = |family| wanted.get(&family).copied().unwrap_or(SendPaths::All);
    families
        .iter()
        .map(|family| (family, send(family)))
        .collect()
}

/// Returns the families in which a restarted peer has preserved its forwarding state (RFC 4724 §3).
/// For paths that are stale beyond the restart time its other capability decides (RFC 9494 §4.2).
fn forwarding(state: &Peer, params: &SessionParams) -> FamilySet {
    let graceful = params.peer_graceful.iter().flat_map(|of| &of.families);
    let graceful = graceful.map(|&(family, kept)| (family, kept));
    let graceful = graceful.filter(|(family, _)| !state.long_lived_until.contains_key(family));
    let long_lived = params.peer_long_lived.iter().flatten();
    let long_lived = long_lived.map(|entry| (entry.family, entry.forwarding));
    let long_lived = long_lived.filter(|(family, _)| state.long_lived_until.contains_key(family));
    let preserved = graceful.chain(long_lived).filter(|(_, kept)| *kept);
    preserved.map(|(family, _)| family).collect()
}

/// Returns whether BFD has found that the peer does not forward packets, so that its restart is over.
fn is_dead(state: &Peer) -> bool {
    is_next_hop_of_all(state)
        && state.config.bfd_graceful != BfdGraceful::Always
        && matches!(state.path, PathState::Failed { .. })
}

/// The paths that are retained over the end of a session.
#[derive(Default)]
struct Retained {
    kept: FamilySet,
    /// The families with a restart time.
    graceful: FamilySet,
    /// The restart time, in seconds.
    time_s: u16,
    /// The long-lived stale time by family, in seconds; none of them is 0.
    long_lived_s: BTreeMap<Family, u32>,
}

/// Returns the paths that are retained over the end of a session (RFC 4724 §4.2, RFC 8538 §3, RFC
/// 9494 §4.2); `None` if there are none.
fn retained(
    now: Instant,
    state: &Peer,
    params: &SessionParams,
    reason: &DownReason,
) -> Option<Retained> {
    let theirs = params.peer_graceful.as_ref()?;
    state.config.session.graceful_restart.as_ref()?; // Else graceful restart was not offered.
    if !(state.retains || reason.is_graceful(theirs.notification)) {
        return None;
    }
    // RFC 9494 §4.2: if the time expired before the peer had sent all routes, none of them is retained.
    let has_expired = |family: &Family| {
        let until = state.long_lived_until.get(family);
        until.is_some_and(|until| *until <= now)
    };
    let ours = &state.config.session.long_lived_stale_time_s;
    let long_lived = params.peer_long_lived.iter().flatten().filter_map(|entry| {
        // RFC 9494 §4.2: a local value may reduce that of the peer.
        let time_s = entry.stale_time_s.min(*ours.get(&entry.family)?);
        (time_s > 0 && !has_expired(&entry.family)).then_some((entry.family, time_s))
    });
    let long_lived_s: BTreeMap<_, _> = long_lived.collect();
    let listed = theirs.families.iter().map(|&(family, _)| family);
    let graceful = listed.filter(|family| theirs.time_s > 0 && !has_expired(family));
    let graceful: FamilySet = graceful.collect();
    let long_lived: FamilySet = long_lived_s.keys().copied().collect();
    let kept = graceful.union(long_lived).intersection(params.families);
    Some(Retained {
        kept,
        graceful: graceful.intersection(params.families),
        time_s: theirs.time_s,
        long_lived_s,
    })
}
