//! Builds of each program with only its own features.
//!
//! Cargo unifies features: in a build of the whole workspace, a program gets features of a
//! dependency that only another program enables. A feature that is missing in its own manifest is
//! an error only when the program is built alone.

use std::path::Path;

use anyhow::{Context, Result};

use crate::runner::{self, PROFILE};
use crate::tidy::directions::{PROGRAMS, TABLE};
use crate::tidy::metadata::Workspace;

/// `cambric` without its feature `lab`, alone.
const CHECK_WITHOUT_LAB: &[&str] = &["check", "-p", "cambric-cli", "--no-default-features"];

/// The unit tests of `cambric` without its feature `lab`. Whatever else has default features gets
/// them from members that ask for them by name, so that only this program is compiled again.
const TEST_WITHOUT_LAB: &[&str] = &[
    "test",
    "--workspace",
    "--no-default-features",
    "--bin",
    "cambric",
];

/// Checks each program alone, and tests `cambric` without its lab. Returns whether all passed.
///
/// # Errors
/// If cargo cannot be run.
pub fn check(root: &Path) -> Result<bool> {
    let mut passed = true;
    for name in names(&Workspace::read(root)?)? {
        passed &= cargo(root, &["check", "-p", &name])?;
    }
    for words in [CHECK_WITHOUT_LAB, TEST_WITHOUT_LAB] {
        passed &= cargo(root, words)?;
    }
    Ok(passed)
}

/// Returns the packages of the programs' floor: the programs, and the facade of the library.
fn names(workspace: &Workspace) -> Result<Vec<String>> {
    let programs = TABLE.iter().filter(|row| row.floor == PROGRAMS);
    let names = programs.map(|row| {
        let package = workspace.packages.get(row.directory);
        let package = package.with_context(|| format!("no member {}", row.directory))?;
        Ok(package.name.clone())
    });
    names.collect()
}

fn cargo(root: &Path, words: &[&str]) -> Result<bool> {
    println!("cargo {}", words.join(" "));
    let mut cargo = runner::program("cargo", root);
    cargo.args(words);
    cargo.args(["--quiet", "--locked", "--profile", PROFILE]);
    Ok(cargo.status().context("cargo")?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_of_the_house_is_checked() {
        let workspace = Workspace::read(&crate::root()).expect("cargo metadata");
        let names = names(&workspace).expect("packages");
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.sort_unstable();
        let wanted = [
            "cambric",
            "cambric-bfd-daemon",
            "cambric-bgp-client",
            "cambric-cli",
            "cambric-cni",
            "cambric-felix",
            "cambric-kube-controller",
            "cambric-route-reflector",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn program_that_is_no_member_is_an_error() {
        names(&Workspace::default()).expect_err("no members");
    }
}
