//! Plain language: words that mark sentences which must be read twice, counted in pages, comments and
//! messages.

use std::collections::BTreeMap;

use super::Finding;
use super::files::File;
use super::prose::{self, Word};

/// The markers, each as its words.
const MARKERS: &[&[&str]] = &[
    &["who"],
    &["whom"],
    &["whose"],
    &["nobody"],
    &["anybody"],
    &["somebody"],
    &["told"],
    &["tells"],
    &["anew"],
    &["once", "more"],
    &["by", "hand"],
    &["is", "none"],
    &["are", "none"],
    &["of", "ours"],
    &["of", "theirs"],
    &["what", "of"],
    &["goes", "before"],
    &["stands", "by"],
    &["stands", "in"],
    &["meanwhile"],
];

/// Texts of fewer words are short.
const SHORT_WORDS: usize = 600;

/// Markers that a short text may have.
const SHORT_MAX: usize = 3;

/// Markers in 1,000 words of a page.
const PAGE_MAX: usize = 1;

/// Markers in 1,000 words of a crate's comments.
const COMMENTS_MAX: usize = 2;

/// Markers in 1,000 words of a crate's text literals.
const TEXTS_MAX: usize = 1;

/// Checks pages one by one, and the source of each crate as a whole.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut comments: BTreeMap<&str, Prose> = BTreeMap::new();
    let mut texts: BTreeMap<&str, Prose> = BTreeMap::new();
    for file in files {
        if file.path.starts_with("xtask/src/tidy") {
            continue;
        }
        let path = file.path.display().to_string();
        if file.is_markdown() {
            let mut page = Prose::default();
            page.add(&path, &prose::page(&file.text));
            findings.extend(page.finding(&path, "the page", PAGE_MAX));
        } else if file.is_rust() {
            let source = prose::source(&file.text);
            let (member, path) = (file.member(), path.as_str());
            let all = comments.entry(member).or_default();
            all.add(path, &source.comments);
            if !file.is_test() && !path.contains("tests/") {
                let source = prose::source(file.without_tests());
                texts.entry(member).or_default().add(path, &source.texts);
            }
        }
    }
    for (member, all) in &comments {
        findings.extend(all.finding(member, "comments", COMMENTS_MAX));
    }
    for (member, all) in &texts {
        findings.extend(all.finding(member, "messages", TEXTS_MAX));
    }
    findings
}

/// The words of a text, and its markers with their places.
#[derive(Debug, Default)]
struct Prose {
    words: usize,
    markers: Vec<String>,
}

impl Prose {
    fn add(&mut self, path: &str, words: &[Word]) {
        self.words += words.len();
        for at in 0..words.len() {
            let from = words.get(at..).unwrap_or_default();
            let begins = |marker: &&&[&str]| {
                let given = from.iter().map(|word| word.text.as_str());
                given.take(marker.len()).eq(marker.iter().copied())
            };
            if let (Some(marker), Some(word)) = (MARKERS.iter().find(begins), from.first()) {
                let place = format!("{path}:{} `{}`", word.line, marker.join(" "));
                self.markers.push(place);
            }
        }
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
