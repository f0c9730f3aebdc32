//! The compiler of this machine.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Returns the machine for which it compiles by default.
///
/// # Errors
///
/// It cannot be run, or its output is unknown.
pub fn host() -> Result<String> {
    field("host: ")
}

/// Returns its version.
///
/// # Errors
///
/// It cannot be run, or its output is unknown.
pub fn version() -> Result<String> {
    field("release: ")
}

fn field(name: &str) -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc")?;
    ensure!(output.status.success(), "rustc -vV: {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(value
        .with_context(|| format!("rustc -vV has no `{name}`"))?
        .to_owned())
}
