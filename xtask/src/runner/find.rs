//! Discovery of tests: the executables that cargo builds, and the tests that each lists.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::PROFILE;

/// A program that contains tests.
#[derive(Clone, Debug)]
pub struct Executable {
    /// The folder of its package; for integration tests and programs, also their own name:
    /// `rib`, `rib/tables`.
    pub name: String,
    /// The program.
    pub path: PathBuf,
    /// Its working directory.
    pub directory: PathBuf,
}

/// A line of cargo's output that describes a built artifact. Other lines have other fields.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Returns a command that is started as from a shell: without the variables that `cargo run` has
/// set for this program. Otherwise build scripts that depend on them would run again each time.
pub(crate) fn program(name: &str, root: &Path) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root);
    for (name, _) in std::env::vars_os() {
        let of_this = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if of_this
            .iter()
            .any(|start| name.to_string_lossy().starts_with(start))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Returns a cargo command for the whole workspace in the profile of tests.
pub(crate) fn cargo(root: &Path, words: &[&str]) -> Command {
    let mut cargo = program("cargo", root);
    cargo.args(words);
    cargo.args(["--workspace", "--locked", "--profile", PROFILE]);
    cargo
}

/// Builds all tests, and the programs with them.
///
/// # Errors
/// If cargo fails; its own output has the reason.
pub fn build(root: &Path) -> Result<Vec<Executable>> {
    // With `cargo test --no-run`, programs without integration tests would be built twice.
    let mut build = cargo(root, &["build", "--lib", "--bins", "--tests"]);
    build.arg("--message-format=json-render-diagnostics");
    let output = build.stderr(Stdio::inherit()).output().context("cargo")?;
    if !output.status.success() {
        bail!("cargo build: {}", output.status);
    }
    let text = String::from_utf8(output.stdout)?;
    text.lines()
        .filter_map(|line| executable(line).transpose())
        .collect()
}

/// Returns the executable in a line of cargo's output.
fn executable(line: &str) -> Result<Option<Executable>> {
    let message: Message = serde_json::from_str(line).context("a line of cargo's")?;
    let Message {
        target: Some(target),
        profile: Some(profile),
        executable: Some(path),
        ..
    } = message
    else {
        return Ok(None);
    };
    if message.reason != "compiler-artifact" || !profile.test {
        return Ok(None);
    }
    let directory = message.manifest_path.parent();
    let directory = directory.map(Path::to_owned).unwrap_or_default();
    let package = directory.file_name().unwrap_or_default().to_string_lossy();
    let name = match target.kind.first().map(String::as_str) {
        Some("lib" | "proc-macro") => package.into_owned(),
        _ => format!("{package}/{}", target.name),
    };
    Ok(Some(Executable {
        name,
        path,
        directory,
    }))
}

/// Returns the tests of an executable.
///
/// # Errors
/// If it does not list them, or has ignored ones, which are forbidden here.
pub fn names(executable: &Executable) -> Result<Vec<String>> {
    let list = |more: &[&str]| -> Result<Vec<String>> {
        let mut command = Command::new(&executable.path);
        command.current_dir(&executable.directory);
        command.args(["--list", "--format", "terse"]).args(more);
        let output = command.output().with_context(|| executable.name.clone())?;
        let text = String::from_utf8(output.stdout)?;
        let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(tests.map(ToOwned::to_owned).collect())
    };
    let ignored = list(&["--ignored"])?;
    if !ignored.is_empty() {
        bail!("{}: ignored tests: {}", executable.name, ignored.join(", "));
    }
    list(&[])
}

/// Returns how many tests cargo itself finds in all targets that contain tests. Documentation is not
/// among them: cargo itself runs its examples.
///
/// # Errors
/// If cargo fails.
pub fn count(root: &Path) -> Result<usize> {
    let mut list = cargo(root, &["test", "-q", "--tests"]);
    list.args(["--", "--list", "--format", "terse"]);
    let output = list.stderr(Stdio::inherit()).output().context("cargo")?;
    if !output.status.success() {
        bail!("cargo test -- --list: {}", output.status);
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter(|line| line.ends_with(": test")).count())
}

/// Runs the examples in documentation. Returns how many passed, and how many failed.
///
/// # Errors
/// If cargo cannot be started.
pub fn doctests(root: &Path) -> Result<(usize, usize)> {
    let mut tests = cargo(root, &["test", "--doc"]);
    tests.args(["--no-fail-fast"]);
    let output = tests.stderr(Stdio::inherit()).output().context("cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let count = |end: &str| {
        let lines = text.lines().filter(|line| line.starts_with("test "));
        lines.filter(|line| line.ends_with(end)).count()
    };
    let (passed, failed) = (count("... ok"), count("... FAILED"));
    if !output.status.success() {
        println!("{text}");
    }
    Ok((passed, failed.max(usize::from(!output.status.success()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_has_the_name_of_its_folder() {
        let of = |kind: &str, name: &str| {
            let line = format!(
                r#"{{"reason":"compiler-artifact","package_id":"x","manifest_path":"/r/cli/Cargo.toml",
                    "target":{{"kind":["{kind}"],"name":"{name}"}},"profile":{{"test":true}},
                    "executable":"/r/target/{name}"}}"#
            );
            executable(&line.replace('\n', ""))
                .expect("a message")
                .expect("an executable")
                .name
        };
        assert_eq!(of("lib", "cambric"), "cli");
        assert_eq!(of("test", "decode"), "cli/decode");
        assert_eq!(of("bin", "cambric"), "cli/cambric");
    }

    #[test]
    fn other_lines_of_cargo_are_no_executables() {
        for line in [
            r#"{"reason":"build-finished","success":true}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/r/a/Cargo.toml",
               "target":{"kind":["bin"],"name":"a"},"profile":{"test":false},"executable":"/r/a"}"#,
        ] {
            assert!(
                executable(&line.replace('\n', ""))
                    .expect("a message")
                    .is_none()
            );
        }
        executable("no JSON").expect_err("refused");
    }
}
