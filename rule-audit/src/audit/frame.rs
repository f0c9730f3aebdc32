//! The base chains: those that are compared, and those that are not.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Report, Subject, foreign};
use crate::evaluator::{Cut, Fabric, Guard, Hook, HostHook, Translation};
use crate::ruleset::{Base, Listing, Table, budget, clears_mark, single};

/// A base chain that is not compared, or not as a whole. It accepts nothing that another chain would drop.
struct Skipped {
    name: &'static str,
    hook: &'static str,
    priority: i64,
    /// The chain is always there.
    is_required: bool,
    /// The change that its rules may make.
    change: Change,
}

/// A change of packets that the rules of a chain may make.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// None.
    Nothing,
    /// The DSCP.
    Dscp,
}

impl Change {
    const ALL: [Self; 2] = [Self::Nothing, Self::Dscp];
}

impl Skipped {
    const fn of(name: &'static str, hook: &'static str, priority: i64) -> Self {
        Self {
            name,
            hook,
            priority,
            is_required: false,
            change: Change::Nothing,
        }
    }

    const fn changes(self, change: Change) -> Self {
        Self { change, ..self }
    }

    /// Returns a chain of the guard: only its control ports are compared.
    const fn guard(chain: Guard) -> Self {
        let (name, hook, priority) = chain.chain();
        Self {
            is_required: true,
            ..Self::of(name, hook, priority)
        }
    }
}

/// The guard, connections cut at host endpoints, the budgets, the loops of services, and the DSCP.
const SKIPPED: [Skipped; 9] = [
    Skipped::guard(Guard::Untranslated),
    Skipped::guard(Guard::Forward),
    Skipped::guard(Guard::Input),
    Skipped::of("cut-host-forward", "forward", -2),
    Skipped::of("fragments", "prerouting", -450),
    Skipped::of("budget-forward", "forward", 2),
    Skipped::of("budget-input", "input", 2),
    Skipped::of("service-loops", "forward", 2),
    Skipped::of("mark-dscp", "forward", -150).changes(Change::Dscp),
];

/// Checks the base chains, and the rules of those that are not compared.
pub(super) fn check(report: &mut Report, fabric: &Fabric, listing: &Listing, table: &Table) {
    if table.is_dormant {
        let (wanted, found) = ("the table is active", "the table is dormant");
        report.fault(Subject::Table, "", wanted, found);
    }
    for hook in Hook::ALL {
        let (name, at, priority) = hook.chain();
        check_base(
            report,
            &Subject::Table,
            table,
            "filter",
            (name, at, priority),
            true,
        );
    }
    for hook in HostHook::ALL {
        check_base(
            report,
            &Subject::Table,
            table,
            "filter",
            hook.chain(),
            false,
        );
    }
    for chain in Translation::ALL {
        check_base(report, &Subject::Table, table, "nat", chain.chain(), false);
    }
    for chain in Cut::ALL {
        check_base(
            report,
            &Subject::Table,
            table,
            "filter",
            chain.chain(),
            cuts(fabric, table),
        );
    }
    check_mark(report, table);
    for chain in &SKIPPED {
        let place = (chain.name, chain.hook, chain.priority);
        let base = check_base(
            report,
            &Subject::Table,
            table,
            "filter",
            place,
            chain.is_required,
        );
        if let Some(base) = base {
            if !base.accepts {
                let (wanted, found) = ("the policy accept", "the policy drop");
                report.fault(Subject::Table, chain.name, wanted, found);
            }
            let text = match chain.is_required {
                true => format!("of chain {}, only control ports are compared", chain.name),
                false => format!("chain {} is not compared", chain.name),
            };
            report.notes.push(text);
        }
    }
    for change in Change::ALL {
        let chains = SKIPPED.iter().filter(|chain| chain.change == change);
        let chains = table.reachable(chains.map(|chain| chain.name));
        check_rules(report, table, &chains, change);
    }
    let compared = Hook::ALL.map(|hook| hook.chain().0);
    let skipped = SKIPPED.iter().map(|chain| chain.name);
    let hosts = HostHook::ALL.map(|hook| hook.chain().0);
    let translations = Translation::ALL.map(|chain| chain.chain().0);
    let cut = Cut::ALL.map(|chain| chain.chain().0);
    let compared = compared.into_iter().chain(hosts).chain(translations);
    let compared = compared.chain(cut);
    let known = compared.chain(skipped);
    let known: BTreeSet<&str> = known.collect();
    for (name, chain) in &table.chains {
        match &chain.base {
            Some(_) if known.contains(&**name) => {}
            Some(_) => report.unknown(Subject::Table, name, "the base chain is not known"),
            None => {}
        }
    }
    foreign::check(report, fabric, listing);
}

/// Returns whether connections are cut: one of the chains is enough, as the others must be there then.
pub(super) fn cuts(fabric: &Fabric, table: &Table) -> bool {
    let mut chains = Cut::ALL.iter().map(|chain| chain.chain().0);
    fabric.settings.cuts || chains.any(|name| table.chains.contains_key(name))
}

/// Checks kind, hook and priority of a base chain. Returns the chain if it exists.
pub(super) fn check_base<'t>(
    report: &mut Report,
    subject: &Subject,
    table: &'t Table,
    kind: &str,
    (name, hook, priority): (&str, &str, i64),
    is_required: bool,
) -> Option<&'t Base> {
    let chain = table.chains.get(name);
    let base = chain.and_then(|chain| chain.base.as_ref());
    let wanted = format!("a {kind} chain at {hook} with priority {priority}");
    match base {
        None if is_required || chain.is_some() => {
            report.fault(subject.clone(), name, wanted, "no such base chain");
        }
        None => {}
        Some(base) => {
            let is_right = base.kind == kind && base.hook == hook && base.priority == priority;
            if !is_right {
                let found = format!("{} {} {}", base.kind, base.hook, base.priority);
                report.fault(subject.clone(), name, wanted, found);
            }
        }
    }
    base
}

/// Checks that the first chain of each direction that may mark packets clears the mark of all of them.
/// Otherwise another program could have set it.
fn check_mark(report: &mut Report, table: &Table) {
    let untracked = HostHook::Untracked.chain().0;
    let untranslated = match table.chains.contains_key(untracked) {
        true => None,
        false => Some(HostHook::Untranslated),
    };
    let firsts = [HostHook::Untracked, HostHook::UntrackedOutput].into_iter();
    for hook in firsts.chain(untranslated) {
        let name = hook.chain().0;
        let Some(chain) = table.chains.get(name) else {
            continue;
        };
        if !chain.rules.first().is_some_and(clears_mark) {
            let wanted = "the first rule clears the mark of accepted packets";
            report.fault(Subject::Table, name, wanted, "the mark is not cleared");
        }
    }
}

/// Checks that the rules of chains that are not compared make no other change.
fn check_rules(report: &mut Report, table: &Table, chains: &BTreeSet<&str>, change: Change) {
    for name in chains {
        let rules = table.chains.get(*name).map(|chain| &chain.rules);
        for rule in rules.into_iter().flatten() {
            let expressions = rule.expressions.list();
            let unknown = expressions.iter().find(|one| !is_known(one, change));
            if let Some(expression) = unknown {
                let kind = single(expression).map_or("an expression", |(kind, _)| kind);
                let text = format!("handle {}: {kind} is not known here", rule.handle);
                report.unknown(Subject::Table, name, text);
            }
        }
    }
}

/// Returns whether an expression makes no other change.
fn is_known(expression: &Value, change: Change) -> bool {
    let Some((kind, body)) = single(expression) else {
        return false;
    };
    match kind {
        "match" | "counter" | "limit" | "log" | "comment" => true,
        "accept" | "drop" | "reject" | "return" | "continue" | "jump" | "goto" | "vmap" => true,
        "set" => budget(body).is_some(),
        "mangle" => {
            let field = &body["key"]["payload"];
            let is_ip = matches!(field["protocol"].as_str(), Some("ip" | "ip6"));
            change == Change::Dscp && is_ip && field["field"] == "dscp" && body["value"].is_u64()
        }
        _ => false,
    }
}
