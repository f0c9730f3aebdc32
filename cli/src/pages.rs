//! The commands in the operator's pages: the command line accepts each of them.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Parser, error::ErrorKind};

use crate::cli::Cli;

/// Ends of a command within a line of a shell.
const ENDS: [&str; 9] = ["  #", " # ", " | ", " > ", " < ", " <<", " && ", " &", "; "];

/// Valid values for placeholders that are not plain texts.
const PLACEHOLDERS: [(&str, &str); 7] = [
    ("ADDRESS", "10.65.0.1"),
    ("PREFIX", "10.65.0.0/16"),
    ("IP", "10.65.0.1"),
    ("KIND", "node"),
    ("FAMILY", "ipv4-unicast"),
    ("LEVEL", "info"),
    ("PORT", "443"),
];

/// A command of a page.
#[derive(Debug, PartialEq, Eq)]
struct Written {
    /// The command as the page has it.
    text: String,
    /// Whether it may lack arguments, as a name of a command in a sentence does.
    partial: bool,
}

/// Returns the commands in the code blocks and in the inline code of a page.
fn commands(page: &str) -> Vec<Written> {
    let mut block = false;
    let mut found = Vec::new();
    let page = page.replace("\\\n", " ");
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            block = !block;
        } else if block {
            let text = without_prompt(line.trim_start());
            found.extend(written(text, false));
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            found.extend(spans.filter_map(|span| written(span, true)));
        }
    }
    found
}

/// Returns a line without the prompt: `#`, `$`, or a host's name before them.
fn without_prompt(line: &str) -> &str {
    let host = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let rest = line.trim_start_matches(host).strip_prefix(['#', '$']);
    rest.map_or(line, str::trim_start)
}

fn written(text: &str, partial: bool) -> Option<Written> {
    text.starts_with("cambric ").then(|| Written {
        text: text.to_owned(),
        partial,
    })
}

/// Returns the words of a command, without optional parts, or with them.
fn words(text: &str, optional: bool) -> Vec<String> {
    let end = ENDS.iter().filter_map(|end| text.find(end)).min();
    let text = text.get(..end.unwrap_or(text.len())).unwrap_or(text);
    let mut depth = 0_usize;
    let mut plain = String::new();
    for character in text.chars() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '…' | '"' | '\'' => (),
            _ if depth == 0 || optional => plain.push(character),
            _ => (),
        }
    }
    plain.split_whitespace().map(value).collect()
}

/// Returns the first alternative of a word, with a valid value for a placeholder.
fn value(word: &str) -> String {
    let first = word.split('|').next().unwrap_or(word);
    let known = PLACEHOLDERS.iter().find(|(name, _)| *name == first);
    known.map_or(first, |(_, value)| value).to_owned()
}

/// Returns the reason why the command line rejects a command, if it does.
fn fault(command: &Written) -> Option<String> {
    [false, true].into_iter().find_map(|optional| {
        let words = words(&command.text, optional);
        let inner = words.iter().rposition(|word| word == "cambric")?;
        [words.as_slice(), words.get(inner..)?]
            .into_iter()
            .find_map(|words| rejected(words, command.partial))
    })
}

fn rejected(words: &[String], partial: bool) -> Option<String> {
    let error = Cli::try_parse_from(words).err()?;
    let missing = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return None,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        // A name of an option without its value: `--data`.
        ErrorKind::InvalidValue => error.to_string().contains("but none was supplied"),
        _ => false,
    };
    let accepted = partial && missing;
    (!accepted).then(|| error.to_string())
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let operate = fs::read_dir(root.join("docs/operate")).expect("the pages are there");
    let mut pages: Vec<PathBuf> = operate.map(|page| page.expect("readable").path()).collect();
    pages.retain(|page| page.extension().is_some_and(|ext| ext == "md"));
    pages.push(root.join("README.md"));
    pages
}

// Promise (Daemons): Each `cambric` command in the operator's pages is accepted.
#[test]
fn commands_of_the_pages_are_accepted() {
    let mut count = 0;
    let mut faults = String::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for command in commands(&text) {
            count += 1;
            if let Some(reason) = fault(&command) {
                faults += &format!("{}: {}\n{reason}\n", page.display(), command.text);
            }
        }
    }
    assert!(faults.is_empty(), "{faults}");
    assert!(count > 200, "only {count} commands found");
}

#[test]
fn unknown_options_in_a_page_are_found() {
    let page = "`cambric show fibs`, `cambric reflector`\n\n   ```console\n   rr1# cambric show fib --no # x\n   \
                $ cambric lab exec node1 -- cambric show nothing\n   ```\n";
    let found = commands(page);
    assert_eq!(found.len(), 4, "{found:?}");
    let faults: Vec<bool> = found.iter().map(|one| fault(one).is_some()).collect();
    assert_eq!(faults, [true, false, true, true]);
}
