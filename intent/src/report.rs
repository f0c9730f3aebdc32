//! A speaker's state as the reports of the control socket: pure, and shared by the BGP daemons.

use std::fmt::Write;
use std::net::IpAddr;

use admin::limits::PAGE_PATHS_MAX;
use admin::report::{
    Fact, Neighbor, NeighborFamily, NeighborRange, Neighbors, Path, Route, Routes,
};
use bgp_fsm::{Instant, PeerAs, State};
use bgp_proto::{Attributes, Family, FamilySet, Net, Prefix, RawAttribute};
use bgp_speaker::{PeerConfig, PeerView, RangeConfig, Speaker};
use ipnet::IpNet;
use rib::{NextHops, PathView, PeerId, Policy, Role, RouteView};

/// The neighbours and ranges of a speaker.
pub fn neighbors(speaker: &Speaker, now: Instant) -> Neighbors {
    let config = speaker.config();
    let mut neighbors: Vec<Neighbor> = speaker
        .peers()
        .map(|peer| neighbor(speaker, &peer, now))
        .collect();
    neighbors.sort_by(|a, b| (a.dynamic, a.address).cmp(&(b.dynamic, b.address)));
    Neighbors {
        local_asn: config.local_asn.0,
        router_id: Some(config.router_id.0),
        ranges: config
            .ranges
            .iter()
            .map(|entry| range(entry, &neighbors))
            .collect(),
        neighbors,
    }
}

fn neighbor(speaker: &Speaker, peer: &PeerView<'_>, now: Instant) -> Neighbor {
    let (config, session) = (peer.config, peer.session);
    let (stats, open) = (session.stats(), session.peer_open());
    let ends = session.established().and_then(|conn| session.ends(conn));
    let up = session.established_at();
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
        stale_for_s: peer
            .stale_until
            .map(|until| until.saturating_duration_since(now).as_secs()),
        flaps: stats.flaps,
        last_down: last_down(session),
        import: policy(config.import),
        export: policy(config.export),
        faults: speaker
            .malformed()
            .filter(|kept| kept.peer == config.name)
            .count() as u64,
    }
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
    NeighborFamily {
        family: family.to_string(),
        received: counters.paths.into(),
        accepted: counters.accepted.into(),
        ineligible: counters.ineligible.into(),
        add_path: add_path.map(str::to_owned),
    }
}

fn range(range: &RangeConfig, neighbors: &[Neighbor]) -> NeighborRange {
    let covered = |neighbor: &&Neighbor| {
        neighbor.dynamic
            && neighbor
                .address
                .is_some_and(|address| range.covers(address))
    };
    NeighborRange {
        prefix: to_ipnet(range.prefix),
        used: u32::try_from(neighbors.iter().filter(covered).count()).unwrap_or(u32::MAX),
        limit: range.limit.into(),
        refused: 0,
    }
}

/// A page of routes. `after` is what the page before gave as `next`.
///
/// # Errors
///
/// `after` is not one of ours.
pub fn routes(
    speaker: &Speaker,
    prefix: Option<IpNet>,
    why: bool,
    after: Option<&str>,
) -> Result<Routes, String> {
    if let Some(prefix) = prefix {
        return Ok(Routes {
            routes: one_route(speaker, prefix, why),
            next: None,
        });
    }
    let (mut family, mut from) = match after {
        None => (None, 0),
        Some(token) => parse_token(token).ok_or_else(|| format!("no such page: {token}"))?,
    };
    let mut page = Page {
        speaker,
        why,
        routes: Vec::new(),
        paths: 0,
    };
    for next in speaker.config().families.iter() {
        if family.is_some_and(|family| family != next) {
            continue;
        }
        family = None;
        if let Some(at) = page.fill(next, from) {
            return Ok(Routes {
                routes: page.routes,
                next: Some(format!("{next} {at}")),
            });
        }
        from = 0;
    }
    Ok(Routes {
        routes: page.routes,
        next: None,
    })
}

fn parse_token(token: &str) -> Option<(Option<Family>, u32)> {
    let (family, from) = token.split_once(' ')?;
    Some((Some(family.parse().ok()?), from.parse().ok()?))
}

struct Page<'s> {
    speaker: &'s Speaker,
    why: bool,
    routes: Vec<Route>,
    paths: usize,
}

impl Page<'_> {
    /// Adds routes of a family; gives the place to go on at when the page is full.
    fn fill(&mut self, family: Family, from: u32) -> Option<u32> {
        for (at, view) in self.speaker.rib().prefixes_from(family, from) {
            if self.paths >= PAGE_PATHS_MAX {
                return Some(at);
            }
            if let Some(route) = route(self.speaker, family, &view, self.why) {
                self.paths += route.paths.len();
                self.routes.push(route);
            }
        }
        None
    }
}

fn one_route(speaker: &Speaker, prefix: IpNet, why: bool) -> Vec<Route> {
    let (family, net) = match prefix.trunc() {
        IpNet::V4(net) => (Family::IPV4_UNICAST, Net::V4(net.into())),
        IpNet::V6(net) => (Family::IPV6_UNICAST, Net::V6(net.into())),
    };
    let view = speaker.rib().lookup(family, net);
    view.and_then(|view| route(speaker, family, &view, why))
        .into_iter()
        .collect()
}

/// One prefix; without `why` only the paths in use, and nothing if none is.
fn route(speaker: &Speaker, family: Family, view: &RouteView<'_>, why: bool) -> Option<Route> {
    let paths: Vec<Path> = view
        .paths
        .iter()
        .filter(|path| why || path.best || path.multipath)
        .map(|view| path(speaker, view))
        .collect();
    let prefix = view.net.to_string();
    (!paths.is_empty()).then(|| Route {
        family: family.to_string(),
        prefix,
        paths,
    })
}

fn path(speaker: &Speaker, view: &PathView<'_>) -> Path {
    let attributes = view.accepted.unwrap_or(view.received);
    Path {
        best: view.best,
        multipath: view.multipath,
        stale: view.stale,
        neighbor: match view.peer {
            PeerId::LOCAL => "local".to_owned(),
            peer => speaker.peer_name(peer).to_owned(),
        },
        path_id: (view.path_id != 0).then_some(view.path_id),
        next_hop_state: attributes
            .next_hop
            .as_ref()
            .and_then(|_| next_hop_state(speaker, view)),
        lost: lost(view),
        ..attribute_words(attributes)
    }
}

fn attribute_words(attributes: &Attributes) -> Path {
    Path {
        next_hop: attributes.next_hop.as_ref().map(ToString::to_string),
        origin: attributes.origin.to_string(),
        as_path: attributes.as_path.to_string(),
        local_pref: attributes.local_pref,
        med: attributes.med,
        communities: words(&attributes.communities),
        large_communities: words(&attributes.large_communities),
        extended_communities: words(&attributes.extended_communities),
        originator_id: attributes.originator_id.as_ref().map(ToString::to_string),
        cluster_list: words(&attributes.cluster_list),
        unknown: attributes.unknown.iter().map(raw_attribute).collect(),
        ..Path::default()
    }
}

/// Why a path is not the best.
fn lost(view: &PathView<'_>) -> Option<String> {
    match (view.ineligible, view.lost) {
        (Some(reason), _) => Some(format!("not eligible: {reason}")),
        (None, Some(step)) => Some(step.to_string()),
        (None, None) => None,
    }
}

fn next_hop_state(speaker: &Speaker, view: &PathView<'_>) -> Option<String> {
    let text = match (speaker.config().next_hops, view.ineligible) {
        (_, Some(rib::Ineligible::NextHopUnresolved)) => "unreachable",
        (NextHops::AssumeReachable, _) => "assumed reachable at cost 0",
        (NextHops::Track, _) if view.peer == PeerId::LOCAL => return None,
        (NextHops::Track, _) => "reachable",
    };
    Some(text.to_owned())
}

/// Facts of a speaker's tables for the status report.
pub fn facts(speaker: &Speaker) -> Vec<Fact> {
    let (config, stats) = (speaker.config(), speaker.rib().stats());
    let up = speaker.peers().filter(|peer| peer.params.is_some()).count();
    let next_hops = match config.next_hops {
        NextHops::AssumeReachable => format!("{}, assumed reachable at cost 0", stats.next_hops),
        NextHops::Track => stats.next_hops.to_string(),
    };
    [
        ("AS", config.local_asn.to_string()),
        ("router id", config.router_id.to_string()),
        (
            "sessions up",
            format!("{up} of {}", speaker.peers().count()),
        ),
        ("prefixes", stats.prefixes.to_string()),
        ("paths", stats.paths.to_string()),
        ("attribute sets", stats.attribute_sets.to_string()),
        ("next hops", next_hops),
    ]
    .map(|(name, value)| Fact {
        name: name.to_owned(),
        value,
    })
    .into()
}

/// Configured neighbours whose session is not up, for `waiting_for`.
pub fn waiting(speaker: &Speaker) -> Vec<String> {
    let down = speaker
        .peers()
        .filter(|peer| !peer.dynamic && peer.params.is_none());
    down.map(|peer| format!("neighbor {} ({})", peer.config.name, peer.session.state()))
        .collect()
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
            bgp_proto::Capability::Fqdn { hostname, .. } => Some(hostname.clone()),
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

fn policy(policy: Policy) -> String {
    match policy {
        Policy::AcceptAll => "accept".to_owned(),
        Policy::RejectAll => "deny".to_owned(),
        Policy::Hook(hook) => hook.name.to_owned(),
    }
}

fn words<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn raw_attribute(raw: &RawAttribute) -> String {
    let mut text = format!("{}:{:02x}:", raw.code.0, raw.flags);
    for octet in raw.value.iter() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{octet:02x}");
    }
    text
}

fn to_ipnet(prefix: Prefix) -> Option<IpNet> {
    let (address, len): (IpAddr, u8) = match prefix {
        Prefix::V4(prefix) => (prefix.addr().into(), prefix.len()),
        Prefix::V6(prefix) => (prefix.addr().into(), prefix.len()),
    };
    IpNet::new(address, len).ok()
}
