//! Names of tests: subject, condition and outcome in at most 60 characters.

use super::Finding;
use super::files::File;
use super::first::BANNED;

/// Characters of a test's name.
const LENGTH_MAX: usize = 60;

/// Words that do not name an action or a state. They are nowhere in the name of a test.
const UNCLEAR: &[&str] = &[
    "anew", "any_more", "anybody", "comes", "fellow", "goes", "gone", "hear", "heard", "hears",
    "knows", "nobody", "nobodys", "ours", "said", "say", "says", "somebody", "stand", "stands",
    "tell", "tells", "theirs", "told", "unheard", "untold", "what_it", "who", "whoever", "whom",
    "whomever", "whose",
];

/// Checks the names of all tests.
pub fn check(files: &[File]) -> Vec<Finding> {
    let rust = files.iter().filter(|file| file.is_rust());
    let rust = rust.filter(|file| !file.path.starts_with("xtask/src/tidy"));
    rust.flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
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

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("fn ")?;
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .next()
}

fn mistake(name: &str) -> Option<String> {
    let first = name.split('_').next().unwrap_or_default();
    if BANNED.contains(&first) {
        return Some(format!("`{name}`: begin the name with its subject"));
    }
    let words = format!("_{name}_");
    let mut unclear = UNCLEAR.iter();
    if let Some(word) = unclear.find(|word| words.contains(&format!("_{word}_"))) {
        return Some(format!("`{name}`: replace `{word}`"));
    }
    let length = name.chars().count();
    (length > LENGTH_MAX).then(|| format!("`{name}` has {length} characters, at most {LENGTH_MAX}"))
}
