//! Changes of a host's packet filter by another program.

use std::sync::Arc;

use cambric_felix::render::{Action, SetKind, Verdict};

use crate::chance::Chance;
use crate::table::Table;

/// Changes a table. Returns the change; `None` if nothing can be changed.
pub(crate) fn tamper(table: &mut Option<Table>, chance: &mut Chance) -> Option<String> {
    if chance.strikes(50) {
        *table.as_mut()? = Table::default();
        return Some("empties the table".to_owned());
    }
    let table = table.as_mut()?;
    if chance.strikes(300) {
        let own = table.sets.iter().filter(|(_, set)| {
            matches!(set.kind, SetKind::Address(_) | SetKind::Nets(_)) && !set.elements.is_empty()
        });
        let names: Vec<String> = own.map(|(name, _)| name.clone()).collect();
        if let Some(name) = chance.pick(&names) {
            let set = Arc::make_mut(table.sets.get_mut(name)?);
            let keys: Vec<_> = set.elements.keys().cloned().collect();
            set.elements.remove(chance.pick(&keys)?);
            return Some(format!("removes an element of {name}"));
        }
    }
    let decides = |action: &Action| matches!(action, Action::Verdict(Verdict::Drop));
    let own = table.chains.iter();
    let own = own.filter(|(_, chain)| chain.rules.iter().any(|rule| decides(&rule.action)));
    let names: Vec<String> = own.map(|(name, _)| name.clone()).collect();
    let name = chance.pick(&names)?;
    let chain = Arc::make_mut(table.chains.get_mut(name)?);
    let at: Vec<usize> = (0..chain.rules.len())
        .filter(|at| {
            chain
                .rules
                .get(*at)
                .is_some_and(|rule| decides(&rule.action))
        })
        .collect();
    let at = *chance.pick(&at)?;
    match chance.strikes(500) {
        true => drop(chain.rules.remove(at)),
        false => chain.rules.get_mut(at)?.action = Action::Verdict(Verdict::Accept),
    }
    Some(format!("changes a rule that drops in chain {name}"))
}
