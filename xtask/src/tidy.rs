//! `tidy`: checks of the repository's structure that the compiler cannot make.
//!
//! * [`directions`]: which crate may depend on which, the floors of ARCHITECTURE.md;
//! * [`fences`]: words that only certain places may use (netlink, etcd, tokio, a clock);
//! * [`tree`]: the dependencies of the `no_std` core;
//! * [`sizes`]: lengths of files;
//! * [`circles`]: files that import each other in a circle;
//! * [`words`]: markers of unfinished work, and paths of one machine;
//! * [`plain`]: words that mark unclear sentences;
//! * [`spelling`]: American spelling;
//! * [`first`]: first words of sentences;
//! * [`sentences`]: lengths of sentences;
//! * [`names`]: names of tests;
//! * [`subjects`]: subjects of commits;
//! * [`documents`]: dependencies with their reasons, the map with its files, invariants with their
//!   tests;
//! * [`promises`]: the page of promises;
//! * [`links`]: links between documents;
//! * [`pages`]: the pages of the built site;
//! * [`api`]: the lists of public items of the published crates;
//! * [`published`]: files, manifests and errors of the published crates;
//! * [`licenses`]: licenses and sources of all packages;
//! * [`logs`]: plain log calls in place of events;
//! * [`versions`]: one version and one oldest compiler.

use std::fmt;
use std::path::{Path, PathBuf};

pub mod api;
pub mod circles;
pub mod compiler;
pub mod directions;
pub mod documents;
pub mod fences;
pub mod files;
pub mod first;
pub mod licenses;
pub mod links;
pub mod logs;
pub mod metadata;
pub mod names;
pub mod pages;
pub mod plain;
pub mod promises;
pub mod prose;
pub mod published;
pub mod sentences;
pub mod sizes;
pub mod spelling;
pub mod subjects;
#[cfg(test)]
mod tests;
pub mod tree;
pub mod versions;
pub mod words;

/// One violation of a check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the repository.
    pub path: PathBuf,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// The violation, and its remedy.
    pub text: String,
}

impl Finding {
    /// Makes a finding about a file as a whole.
    pub fn file(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line: 0,
            text: text.into(),
        }
    }

    /// Makes a finding at a line.
    pub fn line(path: impl Into<PathBuf>, line: usize, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line,
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.text),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.text),
        }
    }
}

/// Runs every check on the repository at `root`; the findings are sorted.
///
/// # Errors
///
/// `cargo metadata` fails or a file cannot be read.
pub fn run(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let workspace = metadata::Workspace::read(root)?;
    let files = files::tracked(root)?;
    let mut findings = directions::check(&workspace);
    findings.extend(fences::check(&workspace, &files));
    findings.extend(tree::check(root)?);
    findings.extend(sizes::check(&files));
    findings.extend(circles::check(&files));
    findings.extend(words::check(&files));
    findings.extend(plain::check(&files));
    findings.extend(spelling::check(&files));
    findings.extend(first::check(&files));
    findings.extend(sentences::check(&files));
    findings.extend(names::check(&files));
    findings.extend(subjects::check(root)?);
    findings.extend(documents::check(&workspace, &files));
    findings.extend(promises::check(&files));
    findings.extend(links::check(&files));
    findings.extend(pages::check(&files));
    findings.extend(logs::check(&files));
    findings.extend(api::check(root, &workspace)?);
    findings.extend(published::check(&workspace, &files));
    findings.extend(licenses::check(root, &workspace)?);
    findings.extend(versions::check(&workspace, &files));
    findings.sort();
    Ok(findings)
}
