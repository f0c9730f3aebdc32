//! Plain language: words that mark sentences which must be read twice, counted in the comments and the
//! messages of each file, of each crate as a whole, in each page and picture, and in the comments of
//! scripts and packaged files. Some words always have a plainer one; they are in none of these texts.

use std::collections::BTreeMap;

use super::Finding;
use super::files::File;
use super::first::comments_of;
use super::prose::{self, Word};

/// The markers, one a line.
const MARKERS: &str = include_str!("words/markers.txt");

/// Words and phrases that are in no page, no comment and no message, one a line.
const REPLACED: &str = include_str!("words/replaced.txt");

/// Texts of fewer words are short.
const SHORT_WORDS: usize = 600;

/// Markers that a short text may have.
const SHORT_MAX: usize = 3;

/// Markers in 1,000 words of a page.
const PAGE_MAX: usize = 1;

/// Markers in 1,000 words of comments.
const COMMENTS_MAX: usize = 2;

/// Markers in 1,000 words of text literals.
const TEXTS_MAX: usize = 1;

/// Checks pages and sources one by one, and the source of each crate as a whole.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut crates: BTreeMap<&str, Code> = BTreeMap::new();
    for file in files {
        let path = file.path.display().to_string();
        if file.is_markdown() {
            let page = Prose::of(&path, &prose::page(&file.text));
            findings.extend(page.finding(&path, "the page", PAGE_MAX));
        } else if file.is_rust() {
            let code = Code::of(file, &path);
            let found = code.findings(&path);
            // A crate is reported for its files, if they have findings.
            if found.is_empty() {
                crates.entry(file.member()).or_default().add(code);
            }
            findings.extend(found);
        } else if is_picture(file) {
            let picture = Prose::of(&path, &prose::page(&drawn(&file.text)));
            findings.extend(picture.finding(&path, "the picture", PAGE_MAX));
        } else if let Some(comments) = comments_of(file) {
            let comments = Prose::of(&path, &prose::page(&comments));
            findings.extend(comments.finding(&path, "comments", COMMENTS_MAX));
        }
    }
    let crates = crates.iter();
    findings.extend(crates.flat_map(|(member, code)| code.findings(member)));
    findings.extend(files.iter().flat_map(replaced));
    findings
}

/// Finds the words of a file for which there is always a plainer one.
fn replaced(file: &File) -> Vec<Finding> {
    let mut words = Vec::new();
    if file.is_markdown() {
        words.extend(prose::page(&file.text));
    } else if file.is_rust() {
        words.extend(prose::source(&file.text).comments);
        if !is_test(file) {
            words.extend(prose::source(file.without_tests()).texts);
        }
    } else if is_picture(file) {
        words.extend(prose::page(&drawn(&file.text)));
    } else if let Some(comments) = comments_of(file) {
        words.extend(prose::page(&comments));
    }
    let found = phrases(&words, REPLACED).into_iter();
    let found = found.map(|(line, phrase)| {
        let text = format!("`{phrase}`: write the word of CONTRIBUTING.md, Words");
        Finding::line(&file.path, line, text)
    });
    found.collect()
}

/// Returns the first marker or listed word of a short text.
pub(super) fn unclear(words: &[Word]) -> Option<&'static str> {
    let lists = [REPLACED, MARKERS].into_iter();
    let mut found = lists.flat_map(|listed| phrases(words, listed));
    found.next().map(|(_, phrase)| phrase)
}

/// Returns where one of `listed`, with one phrase a line, begins.
fn phrases<'l>(words: &[Word], listed: &'l str) -> Vec<(usize, &'l str)> {
    let mut found = Vec::new();
    for at in 0..words.len() {
        let from = words.get(at..).unwrap_or_default();
        let begins = |phrase: &&str| {
            let given = from.iter().map(|word| word.text.as_str());
            let count = phrase.split(' ').count();
            given.take(count).eq(phrase.split(' '))
        };
        if let (Some(phrase), Some(word)) = (listed.lines().find(begins), from.first()) {
            found.push((word.line, phrase));
        }
    }
    found
}

/// Returns whether all text literals of a file are those of tests.
fn is_test(file: &File) -> bool {
    file.is_test() || file.path.display().to_string().contains("tests/")
}

fn is_picture(file: &File) -> bool {
    let extension = file.path.extension();
    extension.is_some_and(|extension| extension == "svg")
}

/// Returns the text of a picture, which is outside of its tags.
fn drawn(svg: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    for c in svg.chars() {
        is_tag |= c == '<';
        if !is_tag || c == '\n' {
            text.push(c);
        }
        is_tag &= c != '>';
    }
    text
}

/// The comments and the text literals of source.
#[derive(Debug, Default)]
struct Code {
    comments: Prose,
    texts: Prose,
}

impl Code {
    /// Returns those of a file; the text literals of tests are left out.
    fn of(file: &File, path: &str) -> Self {
        let comments = Prose::of(path, &prose::source(&file.text).comments);
        let texts = match is_test(file) {
            true => Prose::default(),
            false => Prose::of(path, &prose::source(file.without_tests()).texts),
        };
        Self { comments, texts }
    }

    fn add(&mut self, other: Self) {
        self.comments.add(other.comments);
        self.texts.add(other.texts);
    }

    fn findings(&self, path: &str) -> Vec<Finding> {
        let comments = self.comments.finding(path, "comments", COMMENTS_MAX);
        let texts = self.texts.finding(path, "messages", TEXTS_MAX);
        comments.into_iter().chain(texts).collect()
    }
}

/// The words of a text, and its markers with their places.
#[derive(Debug, Default)]
struct Prose {
    words: usize,
    markers: Vec<String>,
}

impl Prose {
    fn of(path: &str, words: &[Word]) -> Self {
        let found = phrases(words, MARKERS).into_iter();
        let markers = found.map(|(line, marker)| format!("{path}:{line} `{marker}`"));
        Self {
            words: words.len(),
            markers: markers.collect(),
        }
    }

    fn add(&mut self, other: Self) {
        self.words += other.words;
        self.markers.extend(other.markers);
    }

    fn finding(&self, path: &str, what: &str, most: usize) -> Option<Finding> {
        let found = self.markers.len();
        let is_short = self.words < SHORT_WORDS && found <= SHORT_MAX;
        if is_short || found <= (most * self.words).div_ceil(1000) {
            return None;
        }
        let text = format!(
            "{what}: {found} markers of unclear sentences in {} words, at most {most} in 1,000 \
             (CONTRIBUTING.md, Words): {}",
            self.words,
            self.markers.join(", ")
        );
        Some(Finding::file(path, text))
    }
}
