//! The published crates, as a program outside sees them: packaged, served by a registry in a
//! directory, and built by the programs in `examples/`, which have no path to this repository.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};

use crate::runner::{PROFILE, Setting};
use crate::tidy::metadata::Workspace;

mod registry;

use registry::Registry;

/// Packages the published crates, then builds the examples from the packages alone.
///
/// Cargo's own check of a package builds all that it depends on once more. The examples depend on
/// every published crate and share the build directory of the tests.
///
/// # Errors
/// If a crate cannot be packaged, or cargo cannot be run.
pub fn run(root: &Path) -> Result<bool> {
    let target = Setting::new(root).target;
    let packed = target.join("package");
    let names = published(root)?;
    pack(root, &names)?;
    let registry = Registry::read(root)?;
    let at = packed.join("registry");
    registry.write(&packed, &at, &names)?;
    let examples = copy_examples(root, &packed)?;
    build(&examples, &target, &packed, &at)
}

/// The packages that are published, in the order of their names.
fn published(root: &Path) -> Result<Vec<String>> {
    let workspace = Workspace::read(root)?;
    let packages = workspace.packages.into_values();
    let names = packages.filter(|package| package.is_published);
    Ok(names.map(|package| package.name).collect())
}

/// Has cargo write a `.crate` file for each.
fn pack(root: &Path, names: &[String]) -> Result<()> {
    let mut command = cargo(root);
    command.args(["package", "--no-verify", "--allow-dirty", "--quiet"]);
    for name in names {
        command.args(["--package", name]);
    }
    let status = command.status().context("run cargo package")?;
    ensure!(status.success(), "cargo package failed");
    Ok(())
}

/// Copies the examples to where no manifest above them is this repository's workspace.
fn copy_examples(root: &Path, packed: &Path) -> Result<PathBuf> {
    let (from, to) = (root.join("examples"), packed.join("examples"));
    if to.exists() {
        fs::remove_dir_all(&to).context("remove the former examples")?;
    }
    copy(&from, &to).context("copy the examples")?;
    Ok(to)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => fs::copy(entry.path(), to).map(drop)?,
        }
    }
    Ok(())
}

/// Builds the examples against the registry, without network.
fn build(examples: &Path, target: &Path, packed: &Path, registry: &Path) -> Result<bool> {
    // Cargo keeps unpacked crates by version: those of the last run are not those of this one.
    let home = packed.join("home");
    if home.exists() {
        fs::remove_dir_all(&home).context("remove the former unpacked crates")?;
    }
    let source = format!("source.packaged.local-registry={:?}", registry.display());
    let mut command = cargo(examples);
    command
        .args(["build", "--bins", "--offline", "--profile", PROFILE])
        .args(["--config", "source.crates-io.replace-with=\"packaged\""])
        .args(["--config", &source])
        .arg("--target-dir")
        .arg(target)
        .env("CARGO_HOME", home);
    let status = command.status().context("run cargo build")?;
    Ok(status.success())
}

fn cargo(directory: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(directory);
    command
}
