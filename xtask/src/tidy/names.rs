//! Names in plain words; those of tests are subject, condition and outcome in at most 60 characters.

use super::files::File;
use super::first::is_banned;
use super::{Finding, prose};

/// Characters of a test's name.
const LENGTH_MAX: usize = 60;

/// Words and phrases that do not name an action or a state of a protocol. They are in no identifier.
const UNCLEAR: &str = include_str!("words/names.txt");

/// More words and phrases that are in no name of a test.
const UNCLEAR_IN_TESTS: &str = include_str!("words/test-names.txt");

/// Words that are no subject. They begin no name of a test.
const NO_SUBJECTS: &str = include_str!("words/test-first.txt");

/// Checks all identifiers, and the names of tests.
pub fn check(files: &[File]) -> Vec<Finding> {
    let rust = files.iter().filter(|file| file.is_rust());
    rust.flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = identifiers(file);
    let mut is_test = false;
    for (index, line) in file.text.lines().enumerate() {
        let line = line.trim();
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let (true, Some(name)) = (is_test, function(line)) {
            is_test = false;
            findings.extend(mistake(name).map(|text| Finding::line(&file.path, index + 1, text)));
        }
    }
    findings
}

/// Finds identifiers with an unclear word.
fn identifiers(file: &File) -> Vec<Finding> {
    let names = prose::identifiers(&file.text).into_iter();
    let unclear = names.filter_map(|(line, name)| {
        let words = format!(" {} ", words(name).join(" "));
        let word = UNCLEAR
            .lines()
            .find(|word| words.contains(&format!(" {word} ")))?;
        let text = format!("`{name}`: replace `{word}`");
        Some(Finding::line(&file.path, line, text))
    });
    unclear.collect()
}

/// Returns the words of an identifier in lower case: it is split at `_` and before capital letters.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        if letter == '_' || (was_lower && letter.is_uppercase()) {
            words.push(String::new());
        }
        was_lower = letter.is_lowercase() || letter.is_numeric();
        if let (false, Some(word)) = (letter == '_', words.last_mut()) {
            word.extend(letter.to_lowercase());
        }
    }
    words
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("fn ")?;
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .next()
}

fn mistake(name: &str) -> Option<String> {
    let first = name.split('_').next().unwrap_or_default();
    if is_banned(first) || NO_SUBJECTS.lines().any(|word| word == first) {
        return Some(format!("`{name}`: begin the name with its subject"));
    }
    let words = format!("_{name}_");
    let mut unclear = UNCLEAR_IN_TESTS.lines();
    if let Some(word) = unclear.find(|word| words.contains(&format!("_{word}_"))) {
        return Some(format!("`{name}`: replace `{word}`"));
    }
    let length = name.chars().count();
    (length > LENGTH_MAX).then(|| format!("`{name}` has {length} characters, at most {LENGTH_MAX}"))
}
