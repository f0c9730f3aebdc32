//! The public items, compared with those of the last release.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::Outcome;
use crate::runner;
use crate::tidy::api::{LISTS, breaking};

/// Compares the lists of public items with those of a revision, or of the newest tag. A breaking change
/// needs a new minor version, before 1.0, or a new major one.
pub(super) fn check(root: &Path, since: Option<&str>) -> Result<Outcome> {
    let since = match since {
        Some(revision) => revision.to_owned(),
        None => match tag(root)? {
            Some(tag) => tag,
            None => return Ok(Outcome::Passed("no release to compare with".to_owned())),
        },
    };
    let former = git(root, &["show", &format!("{since}:Cargo.toml")])?;
    let (former, now) = (version(&former)?, super::version(root)?);
    let files = git(
        root,
        &["ls-tree", "--name-only", &since, &format!("{LISTS}/")],
    )?;
    ensure!(!files.is_empty(), "{since} has no lists in {LISTS}");
    let mut breaks = 0;
    for file in files.lines() {
        let before = git(root, &["show", &format!("{since}:{file}")])?;
        let after = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        for line in breaking(&before, &after) {
            println!("{file}: {line}");
            breaks += 1;
        }
    }
    let remark = format!("{breaks} breaking changes since {since} ({former}), now {now}");
    println!("{remark}");
    Ok(Outcome::of(
        breaks == 0 || may_break(&former, &now)?,
        remark,
    ))
}

/// Returns whether programs may break between two versions.
fn may_break(former: &str, now: &str) -> Result<bool> {
    let (before, after) = (numbers(former)?, numbers(now)?);
    // The first number that is not 0 names the releases that fit together.
    let fixed = after.iter().take_while(|number| **number == 0).count() + 1;
    Ok(before.iter().take(fixed).lt(after.iter().take(fixed)))
}

fn numbers(version: &str) -> Result<Vec<u64>> {
    let numbers = version.split('.').map(str::parse);
    let numbers: Result<Vec<u64>, _> = numbers.collect();
    let numbers = numbers.with_context(|| format!("version {version}"))?;
    ensure!(numbers.len() == 3, "version {version}");
    Ok(numbers)
}

/// Returns the version in a manifest of the workspace.
fn version(manifest: &str) -> Result<String> {
    let manifest: toml::Table = manifest.parse().context("Cargo.toml")?;
    let version = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("package")?.get("version")?.as_str());
    Ok(version.context("Cargo.toml has no version")?.to_owned())
}

/// Returns the newest tag of a release.
fn tag(root: &Path) -> Result<Option<String>> {
    let tags = git(root, &["tag", "--list", "v*", "--sort=-version:refname"])?;
    Ok(tags.lines().next().map(str::to_owned))
}

fn git(root: &Path, words: &[&str]) -> Result<String> {
    let output = runner::program("git", root).args(words).output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("git {}: {}", words.join(" "), error.trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breaking_versions_raise_first_number_above_zero() {
        for (former, now, may) in [
            ("0.1.0", "0.2.0", true),
            ("0.1.0", "0.1.1", false),
            ("0.0.1", "0.0.2", true),
            ("1.2.0", "1.3.0", false),
            ("1.2.0", "2.0.0", true),
            ("0.2.0", "0.1.0", false),
            ("0.9.0", "1.0.0", true),
            ("1.0.0", "1.0.0", false),
        ] {
            assert_eq!(
                may_break(former, now).expect("versions"),
                may,
                "{former} {now}"
            );
        }
        may_break("0.1", "0.2.0").expect_err("two numbers");
    }

    #[test]
    fn version_is_read_from_the_workspace() {
        let text = "[workspace.package]\nversion = \"0.2.0\"\n";
        assert_eq!(version(text).expect("a version"), "0.2.0");
        version("[package]\nversion = \"0.2.0\"\n").expect_err("no workspace");
    }
}
