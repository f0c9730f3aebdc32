//! The chains that packets reach, and the interfaces that their rules name.

use std::collections::BTreeSet;

use serde_json::Value;

use super::elements::Cell;
use super::listing::Table;

impl Table {
    /// Returns the chains that packets reach from base chains, with these chains.
    pub(crate) fn reachable<'t>(
        &'t self,
        roots: impl IntoIterator<Item = &'t str>,
    ) -> BTreeSet<&'t str> {
        let mut open: Vec<&str> = Vec::new();
        let chain = |name: &str| Some(&**self.chains.get_key_value(name)?.0);
        open.extend(roots.into_iter().filter_map(chain));
        let (mut found, mut maps) = (BTreeSet::new(), BTreeSet::new());
        while let Some(name) = open.pop() {
            if !found.insert(name) {
                continue;
            }
            let rules = self.chains.get(name).map(|chain| &chain.rules);
            for rule in rules.into_iter().flatten() {
                for expression in rule.expressions.list() {
                    self.add_targets(&expression, &mut open, &mut maps);
                }
            }
        }
        found
    }

    /// Adds the targets of all jumps in an expression, also those in the maps that it names. `maps` are
    /// the maps that were read.
    fn add_targets<'t>(
        &'t self,
        value: &Value,
        open: &mut Vec<&'t str>,
        maps: &mut BTreeSet<&'t str>,
    ) {
        match value {
            Value::Object(fields) => {
                for (name, body) in fields {
                    match (name.as_str(), body.get("target").and_then(Value::as_str)) {
                        ("jump" | "goto", Some(target)) => {
                            let chain = self.chains.get_key_value(target);
                            open.extend(chain.map(|(name, _)| &**name));
                        }
                        _ => self.add_targets(body, open, maps),
                    }
                }
            }
            Value::Array(list) => {
                for one in list {
                    self.add_targets(one, open, maps);
                }
            }
            Value::String(text) => {
                let name = text.strip_prefix('@');
                let named = name.and_then(|name| self.sets.get_key_value(name));
                if let Some((name, map)) = named
                    && maps.insert(&**name)
                {
                    for value in map.rows.iter().filter_map(|row| row.value.as_ref()) {
                        self.add_targets(value, open, maps);
                    }
                }
            }
            _ => {}
        }
    }

    /// Returns whether a map of verdicts has an element that drops, or cannot be read.
    pub(crate) fn may_drop(&self, data: &Value) -> bool {
        let name = data.as_str().and_then(|text| text.strip_prefix('@'));
        let Some(name) = name else {
            return has_drop(data);
        };
        let map = self.sets.get(name).filter(|map| map.fault.is_none());
        map.is_none_or(|map| {
            let mut values = map.rows.iter().filter_map(|row| row.value.as_ref());
            values.any(has_drop)
        })
    }

    /// Returns the interfaces, and the prefixes with `*`, with which rules of these chains compare the
    /// interfaces of packets: in rules, sets and maps.
    pub(crate) fn interfaces(&self, chains: &BTreeSet<&str>) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let chains = chains.iter().filter_map(|name| self.chains.get(*name));
        let rules = chains.flat_map(|chain| &chain.rules);
        for expression in rules.flat_map(|rule| rule.expressions.list()) {
            if let Some(body) = expression.get("match") {
                self.add_interfaces(&body["left"], &body["right"], &mut found);
            }
            if let Some(body) = expression.get("vmap") {
                self.add_interfaces(&body["key"], &body["data"], &mut found);
            }
        }
        found
    }

    fn add_interfaces(&self, key: &Value, right: &Value, found: &mut BTreeSet<String>) {
        let columns: Vec<bool> = match key.get("concat") {
            Some(Value::Array(parts)) => parts.iter().map(is_interface).collect(),
            _ => vec![is_interface(key)],
        };
        if !columns.contains(&true) {
            return;
        }
        let named = right.as_str().and_then(|text| text.strip_prefix('@'));
        if let Some(name) = named {
            let rows = self.sets.get(name).map(|set| &set.rows);
            let cells = rows.into_iter().flatten().flat_map(|row| &row.cells);
            found.extend(cells.filter_map(|cell| match cell {
                Cell::Interface(name) => Some(name.clone()),
                Cell::Range(..) => None,
            }));
            return;
        }
        let list = match right.get("set") {
            Some(Value::Array(list)) => list.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => std::slice::from_ref(right),
        };
        for element in list {
            // An element of a map is a pair.
            let key = element.get(0).unwrap_or(element);
            let key = key.get("elem").map_or(key, |inner| &inner["val"]);
            let parts = match key.get("concat") {
                Some(Value::Array(parts)) => parts.as_slice(),
                _ => std::slice::from_ref(key),
            };
            let own = columns.iter().zip(parts).filter(|(is_own, _)| **is_own);
            found.extend(own.filter_map(|(_, part)| part.as_str().map(str::to_owned)));
        }
    }
}

fn is_interface(key: &Value) -> bool {
    matches!(key["meta"]["key"].as_str(), Some("iifname" | "oifname"))
}

/// Returns whether a verdict in a value is drop.
fn has_drop(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.contains_key("drop") || fields.values().any(has_drop),
        Value::Array(list) => list.iter().any(has_drop),
        _ => false,
    }
}
