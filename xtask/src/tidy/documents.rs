//! Documents that must keep up with the code.

use std::collections::BTreeSet;
use std::path::Path;

use super::Finding;
use super::files::File;
use super::metadata::Workspace;

/// Every dependency has its reason here.
const DEPENDENCIES: &str = "docs/dependencies.md";

/// The map of the house.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// In the map, a test that holds an invariant is written so, in backticks: crate, path of the
/// file below it, name of the function.
const TEST_MARK: char = '§';

/// Checks `docs/dependencies.md` and `ARCHITECTURE.md`.
pub fn check(workspace: &Workspace, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    match find(files, DEPENDENCIES) {
        Some(file) => findings.extend(reasons(workspace, file)),
        None => findings.push(Finding::file(DEPENDENCIES, "missing")),
    }
    match find(files, ARCHITECTURE) {
        Some(file) => {
            findings.extend(members(workspace, file));
            findings.extend(tests_exist(file, files));
        }
        None => findings.push(Finding::file(ARCHITECTURE, "missing")),
    }
    findings
}

fn find<'f>(files: &'f [File], path: &str) -> Option<&'f File> {
    files.iter().find(|file| file.path == Path::new(path))
}

/// Every outside package that a member names has a line that begins "| `name`".
fn reasons(workspace: &Workspace, file: &File) -> Vec<Finding> {
    let used: BTreeSet<&String> = workspace
        .packages
        .values()
        .flat_map(|package| package.normal.iter().chain(&package.dev))
        .filter(|name| !workspace.packages.contains_key(*name))
        .collect();
    let told: BTreeSet<&str> = file
        .text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| `")?
                .split_once('`')
                .map(|(name, _)| name)
        })
        .collect();
    let missing = used.iter().filter(|name| !told.contains(name.as_str()));
    let missing = missing.map(|name| format!("{name} is used: add a line with its reason"));
    let idle = told
        .iter()
        .filter(|name| !used.iter().any(|used| used == *name));
    let idle = idle.map(|name| format!("{name} is used nowhere: delete its line"));
    missing
        .chain(idle)
        .map(|text| Finding::file(DEPENDENCIES, text))
        .collect()
}

/// Every member is on the map.
fn members(workspace: &Workspace, file: &File) -> Vec<Finding> {
    let absent = workspace
        .packages
        .keys()
        .filter(|name| !file.text.contains(&format!("`{name}")));
    absent
        .map(|name| Finding::file(ARCHITECTURE, format!("`{name}` is not on the map")))
        .collect()
}

/// Every test that the map names exists: "§ `crate` `function`".
fn tests_exist(file: &File, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for mark in line.split(TEST_MARK).skip(1) {
            let mut words = mark.split('`').skip(1).step_by(2);
            let (Some(member), Some(function)) = (words.next(), words.next()) else {
                continue;
            };
            let head = format!("fn {function}(");
            let exists = files
                .iter()
                .any(|file| file.is_rust() && file.member() == member && file.text.contains(&head));
            if !exists {
                let text = format!("no test `{function}` in `{member}`");
                findings.push(Finding::line(&file.path, index + 1, text));
            }
        }
    }
    findings
}
