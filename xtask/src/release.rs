//! What is checked before a release, beside continuous integration: `make release-check`.
//!
//! A check whose tool cannot be installed is reported as missing and fails the run, unless the command
//! line names the check: a release that went without it says so.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::library;
use crate::runner;
use crate::tidy::metadata::Workspace;
use crate::tidy::{compiler, files, versions};

mod api;
mod features;
mod targets;

/// The directory of its builds, in the build directory: other features and targets would take the
/// place of what the tests have built.
const BUILDS: &str = "target/release-check";

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// It passed; with a number or remark.
    Passed(String),
    Failed,
    /// The reason why it could not be made.
    Missing(String),
}

impl Outcome {
    fn of(passed: bool, remark: impl Into<String>) -> Self {
        match passed {
            true => Self::Passed(remark.into()),
            false => Self::Failed,
        }
    }
}

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    /// The checks that may be missing.
    without: Vec<String>,
    /// The release to compare with; the last tag if there is no name.
    since: Option<String>,
}

/// A check by its name.
type Check = (&'static str, fn(&Path, &Request) -> Result<Outcome>);

const CHECKS: &[Check] = &[
    ("oldest compiler", |root, _| oldest_compiler(root)),
    ("public items", |root, request| {
        api::check(root, request.since.as_deref())
    }),
    ("bare metal", |root, _| {
        targets::check(root, "thumbv7em-none-eabi")
    }),
    ("wasm", |root, _| {
        targets::check(root, "wasm32-unknown-unknown")
    }),
    ("features", |root, _| features::check(root)),
    ("packages", packages),
    ("examples", |root, _| {
        let built = library::run(root)?;
        Ok(Outcome::of(built, "built from the packages alone"))
    }),
    ("cargo-deny", deny),
    ("site", site),
];

/// Makes all checks, and prints a table for `RELEASING.md`.
///
/// # Errors
/// If the command line is invalid.
pub fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    let request = request(arguments)?;
    let mut rows = Vec::new();
    let mut passed = true;
    for (name, check) in CHECKS {
        println!("== {name}");
        let since = Instant::now();
        let outcome = check(root, &request).unwrap_or_else(|error| {
            println!("{error:#}");
            Outcome::Failed
        });
        let may_lack = request.without.iter().any(|without| without == name);
        passed &= match outcome {
            Outcome::Passed(_) => true,
            Outcome::Missing(_) => may_lack,
            Outcome::Failed => false,
        };
        rows.push(row(name, &outcome, since.elapsed().as_secs()));
    }
    let version = version(root)?;
    println!("\ncambric {version}, Rust {}\n", compiler::version()?);
    println!("| check | result | seconds |\n|---|---|---|");
    rows.iter().for_each(|row| println!("{row}"));
    Ok(passed)
}

fn row(name: &str, outcome: &Outcome, seconds: u64) -> String {
    let result = match outcome {
        Outcome::Passed(remark) => format!("passed: {remark}"),
        Outcome::Failed => "**failed**".to_owned(),
        Outcome::Missing(reason) => format!("**missing**: {reason}"),
    };
    format!("| {name} | {result} | {seconds} |")
}

fn request(arguments: &[String]) -> Result<Request> {
    let mut request = Request::default();
    let mut arguments = arguments.iter();
    while let Some(option) = arguments.next() {
        let mut value = || arguments.next().cloned().context("a name is missing");
        match option.as_str() {
            "--without" => {
                let name = value()?;
                if !CHECKS.iter().any(|(known, _)| *known == name) {
                    bail!("no check is called {name}");
                }
                request.without.push(name);
            }
            "--since" => request.since = Some(value()?),
            _ => bail!("unknown option {option}; --without CHECK, --since REVISION"),
        }
    }
    Ok(request)
}

/// Returns the version of the workspace.
fn version(root: &Path) -> Result<String> {
    let workspace = Workspace::read(root)?;
    let package = workspace.packages.get("cambric").context("no cambric")?;
    Ok(package.version.clone())
}

/// Returns the names of the published packages.
fn published(workspace: &Workspace) -> impl Iterator<Item = &str> {
    let packages = workspace.packages.values();
    let packages = packages.filter(|package| package.is_published);
    packages.map(|package| package.name.as_str())
}

/// Whether this compiler is the oldest one that the manifests promise.
fn oldest_compiler(root: &Path) -> Result<Outcome> {
    let remark = versions::newer_compiler(&files::tracked(root)?)?;
    Ok(match remark {
        Some(remark) => Outcome::Missing(remark),
        None => Outcome::Passed("all checks here, and CI, run with it".to_owned()),
    })
}

/// Has cargo build each package alone, as before a publication.
fn packages(root: &Path, _: &Request) -> Result<Outcome> {
    let workspace = Workspace::read(root)?;
    let mut cargo = runner::program("cargo", root);
    cargo.args(["package", "--locked", "--allow-dirty", "--quiet"]);
    cargo.args(["--target-dir", BUILDS]);
    let count = published(&workspace).count();
    for name in published(&workspace) {
        cargo.args(["--package", name]);
    }
    let status = cargo.status().context("cargo package")?;
    Ok(Outcome::of(status.success(), format!("{count} packages")))
}

/// Licenses, sources, bans and advisories of all platforms.
fn deny(root: &Path, _: &Request) -> Result<Outcome> {
    let known = runner::program("cargo", root)
        .args(["deny", "--version"])
        .output()
        .context("cargo")?;
    if !known.status.success() {
        let reason = "install it with `cargo install --locked cargo-deny`";
        return Ok(Outcome::Missing(reason.to_owned()));
    }
    let version = String::from_utf8_lossy(&known.stdout).trim().to_owned();
    let mut deny = runner::program("cargo", root);
    let status = deny.args(["deny", "--workspace", "check"]).status()?;
    Ok(Outcome::of(status.success(), version))
}

/// The site of `make docs`.
fn site(root: &Path, _: &Request) -> Result<Outcome> {
    let makefile = std::fs::read_to_string(root.join("Makefile")).context("Makefile")?;
    if !makefile.lines().any(|line| line.starts_with("docs:")) {
        return Ok(Outcome::Missing(
            "the Makefile has no target `docs`".to_owned(),
        ));
    }
    let status = runner::program("make", root).arg("docs").status()?;
    Ok(Outcome::of(status.success(), "`make docs`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn options_are_read_and_unknown_names_rejected() {
        let asked = request(&words(&["--without", "wasm", "--since", "v0.1.0"])).expect("valid");
        assert_eq!(asked.without, ["wasm"]);
        assert_eq!(asked.since.as_deref(), Some("v0.1.0"));
        for invalid in [&["--without", "wsam"][..], &["--without"], &["wasm"]] {
            request(&words(invalid)).expect_err("invalid");
        }
    }

    #[test]
    fn row_has_reason_of_missing_check() {
        let missing = Outcome::Missing("no target".to_owned());
        assert_eq!(
            row("wasm", &missing, 3),
            "| wasm | **missing**: no target | 3 |"
        );
    }
}
