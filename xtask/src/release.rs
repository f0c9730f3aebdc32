//! Checks before a release, beside continuous integration: `make release-check`.
//!
//! A check whose tool cannot be installed is reported as missing and fails the run, unless the command
//! line names the check.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::library;
use crate::runner;
use crate::tidy::metadata::{Package, Workspace};
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

/// The arguments of the command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    /// The only checks to make; all if there are none.
    only: Vec<String>,
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
    ("repository", repository),
    ("cargo-deny", deny),
    ("advisories", advisories),
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
        if !request.only.is_empty() && !request.only.iter().any(|only| only == name) {
            continue;
        }
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
            "--only" => request.only.push(known(&value()?)?),
            "--without" => request.without.push(known(&value()?)?),
            "--since" => request.since = Some(value()?),
            _ => bail!("unknown option {option}; --only CHECK, --without CHECK, --since REVISION"),
        }
    }
    Ok(request)
}

/// Returns the name if a check has it.
fn known(name: &str) -> Result<String> {
    let is_known = CHECKS.iter().any(|(known, _)| *known == name);
    ensure!(is_known, "no check is called {name}");
    Ok(name.to_owned())
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
    // Of two packages with one version, cargo would use what an earlier run has built of the other.
    let builds = root.join(BUILDS).join("packages");
    if builds.exists() {
        std::fs::remove_dir_all(&builds).context("the builds of an earlier run")?;
    }
    let mut cargo = runner::program("cargo", root);
    cargo.args(["package", "--locked", "--allow-dirty", "--quiet"]);
    cargo.arg("--target-dir").arg(builds);
    let count = published(&workspace).count();
    for name in published(&workspace) {
        cargo.args(["--package", name]);
    }
    let status = cargo.status().context("cargo package")?;
    Ok(Outcome::of(status.success(), format!("{count} packages")))
}

/// The address of the source in each published manifest: the registry keeps it with the version forever.
fn repository(root: &Path, _: &Request) -> Result<Outcome> {
    let workspace = Workspace::read(root)?;
    let without = without_repository(&workspace);
    for name in &without {
        println!("{name}: `repository` is not an https address");
    }
    Ok(Outcome::of(without.is_empty(), "set in all packages"))
}

/// Returns the published packages without the address of their source.
fn without_repository(workspace: &Workspace) -> Vec<&str> {
    let is_set = |package: &&Package| {
        let address = package.repository.as_deref();
        address.is_some_and(|address| address.starts_with("https://"))
    };
    let packages = workspace.packages.values();
    let without = packages.filter(|package| package.is_published && !is_set(package));
    without.map(|package| package.name.as_str()).collect()
}

/// Licenses, sources and bans of all platforms.
fn deny(root: &Path, _: &Request) -> Result<Outcome> {
    let Some(version) = cargo_deny(root)? else {
        return Ok(no_cargo_deny());
    };
    let checks = [
        "deny",
        "--workspace",
        "check",
        "licenses",
        "bans",
        "sources",
    ];
    let status = runner::program("cargo", root).args(checks).status()?;
    let remark = format!("licenses, bans and sources, {version}");
    Ok(Outcome::of(status.success(), remark))
}

/// Known vulnerabilities of all packages.
fn advisories(root: &Path, _: &Request) -> Result<Outcome> {
    let Some(version) = cargo_deny(root)? else {
        return Ok(no_cargo_deny());
    };
    let cargo = |words: &[&str]| runner::program("cargo", root).args(words).status();
    if !cargo(&["deny", "fetch", "db"])?.success() {
        let reason = "the database of RustSec cannot be fetched";
        return Ok(Outcome::Missing(reason.to_owned()));
    }
    let status = cargo(&["deny", "--workspace", "check", "advisories"])?;
    Ok(Outcome::of(status.success(), version))
}

/// Returns the version of cargo-deny, if it is installed.
fn cargo_deny(root: &Path) -> Result<Option<String>> {
    let mut cargo = runner::program("cargo", root);
    let known = cargo
        .args(["deny", "--version"])
        .output()
        .context("cargo")?;
    let version = String::from_utf8_lossy(&known.stdout).trim().to_owned();
    Ok(known.status.success().then_some(version))
}

fn no_cargo_deny() -> Outcome {
    Outcome::Missing("install it with `cargo install --locked cargo-deny`".to_owned())
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
        let asked = request(&words(&[
            "--without",
            "wasm",
            "--since",
            "v0.1.0",
            "--only",
            "site",
        ]))
        .expect("valid");
        assert_eq!(asked.only, ["site"]);
        assert_eq!(asked.without, ["wasm"]);
        assert_eq!(asked.since.as_deref(), Some("v0.1.0"));
        for invalid in [
            &["--without", "wsam"][..],
            &["--only", "wsam"],
            &["--without"],
            &["wasm"],
        ] {
            request(&words(invalid)).expect_err("invalid");
        }
    }

    #[test]
    fn published_package_without_repository_is_found() {
        let package = |name: &str, repository: Option<&str>, is_published| {
            let package = Package {
                name: name.to_owned(),
                repository: repository.map(str::to_owned),
                is_published,
                ..Package::default()
            };
            (name.to_owned(), package)
        };
        let packages = [
            package("a", Some("https://example.net/cambric"), true),
            package("b", None, true),
            package("c", Some("../cambric"), true),
            package("d", None, false),
        ];
        let workspace = Workspace {
            packages: packages.into(),
        };
        assert_eq!(without_repository(&workspace), ["b", "c"]);
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
