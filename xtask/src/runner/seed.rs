//! Seeds of tests and fuzzers.

use std::path::Path;
use std::process::Command;

/// The seed without git.
const CONSTANT: u64 = 1;

/// Returns a seed that depends on the content of the repository: the same for the same tree, so
/// that a passed test passes again; another one with every change.
pub fn of_tree(root: &Path) -> u64 {
    let mut git = Command::new("git");
    git.current_dir(root)
        .args(["rev-parse", "--verify", "HEAD^{tree}"]);
    let output = git.output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.and_then(|text| of_hash(&text)).unwrap_or(CONSTANT)
}

/// Returns 32 bits of a hash: as many as libFuzzer accepts; never 0, which means "random" there.
fn of_hash(hash: &str) -> Option<u64> {
    let seed = u64::from_str_radix(hash.get(..8)?, 16).ok()?;
    Some(seed.max(1))
}

/// Returns a random seed.
///
/// # Errors
/// If the kernel's random numbers cannot be read.
pub fn random() -> std::io::Result<u64> {
    let mut octets = [0; 4];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut octets)?;
    Ok(u64::from(u32::from_ne_bytes(octets)).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_is_the_beginning_of_the_hash() {
        assert_eq!(of_hash("0000002a5c\n"), Some(42));
        assert_eq!(of_hash("00000000ff"), Some(1));
        assert_eq!(of_hash("short"), None);
        assert_eq!(of_hash("no digits"), None);
    }

    #[test]
    fn same_tree_has_the_same_seed() {
        let root = crate::root();
        assert_eq!(of_tree(&root), of_tree(&root));
        assert_eq!(of_tree(Path::new("/")), CONSTANT);
    }
}
