//! The promises of the programs: comments at the tests that hold them, and the page made from them.
//!
//! The main test of a promise has a comment `// Promise (AREA): TEXT` before its documentation and
//! attributes, and every further test of it `// Promise: as CRATE TEST`, which names the main test.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Finding;
use super::files::{self, File};

/// The page.
pub const PAGE: &str = "docs/design/promises.md";

/// The start of the page.
const HEAD: &str = "# Promises, and the tests that hold them

Each promise of the programs names the tests that fail if it is broken: § is followed by a crate and a test.
`cargo run -p xtask -- promises` writes this page from `// Promise` comments at the tests.
";

/// The areas, in the order of the page.
const AREAS: &[&str] = &[
    "BGP",
    "Route reflectors",
    "Daemons",
    "Kernel routes",
    "Datastore",
    "Felix",
    "Workloads",
    "Kubernetes",
];

/// Begins a promise's comment.
const MARK: &str = "// Promise";

/// Columns of a line of the page.
const COLUMNS: usize = 116;

/// Checks the comments, and compares the page with them.
pub fn check(files: &[File]) -> Vec<Finding> {
    let (page, mut findings) = page(files);
    let found = files.iter().find(|file| file.path == Path::new(PAGE));
    if found.is_none_or(|file| file.text != page) {
        let text = "differs from the comments: run `cargo run -p xtask -- promises`";
        findings.push(Finding::file(PAGE, text));
    }
    findings
}

/// Writes the page.
///
/// # Errors
/// A file cannot be read or written, or a comment is invalid.
pub fn write(root: &Path) -> Result<bool> {
    let (page, findings) = page(&files::tracked(root)?);
    if let Some(finding) = findings.first() {
        bail!("{finding}");
    }
    std::fs::write(root.join(PAGE), page).context(PAGE)?;
    Ok(true)
}

/// Returns the page that the comments make, and their mistakes.
pub fn page(files: &[File]) -> (String, Vec<Finding>) {
    let mut areas: BTreeMap<usize, Vec<Promise>> = BTreeMap::new();
    let (mut further, mut findings) = (Vec::new(), Vec::new());
    let rust = files.iter().filter(|file| file.is_rust());
    for file in rust.filter(|file| !file.path.starts_with("xtask/src/tidy")) {
        for comment in comments(file) {
            match comment.kind() {
                Some(Kind::Main(area, text)) => areas.entry(area).or_default().push(Promise {
                    text: text.to_owned(),
                    tests: vec![comment.test.clone()],
                }),
                Some(Kind::Further(main)) => further.push((main, comment)),
                None => {
                    findings.push(comment.mistake("name an area of xtask/src/tidy/promises.rs"))
                }
            }
        }
    }
    for (main, comment) in further {
        let mut promises = areas.values_mut().flatten();
        match promises.find(|promise| promise.tests.first() == Some(&main)) {
            Some(promise) => promise.tests.push(comment.test.clone()),
            None => findings.push(comment.mistake("the named test has no promise")),
        }
    }
    let mut page = HEAD.to_owned();
    for (area, promises) in &areas {
        let name = AREAS.get(*area).copied().unwrap_or_default();
        page.push_str(&format!("\n## {name}\n\n"));
        page.extend(promises.iter().map(Promise::item));
    }
    (page, findings)
}

/// A test, as its crate and its name.
type Test = (String, String);

/// A promise with its tests, the main one first.
struct Promise {
    text: String,
    tests: Vec<Test>,
}

impl Promise {
    /// Returns the item of the page.
    fn item(&self) -> String {
        let tests = self.tests.iter();
        let tests: Vec<String> = tests
            .map(|(member, test)| format!("§\u{a0}`{member}` `{test}`"))
            .collect();
        let words = format!("* {} {}", self.text, tests.join(", "));
        let (mut item, mut columns) = (String::new(), 0);
        for word in words.split(' ') {
            let length = word.chars().count();
            if columns > 0 && columns + 1 + length > COLUMNS {
                item.push_str("\n  ");
                columns = 2;
            } else if columns > 0 {
                item.push(' ');
                columns += 1;
            }
            item.push_str(word);
            columns += length;
        }
        item.push('\n');
        item.replace('\u{a0}', " ")
    }
}

/// A comment at a test.
struct Comment<'f> {
    file: &'f File,
    line: usize,
    /// The text behind the mark, on one line.
    text: String,
    test: Test,
}

/// The meaning of a comment.
enum Kind<'t> {
    /// The main test of a promise: its area and its text.
    Main(usize, &'t str),
    /// Another test of the promise of this main test.
    Further(Test),
}

impl Comment<'_> {
    fn kind(&self) -> Option<Kind<'_>> {
        if let Some(main) = self.text.strip_prefix(": as ") {
            let (member, test) = main.split_once(' ')?;
            return Some(Kind::Further((member.to_owned(), test.to_owned())));
        }
        let (area, text) = self.text.strip_prefix(" (")?.split_once("): ")?;
        let area = AREAS.iter().position(|name| *name == area)?;
        Some(Kind::Main(area, text))
    }

    fn mistake(&self, text: &str) -> Finding {
        Finding::line(&self.file.path, self.line, format!("promise: {text}"))
    }
}

/// Returns the comments of a file, each with the next function as its test.
fn comments(file: &File) -> Vec<Comment<'_>> {
    let (mut found, mut open) = (Vec::new(), Vec::<(usize, String)>::new());
    let mut is_text = false;
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim();
        if let Some(text) = line.strip_prefix(MARK) {
            open.push((index + 1, text.to_owned()));
            is_text = true;
        } else if let (true, Some(text), Some((_, last))) =
            (is_text, line.strip_prefix("// "), open.last_mut())
        {
            last.push(' ');
            last.push_str(text);
        } else {
            is_text = false;
        }
        if let (false, Some(name)) = (open.is_empty(), function(line)) {
            let test = (file.member().to_owned(), name.to_owned());
            found.extend(open.drain(..).map(|(line, text)| Comment {
                file,
                line,
                text,
                test: test.clone(),
            }));
        }
    }
    found
}

/// Returns the name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    if line.starts_with("//") {
        return None;
    }
    let (before, rest) = line.split_once("fn ")?;
    let is_head = before.is_empty() || before.ends_with(' ');
    let name = rest
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .next()?;
    (is_head && !name.is_empty()).then_some(name)
}
