//! Links between documents: every file and every heading that one points to is there.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::Finding;
use super::files::File;

/// Where documents stand; code and documents name them by their path from the top.
const DOCUMENTS: &str = "docs/";

/// Checks what Markdown files link to, and the documents that any text file names.
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

/// The targets of `[text](target)` in a line, those on other machines aside.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target)
        .filter(|target| !target.contains("://"))
}

/// The documents that a line names by their path from the top, `docs/design/fsm.dot` for one.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let outside = |c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c));
    line.split(outside)
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.starts_with(DOCUMENTS))
}

/// Whether a link of `from` leads to a file or directory, and to a heading if it names one.
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

/// A relative path as one from the top.
fn resolved(from: &File, relative: &str) -> PathBuf {
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

/// A file, or a directory with files in it.
fn stands(files: &[File], path: &Path) -> bool {
    files.iter().any(|file| file.path.starts_with(path))
}

/// The headings of a document as links name them: small letters, hyphens for spaces, and of the
/// rest letters and digits only.
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
