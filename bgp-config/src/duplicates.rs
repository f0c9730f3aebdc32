//! Values that may be given only once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use daemon_common::config::{Problem, Problems};

/// Reports each value that was given before, and shows where.
pub(crate) fn twice<T: Ord + ToString>(
    values: impl IntoIterator<Item = (T, Range<usize>)>,
    what: &str,
    problems: &mut Problems<'_>,
) {
    let mut seen = BTreeMap::new();
    for (value, span) in values {
        match seen.entry(value) {
            Entry::Vacant(place) => {
                place.insert(span);
            }
            Entry::Occupied(first) => {
                let message = format!("{what} {} is given twice", first.key().to_string());
                let problem = Problem::at(span, message).label("again here");
                problems.push(problem.related(first.get().clone(), "first here"));
            }
        }
    }
}
