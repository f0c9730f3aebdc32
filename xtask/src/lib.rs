//! Checks of the repository itself, run by `make check` and as ordinary tests.

use std::path::{Path, PathBuf};

pub mod tidy;

/// The top of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf)
}
