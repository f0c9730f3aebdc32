//! A log line with its fields: in the queue, and in the journal's native protocol.
//!
//! In the queue the fields come first, one `NAME=value` per line, then an empty line, then the
//! text. In a value each control character is escaped: a value can neither end its field nor begin
//! another one.

use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;

use crate::limits::JOURNAL_NAME_OCTETS_MAX;

/// Prefix of the name of each field.
const PREFIX: &str = "CAMBRIC_";

/// The field of the text, which becomes the journal's `MESSAGE`.
const MESSAGE: &str = "message";

/// Writes the fields of an event before the line that another format makes of it.
#[derive(Debug)]
pub(crate) struct WithFields<F>(pub(crate) F);

impl<S, N, F> FormatEvent<S, N> for WithFields<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::begin(writer.by_ref(), event.metadata().target());
        event.record(&mut fields);
        fields.end()?;
        self.0.format_event(context, writer, event)
    }
}

/// Writes fields, then the empty line behind them.
pub(in crate::log) struct Fields<'w> {
    writer: Writer<'w>,
    outcome: fmt::Result,
}

impl<'w> Fields<'w> {
    /// Begins with the time, as a line can wait in the queue, and the module.
    pub(in crate::log) fn begin(writer: Writer<'w>, target: &str) -> Self {
        let mut time = String::new();
        // Writing to a string cannot fail.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let mut fields = Self {
            writer,
            outcome: Ok(()),
        };
        fields.put("time", format_args!("{time}"));
        fields.put("target", format_args!("{target}"));
        fields
    }

    /// Writes one field.
    pub(in crate::log) fn put(&mut self, name: &str, value: fmt::Arguments<'_>) {
        let outcome = self.outcome.and_then(|()| self.try_put(name, value));
        self.outcome = outcome;
    }

    pub(in crate::log) fn end(mut self) -> fmt::Result {
        self.outcome?;
        self.writer.write_char('\n')
    }

    fn try_put(&mut self, name: &str, value: fmt::Arguments<'_>) -> fmt::Result {
        self.writer.write_str(PREFIX)?;
        for c in name.chars().take(JOURNAL_NAME_OCTETS_MAX - PREFIX.len()) {
            self.writer.write_char(match c.to_ascii_uppercase() {
                c if c.is_ascii_alphanumeric() => c,
                _ => '_',
            })?;
        }
        self.writer.write_char('=')?;
        Escaped(&mut self.writer).write_fmt(value)?;
        self.writer.write_char('\n')
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() != MESSAGE {
            self.put(field.name(), format_args!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() != MESSAGE {
            self.put(field.name(), format_args!("{value}"));
        }
    }
}

/// Escapes control characters.
struct Escaped<'e, 'w>(&'e mut Writer<'w>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| match c.is_control() {
            true => write!(self.0, "{}", c.escape_default()),
            false => self.0.write_char(c),
        })
    }
}

/// Returns the fields of a queued line, each with its end, and the text without its end.
fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let empty = line.windows(2).position(|pair| pair == b"\n\n");
    let fields = match empty {
        Some(at) if has_fields(line) => at + 1,
        _ => 0,
    };
    let (fields, text) = line.split_at(fields);
    let text = text.strip_prefix(b"\n").unwrap_or(text);
    (fields, text.strip_suffix(b"\n").unwrap_or(text))
}

/// Whether a queued line has fields.
pub(in crate::log) fn has_fields(line: &[u8]) -> bool {
    !line.starts_with(b"\n")
}

/// Appends a queued line in the journal's native protocol.
pub(super) fn encode(out: &mut Vec<u8>, identifier: &str, level: Level, line: &[u8]) {
    let (fields, text) = split(line);
    let priority = priority(level);
    let head = format!("PRIORITY={priority}\nSYSLOG_IDENTIFIER={identifier}\n");
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(fields);
    out.extend_from_slice(b"MESSAGE");
    if text.contains(&b'\n') {
        out.push(b'\n');
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(text);
    out.push(b'\n');
}

/// Returns the text of a queued line for the journal's stream, which reads a priority at the begin of
/// each line.
pub(in crate::log) fn for_stream(level: Level, line: &[u8]) -> Vec<u8> {
    let (_, text) = split(line);
    let mut out = Vec::with_capacity(text.len() + 8);
    for part in text.split(|octet| *octet == b'\n') {
        out.extend_from_slice(format!("<{}>", priority(level)).as_bytes());
        out.extend_from_slice(part);
        out.push(b'\n');
    }
    out
}

/// The priority of syslog(3) for a level.
const fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
