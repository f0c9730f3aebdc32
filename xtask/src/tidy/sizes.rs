//! Lengths of files: a reader should be able to know a whole file.

use std::collections::BTreeSet;
use std::path::Path;

use super::Finding;
use super::files::File;

/// Lines of a source file, without its tests.
pub const LINES_MAX: usize = 600;

/// Lines of a file of tests.
pub const TEST_LINES_MAX: usize = 1000;

/// Lines of a `main.rs`: all other code belongs to the library, where tests reach it.
pub const MAIN_LINES_MAX: usize = 60;

/// Lines of an example, so that it is read at once.
pub const EXAMPLE_LINES_MAX: usize = 59;

/// The page with the length of each example, in a table with this head.
const EXAMPLES: (&str, &str) = ("docs/numbers.md", "| example | lines |\n|---|---|\n");

/// Checks all Rust files, and the table of the examples.
pub fn check(files: &[File]) -> Vec<Finding> {
    let rust = files.iter().filter(|file| file.is_rust());
    let mut findings: Vec<Finding> = rust.filter_map(check_file).collect();
    let page = files.iter().find(|file| file.path == Path::new(EXAMPLES.0));
    findings.extend(
        page.map(|page| check_table(page, files))
            .unwrap_or_default(),
    );
    findings
}

/// Compares the table of the examples with their files.
fn check_table(page: &File, files: &[File]) -> Vec<Finding> {
    let table = page.text.split_once(EXAMPLES.1);
    let table = table.map_or("", |(_, behind)| behind);
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let written: BTreeSet<String> = rows.map(str::to_owned).collect();
    let examples = files
        .iter()
        .filter(|file| file.path.starts_with("examples/src/bin"));
    let actual: BTreeSet<String> = examples
        .map(|file| {
            let name = file.path.file_stem().unwrap_or_default().display();
            format!("| `{name}` | {} |", file.text.lines().count())
        })
        .collect();
    let missing = actual.difference(&written);
    let missing = missing.map(|row| format!("add the row {row}"));
    let stale = written.difference(&actual);
    let stale = stale.map(|row| format!("delete the row {row}"));
    let texts = missing.chain(stale);
    texts.map(|text| Finding::file(&page.path, text)).collect()
}

fn check_file(file: &File) -> Option<Finding> {
    let (lines, most) = if file.path == Path::new(file.member()).join("src/main.rs") {
        (file.text.lines().count(), MAIN_LINES_MAX)
    } else if file.path.starts_with("examples") {
        (file.text.lines().count(), EXAMPLE_LINES_MAX)
    } else if file.is_test() {
        (file.text.lines().count(), TEST_LINES_MAX)
    } else {
        (file.without_tests().lines().count(), LINES_MAX)
    };
    (lines > most).then(|| {
        Finding::file(
            &file.path,
            format!("{lines} lines, at most {most}: split it"),
        )
    })
}
