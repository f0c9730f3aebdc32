//! The table of the host guard.

use super::frame::check_base;
use super::{Report, Subject, Task};
use crate::evaluator::{Fabric, HOST_GUARD, HOST_GUARD_CHAIN};
use crate::packet::Family;
use crate::ruleset::{Compiler, Listing, View};
use crate::space::Space;

/// Checks the table, and returns the comparisons of its chain.
pub(super) fn tasks(
    fabric: &Fabric,
    listing: &Listing,
    space: &mut Space,
    report: &mut Report,
) -> Vec<Task> {
    let (family, name) = HOST_GUARD;
    let key = (family.to_owned(), name.to_owned());
    let (chain, hook, priority) = HOST_GUARD_CHAIN;
    let (table, wanted) = match (listing.tables.get(&key), &fabric.settings.host_guard) {
        (None, Some(wanted)) if !wanted.ports.is_empty() => {
            report.fault(Subject::HostGuard, "", "the table exists", "no such table");
            return Vec::new();
        }
        (None, _) => return Vec::new(),
        (Some(_), None) => {
            let text = "the ports and users of the BGP daemons are not known";
            report.unknown(Subject::HostGuard, chain, text);
            return Vec::new();
        }
        (Some(table), Some(wanted)) => (table, wanted),
    };
    if table.is_dormant {
        let (wanted, found) = ("the table is active", "the table is dormant");
        report.fault(Subject::HostGuard, "", wanted, found);
    }
    let place = (chain, hook, priority);
    check_base(report, &Subject::HostGuard, table, "filter", place, true);
    for (name, other) in &table.chains {
        if other.base.is_some() && name != chain {
            report.unknown(Subject::HostGuard, name, "the base chain is not known");
        }
    }
    let mut compiler = Compiler::default();
    let all = Family::ALL.map(|family| {
        let view = View {
            family,
            input: None,
            output: None,
        };
        Task {
            subject: Subject::HostGuard,
            chain,
            family,
            wanted: wanted.program(space, family),
            found: compiler.chain(space, (HOST_GUARD.1, table), chain, &view),
        }
    });
    all.into()
}
