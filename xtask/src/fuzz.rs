//! The fuzz targets as libFuzzer programs, with the stable compiler.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::runner::{self, Job, Setting, Table};
use crate::tidy::compiler;

/// A target of the crate `fuzz`, in its `src/bin`.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// Inputs of a run: some 20 seconds of one core.
    pub inputs: u64,
}

/// All of them.
pub const TARGETS: [Target; 12] = [
    Target {
        name: "message",
        inputs: 3_000_000,
    },
    Target {
        name: "attributes",
        inputs: 3_000_000,
    },
    Target {
        name: "session",
        inputs: 400_000,
    },
    Target {
        name: "speaker",
        inputs: 30_000,
    },
    Target {
        name: "stored",
        inputs: 700_000,
    },
    Target {
        name: "kubernetes",
        inputs: 400_000,
    },
    Target {
        name: "recorded",
        inputs: 700_000,
    },
    Target {
        name: "nexthop",
        inputs: 3_000_000,
    },
    Target {
        name: "parent",
        inputs: 2_000_000,
    },
    Target {
        name: "bfd-packet",
        inputs: 3_000_000,
    },
    Target {
        name: "bfd-session",
        inputs: 400_000,
    },
    Target {
        name: "bfd-sessions",
        inputs: 400_000,
    },
];

/// The profile of the targets.
const PROFILE: &str = "fuzz";

/// Compiler options for libFuzzer's coverage instrumentation.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Builds them. Returns their directory.
///
/// # Errors
/// If there is no C++ compiler, or cargo fails.
pub fn build(root: &Path) -> Result<PathBuf> {
    let host = compiler::host()?;
    let directory = root.join("target/fuzz");
    let mut cargo = runner::program("cargo", root);
    cargo.env("RUSTFLAGS", FLAGS);
    cargo.args([
        "build",
        "--profile",
        PROFILE,
        "--locked",
        "-p",
        "cambric-fuzz",
        "--features",
        "libfuzzer",
    ]);
    cargo
        .args(["--target", &host, "--target-dir"])
        .arg(&directory);
    let status = cargo.status().context("cargo")?;
    if !status.success() {
        bail!(
            "the fuzz targets do not build: libFuzzer needs a C++ compiler (apt-get install g++)"
        );
    }
    Ok(directory.join(host).join(PROFILE))
}

/// The inputs that a run begins with, beside those of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// None, so that the same tree and seed try the same inputs.
    Empty,
    /// Inputs that earlier runs have found.
    Found,
}

/// Returns a job for each target.
///
/// # Errors
/// If a directory for new inputs cannot be made.
pub fn jobs(setting: &Setting, table: &Table, programs: &Path, from: Begin) -> Result<Vec<Job>> {
    let job = |target: &Target| {
        let words = command(setting, programs, target, from)?;
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let name = format!("fuzz/{}", target.name);
        Ok(runner::command(setting, table, &name, &words))
    };
    TARGETS.iter().map(job).collect()
}

/// Returns the command that tries the inputs of the repository, and mutations of them. New inputs
/// are stored in `target/fuzz/corpus`, or in `target/fuzz/new`, which is emptied before; failing ones
/// in `target/fuzz/artifacts`.
fn command(
    setting: &Setting,
    programs: &Path,
    target: &Target,
    from: Begin,
) -> Result<Vec<String>> {
    let Target { name, inputs } = target;
    let directory = |kind: &str| setting.root.join("target/fuzz").join(kind).join(name);
    let (found, failed) = match from {
        Begin::Empty => (directory("new"), directory("artifacts")),
        Begin::Found => (directory("corpus"), directory("artifacts")),
    };
    if from == Begin::Empty && found.exists() {
        fs::remove_dir_all(&found).with_context(|| found.display().to_string())?;
    }
    for directory in [&found, &failed] {
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    let corpus = setting.root.join("fuzz/corpus").join(name);
    Ok(vec![
        programs.join(format!("fuzz-{name}")).display().to_string(),
        found.display().to_string(),
        corpus.display().to_string(),
        format!("-seed={}", setting.seed),
        format!("-runs={inputs}"),
        "-timeout=60".to_owned(),
        "-rss_limit_mb=4096".to_owned(),
        "-print_final_stats=1".to_owned(),
        "-verbosity=0".to_owned(),
        format!("-artifact_prefix={}/", failed.display()),
    ])
}
