//! Routes, page by page.

use std::fmt::Write;
use std::net::IpAddr;

use bgp_proto::{Attributes, Family, Net, RawAttribute};
use bgp_speaker::Speaker;
use daemon_common::limits::PAGE_PATHS_MAX;
use daemon_common::report::{Path, Route, Routes, SentTo};
use ipnet::IpNet;
use rib::{Ineligible, NextHops, PathView, PeerId, RouteView};

/// Returns a page of routes, of one `only` family or of all. `after` is `next` of the page before.
///
/// # Errors
///
/// There is no such family, or `after` is invalid.
pub fn routes(
    speaker: &Speaker,
    prefix: Option<IpNet>,
    why: bool,
    only: Option<&str>,
    after: Option<&str>,
) -> Result<Routes, String> {
    let only = only.map(|name| {
        name.parse::<Family>()
            .map_err(|_| format!("no family {name}"))
    });
    let only = only.transpose()?;
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
        let other = |family: Option<Family>| family.is_some_and(|family| family != next);
        if other(only) || other(family) {
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

/// Returns the route that packets to an address take: the longest prefix with a path in use.
pub fn longest_match(speaker: &Speaker, address: IpAddr, why: bool) -> Routes {
    let host = IpNet::from(address);
    let lengths = (0..=host.max_prefix_len()).rev();
    let prefixes = lengths.filter_map(|length| IpNet::new(address, length).ok());
    let mut used = prefixes.filter(|prefix| !one_route(speaker, *prefix, false).is_empty());
    Routes {
        routes: used
            .next()
            .map(|prefix| one_route(speaker, prefix, why))
            .unwrap_or_default(),
        next: None,
    }
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
    /// Adds routes of a family; returns where to continue if the page is full.
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
    let Some(view) = speaker.rib().lookup(family, net) else {
        return Vec::new();
    };
    let mut found = route(speaker, family, &view, why);
    if let Some(route) = found.as_mut().filter(|_| why) {
        // With `why` the route has all paths of the view.
        for (peer, sent) in speaker.sent_paths(family, net) {
            let of = view
                .paths
                .iter()
                .position(|path| (path.peer, path.path_id) == (sent.source, sent.received_id));
            if let Some(path) = of.and_then(|at| route.paths.get_mut(at)) {
                path.sent_to.push(SentTo {
                    neighbor: speaker.peer_name(peer).to_owned(),
                    path_id: sent.path_id,
                });
            }
        }
        // The speaker lists the peers in the order of their update groups, which is that of their connections.
        for path in &mut route.paths {
            path.sent_to.sort_by(|one, other| {
                (&one.neighbor, one.path_id).cmp(&(&other.neighbor, other.path_id))
            });
        }
    }
    found.into_iter().collect()
}

/// Returns one prefix; without `why` only the paths in use, and `None` if there is none.
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

fn path(speaker: &Speaker, view: &PathView) -> Path {
    let attributes = view.accepted.as_ref().unwrap_or(&view.received);
    Path {
        best: view.best,
        multipath: view.multipath,
        stale: view.stale,
        neighbor: match view.peer {
            PeerId::LOCAL => "local".to_owned(),
            peer => speaker.peer_name(peer).to_owned(),
        },
        neighbor_address: speaker.peer_config(view.peer).map(|peer| peer.remote),
        neighbor_dynamic: speaker.peer(view.peer).is_some_and(|peer| peer.dynamic),
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
        origin: attributes.origin.to_string().to_ascii_lowercase(),
        as_path: attributes.as_path.to_string(),
        local_pref: attributes.local_pref,
        med: attributes.med,
        communities: words(&attributes.communities),
        large_communities: words(&attributes.large_communities),
        extended_communities: words(&attributes.extended_communities),
        originator_id: attributes.originator_id.as_ref().map(ToString::to_string),
        cluster_list: words(&attributes.cluster_list),
        other_attributes: (attributes.rare.reports().into_iter())
            .map(|(code, value)| (code.to_string(), value.to_string()))
            .collect(),
        unknown: attributes.unknown.iter().map(raw_attribute).collect(),
        ..Path::default()
    }
}

/// Returns why a path is not the best.
fn lost(view: &PathView) -> Option<String> {
    match (view.ineligible, view.lost) {
        (Some(reason @ Ineligible::Policy), _) => Some(match &view.evaluation {
            Some(evaluation) => format!("not eligible: {reason} {evaluation}"),
            None => format!("not eligible: {reason}"),
        }),
        (Some(reason), _) => Some(format!("not eligible: {reason}")),
        (None, Some(step)) => Some(step.to_string()),
        (None, None) => None,
    }
}

fn next_hop_state(speaker: &Speaker, view: &PathView) -> Option<String> {
    let text = match (speaker.config().next_hops, view.ineligible) {
        (_, Some(Ineligible::NextHopUnresolved)) => "unreachable",
        (NextHops::AssumeReachable, _) => "assumed reachable at cost 0",
        (NextHops::Track, _) if view.peer == PeerId::LOCAL => return None,
        (NextHops::Track, _) => "reachable",
    };
    Some(text.to_owned())
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
