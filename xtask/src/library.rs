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
/// Cargo's own check of a package builds all that it depends on again. The examples depend on every
/// published crate, and share the build directory and the third-party crates of the tests.
///
/// # Errors
/// If a crate cannot be packaged, or cargo cannot be run.
pub fn run(root: &Path) -> Result<bool> {
    let target = Setting::new(root).target;
    let packed = target.join("package");
    let published = published(root)?;
    pack(root, &published)?;
    let registry = Registry::unpack(&packed, &published)?;
    let examples = copy_examples(root, &packed)?;
    let config = packed.join("config.toml");
    fs::write(&config, registry.config()).context("write cargo's configuration")?;
    build(root, &examples, &target, &config)
}

/// A published package: name and version.
type Published = (String, String);

/// Returns the published packages in the order of their names.
fn published(root: &Path) -> Result<Vec<Published>> {
    let workspace = Workspace::read(root)?;
    let packages = workspace.packages.into_values();
    let packages = packages.filter(|package| package.is_published);
    let mut published: Vec<_> = packages.map(|one| (one.name, one.version)).collect();
    published.sort();
    Ok(published)
}

/// Runs cargo, which writes a `.crate` file for each package.
fn pack(root: &Path, published: &[Published]) -> Result<()> {
    let mut command = cargo(root);
    command.args(["package", "--no-verify", "--allow-dirty", "--quiet"]);
    command.args(["--offline", "--locked"]);
    for (name, _) in published {
        command.args(["--package", name]);
    }
    let status = command.status().context("run cargo package")?;
    ensure!(status.success(), "cargo package failed");
    Ok(())
}

/// Copies the examples, with the lock file of the workspace: the same third-party crates are built
/// only once, and none is fetched.
fn copy_examples(root: &Path, packed: &Path) -> Result<PathBuf> {
    let (from, to) = (root.join("examples"), packed.join("examples"));
    if to.exists() {
        fs::remove_dir_all(&to).context("remove the former examples")?;
    }
    copy(&from, &to).context("copy the examples")?;
    fs::copy(root.join("Cargo.lock"), to.join("Cargo.lock")).context("copy Cargo.lock")?;
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

/// Builds the examples against the registry, without network. Cargo runs in the root of the repository,
/// so that its configuration there is in effect: third-party crates are built as for the tests.
fn build(root: &Path, examples: &Path, target: &Path, config: &Path) -> Result<bool> {
    let mut command = cargo(root);
    command
        .args(["build", "--bins", "--offline", "--profile", PROFILE])
        .arg("--manifest-path")
        .arg(examples.join("Cargo.toml"))
        .arg("--config")
        .arg(config)
        .arg("--target-dir")
        .arg(target);
    let status = command.status().context("run cargo build")?;
    Ok(status.success())
}

fn cargo(directory: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(directory);
    command
}
