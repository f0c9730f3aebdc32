//! `show protocols`.

use jiff::Zoned;

use super::ask::fits;
use super::lines::Lines;
use super::{View, protocol_name, since};
use crate::report::{Neighbor, Neighbors, Status};

/// The selected protocols, and the form of the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Which<'a> {
    pub(super) view: View,
    pub(super) name: Option<&'a str>,
    pub(super) all: bool,
}

/// Writes the complete answer.
pub(super) fn write(
    out: &mut Lines,
    neighbors: &Neighbors,
    status: &Status,
    which: Which<'_>,
    now: &Zoned,
) {
    let mut rows = 0;
    for neighbor in &neighbors.neighbors {
        let Some(address) = neighbor.address.filter(|address| which.view.has(*address)) else {
            continue;
        };
        let name = protocol_name(&neighbor.name, address, neighbor.dynamic);
        if which.name.is_some_and(|pattern| !fits(pattern, &name)) {
            continue;
        }
        if rows == 0 {
            head(out);
        }
        rows += 1;
        row(out, &name, neighbor, status, now);
        if which.all {
            details(out, neighbor, neighbors.local_asn);
        }
    }
    match (rows, which.name) {
        (0, Some(_)) => return out.end(8003, "No protocols match"),
        (0, None) => head(out),
        _ => {}
    }
    out.end(0, "");
}

fn head(out: &mut Lines) {
    let (name, proto, table) = ("name", "proto", "table");
    let (state, since, info) = ("state", "since", "info");
    let head = format!("{name:8} {proto:8} {table:8} {state:5}  {since:10}  {info}");
    out.line(2002, head);
}

fn row(out: &mut Lines, name: &str, neighbor: &Neighbor, status: &Status, now: &Zoned) {
    let (state, ago) = match (neighbor.since_s, neighbor.down_for_s) {
        (Some(up), _) => ("up", up),
        (None, Some(down)) => ("start", down),
        (None, None) => ("start", status.uptime_s),
    };
    let why = match (neighbor.since_s, last_error(neighbor)) {
        (None, Some(why)) => why,
        _ => "",
    };
    let (since, info) = (since(now, ago), &neighbor.state);
    let row = format!("{name:8} BGP      master   {state:5}  {since:10}  {info:14}{why}");
    out.line(1002, row);
}

fn details(out: &mut Lines, neighbor: &Neighbor, local_asn: u32) {
    let mut line = |text: String| out.line(1006, text);
    line("  Preference:     100".to_owned());
    line(format!("  Input filter:   {}", neighbor.import));
    line(format!("  Output filter:  {}", neighbor.export));
    for family in &neighbor.families {
        let (imported, name) = (family.accepted, &family.family);
        let filtered = family.received.saturating_sub(family.accepted);
        let routes = format!("{imported} imported, {filtered} filtered, {name}");
        line(format!("  Routes:         {routes}"));
    }
    line(format!("  BGP state:          {}", neighbor.state));
    if let Some(address) = neighbor.address {
        line(format!("    Neighbor address: {address}"));
    }
    line(format!("    Neighbor AS:      {}", neighbor.asn));
    if let Some(id) = neighbor.router_id {
        line(format!("    Neighbor ID:      {id}"));
    }
    if neighbor.since_s.is_some() {
        let caps = neighbor.capabilities.join(", ");
        line(format!("    Neighbor caps:    {caps}"));
        let kind = match neighbor.asn == local_asn {
            true => "internal",
            false => "external",
        };
        let client = match neighbor.role.as_str() {
            "client" => " route-reflector",
            _ => "",
        };
        line(format!("    Session:          {kind}{client} AS4"));
    }
    if let Some(local) = neighbor.local {
        line(format!("    Source address:   {}", local.ip()));
    }
    if let Some(seconds) = neighbor.hold_time_s {
        line(format!("    Hold time:        {seconds}"));
    }
    if let Some(why) = last_error(neighbor) {
        line(format!("    Last error:       {why}"));
    }
    line(String::new());
}

fn last_error(neighbor: &Neighbor) -> Option<&str> {
    let error = neighbor.last_error.as_deref();
    error.or(neighbor.last_down.as_deref())
}
