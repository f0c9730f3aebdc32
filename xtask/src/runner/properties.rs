//! The names of property tests: their inputs are drawn from the seed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// How a block of properties begins.
const OPENINGS: [&str; 2] = ["proptest! {", "proptest::proptest! {"];

/// Returns the names of all functions in `proptest!` blocks of a package, without their modules.
///
/// # Errors
/// If a source file cannot be read.
pub(super) fn of_package(directory: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut open = vec![directory.join("src"), directory.join("tests")];
    while let Some(folder) = open.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                names.extend(of_text(&text).map(str::to_owned));
            }
        }
    }
    Ok(names)
}

/// Returns the names of the functions in `proptest!` blocks of a formatted source file.
fn of_text(text: &str) -> impl Iterator<Item = &str> {
    let mut end = None;
    text.lines().filter_map(move |line| {
        let content = line.trim_start();
        let indent = &line[..line.len() - content.len()];
        match end {
            None if OPENINGS.iter().any(|open| content.starts_with(open)) => end = Some(indent),
            Some(of_block) if content == "}" && indent == of_block => end = None,
            Some(_) => return content.strip_prefix("fn ")?.split('(').next(),
            None => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
fn helper() {}

mod tests {
    proptest! {
        #![proptest_config(ProptestConfig::with_cases(9))]

        #[test]
        fn first(n in 0..9) {
            if n > 3 {
                return Ok(());
            }
        }

        #[test]
        fn second(
            n in 0..9,
        ) {}
    }

    #[test]
    fn plain() {}
}
";

    #[test]
    fn functions_of_the_block_are_properties() {
        assert_eq!(of_text(TEXT).collect::<Vec<_>>(), ["first", "second"]);
    }

    #[test]
    fn properties_of_a_package_are_found() -> Result<()> {
        // The second one has no folder `tests`.
        for (package, at_least) in [("../rib", 5), ("../calico-model", 6)] {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(package);
            let names = of_package(&root)?;
            assert!(names.len() >= at_least, "{package}: {names:?}");
        }
        Ok(())
    }
}
