//! Documents that must agree with the code.

use std::collections::BTreeSet;
use std::path::Path;

use super::Finding;
use super::files::File;
use super::metadata::Workspace;

/// Every dependency has its reason here.
const DEPENDENCIES: &str = "docs/dependencies.md";

/// The map of the code.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// In a page, a test that holds an invariant follows this mark: crate and function, each in
/// backticks; the line may break between them.
const TEST_MARK: &str = "§ `";

/// Begins of lines before a test.
const TESTS: &[&str] = &["#[test]", "#[tokio::test", "// Promise"];

/// Checks `docs/dependencies.md`, `ARCHITECTURE.md`, and the tests that any page names.
pub fn check(workspace: &Workspace, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    match find(files, DEPENDENCIES) {
        Some(file) => findings.extend(reasons(workspace, file)),
        None => findings.push(Finding::file(DEPENDENCIES, "missing")),
    }
    match find(files, ARCHITECTURE) {
        Some(file) => {
            findings.extend(members(workspace, file));
            findings.extend(starts(file, files));
        }
        None => findings.push(Finding::file(ARCHITECTURE, "missing")),
    }
    let pages = files.iter().filter(|file| file.is_markdown());
    findings.extend(pages.flat_map(|page| tests_exist(page, files)));
    findings
}

fn find<'f>(files: &'f [File], path: &str) -> Option<&'f File> {
    files.iter().find(|file| file.path == Path::new(path))
}

/// Checks that every external package of a member has a line that begins "| `name`".
fn reasons(workspace: &Workspace, file: &File) -> Vec<Finding> {
    let used: BTreeSet<&String> = workspace
        .packages
        .values()
        .flat_map(|package| package.normal.iter().chain(&package.dev))
        .filter(|name| !workspace.packages.contains_key(*name))
        .collect();
    let described: BTreeSet<&str> = file
        .text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| `")?
                .split_once('`')
                .map(|(name, _)| name)
        })
        .collect();
    let missing = used
        .iter()
        .filter(|name| !described.contains(name.as_str()));
    let missing = missing.map(|name| format!("{name} is used: add a line with its reason"));
    let idle = described
        .iter()
        .filter(|name| !used.iter().any(|used| used == *name));
    let idle = idle.map(|name| format!("{name} is used nowhere: delete its line"));
    missing
        .chain(idle)
        .map(|text| Finding::file(DEPENDENCIES, text))
        .collect()
}

/// Checks that every member is on the map.
fn members(workspace: &Workspace, file: &File) -> Vec<Finding> {
    let absent = workspace
        .packages
        .keys()
        .filter(|name| !file.text.contains(&format!("`{name}")));
    absent
        .map(|name| Finding::file(ARCHITECTURE, format!("`{name}` is not on the map")))
        .collect()
}

/// Checks that every file exists which the map lists as a start for readers: in a row "| floor |
/// `crate` | … | `file`, `directory` |", below the crate's sources.
fn starts(map: &File, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in map.text.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", floor, name, _, starts, ""] = cells[..] else {
            continue;
        };
        if floor.parse::<u8>().is_err() {
            continue;
        }
        let sources = Path::new(name.trim_matches('`')).join("src");
        let starts = starts.split(", ").map(|start| start.trim_matches('`'));
        let absent = starts.filter(|start| {
            let path = sources.join(start);
            !files.iter().any(|file| file.path.starts_with(&path))
        });
        findings.extend(absent.map(|start| {
            let text = format!("no `{start}` in `{}`", sources.display());
            Finding::line(&map.path, index + 1, text)
        }));
    }
    findings
}

/// Checks that every test on a page exists: "§ `crate` `function`".
fn tests_exist(file: &File, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut line = 1;
    let text = file.text.replace("§\n  `", "\n§ `");
    for (index, mark) in text.split(TEST_MARK).enumerate() {
        let mut words = mark.split('`').step_by(2);
        if let (1.., Some(member), Some(function)) = (index, words.next(), words.next())
            && !has_test(files, member, function)
        {
            let text = format!("no test `{function}` in `{member}`");
            findings.push(Finding::line(&file.path, line, text));
        }
        line += mark.matches('\n').count();
    }
    findings
}

/// Returns whether a crate has a test of this name, or a function with a promise of its own that a
/// test calls.
fn has_test(files: &[File], member: &str, function: &str) -> bool {
    let head = format!("fn {function}(");
    let mut rust = files
        .iter()
        .filter(|file| file.is_rust() && file.member() == member);
    rust.any(|file| {
        let mut is_test = false;
        file.text.lines().map(str::trim_start).any(|line| {
            let is_found = is_test && line.contains(&head);
            let continues = line.starts_with("//") || line.starts_with("#[");
            is_test = continues && (is_test || TESTS.iter().any(|mark| line.starts_with(mark)));
            is_found
        })
    })
}
