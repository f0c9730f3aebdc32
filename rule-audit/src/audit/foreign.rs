//! The tables that are not Felix's packet filter: their verdicts at the kernel's hooks.
//!
//! A packet that Felix's rules accept may be dropped, translated or redirected by another table. Such a
//! table makes the result unknown, unless the settings name it.

use serde_json::Value;

use super::{Report, Subject, TABLE};
use crate::evaluator::{Fabric, HOST_GUARD};
use crate::ruleset::{Listing, Table, single};

/// Expressions that change no packet and decide about none.
const HARMLESS: [&str; 15] = [
    "match", "counter", "limit", "quota", "ct count", "last", "log", "comment", "set", "map",
    "accept", "return", "continue", "jump", "goto",
];

/// Felix's further tables, each with the only other expression of its rules.
const OWN: [((&str, &str), &str); 4] = [
    (("inet", "cambric-felix-offload"), "flow"),
    // Its chains have no hook.
    (("inet", "cambric-felix-record"), ""),
    (("arp", TABLE.1), "drop"),
    (("netdev", TABLE.1), "drop"),
];

/// Returns whether a table belongs to another program, or is loaded only without Felix's packet filter.
pub fn is_foreign(family: &str, name: &str) -> bool {
    let table = (family, name);
    ![TABLE, HOST_GUARD].contains(&table) && OWN.iter().all(|(own, _)| *own != table)
}

/// Reports the tables that may decide about packets or change them, and notes those that settings name.
pub(super) fn check(report: &mut Report, fabric: &Fabric, listing: &Listing) {
    for (table, content) in &listing.tables {
        let (family, name) = (&*table.0, &*table.1);
        let has_base = content.chains.values().any(|chain| chain.base.is_some());
        if [TABLE, HOST_GUARD].contains(&(family, name)) || content.is_dormant || !has_base {
            continue;
        }
        if fabric.settings.known_tables.contains(table) {
            let text = "is not compared, by an option: it may drop, translate or redirect";
            report.notes.push(format!("table {family} {name} {text}"));
            continue;
        }
        let own = OWN.iter().find(|(own, _)| *own == (family, name));
        for (chain, reason) in decisions(content, own.map(|(_, kind)| *kind)) {
            let subject = Subject::Foreign(family.to_owned(), name.to_owned());
            report.unknown(subject, chain, reason);
        }
    }
}

/// Returns the base chains that may decide about a packet or change it, each with the first reason.
fn decisions<'t>(table: &'t Table, allowed: Option<&str>) -> Vec<(&'t str, String)> {
    let mut found = Vec::new();
    for (name, chain) in &table.chains {
        let Some(base) = &chain.base else { continue };
        if !base.accepts {
            found.push((&**name, "the policy is drop".to_owned()));
            continue;
        }
        let reached = table.reachable([&**name]);
        let reason = reached
            .iter()
            .find_map(|chain| decision(table, chain, allowed));
        found.extend(reason.map(|reason| (&**name, reason)));
    }
    found
}

/// Returns the first rule of a chain that may decide about a packet or change it.
fn decision(table: &Table, name: &str, allowed: Option<&str>) -> Option<String> {
    let rules = &table.chains.get(name)?.rules;
    rules.iter().find_map(|rule| {
        let expressions = rule.expressions.list();
        let kind = expressions.iter().find_map(|one| {
            let kind = effect(table, one)?;
            (Some(kind) != allowed).then(|| kind.to_owned())
        });
        kind.map(|kind| format!("chain {name} handle {}: {kind}", rule.handle))
    })
}

/// Returns the kind of an expression that may decide about a packet or change it.
fn effect<'e>(table: &Table, expression: &'e Value) -> Option<&'e str> {
    let Some((kind, body)) = single(expression) else {
        return Some("an expression");
    };
    match kind {
        "vmap" => table.may_drop(&body["data"]).then_some("vmap with drop"),
        kind => (!HARMLESS.contains(&kind)).then_some(kind),
    }
}
