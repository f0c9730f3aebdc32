//! The cost of each published crate for a program that depends on it: the tables of `docs/numbers.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::runner;
use crate::tidy::metadata::Workspace;

/// The directory of the builds. It is removed before each build.
const BUILDS: &str = "target/costs";

/// The unit of a process's times in `/proc`.
const TICKS_PER_SECOND: u64 = 100;

/// Builds each crate from an empty directory, with its default features and with all, and prints a table.
///
/// # Errors
/// If a crate does not build.
pub fn run(root: &Path) -> Result<bool> {
    println!("| crate | packages below it | CPU seconds | elapsed |\n|---|---|---|---|");
    let workspace = Workspace::read(root)?;
    let packages = workspace.packages.values();
    let mut published: Vec<_> = packages.filter(|package| package.is_published).collect();
    published.sort_by_key(|package| &package.name);
    for package in published {
        let name = &package.name;
        row(root, name, &[])?;
        if !package.features.is_empty() {
            row(root, name, &["--all-features"])?;
        }
    }
    examples(root)?;
    Ok(true)
}

/// Prints how long each example is.
fn examples(root: &Path) -> Result<()> {
    println!("\n| example | lines |\n|---|---|");
    let directory = root.join("examples/src/bin");
    let entries: Result<Vec<_>, _> = fs::read_dir(&directory)?.collect();
    let mut paths: Vec<_> = entries?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        println!(
            "| `{name}` | {} |",
            fs::read_to_string(&path)?.lines().count()
        );
    }
    Ok(())
}

fn row(root: &Path, name: &str, features: &[&str]) -> Result<()> {
    let below = below(root, name, features)?;
    let (elapsed, cpu) = build(root, name, features)?;
    let remark = if features.is_empty() {
        ""
    } else {
        ", all features"
    };
    println!(
        "| `{name}`{remark} | {below} | {:.1} | {:.1} s |",
        cpu.as_secs_f64(),
        elapsed.as_secs_f64()
    );
    Ok(())
}

/// Returns how many packages a crate depends on, each version once, those of this repository included.
fn below(root: &Path, name: &str, features: &[&str]) -> Result<usize> {
    let mut cargo = runner::program("cargo", root);
    cargo.args(["tree", "--edges", "normal,build", "--prefix", "none"]);
    cargo
        .args(["--format", "{p}", "--package", name])
        .args(features);
    let output = cargo.output().context("cargo tree")?;
    ensure!(output.status.success(), "cargo tree of {name} failed");
    let text = String::from_utf8(output.stdout)?;
    Ok(count(&text).saturating_sub(1))
}

/// Counts the packages of a tree.
fn count(tree: &str) -> usize {
    let words = tree.lines().map(|line| line.split(' ').take(2));
    let packages: BTreeSet<Vec<&str>> = words.map(Iterator::collect).collect();
    packages.len()
}

/// Builds a crate and all that it depends on. Returns the time that passed, and that of all processors.
fn build(root: &Path, name: &str, features: &[&str]) -> Result<(Duration, Duration)> {
    let builds = root.join(BUILDS);
    if builds.exists() {
        fs::remove_dir_all(&builds).context(BUILDS)?;
    }
    let mut cargo = runner::program("cargo", root);
    cargo.args(["build", "--quiet", "--locked", "--lib", "--package", name]);
    cargo.args(features).arg("--target-dir").arg(&builds);
    let (since, before) = (Instant::now(), children()?);
    let status = cargo.status().context("cargo build")?;
    ensure!(status.success(), "cargo build of {name} failed");
    let (elapsed, cpu) = (since.elapsed(), children()?.saturating_sub(before));
    fs::remove_dir_all(&builds).context(BUILDS)?;
    Ok((elapsed, cpu))
}

/// Returns the CPU time of all processes that this one has waited for.
fn children() -> Result<Duration> {
    let text = fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    let ticks = child_ticks(&text).context("/proc/self/stat has another form")?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Returns the sum of `cutime` and `cstime`, fields 16 and 17 of proc_pid_stat(5).
fn child_ticks(stat: &str) -> Option<u64> {
    // The name of the program, field 2, may contain spaces.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(13);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    user.checked_add(system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_children_are_read() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 100 2000 0 0 5 6 70 80 20 0 1 0 99";
        assert_eq!(child_ticks(stat), Some(150));
        assert_eq!(child_ticks("7 (a) S 1"), None);
        children().expect("of this process");
    }

    #[test]
    fn package_that_occurs_twice_counts_once() {
        let tree = "cambric-rib v0.1.0 (/r/rib)\nbytes v1.12.1\nbytes v1.12.1 (*)\nbytes v2.0.0\n";
        assert_eq!(count(tree), 3);
    }
}
