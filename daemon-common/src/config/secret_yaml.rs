//! Secrets in a manifest: the parts of a text in YAML or JSON that a report may quote.
//!
//! As with TOML, values are covered unless their field is known to hold no secret. The text may be
//! damaged, so it is read line by line: a field covers its own line and all lines that are indented
//! more. A value is shown as far as every field within it is known.

use super::secret::{IsShown, Shown, is_secretive};

/// Returns the text with everything covered that may be a secret.
pub(super) fn shown(text: &str, is_shown: IsShown) -> Shown {
    let mut reader = Reader {
        shown: Shown::empty(is_shown),
        is_shown,
        covered: None,
        public: None,
        open: None,
        is_within_quotes: false,
        is_value_next: false,
        flow: Flow::default(),
    };
    for line in text.split_inclusive('\n') {
        reader.line(line);
    }
    reader.shown
}

/// The fields of resources with secrets.
const SECRETS: &[&str] = &["password", "nodeMeshPassword", "secretKeyRef", "key"];

/// The field of labels.
const LABELS: &str = "labels";

struct Reader {
    shown: Shown,
    is_shown: IsShown,
    /// The indentation of the field that covers the lines below it.
    covered: Option<usize>,
    /// The indentation of a field of labels: the names of the fields below it are unknown.
    public: Option<usize>,
    /// The last known field: lines without a field below it are its value.
    open: Option<Open>,
    /// Whether the covered value has begun a quotation that is still open.
    is_within_quotes: bool,
    /// Whether the next line may have the value of the field that the last line covers, whatever its
    /// indentation is: the field has no value there, or is in a flow.
    is_value_next: bool,
    /// The flow that the line belongs to.
    flow: Flow,
}

/// A known field whose value may continue on the lines below.
#[derive(Clone, Copy)]
struct Open {
    indent: usize,
    /// Whether its value begins on its own line.
    has_begun: bool,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let content = line.trim();
        let indent = line.len() - line.trim_start().len();
        if content.is_empty() {
            return self.shown.push_shown(line);
        }
        let is_value = std::mem::take(&mut self.is_value_next)
            && !content.chars().all(is_mark)
            && !self.is_known_field(content);
        if is_value || self.is_covered(content, indent) {
            self.is_within_quotes ^= has_open_quotation(content);
            return self.shown.push_covered(line);
        }
        self.covered = None;
        if content.starts_with('#') {
            return self.shown.push_comment(line);
        }
        // An alias is the value of another line, which may be a secret.
        let (line, alias) = line.split_at(alias(line).unwrap_or(line.len()));
        self.content(indent, line);
        self.shown.push_covered(alias);
    }

    /// A line that is not covered, without aliases.
    fn content(&mut self, indent: usize, line: &str) {
        let content = line.trim();
        if self.is_label(indent, line) {
            return self.value(line);
        }
        if content.chars().all(is_mark) {
            self.flow.read(content);
            return self.shown.push_shown(line);
        }
        let (marks, entry) = line.split_at(start_of_entry(line));
        let is_in_braces = self.flow.open.last() == Some(&'{');
        self.flow.read(entry);
        match field(entry) {
            Some(at) => self.field(marks, entry, at),
            // Not a field: perhaps the value of the line above.
            None if is_in_braces => self.shown.push_covered(line),
            None => self.text(indent, line),
        }
    }

    /// Returns whether a line begins with a known field, and not with a quotation that contains a
    /// colon.
    fn is_known_field(&self, content: &str) -> bool {
        let entry = &content[start_of_entry(content)..];
        field(entry).is_some_and(|colon| {
            let name = &entry[..colon];
            !has_open_quotation(name) && (self.is_shown)(bare(name))
        })
    }

    fn is_covered(&self, content: &str, indent: usize) -> bool {
        let is_item = content.starts_with("- ");
        self.is_within_quotes
            || self
                .covered
                .is_some_and(|field| indent > field || indent == field && is_item)
    }

    /// Returns whether a line has labels, which everybody may read, and no word of secrets.
    fn is_label(&mut self, indent: usize, line: &str) -> bool {
        let name = line.trim_start().split(':').next().map(bare);
        if self.public.is_some_and(|labels| indent <= labels) {
            self.public = None;
        }
        let begins = self.public.is_none() && name == Some(LABELS);
        if begins {
            self.public = Some(indent);
        }
        self.public.is_some() && !is_secretive(line)
    }

    /// A line with a field, whose colon is at this offset of the entry.
    fn field(&mut self, marks: &str, entry: &str, colon: usize) {
        let (name, value) = entry.split_at(colon + 1);
        self.shown.push_shown(marks);
        self.shown.push_shown(name);
        let indent = marks.len();
        if (self.is_shown)(bare(name)) && self.has_known_fields(value) {
            self.open = Some(Open {
                indent,
                has_begun: !value.trim().is_empty(),
            });
            return self.value(value);
        }
        self.open = None;
        self.covered = Some(indent);
        self.is_value_next = value.trim().is_empty() || !self.flow.open.is_empty();
        match (self.is_shown)(bare(name)) {
            true => self.flow(value),
            false => self.cover(value),
        }
    }

    /// Shows a flow up to the name of its first unknown field, and covers the rest; covers another
    /// text.
    fn flow(&mut self, text: &str) {
        let (names, rest) = text.split_at(first_unknown(text, self.is_shown));
        self.shown.push_shown(names);
        self.cover(rest);
    }

    fn cover(&mut self, value: &str) {
        self.is_within_quotes = has_open_quotation(value);
        for word in value.split_inclusive(char::is_whitespace) {
            // Messages may name the field.
            match word.trim_end().ends_with(':') && SECRETS.contains(&bare(word.trim_end())) {
                true => self.shown.push_comment(word),
                false => self.shown.push_covered(word),
            }
        }
    }

    /// A line without a field: a part of the value above, or of a flow.
    fn text(&mut self, indent: usize, line: &str) {
        let is_item = line.trim_start().starts_with("- ");
        // A line without a colon below a field without a value may be a damaged field.
        let is_value = self.open.is_some_and(|field| match is_item {
            true => indent >= field.indent,
            false => field.has_begun && indent > field.indent,
        });
        let is_flow = line
            .trim_start()
            .starts_with(['{', '[', '"', '}', ']', ',']);
        let is_shown = is_value || is_flow && line.contains(':');
        if is_shown && self.has_known_fields(line) && !is_secretive(line) {
            return self.value(line);
        }
        if !is_shown {
            return self.shown.push_covered(line);
        }
        self.covered = Some(start_of_entry(line));
        self.flow(line);
    }

    fn value(&mut self, value: &str) {
        let at = value.find(" #").unwrap_or(value.len());
        let (value, comment) = value.split_at(at);
        self.shown.push_shown(value);
        self.shown.push_comment(comment);
    }

    /// Returns whether every field within a value is known, and none may have lost its colon.
    fn has_known_fields(&self, value: &str) -> bool {
        let mut colons = value.match_indices(':').map(|(at, _)| value.split_at(at));
        let is_known = |(before, after): (&str, &str)| {
            !is_colon(before, after) || (self.is_shown)(bare(before))
        };
        !self.flow.is_damaged && colons.all(is_known)
    }
}

/// The braces and brackets that are open behind the lines read so far.
#[derive(Default)]
struct Flow {
    open: Vec<char>,
    /// The content of the last item within them.
    item: Item,
    /// Whether the last line has an item in braces without a colon, or an open quotation.
    is_damaged: bool,
}

/// The content of an item of a flow.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Item {
    #[default]
    Empty,
    /// A text without a colon.
    Text,
    Field,
}

impl Flow {
    /// Reads the entry of a line.
    fn read(&mut self, entry: &str) {
        self.is_damaged = false;
        let text = match field(entry) {
            Some(colon) if self.open.is_empty() => entry[colon + 1..].trim_start(),
            _ => entry.trim_start(),
        };
        if self.open.is_empty() && !text.starts_with(['{', '[']) {
            return;
        }
        let mut quotation = None;
        let mut is_over = false;
        for (at, mark) in text.char_indices() {
            // Behind the end only a comment may follow.
            self.is_damaged |= is_over && !mark.is_whitespace();
            match mark {
                _ if quotation == Some(mark) => quotation = None,
                _ if quotation.is_some() => {}
                '"' | '\'' => {
                    quotation = Some(mark);
                    self.item = self.item.with_text();
                }
                '{' | '[' => {
                    self.end_item();
                    self.open.push(mark);
                    self.item = Item::Empty;
                }
                '}' | ']' => {
                    self.end_item();
                    self.open.pop();
                    self.item = Item::Field;
                    is_over = self.open.is_empty();
                }
                ',' => {
                    self.end_item();
                    self.item = Item::Empty;
                }
                ':' if is_colon(&text[..at], &text[at..]) => self.item = Item::Field,
                _ if mark.is_whitespace() => {}
                _ => self.item = self.item.with_text(),
            }
        }
        self.end_item();
        self.is_damaged |= quotation.is_some();
    }

    fn end_item(&mut self) {
        self.is_damaged |= self.item == Item::Text && self.open.last() == Some(&'{');
    }
}

impl Item {
    const fn with_text(self) -> Self {
        match self {
            Self::Empty | Self::Text => Self::Text,
            Self::Field => Self::Field,
        }
    }
}

/// Returns whether a character separates the values of flows, lists or documents.
const fn is_mark(c: char) -> bool {
    matches!(c, '{' | '}' | '[' | ']' | ',' | '-' | '.')
}

/// Returns the offset of the first alias, such as `*name`.
fn alias(line: &str) -> Option<usize> {
    let mut stars = line.match_indices('*').map(|(at, _)| at);
    stars.find(|at| {
        let (before, after) = line.split_at(*at);
        let begins = before.is_empty() || before.ends_with([' ', '\t', '[', '{', ',']);
        let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ']' | '}');
        begins && after.chars().nth(1).is_some_and(|next| !is_end(next))
    })
}

/// Returns the offset of the first field or value of a line, behind the marks of list items.
fn start_of_entry(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t', '-']).len()
}

/// Returns the offset behind the colon of the first unknown field of a flow; zero if the text is
/// something else, or if the name may be a part of a value.
fn first_unknown(text: &str, is_shown: IsShown) -> usize {
    if !text[start_of_entry(text)..].starts_with(['{', '[']) {
        return 0;
    }
    let mut fields = text.match_indices(':').map(|(at, _)| text.split_at(at));
    let unknown = fields.find(|(before, after)| is_colon(before, after) && !is_shown(bare(before)));
    let Some((before, _)) = unknown else { return 0 };
    let name = before.trim_end().trim_end_matches(['"', '\'']);
    let marks = name.strip_suffix(bare(before)).unwrap_or_default();
    let marks = marks.trim_end_matches(['"', '\'']).trim_end();
    match marks.ends_with(['{', ',']) {
        true if !is_secretive(marks) => before.len() + 1,
        _ => 0,
    }
}

/// Returns whether the colon with which `after` begins separates a field from its value.
fn is_colon(before: &str, after: &str) -> bool {
    let next = after.chars().nth(1);
    next.is_none_or(|next| next.is_whitespace() || matches!(next, ',' | ']' | '}'))
        || before.ends_with(['"', '\''])
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
            (
                "{\n  \"key\":\n  \"ab:c\",\n  \"name\": \"d\"\n}\n",
                "{\n  \"key\":\n  *******\n  \"name\": \"d\"\n}\n",
            ),
            ("key:\nname: e\n", "key:\nname: e\n"),
            ("name: a password: b\n", "name: * ********* *\n"),
            ("metadata: {name: a}\n", "metadata: {name: a}\n"),
            ("metadata: {name: a, x: b}\n", "metadata: {name: a, x: **\n"),
            (
                "spec: {\"name\": \"a\", \"x\": \"b\", \"name\": \"c\"}\n",
                "spec: {\"name\": \"a\", \"x\": **** ******* ****\n",
            ),
            (
                "spec: {name: a x: b}\n  c\nname: d\n",
                "spec: ****** * ** **\n  *\nname: d\n",
            ),
            (
                "nets:\n- {name: a, x: b}\n- {name: c}\n- d\n",
                "nets:\n- {name: a, x: **\n- {name: c}\n- d\n",
            ),
            ("pasword: {name: a}\n", "pasword: ****** **\n"),
            (
                "spec: {name: a, x b}\nname: c\n",
                "spec: ****** ** * **\nname: c\n",
            ),
            (
                "{\n  \"name\": \"a\", \"x\" \"b\",\n  \"name\": \"c\"\n}\n",
                "{\n  \"name\": **** *** ****\n  \"name\": \"c\"\n}\n",
            ),
            ("nets: [a, b]\nname: c\n", "nets: [a, b]\nname: c\n"),
            (
                "spec: {x: \"a\nname: b\"}\nname: c\n",
                "spec: {x: **\n***** ***\nname: c\n",
            ),
            (
                "password: &p a\nname: *p\nname: {name: *p, name: b}\nname: \"*\"\n",
                "password: ** *\nname: **\nname: {name: *** ***** **\nname: \"*\"\n",
            ),
            (
                "{\"kind\": \"a\", \"name\": \"b\"}\n",
                "{\"kind\": \"a\", \"name\": \"b\"}\n",
            ),
            (
                "{\"kind\": \"a\", \"key\": \"b\"}\n",
                "{\"kind\": \"a\", \"key\": ****\n",
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
            (
                "spec:\n  name: a\n  password b\n",
                "spec:\n  name: a\n  ******** *\n",
            ),
            (
                "spec:\n  name: a\n    b c\n    token d\n",
                "spec:\n  name: a\n    b c\n    ***** *\n",
            ),
            ("spec:\n  ab c\n", "spec:\n  ** *\n"),
            (
                "labels:\n  \"a b\": c\n  token: d\npasword: e\n",
                "labels:\n  \"a b\": c\n  token: *\npasword: *\n",
            ),
            (
                "  labels: {a: b, c: d}\n  pasword: e\n",
                "  labels: {a: b, c: d}\n  pasword: *\n",
            ),
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
