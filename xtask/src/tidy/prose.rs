//! The prose of a file: a page without its code, the comments and the text literals of Rust source.
//! The same lexer finds its identifiers.

/// A word in lower case, with its line from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Letters, apostrophes and hyphens.
    pub text: String,
    /// Its line, from 1.
    pub line: usize,
}

/// The prose of a Rust file.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The words of comments and rustdoc.
    pub comments: Vec<Word>,
    /// The words of text literals.
    pub texts: Vec<Word>,
}

/// Returns the words of a page. Code, link targets and quotations are left out.
pub fn page(text: &str) -> Vec<Word> {
    let lines = text.lines().enumerate();
    let mut found = Words::default();
    found.lines(lines.map(|(index, line)| (index + 1, line)));
    found.words
}

/// Returns the words of comments and of text literals.
pub fn source(text: &str) -> Source {
    let lexer = Lexer::of(text);
    let mut comments = Words::default();
    comments.lines(lexer.comments.iter().copied());
    Source {
        comments: comments.words,
        texts: lexer.texts.words,
    }
}

/// Returns the identifiers and keywords of Rust source, with their lines from 1.
pub fn identifiers(text: &str) -> Vec<(usize, &str)> {
    Lexer::of(text).identifiers
}

/// Returns the contents of text literals, with their lines from 1.
pub fn literals(text: &str) -> Vec<(usize, &str)> {
    Lexer::of(text).literals
}

/// Words that are collected, and whether a fenced block is open.
#[derive(Debug, Default)]
struct Words {
    words: Vec<Word>,
}

impl Words {
    /// Adds lines of Markdown.
    fn lines<'t>(&mut self, lines: impl Iterator<Item = (usize, &'t str)>) {
        let mut is_code = false;
        for (number, line) in lines {
            let start = line.trim_start();
            if start.starts_with("```") || start.starts_with("~~~") {
                is_code = !is_code;
            } else if !is_code && !start.starts_with('>') {
                self.prose(number, line);
            }
        }
    }

    /// Adds a line of Markdown outside fenced blocks.
    fn prose(&mut self, number: usize, line: &str) {
        for (index, part) in line.split('`').enumerate() {
            if index % 2 == 1 {
                continue;
            }
            for (index, part) in part.split('"').enumerate() {
                if index % 2 == 0 {
                    let mut links = part.split("](");
                    self.plain(number, links.next().unwrap_or_default());
                    for link in links {
                        let behind = link.split_once(')').map_or("", |(_, behind)| behind);
                        self.plain(number, behind);
                    }
                }
            }
        }
    }

    /// Adds text without markup.
    fn plain(&mut self, line: usize, text: &str) {
        let is_letter = |c: char| c.is_ascii_alphabetic() || "'’-_".contains(c);
        let words = text.split(|c| !is_letter(c));
        let words = words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()));
        self.words.extend(words.map(|word| Word {
            text: word.to_ascii_lowercase(),
            line,
        }));
    }
}

/// Splits Rust source into comments, text literals and identifiers.
#[derive(Debug)]
struct Lexer<'t> {
    rest: &'t str,
    line: usize,
    comments: Vec<(usize, &'t str)>,
    texts: Words,
    literals: Vec<(usize, &'t str)>,
    identifiers: Vec<(usize, &'t str)>,
}

impl<'t> Lexer<'t> {
    /// Splits a whole file.
    fn of(text: &'t str) -> Self {
        let mut lexer = Self {
            rest: text,
            line: 1,
            comments: Vec::new(),
            texts: Words::default(),
            literals: Vec::new(),
            identifiers: Vec::new(),
        };
        while !lexer.rest.is_empty() {
            lexer.step();
        }
        lexer
    }

    /// Takes the next comment, literal or character.
    fn step(&mut self) {
        if let Some(comment) = self.rest.strip_prefix("//") {
            let end = comment.find('\n').unwrap_or(comment.len());
            let text = comment.get(..end).unwrap_or_default();
            self.comments
                .push((self.line, text.trim_start_matches(['/', '!'])));
            self.take(end + 2);
        } else if let Some(hashes) = raw_start(self.rest) {
            self.raw(hashes);
        } else if self.rest.starts_with('"') {
            self.literal();
        } else if self.rest.starts_with('\'') {
            self.take(character(self.rest));
        } else {
            let word = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
            let word = self.rest.get(..word.unwrap_or(self.rest.len()));
            let word = word.unwrap_or_default();
            if word.starts_with(|c: char| c.is_alphabetic() || c == '_') {
                self.identifiers.push((self.line, word));
            }
            let first = self.rest.chars().next().map_or(1, char::len_utf8);
            self.take(word.len().max(first));
        }
    }

    /// Takes a raw literal with so many hashes.
    fn raw(&mut self, hashes: usize) {
        let open = self.rest.find('"').map_or(0, |at| at + 1);
        let end = format!("\"{}", "#".repeat(hashes));
        let content = self.rest.get(open..).unwrap_or_default();
        let length = content.find(&end).unwrap_or(content.len());
        let content = content.get(..length).unwrap_or_default();
        self.text(content);
        self.literals.push((self.line, content));
        self.take(open + length + end.len());
    }

    /// Takes a literal with escapes.
    fn literal(&mut self) {
        let mut is_escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, c)| {
            let ends = *c == '"' && !is_escaped;
            is_escaped = *c == '\\' && !is_escaped;
            ends
        });
        let end = end.map_or(self.rest.len(), |(at, _)| at);
        let content = self.rest.get(1..end).unwrap_or_default();
        self.text(&content.replace("\\n", " "));
        self.literals.push((self.line, content));
        self.take(end + 1);
    }

    /// Adds the content of a literal, its fields in braces left out.
    fn text(&mut self, content: &str) {
        for part in content.split('{') {
            let text = part.split_once('}').map_or(part, |(_, behind)| behind);
            self.texts.plain(self.line, text);
        }
    }

    /// Skips octets, and counts their lines.
    fn take(&mut self, octets: usize) {
        let (taken, rest) = match self.rest.split_at_checked(octets) {
            Some(parts) => parts,
            None => (self.rest, ""),
        };
        self.line += taken.matches('\n').count();
        self.rest = rest;
    }
}

/// The number of hashes, if a raw literal begins here.
fn raw_start(text: &str) -> Option<usize> {
    let text = text.strip_prefix('b').unwrap_or(text);
    let text = text.strip_prefix('r')?;
    let quoted = text.trim_start_matches('#');
    quoted
        .starts_with('"')
        .then(|| text.len().saturating_sub(quoted.len()))
}

/// The length of a character literal, or 1 for a lifetime.
fn character(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), Some((at, c))) => {
            let behind = at + c.len_utf8();
            let end = text.get(behind..).and_then(|rest| rest.find('\''));
            end.map_or(1, |end| behind + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}
