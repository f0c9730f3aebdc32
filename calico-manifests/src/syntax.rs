//! Explains errors of the YAML parser.

use daemon_common::config::Problem;
use serde_saphyr::{Error, UserMessageFormatter};

/// Words of the parser, and what they mean to an operator: the mistake, and its remedy.
const MEANINGS: &[(&str, &str, &str)] = &[
    (
        "breached: Depth",
        "too many levels: at most 32",
        "look for brackets that are not closed",
    ),
    (
        "recursion limit",
        "too many levels: at most 32",
        "look for brackets that are not closed",
    ),
    (
        "breached: Documents",
        "too many documents: a file has at most 1,024",
        "divide the file",
    ),
    (
        "breached: Nodes",
        "too many values: a document has at most 250,000",
        "divide it; a reference such as `*name` counts with all its values",
    ),
    (
        "too large or too complex",
        "too many references to marked values",
        "write the value in place of `*name`",
    ),
    (
        "Recursive reference",
        "a value refers to itself",
        "write a value in place of the reference",
    ),
    (
        "tab",
        "a tab in the indentation",
        "indent with spaces: YAML allows no tabs there",
    ),
    (
        "mapping values are not allowed",
        "a second colon, or a wrong indentation",
        "put a text with a colon in quotation marks; otherwise compare the indentation with the \
         lines above",
    ),
    (
        "did not find expected key",
        "the indentation fits no line above",
        "indent the fields of one object equally",
    ),
    (
        "expected '-' indicator",
        "a list continues without \"- \"",
        "begin each item of the list with \"- \"; compare the indentation with the lines above",
    ),
    (
        "block sequence entries are not allowed",
        "\"- \" is not allowed here",
        "put the first item of a list on a line of its own, below the name of the field",
    ),
    (
        "expected ':'",
        "a colon is missing",
        "write a field as `name: value`, with a space after the colon",
    ),
    (
        "illegal placement of ':'",
        "a colon is not allowed here",
        "look for a bracket or a quotation mark that is open above",
    ),
    (
        "unclosed quote",
        "a quotation mark is missing",
        "look for the value in which the quotation begins",
    ),
    (
        "unclosed bracket",
        "a closing bracket is missing",
        "look for the bracket that is open here",
    ),
    (
        "mismatched bracket",
        "a bracket is closed by one of another kind",
        "`[` ends with `]`, and `{` with `}`",
    ),
    (
        "misplaced bracket",
        "a bracket is closed that was not opened",
        "remove it, or put the text in quotation marks",
    ),
    (
        "expected ',' or ']'",
        "a comma or a closing bracket is missing",
        "separate the items of a list in brackets by commas",
    ),
    (
        "expected ',' or '}'",
        "a comma or a closing brace is missing",
        "separate the fields of an object in braces by commas",
    ),
    (
        "unexpected character",
        "this character cannot begin a value",
        "put the text in quotation marks",
    ),
    (
        "invalid trailing content",
        "there is text behind the quotation",
        "put all of the text in quotation marks, or a comma between two values",
    ),
    (
        "unknown escape character",
        "an unknown escape in a quotation",
        "write `\\\\` for a backslash, or use single quotation marks",
    ),
    (
        "anchor",
        "this refers to a value that is not marked",
        "put a text that begins with an asterisk in quotation marks, or mark the value with `&`",
    ),
    (
        "unknown value",
        "this refers to a value that is not marked",
        "put a text that begins with an asterisk in quotation marks, or mark the value with `&`",
    ),
    (
        "indentation",
        "the indentation fits no line above",
        "indent the fields of one object equally",
    ),
];

/// Explains an error in a part of the text that begins at `base`.
pub(super) fn problem(error: &Error, text: &str, base: usize) -> Problem {
    let error = error.without_snippet();
    let message = error.render_with_formatter(&UserMessageFormatter);
    let message = message.lines().next().unwrap_or_default();
    let message = message.split(" at line ").next().unwrap_or_default();
    let (words, help) = MEANINGS
        .iter()
        .find(|(part, ..)| message.contains(part))
        .map_or((message, None), |(_, words, help)| (*words, Some(*help)));
    let problem = match error.location() {
        Some(location) => {
            let at = offset(text, base, location.line(), location.column());
            Problem::at(at..end_of_word(text, at), words)
        }
        None => Problem::whole(words),
    };
    match help {
        Some(help) => problem.help(help),
        None => problem.help("look also at the line above"),
    }
}

/// Returns the offset of a line and column, from 1, of the part of a text that begins at `base`.
pub(super) fn offset(text: &str, base: usize, line: u64, column: u64) -> usize {
    let part = text.get(base..).unwrap_or_default();
    let skipped = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut lines = part.split_inclusive('\n');
    let before: usize = lines.by_ref().take(skipped).map(str::len).sum();
    let line = lines.next().unwrap_or_default();
    let characters = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
    let within: usize = line.chars().take(characters).map(char::len_utf8).sum();
    base + before + within
}

fn end_of_word(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let word = rest.find(|c: char| c.is_whitespace()).unwrap_or(rest.len());
    at + word.max(rest.chars().next().map_or(0, char::len_utf8))
}
