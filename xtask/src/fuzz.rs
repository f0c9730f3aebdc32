//! The fuzz targets as programs with libFuzzer, on the stable compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::runner::{self, Setting};

/// The targets: crate `fuzz`, `src/bin`.
pub const TARGETS: [&str; 5] = ["message", "attributes", "session", "speaker", "stored"];

/// What libFuzzer wants to see of the program.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=on \
     -Coverflow-checks=on";

/// Builds them. Says where they are.
///
/// # Errors
/// If there is no C++ compiler, or cargo fails.
pub fn build(root: &Path) -> Result<PathBuf> {
    let version = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let version = String::from_utf8(version.stdout)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not say for which machine it compiles")?;
    let directory = root.join("target/fuzz");
    let mut cargo = runner::program("cargo", root);
    cargo.env("RUSTFLAGS", FLAGS);
    cargo.args([
        "build",
        "--release",
        "--locked",
        "-p",
        "cambric-fuzz",
        "--features",
        "libfuzzer",
    ]);
    cargo
        .args(["--target", host, "--target-dir"])
        .arg(&directory);
    let status = cargo.status().context("cargo")?;
    if !status.success() {
        bail!(
            "the fuzz targets do not build: libFuzzer needs a C++ compiler (apt-get install g++)"
        );
    }
    Ok(directory.join(host).join("release"))
}

/// The command that tries so many inputs: those of the repository, and others made of them. What is
/// found on the way goes to `target/fuzz/corpus`, an input that fails to `target/fuzz/artifacts`.
pub fn command(setting: &Setting, programs: &Path, target: &str, inputs: u64) -> Vec<String> {
    let directory = |name: &str| setting.root.join("target/fuzz").join(name).join(target);
    let (found, failed) = (directory("corpus"), directory("artifacts"));
    for directory in [&found, &failed] {
        let _ = std::fs::create_dir_all(directory);
    }
    vec![
        programs
            .join(format!("fuzz-{target}"))
            .display()
            .to_string(),
        found.display().to_string(),
        setting
            .root
            .join("fuzz/corpus")
            .join(target)
            .display()
            .to_string(),
        format!("-seed={}", setting.seed),
        format!("-runs={inputs}"),
        "-timeout=60".to_owned(),
        "-rss_limit_mb=4096".to_owned(),
        "-print_final_stats=1".to_owned(),
        "-verbosity=0".to_owned(),
        format!("-artifact_prefix={}/", failed.display()),
    ]
}
