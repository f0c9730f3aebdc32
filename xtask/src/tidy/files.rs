//! The repository's own files.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// One text file.
#[derive(Clone, Debug)]
pub struct File {
    /// Relative to the repository.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

impl File {
    /// Makes a file from its path and text.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }

    /// Returns the member it belongs to: the first directory of its path.
    pub fn member(&self) -> &str {
        self.path
            .iter()
            .next()
            .and_then(|first| first.to_str())
            .unwrap_or_default()
    }

    /// Returns whether it is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path
            .extension()
            .is_some_and(|extension| extension == "rs")
    }

    /// Returns whether it is a page.
    pub fn is_markdown(&self) -> bool {
        self.path
            .extension()
            .is_some_and(|extension| extension == "md")
    }

    /// Returns whether it is Rust source that only tests compile.
    pub fn is_test(&self) -> bool {
        self.path.file_stem().is_some_and(|stem| stem == "tests")
            || self
                .path
                .iter()
                .any(|part| matches!(part.to_str(), Some("tests" | "benches")))
    }

    /// Returns the part without tests: up to an inline `mod tests {`.
    pub fn without_tests(&self) -> &str {
        let end = self
            .text
            .find("\n#[cfg(test)]\nmod tests {")
            .map(|at| at + 1);
        end.and_then(|end| self.text.get(..end))
            .unwrap_or(&self.text)
    }
}

/// Returns every text file that git tracks or would track, which excludes build products.
///
/// # Errors
///
/// Git cannot be run, or a file cannot be read. In a copy without history every file except those
/// in `target` is returned.
pub fn tracked(root: &Path) -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    for path in listed(root)? {
        let octets = match std::fs::read(root.join(&path)) {
            Ok(octets) => octets,
            // Deleted, and not yet committed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        if let Ok(text) = String::from_utf8(octets) {
            files.push(File { path, text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn listed(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !root.join(".git").exists() {
        let mut paths = Vec::new();
        collect_files(root, Path::new(""), &mut paths)?;
        return Ok(paths);
    }
    let output = Command::new("git")
        .args([
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
        ])
        .arg("--exclude-standard")
        .current_dir(root)
        .output()
        .context("run git ls-files")?;
    if !output.status.success() {
        bail!(
            "git ls-files: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let names = String::from_utf8_lossy(&output.stdout);
    Ok(names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .collect())
}

fn collect_files(root: &Path, below: &Path, paths: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                collect_files(root, &path, paths)?;
            }
        } else {
            paths.push(path);
        }
    }
    Ok(())
}
