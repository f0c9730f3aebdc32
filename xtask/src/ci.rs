//! All checks of continuous integration: `cargo run -p xtask -- ci`, which is `make test`.

use std::path::Path;

use anyhow::Result;

use crate::runner::{self, Job, Outcome, PROFILE, Setting, Stage, Summary, Table, Verdict};
use crate::tidy::{files, versions};
use crate::{fuzz, library, programs};

/// Runs all checks to the end, also after failures, and reports the failures at the end. After a
/// failed build no test is run.
///
/// # Errors
/// If `xtask/tests.toml` is invalid, or the build directory is not writable.
pub fn run(root: &Path) -> Result<bool> {
    let (table, setting) = (Table::read(root)?, Setting::new(root));
    println!("seed {}, of what the repository holds", setting.seed);
    if !setting.labs {
        println!("not root: tests that need namespaces are skipped");
    }
    let mut summary = Summary::default();
    for (name, words) in BEFORE {
        summary.stages.push(command(root, name, words));
    }
    let mut built = None;
    summary.stages.push(Stage::run("build", || {
        built = ok_or_print(runner::build(root));
        built.is_some()
    }));
    let Some(executables) = built else {
        return Ok(summary.print());
    };
    for (name, words) in CHECKS {
        summary.stages.push(command(root, name, words));
    }
    // A newer compiler on the machine fails no run; it fails `release-check`.
    if let Some(remark) =
        ok_or_print(files::tracked(root).and_then(|files| versions::newer_compiler(&files)))
            .flatten()
    {
        println!("{remark}");
    }
    summary.stages.push(Stage::run("programs, each alone", || {
        ok_or_print(programs::check(root)) == Some(true)
    }));
    // Before the tests: labs start the examples that this builds.
    summary.stages.push(Stage::run("published crates", || {
        ok_or_print(library::run(root)) == Some(true)
    }));
    let mut jobs = runner::jobs(&setting, &table, &executables)?;
    let tests = jobs.len();
    summary.stages.push(Stage::run("fuzz targets", || {
        let targets =
            fuzz::build(root).and_then(|at| fuzz::jobs(&setting, &table, &at, fuzz::Begin::Empty));
        ok_or_print(targets)
            .map(|targets| jobs.extend(targets))
            .is_some()
    }));
    if setting.labs {
        summary.stages.push(command(root, "packages", PACKAGES));
        jobs.extend(labs(&setting, &table));
    }
    run_tests(&mut summary, &setting, jobs);
    run_examples(&mut summary, root, tests);
    if setting.labs {
        summary.check(&table);
    }
    Ok(summary.print())
}

/// Runs all tests, and the jobs beside them.
fn run_tests(summary: &mut Summary, setting: &Setting, jobs: Vec<Job>) {
    let stage = Stage::run("tests", || {
        let Some(outcomes) = ok_or_print(runner::run(setting, jobs)) else {
            return false;
        };
        let failed = |outcome: &Outcome| outcome.verdict == Verdict::Failed;
        summary.outcomes = outcomes;
        !summary.outcomes.iter().any(failed)
    });
    summary.stages.push(stage);
}

/// Compares the number of tests with cargo's, and runs the examples in documentation.
fn run_examples(summary: &mut Summary, root: &Path, tests: usize) {
    let stage = Stage::run("as many tests as cargo finds", || {
        let cargo = ok_or_print(runner::count(root));
        println!("{tests} here, {cargo:?} there");
        cargo == Some(tests)
    });
    summary.stages.push(stage);
    let stage = Stage::run("examples in documentation", || {
        summary.doctests = ok_or_print(runner::doctests(root)).unwrap_or((0, 1));
        summary.doctests.1 == 0
    });
    summary.stages.push(stage);
}

/// Prerequisites and short checks.
const BEFORE: [(&str, &[&str]); 3] = [
    (
        "programs for the tests",
        &["tools/install-test-packages.sh"],
    ),
    ("Neutron's driver", &["tools/install-neutron-driver.sh"]),
    ("format", &["cargo", "fmt", "--all", "--check"]),
];

/// Checks that run no program. `tidy` is one of the tests: `the_repository_is_tidy`.
const CHECKS: [(&str, &[&str]); 2] = [
    (
        "lints",
        &[
            "cargo",
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--profile",
            PROFILE,
            "--",
            "-D",
            "warnings",
        ],
    ),
    (
        "documentation",
        &[
            "cargo",
            "doc",
            "--workspace",
            "--no-deps",
            "--locked",
            "--profile",
            PROFILE,
        ],
    ),
];

/// Builds the packages from the same programs as the tests.
const PACKAGES: &[&str] = &["tools/package.sh", PROFILE];

/// Returns the jobs that run beside the tests.
fn labs(setting: &Setting, table: &Table) -> Vec<Job> {
    let program = setting.programs().join("cambric").display().to_string();
    let of = |name: &str, words: &[&str]| runner::command(setting, table, name, words);
    vec![
        of("demo", &[&program, "lab", "demo"]),
        of(
            "demo on etcd",
            &[&program, "lab", "demo", "--store", "etcd", "--members", "3"],
        ),
        of("kept lab", &["tools/kept-lab.sh", &program]),
        of("package lab", &["tools/package-lab.sh"]),
    ]
}

fn command(root: &Path, name: &str, words: &[&str]) -> Stage {
    Stage::run(name, || {
        let Some((program, arguments)) = words.split_first() else {
            return false;
        };
        let mut command = runner::program(program, root);
        command.args(arguments).env("RUSTDOCFLAGS", "-D warnings");
        let status = command.status();
        ok_or_print(status.map_err(Into::into)).is_some_and(|status| status.success())
    })
}

/// Returns a result's value; prints its error.
fn ok_or_print<T>(result: Result<T>) -> Option<T> {
    result.inspect_err(|error| println!("{error:#}")).ok()
}
