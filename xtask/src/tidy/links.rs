//! Links between documents: every linked file and heading must exist.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::Finding;
use super::files::File;

/// The directory of documents; code and documents refer to them by their path from the root.
const DOCUMENTS: &str = "docs/";

/// Checks the links of Markdown files, and the documents that any text file refers to.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        if file.path.starts_with("xtask/src/tidy") {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            let linked = file
                .is_markdown()
                .then(|| links(line))
                .into_iter()
                .flatten();
            let dead = linked.filter(|link| !leads(files, file, link));
            let named = named(line).filter(|path| !stands(files, Path::new(path)));
            let absent: BTreeSet<&str> = dead.chain(named).collect();
            findings.extend(absent.into_iter().map(|target| {
                let text = format!("`{target}` leads nowhere");
                Finding::line(&file.path, index + 1, text)
            }));
        }
    }
    findings
}

/// Returns the targets of `[text](target)` in a line, except URLs.
pub(super) fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target)
        .filter(|target| !target.contains("://"))
}

/// Returns the documents that a line refers to by their path from the root, such as
/// `docs/design/fsm.dot`.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let outside = |c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c));
    line.split(outside)
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.starts_with(DOCUMENTS))
}

/// Returns whether a link of `from` leads to an existing file or directory, and to an existing
/// heading if it names one.
fn leads(files: &[File], from: &File, link: &str) -> bool {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => from.path.clone(),
        path => resolved(from, path),
    };
    let has_heading = |file: &File| file.path == target && headings(file).any(|h| h == heading);
    match heading {
        "" => stands(files, &target),
        _ => files.iter().any(has_heading),
    }
}

/// Converts a relative path to one from the root.
pub(super) fn resolved(from: &File, relative: &str) -> PathBuf {
    let mut target = from.path.parent().map(PathBuf::from).unwrap_or_default();
    for part in Path::new(relative).components() {
        match part {
            Component::ParentDir => {
                target.pop();
            }
            Component::CurDir => {}
            part => target.push(part),
        }
    }
    target
}

/// Returns whether a path is a file, or a directory with files in it.
fn stands(files: &[File], path: &Path) -> bool {
    files.iter().any(|file| file.path.starts_with(path))
}

/// Returns the headings of a document in the form of links: lowercase letters, hyphens for spaces,
/// and of the other characters letters and digits only.
fn headings(file: &File) -> impl Iterator<Item = String> {
    let heads = file.text.lines().filter(|line| line.starts_with('#'));
    heads.map(|line| {
        let title = line.trim_start_matches('#').trim();
        title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .flat_map(char::to_lowercase)
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    })
}
