//! Published crates: each has what the registry and its documentation show, and its errors implement
//! `Error`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Finding;
use super::files::File;
use super::metadata::Workspace;

/// Files of each published crate.
const FILES: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Begins of lines in the manifest of each published crate.
const LINES: [&str; 5] = [
    "description = ",
    "readme = ",
    "keywords = ",
    "categories = ",
    "[package.metadata.docs.rs]",
];

/// The lists of public items.
const ITEMS: &str = "docs/api";

/// Checks the files and manifests of all published crates, and the errors of their functions.
pub fn check(workspace: &Workspace, files: &[File]) -> Vec<Finding> {
    let published = workspace.packages.iter();
    let published = published.filter(|(_, package)| package.is_published);
    let mut findings = Vec::new();
    for (directory, _) in published {
        findings.extend(check_crate(Path::new(directory), files));
    }
    findings.extend(errors(files));
    findings
}

fn check_crate(directory: &Path, files: &[File]) -> Vec<Finding> {
    let find = |path: PathBuf| files.iter().find(|file| file.path == path);
    let absent = FILES
        .iter()
        .filter(|name| find(directory.join(name)).is_none());
    let mut findings: Vec<Finding> = absent
        .map(|name| Finding::file(directory.join(name), "missing: the crate is published"))
        .collect();
    if let Some(manifest) = find(directory.join("Cargo.toml")) {
        let has = |begin: &&str| manifest.text.lines().any(|line| line.starts_with(*begin));
        let absent = LINES.iter().filter(|begin| !has(begin));
        findings.extend(absent.map(|begin| {
            let text = format!("no line `{begin}…`: the crate is published");
            Finding::file(&manifest.path, text)
        }));
    }
    findings
}

/// Checks the error of each public function that returns a `Result<T, E>`.
fn errors(files: &[File]) -> Vec<Finding> {
    let lists = || files.iter().filter(|file| file.path.starts_with(ITEMS));
    let lines = lists().flat_map(|list| list.text.lines());
    let known: BTreeSet<&str> = lines
        .filter_map(|line| line.strip_prefix("impl ")?.split_once("Error for "))
        .map(|(_, name)| name)
        .collect();
    let mut findings = Vec::new();
    for list in lists() {
        for (index, line) in list.text.lines().enumerate() {
            let unknown = error_of(line).filter(|error| !known.contains(error));
            findings.extend(unknown.map(|error| {
                let text = format!("`{error}` of a public function does not implement `Error`");
                Finding::line(&list.path, index + 1, text)
            }));
        }
    }
    findings
}

/// Returns the error in the result of a function, if it is a type with a name.
fn error_of(line: &str) -> Option<&str> {
    let (_, result) = line.split_once(" -> Result<")?;
    let result = result
        .split(" where ")
        .next()?
        .trim_end()
        .strip_suffix('>')?;
    let (_, error) = result.rsplit_once(", ")?;
    let is_name = |c: char| c.is_alphanumeric() || "_:".contains(c);
    let name = error.rsplit("::").next()?;
    (error.chars().all(is_name) && name.len() > 1).then_some(name)
}
