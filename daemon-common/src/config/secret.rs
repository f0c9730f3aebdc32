//! Secrets in a configuration file: the parts of a text that a report may quote.
//!
//! The mistake of a file may be at the very place that identifies a secret: a misspelled key, a
//! missing quotation mark, a missing equals sign. So this module does not look for secrets. It
//! looks for values that are known not to be secret, and covers the rest: the values of the keys
//! in `keys.rs` are quoted; everything else in the place of a value is covered with `*`, octet for
//! octet, so that carets still point to the right place.

use std::ops::Range;

use super::keys::type_of;

/// How the names of families begin, which are keys as well.
const FAMILIES: &[&str] = &["afi-", "ipv4-", "ipv6-", "l2vpn-"];

/// Parts of the names of a resource's secret fields, unlike `reportingInterval`.
const SECRETIVE: &[&str] = &["pass", "secret", "token", "key", "cred", "auth"];

/// The replacement of a covered octet.
const COVER: u8 = b'*';

/// A text with everything covered that may be a secret. It is as long as the text itself.
#[derive(Debug)]
pub(super) struct Shown {
    text: String,
    /// The covered words.
    covered: Vec<String>,
    /// Keys beside those of `keys.rs` with values that are not secret.
    more: IsShown,
}

/// Whether the value of a key is no secret.
pub(super) type IsShown = fn(&str) -> bool;

/// Where the reader of lines is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// Between entries: a line without a key may be anything.
    Nothing,
    /// In the value of a key of `keys.rs`, with so many open brackets.
    Shown(u32),
    /// In the value of another key, which ends with this mark.
    Covered(End),
}

/// The end of a value of several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With these quotation marks.
    Quotes(&'static str),
    /// When so many open brackets are closed.
    Brackets(u32),
}

impl Shown {
    pub(super) fn of(text: &str, more: IsShown) -> Self {
        let mut shown = Self {
            text: String::with_capacity(text.len()),
            covered: Vec::new(),
            more,
        };
        let mut within = Within::Nothing;
        for line in text.split_inclusive('\n') {
            within = shown.line(line, within);
        }
        shown
    }

    /// An empty text, for lines that another syntax divides into shown and covered pieces.
    pub(super) fn empty(more: IsShown) -> Self {
        Self {
            text: String::new(),
            covered: Vec::new(),
            more,
        }
    }

    /// Adds a piece that may be quoted, without changes.
    pub(super) fn push_shown(&mut self, piece: &str) {
        self.text.push_str(piece);
    }

    /// Adds a piece that may not be quoted.
    pub(super) fn push_covered(&mut self, piece: &str) {
        self.cover(piece);
    }

    /// Adds a comment. No message quotes one.
    pub(super) fn push_comment(&mut self, comment: &str) {
        let known = self.covered.len();
        self.cover(comment);
        self.covered.truncate(known);
    }

    /// The text with its secrets covered.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the lines of this place have something covered.
    pub(super) fn covers_lines_of(&self, text: &str, span: &Range<usize>) -> bool {
        let (text, shown) = (text.as_bytes(), self.text.as_bytes());
        let from = span.start.min(text.len());
        let to = span.end.clamp(from, text.len());
        let is_end = |octet: &u8| *octet == b'\n';
        let start = text[..from].iter().rposition(is_end);
        let start = start.map_or(0, |at| at + 1);
        let end = text[to..].iter().position(is_end);
        let end = end.map_or(text.len(), |more| to + more);
        text[start..end] != shown[start..end]
    }

    /// A sentence without the values that it quotes from covered places.
    pub(super) fn sentence(&self, sentence: &str) -> String {
        let mut out = String::with_capacity(sentence.len());
        let mut rest = sentence;
        while let Some(start) = rest.find(['`', '"']) {
            let mark = rest.as_bytes()[start] as char;
            let (before, quoted) = rest.split_at(start + 1);
            out.push_str(before);
            let Some(end) = quoted.find(mark) else {
                rest = quoted;
                continue;
            };
            let value = &quoted[..end];
            if self.has_covered(value) {
                out.push('…');
            } else {
                out.push_str(value);
            }
            out.push(mark);
            rest = &quoted[end + 1..];
        }
        out.push_str(rest);
        if self.has_covered_word(&out) {
            return "a value does not fit here (it may be a secret and is not shown)".to_owned();
        }
        out
    }

    fn has_covered(&self, value: &str) -> bool {
        let words = || {
            value
                .split(|c: char| !c.is_alphanumeric())
                .filter(|word| !word.is_empty())
        };
        !value.is_empty()
            && self.covered.iter().any(|covered| {
                covered.contains(value) || words().any(|word| covered.contains(word))
            })
    }

    /// Whether a covered word of some length is in the sentence after all.
    fn has_covered_word(&self, sentence: &str) -> bool {
        const WORD_MIN: usize = 4;
        let parts = self.covered.iter();
        let mut parts = parts.flat_map(|covered| covered.split(|c: char| !c.is_alphanumeric()));
        parts.any(|part| part.len() >= WORD_MIN && sentence.contains(part))
    }

    fn line(&mut self, line: &str, within: Within) -> Within {
        match within {
            Within::Covered(end) => {
                self.cover(line);
                return after_covered(line, end);
            }
            Within::Shown(depth) if is_continuation(line) && !line.contains('=') => {
                self.show(line);
                return shown_until(line, depth);
            }
            Within::Shown(_) | Within::Nothing => {}
        }
        let bare = line.trim();
        if bare.is_empty() || is_prose(bare) || type_of(bare).is_some() {
            self.show(line);
            return within;
        }
        if is_table(bare) {
            self.show(line);
            return Within::Nothing;
        }
        let known = self.covered.len();
        if let Some((header, comment)) = header_and_comment(line) {
            self.show(header);
            self.cover(comment);
            // No message quotes a comment.
            self.covered.truncate(known);
            return Within::Nothing;
        }
        let after = self.entry(line, within);
        if bare.starts_with('#') {
            // No message quotes a comment.
            self.covered.truncate(known);
            return within;
        }
        after
    }

    /// A line with keys and values. From the first value on that is not known to be shown, all of it
    /// is covered.
    fn entry(&mut self, line: &str, within: Within) -> Within {
        let mut from = after_directives(line);
        while let Some(at) = line[from..].find('=').map(|at| from + at) {
            if !is_shown(&line[..at], from > 0, self.more) {
                let (shown, covered) = line.split_at(at + 1);
                self.show(shown);
                self.cover(covered);
                return covered_from(covered);
            }
            from = at + 1;
        }
        if from == 0 {
            self.cover(line);
            return Within::Nothing;
        }
        self.show(line);
        let depth = match within {
            Within::Shown(depth) => depth,
            _ => 0,
        };
        shown_until(line, depth)
    }

    /// Takes over a piece, but for the user and the password of a URL.
    fn show(&mut self, piece: &str) {
        let mut rest = piece;
        while let Some(at) = rest.find("//") {
            let (before, after) = rest.split_at(at + 2);
            self.text.push_str(before);
            let end = end_of_user(after);
            self.cover(&after[..end]);
            rest = &after[end..];
        }
        let end = rest.rfind('@').map_or(0, |at| at + 1);
        let start = rest[..end].rfind(['"', '\'']).map_or(0, |at| at + 1);
        self.text.push_str(&rest[..start]);
        self.cover(&rest[start..end.max(start)]);
        self.text.push_str(&rest[end.max(start)..]);
    }

    fn cover(&mut self, piece: &str) {
        for c in piece.chars() {
            if c.is_whitespace() {
                self.text.push(c);
            } else {
                let covers = std::iter::repeat_n(char::from(COVER), c.len_utf8());
                self.text.extend(covers);
            }
        }
        let words = piece.split_whitespace().map(str::to_owned);
        self.covered.extend(words);
    }
}

/// Where the value of `log` ends, which is alone on its line and may hold equals signs.
fn after_directives(line: &str) -> usize {
    let value = line.strip_prefix("log").map(|rest| rest.trim_start());
    let value = value.and_then(|rest| rest.strip_prefix('='));
    let value = value.and_then(|rest| rest.trim_start().strip_prefix('"'));
    let after = value.and_then(|rest| rest.split_once('"'));
    after.map_or(0, |(_, rest)| line.len() - rest.len())
}

/// Where the user and the password of a URL end, if it may have some: behind `//`.
fn end_of_user(after: &str) -> usize {
    if after.starts_with('[') && !after.contains('@') {
        return 0; // An IPv6 address.
    }
    let end = after.find(['"', '\'', ',', ']']).unwrap_or(after.len());
    let authority = &after[..end];
    if let Some(at) = authority.rfind('@') {
        return at + 1;
    }
    let host = authority.trim_end();
    let plain = host.split('/').next().unwrap_or_default();
    match plain.rsplit_once(':') {
        // A port, or the rest of a URL that is truncated in its password.
        Some((_, port)) if !port.bytes().all(|octet| octet.is_ascii_digit()) => end,
        _ => 0,
    }
}

/// A comment that is no entry that was commented out.
fn is_prose(comment: &str) -> bool {
    comment == "#" || comment.starts_with("# ") && !comment.contains(['=', '"', '\''])
}

/// Returns whether the text before an equals sign ends with a key of a shown value.
fn is_shown(before: &str, follows: bool, more: IsShown) -> bool {
    let before = before.trim_end();
    let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let key = before.trim_end_matches(is_key);
    let (rest, key) = before.split_at(key.len());
    let begins = rest.trim_end();
    let begins = match follows {
        // In an inline table.
        true => begins.ends_with(['{', ',']),
        false => begins
            .trim_start_matches(['#', ' ', '\t', '{', ','])
            .is_empty(),
    };
    begins && key.split('.').all(|key| is_known(key) || more(key))
}

/// Whether a key's value is shown: one of `keys.rs`, or a field of a resource, which is no secret
/// by its name.
fn is_known(key: &str) -> bool {
    let is_field = key.starts_with(|c: char| c.is_ascii_lowercase())
        && key.chars().all(|c| c.is_ascii_alphanumeric())
        && key.chars().any(|c| c.is_ascii_uppercase());
    let is_family = FAMILIES.iter().any(|family| key.starts_with(family));
    type_of(key).is_some() || is_family || (is_field && !is_secretive(key))
}

/// Returns whether a text has a word of secrets.
pub(super) fn is_secretive(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    SECRETIVE.iter().any(|part| text.contains(part))
}

/// A table's header, alone on its line. A word in quotation marks may be anything.
fn is_table(bare: &str) -> bool {
    let bare = bare.trim_start_matches('#').trim();
    let inner = bare
        .strip_prefix('[')
        .and_then(|bare| bare.strip_suffix(']'));
    let inner = inner.map(|inner| {
        inner
            .strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'))
            .unwrap_or(inner)
    });
    let is_name = |c: char| c.is_ascii_lowercase() || matches!(c, '_' | '.');
    inner.is_some_and(|inner| !inner.is_empty() && inner.chars().all(is_name))
}

/// Splits a table's header from the comment behind it.
fn header_and_comment(line: &str) -> Option<(&str, &str)> {
    let (header, comment) = line.split_at(line.find('#')?);
    is_table(header.trim()).then_some((header, comment))
}

/// Returns whether a line within an array continues it: it has only values.
fn is_continuation(line: &str) -> bool {
    let begin = line.trim_start();
    begin.is_empty()
        || begin.starts_with(['"', '\'', '[', ']', '{', '}', ',', '#'])
        || begin.starts_with(|c: char| c.is_ascii_digit())
}

fn depth_after(line: &str, depth: u32) -> u32 {
    line.chars().fold(depth, |depth, c| match c {
        '[' | '{' => depth.saturating_add(1),
        ']' | '}' => depth.saturating_sub(1),
        _ => depth,
    })
}

fn shown_until(line: &str, depth: u32) -> Within {
    match depth_after(line, depth) {
        0 => Within::Nothing,
        depth => Within::Shown(depth),
    }
}

/// Returns the end of the value that begins on this line.
fn covered_from(value: &str) -> Within {
    for quotes in ["\"\"\"", "'''"] {
        if value.matches(quotes).count() % 2 == 1 {
            return Within::Covered(End::Quotes(quotes));
        }
    }
    match depth_after(value, 0) {
        0 => Within::Nothing,
        depth => Within::Covered(End::Brackets(depth)),
    }
}

fn after_covered(line: &str, end: End) -> Within {
    match end {
        End::Quotes(quotes) if line.contains(quotes) => Within::Nothing,
        End::Quotes(_) => Within::Covered(end),
        End::Brackets(depth) => match depth_after(line, depth) {
            0 => Within::Nothing,
            depth => Within::Covered(End::Brackets(depth)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let shown = Shown::of(text, |_| false);
        assert_eq!(shown.text().len(), text.len(), "{text}");
        shown.text().to_owned()
    }

    #[test]
    fn known_values_are_quoted_and_others_covered() {
        for (text, expected) in [
            ("asn = 7\n", "asn = 7\n"),
            ("password = \"ab c\"\n", "password = *** **\n"),
            ("pasword = hunter2 # x\n", "pasword = ******* * *\n"),
            ("password \"hunter2\"\n", "******** *********\n"),
            (
                "{ address = \"a\", password = \"b\", asn = 1 }",
                "{ address = \"a\", password = **** *** * * *",
            ),
            ("log = \"a=b\"\n", "log = \"a=b\"\n"),
            (
                "log = \"a=b\" password = \"b\"",
                "log = \"a=b\" password = ***",
            ),
            ("#password = \"x\"\n", "#password = ***\n"),
            ("# a word about it\n", "# a word about it\n"),
            (
                "[kernel]\n[[kernel.import]]\n",
                "[kernel]\n[[kernel.import]]\n",
            ),
            ("[secrets] # a: b\nasn = 7\n", "[secrets] * ** *\nasn = 7\n"),
            ("[ab] \"x\" # c\n", "**** *** * *\n"),
            (
                "endpoints = [\"http://u:p@h:1\"]",
                "endpoints = [\"http://****h:1\"]",
            ),
            (
                "endpoints = [\n  \"https://h:2379\",\n]\n",
                "endpoints = [\n  \"https://h:2379\",\n]\n",
            ),
            (
                "password = '''\nasn = 7\n'''\nasn = 8",
                "password = ***\n*** * *\n***\nasn = 8",
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn packaged_files_are_shown_whole() {
        for packaged in [
            include_str!("../../../packaging/etc/bgp-client.toml"),
            include_str!("../../../packaging/etc/route-reflector.toml"),
            include_str!("../../../packaging/etc/felix.toml"),
        ] {
            let text = crate::config::uncommented(packaged);
            let text: String = text
                .lines()
                .filter(|line| !line.starts_with('#'))
                .map(|line| format!("{line}\n"))
                .collect();
            let shown = shown(&text);
            for (shown, line) in shown.lines().zip(text.lines()) {
                assert_eq!(
                    shown, line,
                    "add the key to `keys.rs` if it holds no secret"
                );
            }
        }
    }

    #[test]
    fn values_of_further_keys_are_shown() {
        let text = "color = \"red\"\nsize = 7\n";
        let shown = Shown::of(text, |key| key == "color");
        assert_eq!(shown.text(), "color = \"red\"\nsize = *\n");
    }

    #[test]
    fn a_sentence_does_not_quote_what_is_covered() {
        let shown = Shown::of("asn = 7\npassword = 123456\n", |_| false);
        let sentence = shown.sentence("invalid type: integer `123456`, expected a string");
        assert_eq!(sentence, "invalid type: integer `…`, expected a string");
        let plain = "unknown key `hold_tiem`";
        assert_eq!(shown.sentence(plain), plain);
        let header = Shown::of("[secrets] # secrets, field\n", |_| false);
        let sentence = "unknown field `secrets`";
        assert_eq!(header.sentence(sentence), sentence);
        let bare = shown.sentence("what is 123456 here");
        assert!(bare.contains("not shown"), "{bare}");
    }
}
