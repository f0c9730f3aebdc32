//! The composed core's whole tree, as it is built without features: `#![no_std]` at the top says
//! nothing about what stands below (I1, I4).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use super::Finding;
use super::fences::OUTSIDE;

/// The top of the core: the other three `no_std` crates are below it.
const TOP: &str = "bgp-speaker";

/// Its package.
const PACKAGE: &str = "cambric-bgp-speaker";

/// Asks `cargo tree` and judges what it says.
///
/// # Errors
///
/// Cargo cannot be run or fails.
pub fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "tree",
            "--package",
            PACKAGE,
            "--edges",
            "normal",
            "--prefix",
            "none",
        ])
        .args(["--no-default-features", "--format", "{p} [{f}]"])
        .current_dir(root)
        .output()
        .context("run cargo tree")?;
    if !output.status.success() {
        bail!(
            "cargo tree: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(judge(&String::from_utf8_lossy(&output.stdout)))
}

/// Judges lines such as `bytes v1.12.1 [std]`.
pub fn judge(tree: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for line in tree.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let features = line.rsplit_once('[').map_or("", |(_, features)| features);
        let features = features.split(']').next().unwrap_or_default();
        if features.split(',').any(|feature| feature == "std") {
            let text = format!("{name} below it is built with its feature `std` (I1)");
            findings.push(Finding::file(format!("{TOP}/Cargo.toml"), text));
        }
        if OUTSIDE.contains(&name) {
            let text = format!("{name} is in its tree: I/O begins at floor 3 (I4)");
            findings.push(Finding::file(format!("{TOP}/Cargo.toml"), text));
        }
    }
    findings
}
