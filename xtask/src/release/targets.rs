//! Builds of the `no_std` crates for machines without an operating system.

use std::path::Path;

use anyhow::{Context, Result};

use super::{BUILDS, Outcome};
use crate::runner;
use crate::tidy::fences::NO_STD;

/// Builds the `no_std` crates, and the facade with them, for a target of the compiler, which is installed
/// if it is missing.
pub(super) fn check(root: &Path, target: &str) -> Result<Outcome> {
    if !is_installed(root, target)? {
        let added = runner::program("rustup", root)
            .args(["target", "add", target])
            .status();
        if !added.is_ok_and(|status| status.success()) || !is_installed(root, target)? {
            return Ok(Outcome::Missing(format!("rustup cannot install {target}")));
        }
    }
    let mut cargo = runner::program("cargo", root);
    cargo.args(["build", "--lib", "--locked", "--no-default-features"]);
    cargo.args(["--target", target, "--target-dir", BUILDS]);
    for directory in NO_STD {
        cargo.args(["--package", &format!("cambric-{directory}")]);
    }
    cargo.args(["--package", "cambric", "--features", "cambric/speaker"]);
    let status = cargo.status().context("cargo build")?;
    let count = NO_STD.len() + 1;
    Ok(Outcome::of(
        status.success(),
        format!("{count} crates for {target}"),
    ))
}

/// Returns whether the compiler has the core library of a target.
fn is_installed(root: &Path, target: &str) -> Result<bool> {
    let output = runner::program("rustc", root)
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .context("rustc")?;
    let directory = String::from_utf8(output.stdout)?;
    Ok(output.status.success() && Path::new(directory.trim()).exists())
}
