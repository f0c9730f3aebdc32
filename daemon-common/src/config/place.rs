//! Places in a parsed file: the keys and items that lead to a value.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// A step from a value to one of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// To the value of a key.
    Key(String),
    /// To an item of a list.
    Item(usize),
}

/// Returns the last key of a path.
pub(super) fn last_key(path: &[Step]) -> Option<&str> {
    path.iter().rev().find_map(|step| match step {
        Step::Key(key) => Some(key.as_str()),
        Step::Item(_) => None,
    })
}

/// Returns the value at a path.
pub(super) fn value_at<'v, 'i>(
    root: &'v DeTable<'i>,
    path: &[Step],
) -> Option<&'v Spanned<DeValue<'i>>> {
    let (first, rest) = path.split_first()?;
    let Step::Key(first) = first else {
        return None;
    };
    let mut at = root.get(first.as_str())?;
    for step in rest {
        at = match (step, at.get_ref()) {
            (Step::Key(key), DeValue::Table(table)) => table.get(key.as_str())?,
            (Step::Item(index), DeValue::Array(items)) => items.get(*index)?,
            _ => return None,
        };
    }
    Some(at)
}

/// Removes the value at a path. Returns whether there was one.
pub(super) fn remove(root: &mut DeTable<'_>, path: &[Step]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return false;
    };
    let Step::Key(first) = first else {
        return false;
    };
    match (rest, root.get_mut(first.as_str())) {
        ([], _) => root.remove(first.as_str()).is_some(),
        (rest, Some(value)) => remove_within(value.get_mut(), rest),
        _ => false,
    }
}

fn remove_within(value: &mut DeValue<'_>, path: &[Step]) -> bool {
    match (value, path) {
        (DeValue::Table(table), path) => remove(table, path),
        (DeValue::Array(items), [Step::Item(index)]) => {
            let before = std::mem::replace(items, DeArray::new());
            let length = before.len();
            let kept = before.into_iter().enumerate();
            let kept = kept.filter(|(at, _)| at != index).map(|(_, item)| item);
            kept.for_each(|item| items.push(item));
            items.len() < length
        }
        (DeValue::Array(items), [Step::Item(index), rest @ ..]) => items
            .get_mut(*index)
            .is_some_and(|item| remove_within(item.get_mut(), rest)),
        _ => false,
    }
}

/// Returns the path of the key or value at a place: the one with exactly this place, else the
/// shortest that includes it; of several, the innermost. Empty if there is none.
pub(super) fn path_at(root: &DeTable<'_>, span: &Range<usize>) -> Vec<Step> {
    let mut search = Search {
        span,
        path: Vec::new(),
        best: None,
    };
    search.table(root);
    search.best.map(|(_, path)| path).unwrap_or_default()
}

/// The keys whose values could not be read. A consequence of their absence is no further mistake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    paths: Vec<Vec<Step>>,
    /// Keys that are lost in a section, with the place of its header; `None` for the top.
    in_sections: Vec<(Option<Range<usize>>, String)>,
}

impl Lost {
    /// Adds the path of a value.
    pub(super) fn push(&mut self, path: Vec<Step>) {
        self.paths.push(path);
    }

    /// Adds a key in the section with this header.
    pub(super) fn push_in_section(&mut self, header: Option<Range<usize>>, key: String) {
        self.in_sections.push((header, key));
    }

    /// Returns the keys in sections.
    pub(super) fn in_sections(&self) -> &[(Option<Range<usize>>, String)] {
        &self.in_sections
    }

    /// Returns whether a key is lost in the section with this header.
    pub(super) fn is_in_section(&self, header: &Range<usize>, key: &str) -> bool {
        let is_it = |(at, lost): &(Option<Range<usize>>, String)| {
            lost == key && at.as_ref().is_some_and(|at| at.start == header.start)
        };
        self.in_sections.iter().any(is_it)
    }

    /// Returns whether a key at the top of the file is lost as a whole.
    pub(super) fn has(&self, key: &str) -> bool {
        self.paths
            .iter()
            .any(|path| path.len() == 1 && last_key(path) == Some(key))
    }

    /// Returns whether a key at the top of the file is lost, or a part of its value.
    pub(super) fn is_part_of(&self, key: &str) -> bool {
        let begins =
            |path: &Vec<Step>| matches!(path.first(), Some(Step::Key(first)) if first == key);
        self.paths.iter().any(begins)
    }
}

struct Search<'s> {
    span: &'s Range<usize>,
    path: Vec<Step>,
    /// The octets of the best place yet beyond the wanted one, and its path.
    best: Option<(usize, Vec<Step>)>,
}

impl Search<'_> {
    fn table(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            self.path.push(Step::Key(key.get_ref().to_string()));
            self.compare(&key.span());
            self.compare(&value.span());
            self.value(value.get_ref());
            self.path.pop();
        }
    }

    fn value(&mut self, value: &DeValue<'_>) {
        match value {
            DeValue::Table(table) => self.table(table),
            DeValue::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.path.push(Step::Item(at));
                    self.compare(&item.span());
                    self.value(item.get_ref());
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    fn compare(&mut self, place: &Range<usize>) {
        if place.start > self.span.start || place.end < self.span.end || place.is_empty() {
            return;
        }
        let excess = place.len().saturating_sub(self.span.len());
        let best = self.best.as_ref().map(|(excess, _)| *excess);
        if best.is_none_or(|best| excess <= best) {
            self.best = Some((excess, self.path.clone()));
        }
    }
}
