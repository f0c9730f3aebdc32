//! The mistakes of several files.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use calico_model::is_public_field;
use daemon_common::config::{Problem, Source};

use crate::Document;

/// The mistakes of several files. Printed, it is one report for each file, with line, column and
/// caret of every mistake; secrets are covered.
#[derive(Debug, Default)]
pub struct Mistakes {
    files: Vec<(Arc<Source>, Vec<Problem>)>,
}

impl Mistakes {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Adds mistakes of a document.
    pub fn add(&mut self, document: &Document, problems: impl IntoIterator<Item = Problem>) {
        self.add_to(&document.source, problems);
    }

    /// Adds the mistakes of other files.
    pub fn append(&mut self, more: Self) {
        self.files.extend(more.files);
    }

    /// Returns a mistake of a file that cannot be read, or of a directory.
    pub(crate) fn of_file(path: &Path, message: impl Into<String>) -> Self {
        let mut mistakes = Self::default();
        mistakes.add_to(&source(path, ""), [Problem::whole(message)]);
        mistakes
    }

    pub(crate) fn add_to(
        &mut self,
        source: &Arc<Source>,
        problems: impl IntoIterator<Item = Problem>,
    ) {
        let mut problems = problems.into_iter().peekable();
        if problems.peek().is_none() {
            return;
        }
        let same = |(other, _): &&mut (Arc<Source>, _)| Arc::ptr_eq(other, source);
        match self.files.iter_mut().rev().find(same) {
            Some((_, found)) => found.extend(problems),
            None => self.files.push((Arc::clone(source), problems.collect())),
        }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (source, found)) in self.files.iter().enumerate() {
            if at > 0 {
                f.write_str("\n\n")?;
            }
            let mut problems = source.problems();
            found.iter().for_each(|one| problems.push(one.clone()));
            write!(f, "{}", problems.into_report())?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// Returns a file of manifests.
pub(crate) fn source(path: &Path, text: &str) -> Arc<Source> {
    Arc::new(Source::yaml(path, text, is_public))
}

/// Returns whether a field's value is no secret. The items of a list have fields of their own.
fn is_public(name: &str) -> bool {
    name == "items" || is_public_field(name)
}
