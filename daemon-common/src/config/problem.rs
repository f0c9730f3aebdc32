//! Problems found in a file, and their printed form.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use toml::de::{DeTable, DeValue};

use super::Source;
use super::keys::{Type, item_type, type_of};
use super::place::{Lost, Step, last_key, path_at, value_at};
use super::secret::Shown;
use crate::limits::CONFIG_PROBLEMS_MAX;

/// One mistake, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    message: String,
    span: Option<Range<usize>>,
    pub(super) label: Option<String>,
    related: Option<(Range<usize>, String)>,
    help: Option<String>,
}

impl Problem {
    /// A problem at a place of the text; `message` is a short sentence without a full stop.
    pub fn at(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            span: Some(span),
            ..Self::whole(message)
        }
    }

    /// Makes a problem of the file as a whole.
    pub fn whole(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            span: None,
            label: None,
            related: None,
            help: None,
        }
    }

    /// Returns the problem at a place of the text.
    #[must_use]
    pub fn placed(mut self, span: Range<usize>) -> Self {
        self.span = Some(span);
        self
    }

    /// Words beside the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// A second place that explains the first ("first given here").
    #[must_use]
    pub fn related(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.related = Some((span, label.into()));
        self
    }

    /// Adds the remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The offset of its place.
    fn start(&self) -> usize {
        self.span.as_ref().map_or(0, |span| span.start)
    }

    /// The sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the problem without its quotations of secrets.
    fn discreet(mut self, text: &str, shown: &Shown) -> Self {
        if let Some(span) = &self.span
            && !shown.covers_lines_of(text, span)
        {
            return self;
        }
        self.message = shown.sentence(&self.message);
        self.label = self.label.map(|label| shown.sentence(&label));
        self.help = self.help.map(|help| shown.sentence(&help));
        self
    }

    /// Returns the problem as text. `text` is the part of the file that may be shown.
    fn render(&self, path: &str, text: &str) -> String {
        let Some(span) = self.span.clone() else {
            return self.render_whole(path);
        };
        let mut primary = AnnotationKind::Primary.span(within(text, span));
        if let Some(label) = &self.label {
            primary = primary.label(label.as_str());
        }
        let mut snippet = Snippet::source(text).path(path).annotation(primary);
        if let Some((span, label)) = &self.related {
            let context = AnnotationKind::Context.span(within(text, span.clone()));
            snippet = snippet.annotation(context.label(label.as_str()));
        }
        let mut group = Level::ERROR
            .primary_title(self.message.as_str())
            .element(snippet);
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        Renderer::plain().render(&[group])
    }

    fn render_whole(&self, path: &str) -> String {
        match &self.help {
            Some(help) => format!("error: {path}: {}\n = help: {help}", self.message),
            None => format!("error: {path}: {}", self.message),
        }
    }
}

/// Problems being collected for one file.
#[derive(Debug)]
pub struct Problems<'s> {
    source: &'s Source,
    found: Vec<Problem>,
    lost: Lost,
}

impl<'s> Problems<'s> {
    pub(super) fn found(source: &'s Source, found: Vec<Problem>, lost: Lost) -> Self {
        Self {
            source,
            found,
            lost,
        }
    }

    /// Returns whether the value of a key at the top of the file has a mistake and is therefore
    /// missing. A consequence of that is no mistake of its own.
    pub fn is_lost(&self, key: &str) -> bool {
        self.lost.has(key)
    }

    /// Returns whether a part of this key's value has a mistake and is therefore missing.
    pub fn is_part_lost(&self, key: &str) -> bool {
        self.lost.is_part_of(key)
    }

    /// Adds one, unless it is about a missing key of which the value was already reported.
    pub fn push(&mut self, problem: Problem) {
        let key = missing_key(&problem.message);
        let lost = key.zip(problem.span.as_ref());
        if !lost.is_some_and(|(key, header)| self.lost.is_in_section(header, key)) {
            self.found.push(problem);
        }
    }

    /// Returns whether no problem was found.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns all problems as one report, in the order of the text.
    ///
    /// # Errors
    ///
    /// The report, if there are problems.
    pub fn finish(self) -> Result<(), Report> {
        match self.found.is_empty() {
            true => Ok(()),
            false => Err(self.into_report()),
        }
    }

    /// Returns all problems as one report, in the order of the text.
    pub fn into_report(mut self) -> Report {
        if self.source.is_toml() {
            self.add_hints();
        }
        self.found.sort_by_key(Problem::start);
        self.found.dedup();
        let more = self.found.len().saturating_sub(CONFIG_PROBLEMS_MAX);
        self.found.truncate(CONFIG_PROBLEMS_MAX);
        let mut report = self.source.report(self.found);
        if more > 0 {
            let message = format!("{more} more mistakes, shown when these are corrected");
            report.add(&message);
        }
        report
    }

    /// Adds the obvious remedies to problems without one.
    fn add_hints(&mut self) {
        let bare = self.found.iter_mut().filter(|one| one.label.is_none());
        let bare: Vec<&mut Problem> = bare.collect();
        if bare.is_empty() {
            return;
        }
        let (root, _) = DeTable::parse_recoverable(self.source.text());
        for problem in bare {
            let Some(span) = &problem.span else { continue };
            let path = path_at(root.get_ref(), span);
            let value = value_at(root.get_ref(), &path);
            let value = value.filter(|value| value.span() == *span);
            let Some((key, DeValue::String(text))) =
                last_key(&path).zip(value.map(toml::Spanned::get_ref))
            else {
                continue;
            };
            let kind = item_type(type_of(key), matches!(path.last(), Some(Step::Item(_))));
            // The general advice about a number explains less than its form does.
            if problem.help.is_none() || kind.is_some_and(Type::is_number) {
                let value = DeValue::String(text.clone());
                *problem = problem.clone().hinted(key, kind, &value);
            }
        }
    }
}

/// Returns the key that a message is about, if it is missing.
fn missing_key(message: &str) -> Option<&str> {
    message.strip_prefix("missing key `")?.strip_suffix('`')
}

/// The problems of a file as text, with file, line, key and caret.
#[derive(Clone, PartialEq, Eq)]
pub struct Report {
    path: PathBuf,
    messages: Vec<String>,
    rendered: String,
}

impl Report {
    pub(super) fn new(source: &Source, problems: Vec<Problem>) -> Self {
        let (path, text) = (source.path(), source.text());
        let name = path.display().to_string();
        let shown = source.shown();
        let problems: Vec<Problem> = problems
            .into_iter()
            .map(|problem| problem.discreet(text, &shown))
            .collect();
        let rendered: Vec<String> = problems
            .iter()
            .map(|problem| problem.render(&name, shown.text()))
            .collect();
        Self {
            path: path.to_owned(),
            rendered: rendered.join("\n\n"),
            messages: problems
                .into_iter()
                .map(|problem| problem.message)
                .collect(),
        }
    }

    pub(super) fn of_file(path: &Path, message: &str) -> Self {
        Self::new(&Source::new(path, ""), vec![Problem::whole(message)])
    }

    /// Adds a problem of the file as a whole.
    fn add(&mut self, message: &str) {
        self.rendered.push_str("\n\n");
        let whole = Problem::whole(message);
        self.rendered
            .push_str(&whole.render_whole(&self.path.display().to_string()));
        self.messages.push(message.to_owned());
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The problems' sentences, without places.
    pub fn messages(&self) -> &[String] {
        &self.messages
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rendered)
    }
}

/// The same text, which `main` prints when it returns an error.
impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Report {}

/// Returns the span within the text, on character boundaries, at most to the end of its first line:
/// a caret under a whole table is of no use.
fn within(text: &str, span: Range<usize>) -> Range<usize> {
    let start = floor(text, span.start.min(text.len()));
    let end = floor(text, span.end.clamp(start, text.len()));
    let line = text.get(start..end).and_then(|cut| cut.find('\n'));
    start..line.map_or(end, |octets| start + octets)
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
