//! The commands of this program.

use anyhow::{Context, Result};

use crate::runner::{self, Setting, Stage, Summary, Table};
use crate::{ci, costs, image, library, programs, release, root, site, soak, tidy};

/// All commands.
pub const USAGE: &str = "usage: cargo run -p xtask -- COMMAND
  tidy             checks the shape of the repository
  test [PART ...]  builds and runs the tests with one of the parts in their names, or all
  list             names all tests
  programs         checks each program with the features that it asks for itself
  ci               everything that continuous integration runs
  api              writes the lists of the public items of the published crates, docs/api
  promises         writes the page of promises from the comments at tests, docs/design/promises.md
  docs             builds the documentation as a searchable site with mdBook, target/docs
  image [--programs DIR] [--output FILE] [--name NAME]
                   builds a container image of the release programs, as an OCI layout in a tar file
  package          packages the published crates, and builds the examples from the packages
  release-check [--only CHECK ...] [--without CHECK ...] [--since REVISION]
                   everything that a release needs beside continuous integration
  costs            what each published crate costs to build, as a table
  soak MINUTES     the tests that draw, and the fuzz targets, with seeds by chance";

/// Runs a command. Returns whether it passed; `None` if there is no such command.
///
/// # Errors
/// As the command.
pub fn run(task: &str, rest: &[String]) -> Result<Option<bool>> {
    let root = root();
    let passed = match task {
        "tidy" => tidy(),
        "test" => test(rest),
        "list" => list(),
        "programs" => programs::check(&root),
        "ci" => ci::run(&root),
        "api" => tidy::api::write(&root),
        "promises" => tidy::promises::write(&root),
        "docs" => site::build(&root),
        "image" => image::run(&root, rest),
        "package" => library::run(&root),
        "release-check" => release::run(&root, rest),
        "costs" => costs::run(&root),
        "soak" => soak(rest),
        _ => return Ok(None),
    };
    passed.map(Some)
}

/// Checks the shape of the repository.
fn tidy() -> Result<bool> {
    let findings = tidy::run(&root())?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        eprintln!("tidy: {} findings", findings.len());
    }
    Ok(findings.is_empty())
}

/// Builds and runs the tests with one of these parts in their names.
fn test(parts: &[String]) -> Result<bool> {
    let root = root();
    let (table, setting) = (Table::read(&root)?, Setting::new(&root));
    let mut jobs = runner::jobs(&setting, &table, &runner::build(&root)?)?;
    jobs.retain(|job| parts.is_empty() || parts.iter().any(|part| job.name.contains(part)));
    println!("{} tests, seed {}", jobs.len(), setting.seed);
    let mut summary = Summary::default();
    summary.stages.push(Stage::run("tests", || true));
    summary.outcomes = runner::run(&setting, jobs)?;
    Ok(summary.print())
}

/// Lists all tests.
fn list() -> Result<bool> {
    for executable in runner::build(&root())? {
        for test in runner::names(&executable)? {
            println!("{}::{test}", executable.name);
        }
    }
    Ok(true)
}

/// Runs the tests with random inputs, for so many minutes.
fn soak(arguments: &[String]) -> Result<bool> {
    let minutes = arguments.first().context("how many minutes?")?;
    soak::run(&root(), minutes.parse().context("minutes")?)
}
