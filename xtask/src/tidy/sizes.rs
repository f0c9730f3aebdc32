//! Lengths of files: a reader should be able to know a whole file.

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

/// Checks all Rust files.
pub fn check(files: &[File]) -> Vec<Finding> {
    files
        .iter()
        .filter(|file| file.is_rust())
        .filter_map(check_file)
        .collect()
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
