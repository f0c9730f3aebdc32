//! Checks of the repository itself, and the runner of its tests.

use std::path::{Path, PathBuf};

pub mod ci;
pub mod commands;
pub mod costs;
pub mod fuzz;
pub mod image;
pub mod library;
pub mod programs;
pub mod release;
pub mod runner;
pub mod site;
pub mod soak;
pub mod tidy;

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf)
}
