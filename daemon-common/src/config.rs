//! Configuration files: TOML with errors that show the place. Manifests in YAML have the same
//! [`Problem`]s and the same [`Report`].
//!
//! [`load`] is for files that the types alone can check. A daemon with further checks (a neighbor
//! that is configured twice) reads a [`Source`], parses it, and collects [`Problems`] at the spans
//! that [`toml::Spanned`] kept; all of them are in one [`Report`].
//!
//! Types should be `#[serde(deny_unknown_fields)]`: a misspelled key is an error, and the nearest
//! known key is suggested.

mod explain;
mod field;
mod golden;
mod hints;
mod keys;
mod place;
mod problem;
mod recover;
mod secret;
mod secret_yaml;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

pub use field::choices;
pub use golden::compare_reports;
pub use problem::{Problem, Problems, Report};

use crate::limits::CONFIG_OCTETS_MAX;
use secret::Shown;

/// Where the packages have their configuration files.
const PACKAGED: &str = "/etc/cambric";

/// Returns the integer at these keys in another program's file. `None` if it is missing, or if the
/// file cannot be read, which that program itself reports.
pub fn integer_in(path: &Path, keys: &[&str]) -> Option<i64> {
    value_in(path, keys)?.as_integer()
}

/// The truth value that these keys lead to in another program's file; see [`integer_in`].
pub fn bool_in(path: &Path, keys: &[&str]) -> Option<bool> {
    value_in(path, keys)?.as_bool()
}

fn value_in(path: &Path, keys: &[&str]) -> Option<toml::Value> {
    let table: toml::Table = read_text(path).ok()?.parse().ok()?;
    let mut at = toml::Value::Table(table);
    for key in keys {
        at = at.as_table_mut()?.remove(*key)?;
    }
    Some(at)
}

/// Returns the path of another configuration file of this host: beside `file`, else in the packages'
/// directory. `None` if there is no such file. One that cannot be examined counts as present, so that
/// reading it has the reason.
pub fn beside(file: &Path, name: &str) -> Option<PathBuf> {
    let own = file.parent().map(|directory| directory.join(name));
    let packaged = Path::new(PACKAGED).join(name);
    own.into_iter().chain([packaged]).find(|path| may_be(path))
}

/// Returns whether there is a file, or that cannot be found out.
fn may_be(path: &Path) -> bool {
    match path.metadata() {
        Ok(found) => found.is_file(),
        Err(error) => {
            let kind = error.kind();
            kind != io::ErrorKind::NotFound && kind != io::ErrorKind::NotADirectory
        }
    }
}

/// Reads a file into `T`.
///
/// # Errors
///
/// A [`Report`] ready to print: the file cannot be read, is not TOML, or does not fit `T`.
pub fn load<T: DeserializeOwned>(path: impl AsRef<Path>) -> Result<T, Report> {
    Source::read(path)?.parse()
}

/// A configuration file's text with its name, kept so that later checks can point into it.
#[derive(Clone, Debug)]
pub struct Source {
    path: PathBuf,
    text: String,
    syntax: Syntax,
    is_shown: fn(&str) -> bool,
}

/// The syntax of a file, which determines where its secrets may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    Toml,
    Yaml,
}

impl Source {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// A [`Report`] with the reason why the file cannot be read, and the remedy.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Report> {
        let path = path.as_ref();
        let text =
            read_text(path).map_err(|error| Report::of_file(path, &explain::unreadable(&error)))?;
        Ok(Self::new(path, text))
    }

    /// Makes a source from a text; `path` is only its name.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
            syntax: Syntax::Toml,
            is_shown: |_| false,
        }
    }

    /// Makes a source from a text in YAML or JSON. Reports quote the values of fields that
    /// `is_shown` returns true for, and no others.
    pub fn yaml(
        path: impl Into<PathBuf>,
        text: impl Into<String>,
        is_shown: fn(&str) -> bool,
    ) -> Self {
        Self {
            syntax: Syntax::Yaml,
            is_shown,
            ..Self::new(path, text)
        }
    }

    /// Adds keys whose values are not secrets, so that reports quote them.
    #[must_use]
    pub fn showing(mut self, is_shown: fn(&str) -> bool) -> Self {
        self.is_shown = is_shown;
        self
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Parses the text into `T`.
    ///
    /// # Errors
    ///
    /// Every mistake of syntax, keys and types.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Report> {
        let (value, problems) = self.examine();
        problems.finish()?;
        value.ok_or_else(|| self.report(vec![Problem::whole("not readable")]))
    }

    /// Parses the text into `T` as far as it is valid, for further checks. The problems have every
    /// mistake of syntax, keys and types; without the value, further checks are impossible.
    pub fn examine<T: DeserializeOwned>(&self) -> (Option<T>, Problems<'_>) {
        let read = recover::read(&self.text);
        (read.value, Problems::found(self, read.problems, read.lost))
    }

    /// The place of the value that these keys lead to; an index picks an item of an array. For checks
    /// of values that kept no place themselves. Empty when there is no such value.
    pub fn place_of(&self, keys: &[&str], index: Option<usize>) -> Range<usize> {
        let (table, _) = toml::de::DeTable::parse_recoverable(&self.text);
        let mut span = table.span();
        let mut at = toml::de::DeValue::Table(table.into_inner());
        for key in keys {
            let found = match at {
                toml::de::DeValue::Table(mut table) => table.remove(*key),
                _ => None,
            };
            let Some(found) = found else {
                return span;
            };
            (span, at) = (found.span(), found.into_inner());
        }
        if let (Some(index), toml::de::DeValue::Array(items)) = (index, &at) {
            span = items.get(index).map_or(span, |item| item.span());
        }
        span
    }

    /// Another configuration file of this host: beside this one, else in the packages' directory.
    /// `None` if there is no such file.
    pub fn beside(&self, name: &str) -> Option<PathBuf> {
        beside(&self.path, name)
    }

    /// An empty list of problems in this file.
    pub fn problems(&self) -> Problems<'_> {
        Problems::found(self, Vec::new(), place::Lost::default())
    }

    /// A report with one problem, at `span` (octet offsets into the text).
    pub fn problem(&self, span: Range<usize>, message: impl Into<String>) -> Report {
        self.report(vec![Problem::at(span, message)])
    }

    /// A report with these problems.
    pub fn report(&self, problems: Vec<Problem>) -> Report {
        Report::new(self, problems)
    }

    fn is_toml(&self) -> bool {
        self.syntax == Syntax::Toml
    }

    /// Returns the parts of the text that a report may quote.
    fn shown(&self) -> Shown {
        match self.syntax {
            Syntax::Toml => Shown::of(&self.text, self.is_shown),
            Syntax::Yaml => secret_yaml::shown(&self.text, self.is_shown),
        }
    }
}

/// Returns a file with the defaults and examples in its comments enabled: lines that begin with `#`
/// without a space after it. For tests of such a file.
pub fn uncommented(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(shown) if !shown.starts_with(' ') => shown,
        _ => line,
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns the indented file in the comments of another: lines that begin with `#    `. For tests
/// of such a file.
pub fn alternative(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.strip_prefix("#    "));
    lines.map(|line| format!("{line}\n")).collect()
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let octets = File::open(path)?
        .take(CONFIG_OCTETS_MAX + 1)
        .read_to_string(&mut text)?;
    if octets as u64 > CONFIG_OCTETS_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("longer than {CONFIG_OCTETS_MAX} octets"),
        ));
    }
    Ok(text)
}
