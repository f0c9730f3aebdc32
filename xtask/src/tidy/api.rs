//! The public items of the published crates, as lines of text, a file a crate in `docs/api`.
//!
//! A line that goes or changes breaks programs outside. The compiler's lint `unreachable_pub` sees to it
//! that an item which is `pub` in the source can be reached, so the source is all that is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Finding;
use super::metadata::Workspace;

mod exhaustive;
mod expand;
mod items;

use items::Items;

/// Where the lists are.
pub(crate) const LISTS: &str = "docs/api";

/// Writes the lists of all published crates.
///
/// # Errors
/// If a source does not read, or a list cannot be written.
pub fn write(root: &Path) -> Result<bool> {
    fs::create_dir_all(root.join(LISTS))?;
    for (directory, items) in crates(root, &Workspace::read(root)?)? {
        let (list, path) = (text(items), root.join(path(&directory)));
        let former = fs::read_to_string(&path).unwrap_or_default();
        let (removed, new) = compare(&former, &list);
        if former != list {
            println!(
                "{directory}: {} lines removed, {} new",
                removed.len(),
                new.len()
            );
            for line in breaking(&former, &list) {
                println!("  breaks programs: {line}");
            }
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
    for (directory, items) in crates(root, workspace)? {
        findings.extend(exhaustive::check(&directory, &items.exhaustive));
        let (list, path) = (text(items), path(&directory));
        let former = fs::read_to_string(root.join(&path)).unwrap_or_default();
        findings.extend(finding(&path, &former, &list));
    }
    Ok(findings)
}

fn path(directory: &str) -> PathBuf {
    Path::new(LISTS).join(format!("{directory}.txt"))
}

/// The published crates with their items, by directory.
fn crates(root: &Path, workspace: &Workspace) -> Result<Vec<(String, Items)>> {
    let published = workspace.packages.iter();
    let published = published.filter(|(_, package)| package.is_published);
    let items = |directory: &String| -> Result<_> {
        let items = items::of_crate(&root.join(directory).join("src/lib.rs"))?;
        Ok((directory.clone(), items))
    };
    published.map(|(directory, _)| items(directory)).collect()
}

fn text(items: Items) -> String {
    items.lines.into_iter().map(|line| line + "\n").collect()
}

/// The lines that are removed, and those that are new.
fn compare<'t>(former: &'t str, now: &'t str) -> (Vec<&'t str>, Vec<&'t str>) {
    let [before, after] = [former, now].map(|text| text.lines().collect::<BTreeSet<_>>());
    let removed = before.difference(&after).copied().collect();
    (removed, after.difference(&before).copied().collect())
}

/// Returns the changes that break programs, each as the line that was removed or that is new: besides
/// removed items, these are new variants and fields of exhaustive types, and new items of traits that
/// an implementation must have.
pub(crate) fn breaking(former: &str, now: &str) -> Vec<String> {
    let (removed, new) = compare(former, now);
    let owners: BTreeMap<String, &str> = former.lines().filter_map(owner).collect();
    let private = former.lines().filter_map(|line| line.strip_suffix(PRIVATE));
    let private: BTreeSet<&str> = private.collect();
    let breaks = |line: &str| {
        if let Some(name) = line.strip_suffix(PRIVATE) {
            return owners.get(name) == Some(&"struct") && former_fields(former, name);
        }
        if let Some((name, _)) = line.split_once('.').filter(|(name, _)| is_path(name)) {
            return owners.get(name) == Some(&"struct") && !private.contains(name);
        }
        let Some((name, item)) = member(line) else {
            return false;
        };
        match owners.get(name) {
            Some(&"enum") => item.starts_with(|c: char| c.is_uppercase()),
            Some(&"trait") => !line.ends_with("{ .. }"),
            _ => false,
        }
    };
    let removed = removed.iter().map(|line| format!("removed: {line}"));
    let new = new.iter().filter(|line| breaks(line));
    removed
        .chain(new.map(|line| format!("new: {line}")))
        .collect()
}

/// The end of the line of a struct with private fields.
const PRIVATE: &str = " has private fields";

/// Returns the path and the kind of the type or trait that a line declares, if it is exhaustive.
fn owner(line: &str) -> Option<(String, &str)> {
    let (before, kind, name) = ["enum", "struct", "trait"].into_iter().find_map(|kind| {
        let (before, name) = line.split_once(&format!("{kind} "))?;
        Some((before, kind, name))
    })?;
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    let name = name.get(..end.unwrap_or(name.len()))?;
    let is_place = before.is_empty() || (before.ends_with("::") && is_path(before));
    is_place.then(|| (format!("{before}{name}"), kind))
}

fn is_path(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_alphanumeric() || c == '_' || c == ':')
}

/// Splits a line about a member of a type into the path of the type and the member.
fn member(line: &str) -> Option<(&str, &str)> {
    let end = line.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let path = line.get(..end.unwrap_or(line.len()))?;
    let at = path.rfind("::")?;
    Some((line.get(..at)?, line.get(at + 2..)?))
}

/// Returns whether a struct had a public field.
fn former_fields(former: &str, name: &str) -> bool {
    let start = format!("{name}.");
    former.lines().any(|line| line.starts_with(&start))
}

fn finding(path: &Path, former: &str, now: &str) -> Option<Finding> {
    if former == now {
        return None;
    }
    let (removed, new) = compare(former, now);
    let breaking = breaking(former, now);
    let example = removed.first().or_else(|| new.first());
    let remark = match breaking.first() {
        None => String::new(),
        Some(first) => format!(
            "; {} changes break programs, such as `{first}`: CHANGELOG.md needs their replacement",
            breaking.len()
        ),
    };
    let text = format!(
        "the public items differ: {} lines removed, {} new, such as `{}`: \
         `cargo run -p xtask -- api` writes the list{remark}",
        removed.len(),
        new.len(),
        example.copied().unwrap_or_default()
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
        assert!(
            lost.contains("1 lines removed, 0 new, such as `b`"),
            "{lost}"
        );
        assert!(lost.contains("1 changes break programs"), "{lost}");
        let new = found("a\n", "a\nb\n").expect("a finding");
        assert!(new.contains("0 lines removed, 1 new"), "{new}");
        assert!(!new.contains("break programs"), "{new}");
    }

    #[test]
    fn removed_or_renamed_variant_and_field_break_programs() {
        let former =
            "Kind::One\nKind::Two { 0: u8 }\nPoint.x: u8\nnon_exhaustive enum Kind\nstruct Point\n";
        let now = former.replace("Kind::One", "Kind::First");
        assert_eq!(breaking(former, &now), ["removed: Kind::One"]);
        let now = former.replace("Point.x", "Point.y");
        let expected = ["removed: Point.x: u8", "new: Point.y: u8"];
        assert_eq!(breaking(former, &now), expected);
    }

    #[test]
    fn new_variant_or_field_breaks_exhaustive_types_only() {
        let former = "a::Kind::One\na::enum Kind\na::non_exhaustive enum Open\nPoint.x: u8\nstruct Point\n\
            Half.x: u8\nHalf has private fields\nstruct Half\nnon_exhaustive struct Config\ntrait Fib: \n";
        let breaks = |line: &str| !breaking(former, &format!("{former}{line}\n")).is_empty();
        for line in [
            "a::Kind::Two { 0: u8 }",
            "Point.y: u8",
            "Point has private fields",
            "Fib::fn poll(&mut self)",
        ] {
            assert!(breaks(line), "{line}");
        }
        for line in [
            "a::Kind::fn name(self) -> &'static str",
            "a::Open::Two",
            "Half.y: u8",
            "Config.x: u8",
            "Fib::fn name(&self) -> String { .. }",
            "New::One",
            "enum New",
            "fn free(text: &str) -> f64",
        ] {
            assert!(!breaks(line), "{line}");
        }
    }
}
