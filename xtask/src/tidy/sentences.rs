//! Lengths of sentences on the pages for operators.

use super::Finding;
use super::files::File;

/// Words of a sentence. Code and a quotation are one word each, and so is a list of code.
pub const WORDS_MAX: usize = 25;

/// The directory of the pages.
const PAGES: &str = "docs/operate";

/// In place of code and quotations.
const NAME: &str = "N";

/// Checks the sentences of all pages, without tables and headings.
pub fn check(files: &[File]) -> Vec<Finding> {
    let pages = files
        .iter()
        .filter(|file| file.is_markdown() && file.path.starts_with(PAGES));
    pages.flat_map(check_page).collect()
}

fn check_page(page: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in paragraphs(&page.text) {
        for sentence in sentences(&plain(&text)) {
            let words = count(&sentence);
            if words > WORDS_MAX {
                let start: Vec<&str> = sentence.iter().take(6).map(String::as_str).collect();
                let start = start.join(" ");
                let text = format!("{words} words, at most {WORDS_MAX}: split `{start} …`");
                findings.push(Finding::line(&page.path, line, text));
            }
        }
    }
    findings
}

/// Returns the paragraphs and the items of lists, with their lines from 1.
fn paragraphs(page: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut is_code, mut continues) = (false, false);
    for (index, line) in page.lines().enumerate() {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_fence || is_code || line.is_empty() || line.starts_with(['|', '#', '>']) {
            continues = false;
            continue;
        }
        match found.last_mut().filter(|_| continues && !is_item(line)) {
            Some((_, text)) => {
                text.push(' ');
                text.push_str(line);
            }
            None => found.push((index + 1, line.to_owned())),
        }
        continues = true;
    }
    found
}

/// Returns whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("* ") || line.starts_with("- ") || number.starts_with(". ")
}

/// Returns a text with names in place of code and quotations, and without the targets of links.
fn plain(text: &str) -> String {
    let named = |text: &str, mark: char| -> String {
        let parts = text.split(mark).enumerate();
        parts
            .map(|(index, part)| if index % 2 == 1 { NAME } else { part })
            .collect()
    };
    let text = named(&named(text, '`'), '"');
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once(')').map_or("", |(_, behind)| behind));
    }
    plain
}

/// Returns the words of each sentence.
fn sentences(text: &str) -> Vec<Vec<String>> {
    let mut sentences = vec![Vec::new()];
    for word in text.split_whitespace() {
        if let Some(sentence) = sentences.last_mut() {
            sentence.push(word.to_owned());
        }
        let end = word.trim_end_matches([')', '*', '_', ']']);
        if end.ends_with(['.', '!', '?']) {
            sentences.push(Vec::new());
        }
    }
    sentences
}

/// Returns the number of words, a list of names counted as one.
fn count(sentence: &[String]) -> usize {
    let is_name = |word: &String| word.trim_matches(|c: char| !c.is_alphanumeric()) == NAME;
    let mut count = 0;
    let mut in_list = false;
    for word in sentence
        .iter()
        .filter(|word| word.contains(char::is_alphanumeric))
    {
        count += usize::from(!(is_name(word) && in_list));
        in_list = is_name(word) && word.ends_with(',');
    }
    count
}
