//! The chains and sets that packets of an interface meet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::elements::Type;
use super::listing::Table;
use super::touched::Touched;

/// The uses of a table. Each chain is read once.
#[derive(Debug)]
pub(crate) struct Uses<'t> {
    table: &'t Table,
    chains: BTreeMap<&'t str, Arc<Direct<'t>>>,
}

/// The objects that the rules of a chain name.
#[derive(Debug, Default)]
struct Direct<'t> {
    /// The targets of jumps.
    chains: BTreeSet<&'t str>,
    /// Sets and maps.
    sets: BTreeSet<&'t str>,
}

impl<'t> Uses<'t> {
    pub(crate) const fn new(table: &'t Table) -> Self {
        Self {
            table,
            chains: BTreeMap::new(),
        }
    }

    /// Returns whether packets of an interface may meet a touched object behind a base chain. Conditions
    /// are not evaluated: only the elements of sets distinguish interfaces.
    pub(crate) fn is_touched(&mut self, base: &str, interface: &str, touched: &Touched) -> bool {
        if touched.is_everything() || touched.has_chain(base) {
            return true;
        }
        let found = self.table.chains.get_key_value(base);
        let mut open: Vec<&str> = found.into_iter().map(|(name, _)| &**name).collect();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        while let Some(chain) = open.pop() {
            if !seen.insert(chain) {
                continue;
            }
            if touched.has_chain(chain) {
                return true;
            }
            let direct = self.direct(chain);
            open.extend(&direct.chains);
            for set in &direct.sets {
                if self.is_set_touched(set, interface, touched) {
                    return true;
                }
                open.extend(self.targets(set, interface));
            }
        }
        false
    }

    fn is_set_touched(&self, set: &str, interface: &str, touched: &Touched) -> bool {
        let elements = self.table.sets.get(set);
        let is_keyed = elements.is_some_and(|set| set.columns.first() == Some(&Type::Interface));
        let has_prefixes =
            elements.is_some_and(|set| set.by_interface.keys().any(|name| name.ends_with('*')));
        match touched.interfaces(set) {
            None => false,
            Some(Some(names)) if is_keyed => names
                .iter()
                .any(|name| name == interface || has_prefixes && interface.starts_with(&**name)),
            Some(_) => true,
        }
    }

    /// Returns the targets of a verdict map for an interface.
    fn targets(&self, map: &str, interface: &str) -> Vec<&'t str> {
        let Some(map) = self.table.sets.get(map) else {
            return Vec::new();
        };
        let is_keyed = map.columns.first() == Some(&Type::Interface);
        let rows: Vec<usize> = match is_keyed {
            true => {
                let own = map.by_interface.iter().filter(|(name, _)| {
                    let prefix = name.strip_suffix('*');
                    **name == interface || prefix.is_some_and(|own| interface.starts_with(own))
                });
                own.flat_map(|(_, rows)| rows.iter().copied()).collect()
            }
            false => (0..map.rows.len()).collect(),
        };
        let rows = rows.into_iter().filter_map(|row| map.rows.get(row));
        let mut direct = Direct::default();
        for value in rows.filter_map(|row| row.value.as_ref()) {
            self.add(value, &mut direct);
        }
        direct.chains.into_iter().collect()
    }

    fn direct(&mut self, chain: &'t str) -> Arc<Direct<'t>> {
        if let Some(known) = self.chains.get(chain) {
            return Arc::clone(known);
        }
        let mut direct = Direct::default();
        let rules = self.table.chains.get(chain).map(|chain| &chain.rules);
        for rule in rules.into_iter().flatten() {
            for expression in rule.expressions.list() {
                self.add(&expression, &mut direct);
            }
        }
        let direct = Arc::new(direct);
        self.chains.insert(chain, Arc::clone(&direct));
        direct
    }

    fn add(&self, value: &Value, direct: &mut Direct<'t>) {
        match value {
            Value::Object(fields) => {
                for (name, body) in fields {
                    match (name.as_str(), body.get("target").and_then(Value::as_str)) {
                        ("jump" | "goto", Some(target)) => {
                            let chain = self.table.chains.get_key_value(target);
                            direct.chains.extend(chain.map(|(name, _)| &**name));
                        }
                        _ => self.add(body, direct),
                    }
                }
            }
            Value::Array(list) => list.iter().for_each(|one| self.add(one, direct)),
            Value::String(text) => {
                let name = text.strip_prefix('@');
                let set = name.and_then(|name| self.table.sets.get_key_value(name));
                direct.sets.extend(set.map(|(name, _)| &**name));
            }
            _ => {}
        }
    }
}
