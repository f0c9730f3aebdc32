//! Every set of features of every published crate, each without the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

use super::{BUILDS, Outcome};
use crate::runner;
use crate::tidy::metadata::Workspace;

/// Features of a crate, each with those that it enables.
type Features = BTreeMap<String, Vec<String>>;

/// Checks all sets, with all lints.
pub(super) fn check(root: &Path) -> Result<Outcome> {
    let workspace = Workspace::read(root)?;
    let (mut count, mut failed) = (0, 0);
    for package in workspace.packages.values() {
        if !package.is_published {
            continue;
        }
        for set in sets(&package.features) {
            let features = Vec::from_iter(set).join(",");
            println!("{} {features}", package.name);
            let mut cargo = runner::program("cargo", root);
            cargo.args(["clippy", "--quiet", "--lib", "--locked"]);
            cargo.args(["--target-dir", BUILDS, "--package", &package.name]);
            cargo.args(["--no-default-features", "--features", &features]);
            cargo.args(["--", "-D", "warnings"]);
            count += 1;
            failed += usize::from(!cargo.status().context("cargo clippy")?.success());
        }
    }
    println!("{failed} of {count} sets of features failed");
    Ok(Outcome::of(
        failed == 0,
        format!("{count} sets of features"),
    ))
}

/// Returns the sets that differ. Two sets are the same if they enable the same features.
fn sets(features: &Features) -> BTreeSet<BTreeSet<&str>> {
    let names = features.keys().map(String::as_str);
    let mut sets = BTreeSet::from([BTreeSet::new()]);
    for name in names.filter(|name| *name != "default") {
        let with = sets.iter().map(|set| {
            let mut set = set.clone();
            add(features, name, &mut set);
            set
        });
        let with: Vec<_> = with.collect();
        sets.extend(with);
    }
    sets
}

/// Adds a feature, and the features that it enables.
fn add<'f>(features: &'f Features, name: &'f str, set: &mut BTreeSet<&'f str>) {
    // `dep:name` and `crate/feature` are about other crates.
    if let Some(enabled) = features.get(name)
        && set.insert(name)
    {
        enabled.iter().for_each(|name| add(features, name, set));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_that_enable_the_same_are_one() {
        let features = [
            ("default", &["io"][..]),
            ("io", &["std", "dep:io"]),
            ("serde", &[]),
            ("std", &["bytes/std"]),
        ];
        let features = features.map(|(name, enabled)| {
            let enabled = enabled.iter().map(ToString::to_string).collect();
            (name.to_owned(), enabled)
        });
        let sets: Vec<_> = sets(&features.into())
            .into_iter()
            .map(|set| Vec::from_iter(set).join(","))
            .collect();
        let wanted = ["", "io,serde,std", "io,std", "serde", "serde,std", "std"];
        assert_eq!(sets, wanted);
    }
}
