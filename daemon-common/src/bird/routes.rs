//! `show route`, a page of it.

use super::ask::{RouteAsk, fits};
use super::lines::Lines;
use super::protocol_name;
use crate::report::{Path, Route, Routes};

/// Counts of paths, over all pages.
#[derive(Debug, Default)]
pub(super) struct Count {
    paths: usize,
    shown: usize,
    networks: usize,
}

/// Adds a page.
pub(super) fn write(out: &mut Lines, page: &Routes, ask: &RouteAsk, count: &mut Count) {
    for route in &page.routes {
        let wanted = route.paths.iter().filter(|path| is_wanted(path, ask));
        let before = count.shown;
        for path in wanted {
            if !ask.count {
                let first = count.shown == before;
                row(out, if first { &route.prefix } else { "" }, path);
                if ask.all {
                    attributes(out, path);
                }
            }
            count.shown += 1;
        }
        count.paths += kept(route).count();
        count.networks += usize::from(kept(route).next().is_some());
    }
}

/// Writes the end of the answer.
pub(super) fn end(out: &mut Lines, ask: &RouteAsk, count: &Count) {
    let Count {
        paths,
        shown,
        networks,
    } = count;
    if ask.count {
        out.end(
            14,
            format_args!("{shown} of {paths} routes for {networks} networks"),
        );
    } else if ask.prefix.is_some() && *networks == 0 {
        out.end(8001, "Network not in table");
    } else {
        out.end(0, "");
    }
}

/// Returns the paths that BIRD would have in its table: paths that a policy or a loop excludes
/// never are.
fn kept(route: &Route) -> impl Iterator<Item = &Path> {
    route.paths.iter().filter(|path| is_kept(path))
}

fn is_kept(path: &Path) -> bool {
    let lost = path.lost.as_deref().unwrap_or_default();
    !lost.starts_with("not eligible") || is_unreachable(path)
}

fn is_unreachable(path: &Path) -> bool {
    path.next_hop_state.as_deref() == Some("unreachable")
}

fn is_wanted(path: &Path, ask: &RouteAsk) -> bool {
    let of = |pattern: &String| fits(pattern, &source(path));
    is_kept(path) && (path.best || !ask.primary) && ask.protocol.as_ref().is_none_or(of)
}

/// The name of the protocol that a path came from. Local ones are BIRD's `kernel1` and `static1`.
fn source(path: &Path) -> String {
    match (path.neighbor_address, &path.interface) {
        (Some(address), _) => protocol_name(&path.neighbor, address, path.neighbor_dynamic),
        (None, Some(_)) => "kernel1".to_owned(),
        (None, None) => "static1".to_owned(),
    }
}

fn row(out: &mut Lines, prefix: &str, path: &Path) {
    let name = source(path);
    // A next hop of IPv6 may have a link-local one behind it.
    let next_hop = path.next_hop.as_deref().unwrap_or_default();
    let next_hop = next_hop.split_whitespace().next().unwrap_or_default();
    let interface = path.interface.as_deref();
    let to = match (path.neighbor_address, interface) {
        (Some(_), _) if is_unreachable(path) => "unreachable".to_owned(),
        (Some(_), over) => format!("via {next_hop} on {}", over.unwrap_or("-")),
        (None, Some(interface)) => format!("dev {interface}"),
        (None, None) => "blackhole".to_owned(),
    };
    let from = match path.neighbor_address {
        Some(address) if address.to_string() != next_hop => format!(" from {address}"),
        _ => String::new(),
    };
    let (mark, known) = (if path.best { " *" } else { "" }, knowledge(path));
    // When a path came is not kept; readers take any word there.
    let row = format!("{prefix:18} {to} [{name} --:--:--{from}]{mark} {known}");
    out.line(1007, row);
}

/// BIRD's preference and distance, and where the path comes from.
fn knowledge(path: &Path) -> String {
    if path.neighbor_address.is_none() {
        return if path.interface.is_some() {
            "(10)"
        } else {
            "(200)"
        }
        .to_owned();
    }
    let distance = if is_unreachable(path) { '-' } else { '?' };
    let origin = match path.origin.as_str() {
        "igp" => 'i',
        "egp" => 'e',
        _ => '?',
    };
    let last = path.as_path.split_whitespace().next_back();
    let last = last.filter(|asn| asn.bytes().all(|octet| octet.is_ascii_digit()));
    let asn = last.map(|asn| format!("AS{asn}")).unwrap_or_default();
    format!("(100/{distance}) [{asn}{origin}]")
}

fn attributes(out: &mut Lines, path: &Path) {
    let kind = match (path.neighbor_address, &path.interface) {
        (Some(_), _) => "BGP unicast univ",
        (None, Some(_)) => "inherit unicast univ",
        (None, None) => "static blackhole univ",
    };
    out.line(1008, format_args!("\tType: {kind}"));
    if path.neighbor_address.is_none() {
        return;
    }
    let mut line = |name: &str, value: &str| out.line(1012, format_args!("\tBGP.{name}: {value}"));
    line("origin", &path.origin.to_uppercase());
    line("as_path", &path.as_path);
    let optional = [
        ("next_hop", path.next_hop.clone()),
        ("med", path.med.map(|med| med.to_string())),
        ("local_pref", path.local_pref.map(|value| value.to_string())),
        ("originator_id", path.originator_id.clone()),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            line(name, &value);
        }
    }
    let tuples = |list: &[String]| {
        let tuples = list
            .iter()
            .map(|word| format!("({})", word.replace(':', ",")));
        tuples.collect::<Vec<_>>().join(" ")
    };
    let lists = [
        ("cluster_list", path.cluster_list.join(" ")),
        ("community", tuples(&path.communities)),
        ("large_community", tuples(&path.large_communities)),
    ];
    for (name, value) in lists.iter().filter(|(_, value)| !value.is_empty()) {
        line(name, value);
    }
}
