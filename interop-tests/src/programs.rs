//! Where the programs are.

use std::{
    env,
    fs::Metadata,
    path::{Path, PathBuf},
};

/// Returns the path of one of Cambric's programs: in `CAMBRIC_PROGRAMS`, or the newest build beside
/// the tests, of any profile.
///
/// # Panics
/// If it has not been built.
pub fn own(name: &str) -> PathBuf {
    built(name, "make demo")
}

/// Returns the path of a program in `examples/`, likewise.
///
/// # Panics
/// If it has not been built.
pub fn example(name: &str) -> PathBuf {
    built(name, "cargo run -p xtask -- package")
}

/// Returns the path of a program that `command` builds.
fn built(name: &str, command: &str) -> PathBuf {
    let named = env::var_os("CAMBRIC_PROGRAMS").map(PathBuf::from);
    let test = env::current_exe().expect("a running test has a path");
    let beside = test.ancestors().skip(2).take(2).flat_map(|target| {
        [
            target.to_owned(),
            target.join("quick"),
            target.join("release"),
            target.join("debug"),
        ]
    });
    let candidates: Vec<PathBuf> = named
        .into_iter()
        .chain(beside)
        .map(|directory| directory.join(name))
        .collect();
    // Only files: cargo-deb makes directories with these names in the build directory.
    let built = candidates
        .iter()
        .filter_map(|path| Some((path.metadata().ok().filter(Metadata::is_file)?, path)));
    let newest = built.max_by_key(|(file, _)| file.modified().ok());
    let found = newest.map(|(_, path)| path.clone());
    found.unwrap_or_else(|| panic!("{name} is in none of {candidates:?}: run `{command}`"))
}

/// Returns the path of a foreign program, or `None` with a notice where it is not installed.
pub fn foreign(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    first(directories, name)
}

/// Returns the program of this name in one directory: two programs are called `bgpd`.
pub(crate) fn foreign_in(directory: &str, name: &str) -> Option<PathBuf> {
    first([PathBuf::from(directory)], name)
}

fn first(directories: impl IntoIterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    let found = directories
        .into_iter()
        .map(|directory| directory.join(name))
        .find(|path| Path::is_file(path));
    if found.is_none() {
        println!("skipped: {name} is not installed; tools/install-test-packages.sh does that");
    }
    found
}
