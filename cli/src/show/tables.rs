//! Reports as tables.

use std::fmt::Write;

use daemon_common::Reply;
use daemon_common::report::{Endpoints, Fib, Limits, Neighbors, Path, Routes, Rules};

use crate::log;

use super::cells::{clean, duration, family, last_error, list, or_dash, received, via};
use super::grid::{finish, table};
use super::{Answers, What, bfd, blocks, malformed, sent, settings, why};

/// Returns all answers, each under its daemon's name if there are several.
pub(super) fn print(what: &What, answers: &Answers) -> String {
    let mut text = String::new();
    for (name, reply) in answers {
        if answers.len() > 1 && !matches!(what, What::Status) {
            let _ = writeln!(text, "{}== {name}", if text.is_empty() { "" } else { "\n" });
        }
        text.push_str(&one(what, reply));
    }
    text
}

fn one(what: &What, reply: &Reply) -> String {
    match (what, reply) {
        (What::Neighbors { name: Some(name) }, Reply::Neighbors(report)) => {
            let mut called = report
                .neighbors
                .iter()
                .filter(|neighbor| blocks::is_called(neighbor, name));
            called
                .next()
                .map_or_else(|| format!("no neighbor {name}\n"), blocks::neighbor)
        }
        (What::Routes { why, prefix, .. }, Reply::Routes(report)) => match prefix {
            Some(prefix) if report.routes.is_empty() => format!("no route to {prefix}\n"),
            Some(_) => report
                .routes
                .iter()
                .fold(routes(report, *why), |text, route| {
                    text + &sent::lines(route)
                }),
            None => routes(report, *why),
        },
        (_, Reply::Neighbors(report)) => neighbors(report),
        (_, Reply::Routes(report)) => routes(report, false),
        (_, Reply::Fib(report)) => fib(report),
        (
            What::Endpoints {
                name: Some(name), ..
            },
            Reply::Endpoints(report),
        ) => {
            let mut report = report.clone();
            report.endpoints.retain(|one| why::is_called(one, name));
            report.unclaimed.retain(|one| one.interface == *name);
            match report.endpoints.is_empty() && report.unclaimed.is_empty() {
                true => format!("no endpoint {}\n", clean(name)),
                false => endpoints(&report),
            }
        }
        (_, Reply::Endpoints(report)) => endpoints(report),
        (_, Reply::EndpointRules(all)) => why::print(all),
        (_, Reply::Status(report)) => blocks::status(report),
        (_, Reply::Rules(report)) => rules(report),
        (What::Malformed { name }, Reply::Malformed(report)) => {
            malformed::print(report, name.as_deref())
        }
        (_, Reply::Malformed(report)) => malformed::print(report, None),
        (What::Bfd { address }, Reply::Bfd(report)) => bfd::print(report, *address),
        (_, Reply::Bfd(report)) => bfd::print(report, None),
        (_, Reply::Limits(report)) => limits(report),
        (_, Reply::Config(report)) => settings::print(report),
        (_, Reply::Log(state)) => log::state_text(state),
        // These replies belong to other commands.
        (
            _,
            Reply::Events(_)
            | Reply::Refresh(_)
            | Reply::Clear(_)
            | Reply::Reload(_)
            | Reply::Readiness(_)
            | Reply::Drain(_)
            | Reply::Packet(_)
            | Reply::Flows(_)
            | Reply::Preview(_),
        ) => String::new(),
        (_, Reply::Error { message }) => format!("{message}\n"),
    }
}

fn neighbors(report: &Neighbors) -> String {
    let header = [
        "Neighbor",
        "Address",
        "AS",
        "Role",
        "State",
        "Since",
        "Paths",
        "Last error",
    ];
    let mut table = table(&header);
    for neighbor in &report.neighbors {
        let dynamic = if neighbor.dynamic { " (dynamic)" } else { "" };
        table.add_row([
            clean(&neighbor.name),
            or_dash(neighbor.address),
            neighbor.asn.to_string(),
            format!("{}{dynamic}", neighbor.role),
            neighbor.state.clone(),
            or_dash(neighbor.since_s.map(duration)),
            received(neighbor),
            or_dash(last_error(neighbor)),
        ]);
    }
    let mut text = finish(&table);
    for neighbor in &report.neighbors {
        let (import, export) = (&neighbor.import, &neighbor.export);
        if [import, export]
            .iter()
            .any(|policy| policy.contains("RFC 8212"))
        {
            let name = clean(&neighbor.name);
            let _ = writeln!(text, "{name}: import {import}, export {export}");
        }
    }
    for range in &report.ranges {
        let prefix = or_dash(range.prefix);
        let _ = write!(
            text,
            "range {prefix}: {} of {} neighbors",
            range.used, range.limit
        );
        if range.refused > 0 {
            let _ = write!(
                text,
                ", {} connections rejected because of the limit",
                range.refused
            );
        }
        if !range.failed.is_empty() {
            let failed = range.failed.iter();
            let failed: Vec<String> = failed
                .map(|(reason, count)| format!("{count} {}", clean(reason)))
                .collect();
            let _ = write!(text, "; failed handshakes: {}", failed.join(", "));
        }
        text.push('\n');
    }
    text
}

fn routes(report: &Routes, why: bool) -> String {
    let mut header = vec![
        "", "Prefix", "Next hop", "From", "LocPref", "MED", "AS path", "Origin",
    ];
    if why {
        header.push("Lost at");
    }
    let mut table = table(&header);
    for route in &report.routes {
        for (index, path) in route.paths.iter().enumerate() {
            let prefix = match (index, family(&route.family)) {
                (0, "ipv4" | "ipv6") => route.prefix.clone(),
                (0, other) => format!("{other} {}", route.prefix),
                _ => String::new(),
            };
            let mut row = vec![marks(path), prefix];
            row.extend(path_cells(path));
            if why {
                row.push(or_dash(path.lost.as_ref()));
            }
            table.add_row(row);
        }
    }
    let mut text = finish(&table);
    text.push_str("> best, = used beside it, s stale\n");
    if why {
        text.push_str(&unconfirmed(report));
    }
    if report.next.is_some() {
        let _ = writeln!(
            text,
            "the first {} routes; --limit 0 shows all",
            report.routes.len()
        );
    }
    text
}

/// Returns a line for each path that no record of the datastore confirms.
fn unconfirmed(report: &Routes) -> String {
    let mut text = String::new();
    for route in &report.routes {
        for path in &route.paths {
            if let Some(reason) = &path.unconfirmed {
                let (prefix, from, reason) = (&route.prefix, clean(&path.neighbor), clean(reason));
                let _ = writeln!(
                    text,
                    "{prefix} from {from} is unconfirmed by the datastore: {reason}"
                );
            }
        }
    }
    text
}

fn marks(path: &Path) -> String {
    let chosen = match (path.best, path.multipath) {
        (true, _) => ">",
        (false, true) => "=",
        (false, false) => " ",
    };
    format!("{chosen}{}", if path.stale { "s" } else { "" })
}

fn path_cells(path: &Path) -> [String; 6] {
    let next_hop = match (&path.next_hop, &path.next_hop_state) {
        (Some(next_hop), Some(state)) if state == "unreachable" => format!("{next_hop} ({state})"),
        (next_hop, _) => or_dash(next_hop.as_ref()),
    };
    let from = match path.path_id {
        Some(id) => format!("{} id {id}", clean(&path.neighbor)),
        None => clean(&path.neighbor),
    };
    let as_path = if path.as_path.is_empty() {
        "-".to_owned()
    } else {
        path.as_path.clone()
    };
    [
        next_hop,
        from,
        or_dash(path.local_pref),
        or_dash(path.med),
        as_path,
        path.origin.clone(),
    ]
}

fn fib(report: &Fib) -> String {
    let mut table = table(&[
        "Prefix", "Via", "Table", "Metric", "Protocol", "Source", "State", "Error",
    ]);
    for route in &report.routes {
        table.add_row([
            or_dash(route.prefix),
            via(route),
            route.table.to_string(),
            route.metric.to_string(),
            route.protocol.to_string(),
            route.source.clone(),
            route.state.clone(),
            or_dash(route.error.as_ref()),
        ]);
    }
    let state = if report.in_sync {
        "in sync"
    } else {
        "not in sync"
    };
    let shadow = if report.install {
        ""
    } else {
        "; shadow run, nothing is installed"
    };
    format!("{}{state}{shadow}\n", finish(&table))
}

fn endpoints(report: &Endpoints) -> String {
    let header = [
        "Endpoint",
        "Interface",
        "Addresses",
        "MAC",
        "Profiles",
        "State",
        "Problem",
    ];
    let mut table = table(&header);
    for endpoint in &report.endpoints {
        table.add_row([
            clean(&endpoint.name),
            endpoint.interface.clone(),
            list(&endpoint.networks),
            or_dash(endpoint.mac.as_ref()),
            list(&endpoint.profiles),
            endpoint.state.clone(),
            or_dash(endpoint.problem.as_ref()),
        ]);
    }
    let state = if report.in_sync {
        "in sync"
    } else {
        "not in sync: `cambric show status` has the reason"
    };
    let mut text = finish(&table);
    for unclaimed in &report.unclaimed {
        let _ = writeln!(
            text,
            "{}: unclaimed for {}: all its traffic is dropped until an endpoint of this host has \
             it",
            clean(&unclaimed.interface),
            duration(unclaimed.for_s),
        );
    }
    let _ = writeln!(text, "{}: {state}", clean(&report.hostname));
    text
}

fn rules(report: &Rules) -> String {
    let mut text = format!("table {}\n", report.table);
    let mut chain = "";
    for rule in &report.rules {
        if chain != rule.chain {
            chain = &rule.chain;
            let _ = writeln!(text, "chain {chain}");
        }
        let packets = rule.packets.map(|packets| format!("  [{packets} packets]"));
        let _ = writeln!(text, "    {}{}", rule.text, packets.unwrap_or_default());
    }
    match &report.problem {
        Some(problem) => {
            let _ = writeln!(text, "not in sync: {}", clean(problem));
        }
        None => text.push_str(if report.in_sync {
            "in sync\n"
        } else {
            "not in sync\n"
        }),
    }
    text
}

fn limits(report: &Limits) -> String {
    let mut table = table(&[
        "Limit",
        "Of",
        "Value",
        "Used",
        "Peak",
        "Reached",
        "Key",
        "When it is reached",
    ]);
    for limit in &report.limits {
        table.add_row([
            clean(&limit.name),
            or_dash(limit.of.as_ref()),
            limit.limit.to_string(),
            or_dash(limit.used),
            or_dash(limit.peak),
            or_dash(limit.met),
            or_dash(limit.key.as_ref()),
            clean(&limit.then),
        ]);
    }
    finish(&table)
}
