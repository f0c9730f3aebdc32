//! Neighbors and ranges.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bgp_fsm::{Instant, PeerAs, State};
use bgp_proto::{Capability, FAMILIES, Family, FamilySet, Prefix};
use bgp_speaker::keys::Report as InReport;
use bgp_speaker::{PEER_KEYS, PeerConfig, PeerView, RangeUsage, Speaker};
use daemon_common::report::{Fact, Neighbor, NeighborFamily, NeighborRange, Neighbors};
use ipnet::IpNet;
use rib::{PeerId, Policy, Role, SendPaths};

/// Returns the neighbors and ranges of a speaker.
pub fn neighbors(speaker: &Speaker, now: Instant) -> Neighbors {
    let config = speaker.config();
    let mut neighbors: Vec<Neighbor> = speaker
        .peers()
        .map(|peer| neighbor(speaker, &peer, now))
        .collect();
    neighbors.sort_by_key(|neighbor| (neighbor.dynamic, neighbor.address));
    Neighbors {
        local_asn: config.local_asn.0,
        router_id: Some(config.router_id.0),
        ranges: speaker.usage().ranges.iter().map(range).collect(),
        neighbors,
    }
}

fn neighbor(speaker: &Speaker, peer: &PeerView<'_>, now: Instant) -> Neighbor {
    let (config, session) = (peer.config, peer.session);
    let (stats, open) = (session.stats(), session.peer_open());
    let ends = session.established().and_then(|conn| session.ends(conn));
    let up = session.established_at();
    let error = last_error(speaker, peer);
    Neighbor {
        name: config.name.clone(),
        address: Some(config.remote),
        asn: peer
            .params
            .map_or_else(|| configured_asn(config), |params| params.peer_asn.0),
        role: role(config.role).to_owned(),
        dynamic: peer.dynamic,
        state: session.state().to_string(),
        since_s: up.map(|up| now.saturating_duration_since(up).as_secs()),
        down_for_s: stats
            .last_error
            .as_ref()
            .filter(|_| up.is_none())
            .map(|(at, _)| now.saturating_duration_since(*at).as_secs()),
        router_id: peer.params.map(|params| params.peer_id.0),
        hostname: open.and_then(hostname),
        local: ends.map(|(local, _)| local),
        remote: ends.map(|(_, remote)| remote),
        hold_time_s: peer.params.map(|params| params.hold_time_s),
        capabilities: open
            .map(|open| open.capabilities.iter().map(ToString::to_string).collect())
            .unwrap_or_default(),
        families: peer
            .families
            .iter()
            .map(|(family, counters)| neighbor_family(peer, *family, *counters))
            .collect(),
        messages_in: stats.received.total(),
        messages_out: stats.sent.total(),
        updates_in: stats.received.update,
        updates_out: stats.sent.update,
        octets_received: peer.octets.received as u64,
        octets_queued: peer.octets.queued as u64,
        rejected_for_memory: peer.capped,
        stale_for_s: peer
            .stale_until
            .map(|until| until.saturating_duration_since(now).as_secs()),
        barred_for_s: session
            .idle_hold_until()
            .map(|until| until.saturating_duration_since(now).as_secs()),
        flaps: stats.flaps,
        held: stats.held,
        last_down: unbound(speaker, peer)
            .map(|(_, why)| why)
            .or_else(|| last_down(session)),
        last_error_for_s: error
            .as_ref()
            .map(|(at, _)| now.saturating_duration_since(*at).as_secs()),
        last_error: error.map(|(_, why)| why),
        bfd: strict_mode(peer),
        keys: keys(config),
        import: policy(&config.import),
        export: policy(&config.export),
        faults: speaker
            .malformed()
            .filter(|kept| kept.peer == config.name)
            .count() as u64,
    }
}

/// Returns the effect of the strict mode of BFD, if it is not the usual one.
fn strict_mode(peer: &PeerView<'_>) -> Option<String> {
    let open = peer.session.peer_open()?;
    let is_strict = open.capabilities.contains(&Capability::BfdStrictMode);
    let text = match (peer.config.session.bfd_strict, peer.session.awaits_path()) {
        (true, true) => "BGP waits for it (bfd_strict)",
        (true, false) if !is_strict => "bfd_strict has no effect: the neighbor does not have it",
        _ => return None,
    };
    Some(text.to_owned())
}

/// Returns the keys that describe a neighbor.
fn keys(config: &PeerConfig) -> Vec<Fact> {
    let rows = PEER_KEYS.iter();
    let rows = rows.filter(|row| row.report == InReport::InNeighbors);
    rows.filter_map(|row| {
        Some(Fact {
            name: row.name.to_owned(),
            value: row.shown(config)?,
        })
    })
    .collect()
}

/// Returns why the last connection of a neighbor was closed before it reached the session, if no
/// later event of the session exists.
fn unbound(speaker: &Speaker, peer: &PeerView<'_>) -> Option<(Instant, String)> {
    let (at, failure) = speaker.last_failure(peer.config.remote)?;
    let session = peer.session;
    let error = session.stats().last_error.as_ref();
    let is_newest = error.is_none_or(|(since, _)| *since <= at);
    let is_down = session.established_at().is_none();
    (is_down && is_newest).then(|| (at, format!("a connection was rejected: {failure}")))
}

/// Returns the last error of a session or of an attempt at one, and when it happened.
fn last_error(speaker: &Speaker, peer: &PeerView<'_>) -> Option<(Instant, String)> {
    let of_session = || {
        let (at, reason) = peer.session.stats().last_error.as_ref()?;
        Some((*at, reason.to_string()))
    };
    unbound(speaker, peer).or_else(of_session)
}

fn last_down(session: &bgp_fsm::Session) -> Option<String> {
    let stats = session.stats();
    let error = stats.last_error.as_ref().map(|(_, reason)| reason);
    let reason = match session.state() {
        State::Established => stats.last_down.as_ref(),
        _ => error.or(stats.last_down.as_ref()),
    };
    reason.map(ToString::to_string)
}

fn neighbor_family(
    peer: &PeerView<'_>,
    family: Family,
    counters: rib::PeerCounters,
) -> NeighborFamily {
    let holds = |set: fn(&bgp_proto::SessionParams) -> FamilySet| {
        peer.params
            .is_some_and(|params| set(params).contains(family))
    };
    let add_path = match (
        holds(|params| params.add_path_receive),
        holds(|params| params.add_path_send),
    ) {
        (true, true) => Some("both"),
        (true, false) => Some("receive"),
        (false, true) => Some("send"),
        (false, false) => None,
    };
    let sent = peer.sent.iter().find(|sent| sent.family == family);
    NeighborFamily {
        family: family.to_string(),
        received: counters.paths.into(),
        accepted: counters.accepted.into(),
        ineligible: counters.ineligible.into(),
        limit: (peer.config.prefix_limits.get(family)).map(|limit| limit.max),
        limited: counters.limited,
        sent_limit: sent.map(|sent| sent.limit.max),
        sent: sent.map(|sent| sent.paths),
        suppressed: sent.map_or(0, |sent| sent.suppressed),
        is_suppressing: sent.is_some_and(|sent| sent.is_short),
        add_path: add_path.map(str::to_owned),
        add_path_send: holds(|params| params.add_path_send).then(|| {
            let sent = peer.config.send_paths.get(&family);
            sent.copied().unwrap_or(SendPaths::All).to_string()
        }),
    }
}

fn range(range: &RangeUsage) -> NeighborRange {
    NeighborRange {
        prefix: to_ipnet(range.prefix),
        used: u32::try_from(range.peers.now).unwrap_or(u32::MAX),
        limit: range.limit.into(),
        refused: range.refused,
        failed: (range.failures.iter())
            .map(|(reason, count)| (reason.to_owned(), count))
            .collect(),
    }
}

/// Returns the neighbor of this name or address.
pub fn find(speaker: &Speaker, neighbor: &str) -> Option<PeerId> {
    let called = |peer: &PeerView<'_>| {
        peer.config.name == neighbor || neighbor.parse() == Ok(peer.config.remote)
    };
    speaker.peers().find(called).map(|peer| peer.id)
}

/// Returns what is missing, for `waiting_for`: configured neighbors whose session is not up, and
/// after a restart neighbors whose End-of-RIB is awaited, and records of the datastore.
pub fn waiting(speaker: &Speaker) -> Vec<String> {
    let down = speaker
        .peers()
        .filter(|peer| !peer.dynamic && peer.params.is_none());
    let down = down.map(|peer| format!("neighbor {} ({})", peer.config.name, peer.session.state()));
    let awaited = speaker.awaited().into_iter();
    let awaited = awaited.map(|who| match who {
        Some(address) => format!("the routes of {address}, after a restart"),
        None => "the routes of this host, after a restart".to_owned(),
    });
    let records = speaker
        .awaits_origins()
        .then(|| "the records of the datastore for origin validation, after a restart".to_owned());
    down.chain(awaited).chain(records).collect()
}

/// Returns the paths that are not used because their origin is not confirmed, by neighbor.
pub fn excluded(speaker: &Speaker) -> BTreeMap<String, u64> {
    let of_peer = |peer: PeerView<'_>| {
        let families = FAMILIES.iter();
        let counters = families.map(|row| speaker.rib().counters(peer.id, row.family));
        let count = counters.map(|counters| u64::from(counters.unconfirmed));
        let count = count.sum::<u64>();
        (count > 0).then(|| (peer.config.name.clone(), count))
    };
    speaker.peers().filter_map(of_peer).collect()
}

fn configured_asn(config: &PeerConfig) -> u32 {
    match config.session.peer_asn {
        PeerAs::Exactly(asn) => asn.0,
        PeerAs::Internal => config.session.local_asn.0,
        PeerAs::External | PeerAs::Any => 0,
    }
}

fn hostname(open: &bgp_proto::Open) -> Option<String> {
    open.capabilities
        .iter()
        .find_map(|capability| match capability {
            Capability::Fqdn { hostname, .. } => Some(hostname.clone()),
            _ => None,
        })
}

const fn role(role: Role) -> &'static str {
    match role {
        Role::Local => "local",
        Role::External => "external",
        Role::Internal => "internal",
        Role::Client => "client",
    }
}

fn policy(policy: &Policy) -> String {
    match policy {
        Policy::AcceptAll => "accept".to_owned(),
        Policy::RejectAll => "deny".to_owned(),
        Policy::Rules(rules) => rules.name.clone(),
    }
}

fn to_ipnet(prefix: Prefix) -> Option<IpNet> {
    let (address, len): (IpAddr, u8) = match prefix {
        Prefix::V4(prefix) => (prefix.addr().into(), prefix.len()),
        Prefix::V6(prefix) => (prefix.addr().into(), prefix.len()),
    };
    IpNet::new(address, len).ok()
}
