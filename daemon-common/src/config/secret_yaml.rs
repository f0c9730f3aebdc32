//! Secrets in a manifest: the parts of a text in YAML or JSON that a report may quote.
//!
//! As with TOML, values are covered unless their field is known to hold no secret. The text may be
//! damaged, so it is read line by line: a field covers its own line and all lines that are indented
//! more. A value is shown as far as every field within it is known.

use super::secret::{IsShown, Shown};

/// Returns the text with everything covered that may be a secret.
pub(super) fn shown(text: &str, is_shown: IsShown) -> Shown {
    let mut reader = Reader {
        shown: Shown::empty(is_shown),
        is_shown,
        covered: None,
        open: None,
        is_within_quotes: false,
    };
    for line in text.split_inclusive('\n') {
        reader.line(line);
    }
    reader.shown
}

struct Reader {
    shown: Shown,
    is_shown: IsShown,
    /// The indentation of the field that covers the lines below it.
    covered: Option<usize>,
    /// The indentation of the last known field: lines without a field below it are its value.
    open: Option<usize>,
    /// Whether the covered value has begun a quotation that is still open.
    is_within_quotes: bool,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let content = line.trim();
        let indent = line.len() - line.trim_start().len();
        if content.is_empty() {
            return self.shown.push_shown(line);
        }
        if self.is_covered(content, indent) {
            self.is_within_quotes ^= has_open_quotation(content);
            return self.shown.push_covered(line);
        }
        self.covered = None;
        if content.starts_with('#') {
            return self.shown.push_comment(line);
        }
        let is_mark = |c: char| matches!(c, '{' | '}' | '[' | ']' | ',' | '-' | '.');
        if content.chars().all(is_mark) {
            return self.shown.push_shown(line);
        }
        let start = line.len() - line.trim_start_matches([' ', '\t', '-']).len();
        let (marks, entry) = line.split_at(start);
        match field(entry) {
            Some(at) => self.field(marks, entry, at),
            None => self.text(indent, line),
        }
    }

    fn is_covered(&self, content: &str, indent: usize) -> bool {
        let is_item = content.starts_with("- ");
        self.is_within_quotes
            || self
                .covered
                .is_some_and(|field| indent > field || indent == field && is_item)
    }

    /// A line with a field, whose colon is at this offset of the entry.
    fn field(&mut self, marks: &str, entry: &str, colon: usize) {
        let (name, value) = entry.split_at(colon + 1);
        self.shown.push_shown(marks);
        self.shown.push_shown(name);
        let indent = marks.len();
        if (self.is_shown)(bare(name)) && self.has_known_fields(value) {
            self.open = Some(indent);
            return self.value(value);
        }
        self.open = None;
        self.covered = Some(indent);
        self.is_within_quotes = has_open_quotation(value);
        self.shown.push_covered(value);
    }

    /// A line without a field: a part of the value above, or of a flow.
    fn text(&mut self, indent: usize, line: &str) {
        let is_value = self.open.is_some_and(|field| indent >= field);
        let is_flow = line
            .trim_start()
            .starts_with(['{', '[', '"', '}', ']', ',']);
        let is_shown = is_value || is_flow && line.contains(':');
        if is_shown && self.has_known_fields(line) {
            return self.value(line);
        }
        self.shown.push_covered(line);
    }

    fn value(&mut self, value: &str) {
        let at = value.find(" #").unwrap_or(value.len());
        let (value, comment) = value.split_at(at);
        self.shown.push_shown(value);
        self.shown.push_comment(comment);
    }

    /// Returns whether every field within a value is known.
    fn has_known_fields(&self, value: &str) -> bool {
        let mut colons = value.match_indices(':');
        colons.all(|(at, _)| {
            let (before, after) = (&value[..at], &value[at + 1..]);
            let is_field = after.is_empty()
                || after.starts_with(char::is_whitespace)
                || before.ends_with(['"', '\'']);
            !is_field || (self.is_shown)(bare(before))
        })
    }
}

/// Returns the name of a field at the end of a text, without quotation marks.
fn bare(text: &str) -> &str {
    let text = text
        .trim_end_matches([':', ' '])
        .trim_end_matches(['"', '\'']);
    let is_other = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-' | '.' | '/');
    text.rfind(is_other).map_or(text, |at| {
        let after = text.get(at..).and_then(|rest| rest.char_indices().nth(1));
        after.map_or("", |(more, _)| &text[at + more..])
    })
}

/// Returns the offset of the colon behind the field with which an entry begins.
fn field(entry: &str) -> Option<usize> {
    let name = entry.find(':')?;
    let (before, after) = (&entry[..name], &entry[name + 1..]);
    let inner = before.trim_matches(['"', '\'']);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let is_field = !inner.is_empty() && inner.chars().all(is_name);
    let ends = after.is_empty() || after.starts_with(char::is_whitespace) || before.ends_with('"');
    (is_field && ends).then_some(name)
}

/// Returns whether a text opens a quotation, or closes one.
fn has_open_quotation(text: &str) -> bool {
    text.matches('"').count() % 2 == 1 || text.matches('\'').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_shown(field: &str) -> bool {
        ["kind", "metadata", "name", "spec", "peerIP", "nets"].contains(&field)
    }

    #[test]
    fn known_fields_are_quoted_and_others_covered() {
        for (text, expected) in [
            (
                "kind: Node\nspec:\n  peerIP: ::1\n",
                "kind: Node\nspec:\n  peerIP: ::1\n",
            ),
            ("password: ab c\nkind: x\n", "password: ** *\nkind: x\n"),
            (
                "password:\n  name: ab\nname: c\n",
                "password:\n  ***** **\nname: c\n",
            ),
            ("pasword: ab\n", "pasword: **\n"),
            ("name: a password: b\n", "name: * ********* *\n"),
            ("metadata: {name: a}\n", "metadata: {name: a}\n"),
            ("metadata: {name: a, x: b}\n", "metadata: ****** ** ** **\n"),
            (
                "{\"kind\": \"a\", \"name\": \"b\"}\n",
                "{\"kind\": \"a\", \"name\": \"b\"}\n",
            ),
            (
                "{\"kind\": \"a\", \"key\": \"b\"}\n",
                "******** **** ****** ****\n",
            ),
            (
                "nets:\n- 10.0.0.0/8\n- fd00::/8 # ab\n",
                "nets:\n- 10.0.0.0/8\n- fd00::/8 * **\n",
            ),
            ("key:\n- ab\n- cd\nname: e\n", "key:\n* **\n* **\nname: e\n"),
            (
                "password: \"ab\nname: cd\"\nname: e\n",
                "password: ***\n***** ***\nname: e\n",
            ),
            ("ab\n", "**\n"),
            ("# ab: c\n", "* *** *\n"),
        ] {
            assert_eq!(shown(text, is_shown).text(), expected, "{text}");
        }
    }

    #[test]
    fn odd_texts_are_covered_with_equal_length() {
        for text in [
            "",
            ":",
            "ä: ö",
            "- - :",
            "\"",
            "{:",
            "a:\n\tb: \"'\n",
            "ä\"b: 'c\n:ö:",
        ] {
            assert_eq!(shown(text, is_shown).text().len(), text.len(), "{text}");
        }
    }
}
