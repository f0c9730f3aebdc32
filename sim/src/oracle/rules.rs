//! In a stable state the packet filter of every node decides about every packet as the stored policies
//! do: an exact comparison with an evaluation of the stored JSON that shares no code with Felix.

use rule_audit::{Fabric, Listing, Report, audit};

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
    let mut wrong = Vec::new();
    for machine in &world.machines {
        let Some(node) = &machine.node else { continue };
        let name = &machine.name;
        let Some(table) = &node.host.filter.table else {
            wrong.push(format!("{name}: there is no packet filter"));
            continue;
        };
        let fabric = Fabric::read(&stored, name, |_| {});
        match Listing::parse(&listing(table)) {
            Ok(listing) => wrong.extend(
                findings(&audit(&fabric, &listing))
                    .iter()
                    .map(|line| format!("{name}: {line}")),
            ),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    wrong
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
