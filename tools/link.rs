//! Build script of the programs: stores relative relocations in a few octets instead of 24 each.
//!
//! A program has some 28,000 of them, which the loader reads at each start: 0.7 MB of resident memory
//! of every daemon. The loader of glibc understands the packed form from 2.36 on, so a program that is
//! built on an older system keeps the long one.

use std::env;
use std::process::Command;

/// The first glibc whose loader reads `DT_RELR`.
const GLIBC_MIN: (u32, u32) = (2, 36);

fn main() {
    println!("cargo:rerun-if-changed=../tools/link.rs");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let optimized = variable("PROFILE") == "release";
    let native = variable("TARGET") == variable("HOST");
    let gnu = variable("CARGO_CFG_TARGET_ENV") == "gnu";
    if optimized && native && gnu && glibc().is_some_and(|version| version >= GLIBC_MIN) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Returns the version of this machine's glibc.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    let mut numbers = text.trim().strip_prefix("glibc ")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
