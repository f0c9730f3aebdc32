//! Build script of the programs: stores relative relocations in a few octets instead of 24 each.
//!
//! A program has some 28,000 of them, which the loader reads at each start: 0.7 MB of resident memory
//! of every daemon. The loader of glibc reads the packed form from 2.36 on, and refuses a program whose
//! linker does not record it there, as mold 1.10 does not; another linker ignores the option. So a small
//! program is linked in this way, and run: only where it has the packed form and runs, the programs are
//! linked so, too.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The option that packs relative relocations (`DT_RELR`).
const PACK: &str = "-Wl,-z,pack-relative-relocs";

/// The version that a program with packed relocations requires of the loader, as glibc names it.
const REQUIREMENT: &[u8] = b"\0GLIBC_ABI_DT_RELR\0";

/// A program with one relative relocation.
const TRIAL: &str = "static int zero; int *address = &zero; int main(void) { return *address; }";

fn main() {
    println!("cargo:rerun-if-changed=../tools/link.rs");
    // `mold -run` sets it.
    println!("cargo:rerun-if-env-changed=LD_PRELOAD");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let native = variable("TARGET") == variable("HOST");
    let packed = native && packs(Path::new(&variable("OUT_DIR")), &variable("RUSTC_LINKER"));
    if packed {
        println!("cargo:rustc-link-arg-bins={PACK}");
    }
    println!("cargo:rustc-env=CAMBRIC_PACKED_RELOCATIONS={packed}");
}

/// Whether a program that is linked with [`PACK`] has packed relocations, and runs.
fn packs(directory: &Path, linker: &str) -> bool {
    let (source, program) = (directory.join("trial.c"), directory.join("trial"));
    if fs::write(&source, TRIAL).is_err() {
        return false;
    }
    let mut link = Command::new(if linker.is_empty() { "cc" } else { linker });
    link.args(["-fPIE", "-pie", PACK]).args(link_arguments());
    let linked = link.arg("-o").arg(&program).arg(&source).output();
    let linked = linked.is_ok_and(|output| output.status.success());
    let required = |elf: Vec<u8>| {
        elf.windows(REQUIREMENT.len())
            .any(|part| part == REQUIREMENT)
    };
    linked
        && fs::read(&program).is_ok_and(required)
        && Command::new(program)
            .output()
            .is_ok_and(|output| output.status.success())
}

/// Returns what RUSTFLAGS tell the linker, such as `-fuse-ld=mold`.
fn link_arguments() -> Vec<String> {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let arguments = flags.split('\x1f').filter_map(|flag| {
        let flag = flag.strip_prefix("-C").unwrap_or(flag).trim_start();
        flag.strip_prefix("link-arg=").map(ToOwned::to_owned)
    });
    arguments.collect()
}
