//! In a stable state the packet filter of every node decides about every packet as the stored policies
//! do: an exact comparison with an evaluation of the stored JSON that shares no code with Felix.

use rule_audit::{Fabric, Listing, Report, audit};

use crate::agenda::At;
use crate::listing::listing;
use crate::scenario::stored;
use crate::world::World;

/// Findings of one node that are shown.
const SHOWN: usize = 4;

/// Returns the differences, one line each.
pub fn check(world: &World) -> Vec<String> {
    if !world.options.has_policies() {
        return Vec::new();
    }
    let stored = stored(world);
    let revision = world.store.core.header().revision;
    let mut audited = world.audited.borrow_mut();
    let mut wrong = Vec::new();
    for (at, machine) in world.machines.iter().enumerate() {
        let Some(node) = &machine.node else { continue };
        let name = &machine.name;
        let Some(table) = &node.host.filter.table else {
            wrong.push(format!("{name}: there is no packet filter"));
            continue;
        };
        if audited
            .get(&at)
            .is_some_and(|(known, of)| *of == revision && known == table)
        {
            continue;
        }
        let fabric = Fabric::read(&stored, name, |_| {});
        let found = match Listing::parse(&listing(table)) {
            Ok(listing) => findings(&audit(&fabric, &listing)),
            Err(error) => vec![error.to_string()],
        };
        if found.is_empty() {
            audited.insert(at, (table.clone(), revision));
        }
        wrong.extend(found.iter().map(|line| format!("{name}: {line}")));
    }
    wrong
}

/// Returns a difference of the packet filter of a node from the content of the datastore that it has
/// completely, if there is such a content.
pub(crate) fn check_commit(world: &World, at: At) -> Option<String> {
    let machine = world.machines.get(at)?;
    let host = &machine.node.as_ref()?.host;
    let view = host.views.complete_one();
    let view = view.filter(|view| !view.is_closing && !host.filter.is_tampered)?;
    let listing = Listing::parse(&listing(host.filter.table.as_ref()?)).ok()?;
    let report = audit(view.fabric(&machine.name), &listing);
    let found = findings(&report);
    let found = found.first().filter(|_| report.is_different())?;
    Some(format!("{} after a commit: {found}", machine.name))
}

fn findings(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for (subject, results) in &report.subjects {
        let different = results.different.iter().map(|one| ("is different", one));
        let unknown = results.unknown.iter().map(|one| ("is unknown", one));
        for (word, one) in different.chain(unknown) {
            let packet = one.packet.as_deref().unwrap_or("-");
            lines.push(format!(
                "{subject} {} {word}: {packet}: wanted {}, found {}",
                one.chain, one.wanted, one.found
            ));
        }
    }
    if report.subjects.is_empty() {
        lines.push("nothing was compared".to_owned());
    }
    lines.truncate(SHOWN);
    lines
}
