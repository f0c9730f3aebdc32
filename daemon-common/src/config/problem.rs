//! Problems found in a file, and their printed form.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use super::Source;
use super::secret::{IsShown, Shown};

/// One mistake, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    message: String,
    span: Option<Range<usize>>,
    label: Option<String>,
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
}

impl<'s> Problems<'s> {
    pub(super) const fn new(source: &'s Source) -> Self {
        Self {
            source,
            found: Vec::new(),
        }
    }

    /// Adds one.
    pub fn push(&mut self, problem: Problem) {
        self.found.push(problem);
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
    pub fn finish(mut self) -> Result<(), Report> {
        if self.found.is_empty() {
            return Ok(());
        }
        self.found
            .sort_by_key(|problem| problem.span.as_ref().map_or(0, |span| span.start));
        Err(self.source.report(self.found))
    }
}

/// The problems of a file as text, with file, line, key and caret.
#[derive(Clone, PartialEq, Eq)]
pub struct Report {
    path: PathBuf,
    messages: Vec<String>,
    rendered: String,
}

impl Report {
    pub(super) fn new(path: &Path, text: &str, is_shown: IsShown, problems: Vec<Problem>) -> Self {
        let name = path.display().to_string();
        let shown = Shown::of(text, is_shown);
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
        Self::new(path, "", |_| false, vec![Problem::whole(message)])
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
