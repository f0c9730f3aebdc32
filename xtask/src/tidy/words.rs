//! Markers of unfinished work, and traces of a developer's machine.

use super::Finding;
use super::files::File;

/// In any text file.
const NOWHERE: &[(&str, &str)] = &[
    ("/work/", "a path of one machine"),
    ("/home/", "a path of one machine"),
    ("static.crates.io", "name the package, not its source"),
    ("FIXME", "unfinished work belongs into an issue"),
    ("TODO", "unfinished work belongs into an issue"),
    ("XXX", "unfinished work belongs into an issue"),
];

/// In Rust source.
const NOT_IN_RUST: &[(&str, &str)] = &[
    (
        "#[ignore",
        "a test either runs or is deleted; gate labs on CAMBRIC_LAB",
    ),
    ("todo!(", "unfinished work"),
    ("unimplemented!(", "unfinished work"),
    ("//! Placeholder.", "unfinished work"),
    ("thread::sleep(", "wait for the event, with a deadline"),
];

/// Checks every text file except this directory and lock files.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        if file.path.starts_with("xtask/src/tidy") || file.path.ends_with("Cargo.lock") {
            continue;
        }
        let rust = if file.is_rust() { NOT_IN_RUST } else { &[] };
        for (index, line) in file.text.lines().enumerate() {
            for (word, why) in NOWHERE.iter().chain(rust) {
                if line.contains(word) {
                    let text = format!("`{word}`: {why}");
                    findings.push(Finding::line(&file.path, index + 1, text));
                }
            }
        }
    }
    findings
}
