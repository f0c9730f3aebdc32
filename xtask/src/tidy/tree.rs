//! Whole trees of dependencies, as cargo resolves them: `#![no_std]` in the core does not show the
//! properties of its dependencies (I1, I4), and a daemon's manifest does not show how many packages
//! it is built from.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use super::Finding;
use super::fences::OUTSIDE;

/// A `no_std` crate with no other above it.
struct Top {
    directory: &'static str,
    /// Packages of [`OUTSIDE`] that may be below it.
    except: &'static [&'static str],
}

/// The tops of the core: the other `no_std` crates are below them.
const TOPS: [Top; 2] = [
    Top {
        directory: "bgp-speaker",
        except: &[],
    },
    Top {
        directory: "bfd",
        // On ARM, the digests read the features of the processor with it.
        except: &["libc"],
    },
];

/// The daemons, by directory.
const DAEMONS: [&str; 5] = [
    "bfd-daemon",
    "bgp-client",
    "felix",
    "kube-controller",
    "route-reflector",
];

/// How many packages a daemon may be built from, including those of this workspace.
pub const DAEMON_PACKAGES_MAX: usize = 151;

/// Checks the core and the daemons.
///
/// # Errors
///
/// Cargo cannot be run or fails.
pub fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for Top { directory, except } in TOPS {
        let tree = tree(root, directory, &["--no-default-features"])?;
        findings.extend(findings_of(directory, &tree, except));
    }
    for daemon in DAEMONS {
        findings.extend(count(daemon, &tree(root, daemon, &[])?));
    }
    Ok(findings)
}

/// Returns the tree of a crate: lines such as `bytes v1.12.1 [std]`.
fn tree(root: &Path, directory: &str, options: &[&str]) -> anyhow::Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--edges", "normal", "--prefix", "none"])
        .args(["--package", &format!("cambric-{directory}")])
        .args(["--format", "{p} [{f}]"])
        .args(options)
        .current_dir(root)
        .output()
        .context("run cargo tree")?;
    if !output.status.success() {
        bail!(
            "cargo tree: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Checks the tree of a top of the core.
pub fn findings_of(top: &str, tree: &str, except: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for line in tree.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let features = line.rsplit_once('[').map_or("", |(_, features)| features);
        let features = features.split(']').next().unwrap_or_default();
        if features.split(',').any(|feature| feature == "std") {
            let text = format!("{name} below it is built with its feature `std` (I1)");
            findings.push(Finding::file(format!("{top}/Cargo.toml"), text));
        }
        if OUTSIDE.contains(&name) && !except.contains(&name) {
            let text = format!("{name} is in its tree: I/O begins at floor 3 (I4)");
            findings.push(Finding::file(format!("{top}/Cargo.toml"), text));
        }
    }
    findings
}

/// Counts the packages of a daemon's tree, each version once.
pub fn count(daemon: &str, tree: &str) -> Option<Finding> {
    let lines = tree.lines().map(|line| line.split(' ').take(2));
    let packages: BTreeSet<Vec<&str>> = lines.map(Iterator::collect).collect();
    let many = packages.len() > DAEMON_PACKAGES_MAX;
    many.then(|| {
        let text = format!(
            "it is built from {} packages, of at most {DAEMON_PACKAGES_MAX}",
            packages.len()
        );
        Finding::file(format!("{daemon}/Cargo.toml"), text)
    })
}
