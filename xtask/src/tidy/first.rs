//! First words: every sentence, heading and cell of a page or a comment begins with its subject, and
//! so does every sentence of a text literal.

use super::files::File;
use super::{Finding, prose};

/// Words in place of a subject. They begin no sentence of a page and no name of a test.
const BANNED: &str = include_str!("words/first.txt");

/// Returns whether a word, in lower case, is one of them.
pub fn is_banned(word: &str) -> bool {
    BANNED.lines().any(|banned| banned == word)
}

/// Characters that end a sentence of a page. After a colon, a page lists or explains.
const PAGE_ENDS: &str = ".!?:";

/// Characters that end a sentence of a comment or a text literal.
const SOURCE_ENDS: &str = ".!?";

/// Checks all pages, the comments of sources and scripts, and the text literals of programs. Questions
/// may begin with any word.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        if file.is_markdown() {
            findings.extend(check_text(file, &file.text, 0, PAGE_ENDS));
        } else if let Some(comments) = comments_of(file) {
            findings.extend(check_text(file, &comments, 0, SOURCE_ENDS));
        }
        if file.is_rust() && !file.is_test() {
            let literals = prose::literals(file.without_tests()).into_iter();
            let messages = literals.filter(|(_, text)| text.contains(' '));
            findings.extend(
                messages.flat_map(|(line, text)| {
                    check_text(file, &message(text), line - 1, SOURCE_ENDS)
                }),
            );
        }
    }
    findings
}

/// Returns a text literal with `X` in place of each value, and without escapes of lines.
fn message(literal: &str) -> String {
    let literal = literal.replace("\\n", " ");
    let mut parts = literal.split('{');
    let mut message = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        message.push('X');
        message.push_str(part.split_once('}').map_or("", |(_, behind)| behind));
    }
    message
}

/// Returns the lines of a file's comments, with an empty line for any other.
pub(super) fn comments_of(file: &File) -> Option<String> {
    comment_mark(file).map(|mark| comments(&file.text, mark))
}

/// Returns the mark that begins a comment of a file.
fn comment_mark(file: &File) -> Option<&'static str> {
    let named = file.path.extension().or_else(|| file.path.file_name());
    match named.and_then(|named| named.to_str())? {
        "rs" => Some("//"),
        "toml" | "sh" | "py" | "yml" | "Makefile" | "run" => Some("#"),
        "env" | "conf" | "service" | "preinst" | "postinst" | "prerm" | "postrm" => Some("#"),
        _ => None,
    }
}

/// Returns the lines of comments without their marks, with an empty line for any other.
fn comments(source: &str, mark: &str) -> String {
    let mut text = String::new();
    for line in source.lines() {
        let comment = line.trim_start().strip_prefix(mark);
        if let Some(comment) = comment.filter(|_| !line.starts_with("#!")) {
            text.push_str(comment.trim_start_matches(['/', '!', '#']).trim_start());
        }
        text.push('\n');
    }
    text
}

/// Checks a text with so many lines before it. One of `ends` ends a sentence.
fn check_text(file: &File, text: &str, before: usize, ends: &str) -> Vec<Finding> {
    let tokens = tokens(text);
    let mut findings = Vec::new();
    let mut starts = true;
    for (at, token) in tokens.iter().enumerate() {
        let word = token.text.trim_matches(|c: char| !c.is_alphanumeric());
        let is_banned = is_banned(&word.to_lowercase());
        let rest = tokens.get(at..).unwrap_or_default();
        if (token.begins || starts) && is_banned && !is_question(rest) {
            let text = format!("`{word}` begins a sentence: begin it with its subject");
            findings.push(Finding::line(&file.path, before + token.line, text));
        }
        starts = end(&token.text).is_some_and(|end| ends.contains(end));
    }
    findings
}

/// Returns whether the sentence at the start of `tokens` is a question.
fn is_question(tokens: &[Token]) -> bool {
    let block = tokens.iter().enumerate();
    let block = block.take_while(|(nth, token)| *nth == 0 || !token.begins);
    let mut ends = block.filter_map(|(_, token)| end(&token.text));
    ends.find(|end| *end != ':') == Some('?')
}

/// Returns the character that ends a sentence after this word, if it is the last one.
fn end(word: &str) -> Option<char> {
    let word = word.trim_end_matches([')', '*', '_', '"', ']']);
    word.chars().last().filter(|last| PAGE_ENDS.contains(*last))
}

/// A word with its punctuation.
struct Token {
    text: String,
    line: usize,
    /// Whether it is the first one of a heading, cell, item or paragraph.
    begins: bool,
}

/// Returns the words of a page outside of fenced blocks and block quotations.
fn tokens(page: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let (mut is_code, mut continues) = (false, false);
    for (index, line) in page.lines().enumerate() {
        let line = line.trim_start();
        let is_fence = line.starts_with("```") || line.starts_with("~~~");
        is_code ^= is_fence;
        if is_fence || is_code || line.starts_with('>') || line.is_empty() {
            continues = false;
            continue;
        }
        let is_table = line.starts_with('|');
        let text = plain(line);
        for cell in text.split(|c| is_table && c == '|') {
            let words = cell.split_whitespace();
            let words = words.filter(|word| word.contains(char::is_alphanumeric));
            tokens.extend(words.enumerate().map(|(nth, word)| Token {
                text: word.to_owned(),
                line: index + 1,
                begins: nth == 0 && (!continues || is_item(line)),
            }));
        }
        continues = !is_table && !line.starts_with('#');
    }
    tokens
}

/// Returns whether a line begins an item of a list.
fn is_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("* ") || line.starts_with("- ") || number.starts_with(". ")
}

/// Returns a line with `X` in place of code and quotations, and without the targets of links.
fn plain(line: &str) -> String {
    let mut text = String::new();
    for (index, part) in line.split('`').enumerate() {
        text.push_str(if index % 2 == 1 { "X" } else { part });
    }
    let quoted = text.split('"').enumerate();
    let quoted = quoted.map(|(index, part)| if index % 2 == 1 { "X" } else { part });
    let quoted: String = quoted.collect();
    let mut parts = quoted.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push(']');
        text.push_str(part.split_once(')').map_or("", |(_, behind)| behind));
    }
    text
}
