//! The public items of the published crates, as lines of text, a file a crate in `docs/api`.
//!
//! A line that goes or changes breaks programs outside. The compiler's lint `unreachable_pub` sees to it
//! that an item which is `pub` in the source can be reached, so the source is all that is looked at.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Finding;
use super::metadata::Workspace;

mod items;

/// Where the lists are.
pub(crate) const LISTS: &str = "docs/api";

/// Writes the lists of all published crates.
///
/// # Errors
/// If a source does not read, or a list cannot be written.
pub fn write(root: &Path) -> Result<bool> {
    fs::create_dir_all(root.join(LISTS))?;
    for (directory, list) in lists(root, &Workspace::read(root)?)? {
        let path = root.join(path(&directory));
        let former = fs::read_to_string(&path).unwrap_or_default();
        let (gone, new) = compare(&former, &list);
        if former != list {
            println!("{directory}: {} lines gone, {} new", gone.len(), new.len());
            fs::write(&path, list).with_context(|| path.display().to_string())?;
        }
    }
    Ok(true)
}

/// Compares the lists with the sources.
///
/// # Errors
/// If a source does not read.
pub fn check(root: &Path, workspace: &Workspace) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (directory, list) in lists(root, workspace)? {
        let path = path(&directory);
        let former = fs::read_to_string(root.join(&path)).unwrap_or_default();
        findings.extend(finding(&path, &former, &list));
    }
    Ok(findings)
}

fn path(directory: &str) -> PathBuf {
    Path::new(LISTS).join(format!("{directory}.txt"))
}

/// The published crates with their lists, by directory.
fn lists(root: &Path, workspace: &Workspace) -> Result<Vec<(String, String)>> {
    let published = workspace.packages.iter();
    let published = published.filter(|(_, package)| package.is_published);
    let list = |directory: &String| -> Result<_> {
        let lines = items::of_crate(&root.join(directory).join("src/lib.rs"))?;
        let text: String = lines.into_iter().map(|line| line + "\n").collect();
        Ok((directory.clone(), text))
    };
    published.map(|(directory, _)| list(directory)).collect()
}

/// The lines that are gone, and those that are new.
pub(crate) fn compare<'t>(former: &'t str, now: &'t str) -> (Vec<&'t str>, Vec<&'t str>) {
    let [before, after] = [former, now].map(|text| text.lines().collect::<BTreeSet<_>>());
    let gone = before.difference(&after).copied().collect();
    (gone, after.difference(&before).copied().collect())
}

fn finding(path: &Path, former: &str, now: &str) -> Option<Finding> {
    if former == now {
        return None;
    }
    let (gone, new) = compare(former, now);
    let example = gone
        .first()
        .or_else(|| new.first())
        .copied()
        .unwrap_or_default();
    let breaking = match gone.is_empty() {
        true => "",
        false => "; a line that is gone breaks programs: CHANGELOG.md says what to do instead",
    };
    let text = format!(
        "the public items are others: {} lines gone, {} new, such as `{example}`: \
         `cargo run -p xtask -- api` writes the list{breaking}",
        gone.len(),
        new.len()
    );
    Some(Finding::file(path, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_item_is_reported_as_breaking() {
        let path = Path::new("docs/api/rib.txt");
        let found = |former, now| finding(path, former, now).map(|finding| finding.text);
        assert_eq!(found("a\nb\n", "a\nb\n"), None);
        let lost = found("a\nb\n", "a\n").expect("a finding");
        assert!(lost.contains("1 lines gone, 0 new, such as `b`"), "{lost}");
        assert!(lost.contains("breaks programs"));
        let new = found("a\n", "a\nb\n").expect("a finding");
        assert!(new.contains("0 lines gone, 1 new") && !new.contains("breaks"));
    }
}
