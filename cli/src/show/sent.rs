//! The neighbors to which the paths of a prefix are sent.

use std::collections::BTreeMap;
use std::fmt::Write;

use daemon_common::report::{Path, Route};

use super::cells::clean;

/// Neighbors in one line; JSON has all.
const NAMES_MAX: usize = 8;

/// Returns a line for each path that is sent, and for each path ID that it is sent with.
pub(super) fn lines(route: &Route) -> String {
    let mut text = String::new();
    for path in &route.paths {
        let mut by_id: BTreeMap<Option<u32>, Vec<String>> = BTreeMap::new();
        for sent in &path.sent_to {
            let names = by_id.entry(sent.path_id).or_default();
            names.push(clean(&sent.neighbor));
        }
        for (id, names) in by_id {
            let _ = writeln!(text, "{}: {}", heading(path, id), list(&names));
        }
    }
    text
}

fn heading(path: &Path, sent_id: Option<u32>) -> String {
    let id = |id: Option<u32>| id.map_or_else(String::new, |id| format!(" id {id}"));
    let (from, received) = (clean(&path.neighbor), id(path.path_id));
    match sent_id {
        Some(sent) => format!("path from {from}{received} is sent with id {sent} to"),
        None => format!("path from {from}{received} is sent to"),
    }
}

fn list(names: &[String]) -> String {
    let (named, rest) = names.split_at(names.len().min(NAMES_MAX));
    let mut text = named.join(", ");
    if !rest.is_empty() {
        let _ = write!(text, " and {} more", rest.len());
    }
    text
}
