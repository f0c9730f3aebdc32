//! The lines that the sink itself writes, in the format of the others.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::Display;
use std::panic::PanicHookInfo;
use std::thread;

use serde_json::json;
use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::format::{LogFormat, Style};
use super::journal::entry::Fields;
use super::queue::Counts;

/// The module name in these lines.
const TARGET: &str = "daemon_common::log";

/// Reports lines that were not written.
pub(super) fn lost(style: Style, lost: &Counts) -> (Level, Vec<u8>) {
    let level = match lost.of(Level::ERROR) {
        0 => Level::WARN,
        _ => Level::ERROR,
    };
    let fields = [
        ("lines", lost.total()),
        ("error", lost.of(Level::ERROR)),
        ("warn", lost.of(Level::WARN)),
        ("info", lost.of(Level::INFO)),
        ("debug", lost.of(Level::DEBUG)),
    ];
    let message = "log lines lost: standard error did not take them";
    (level, line(style, level, message, &fields))
}

/// Returns the report of a panic, with a backtrace if `RUST_BACKTRACE` requests one.
pub(super) fn panicked(style: Style, panic: &PanicHookInfo<'_>) -> Vec<u8> {
    let thread = thread::current();
    let name = thread.name().unwrap_or("without a name");
    let place = panic
        .location()
        .map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let why = panic.payload_as_str().unwrap_or("no message");
    let mut message = format!("thread {name} panicked at {place}: {why}");
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        message.push_str(&format!("\n{trace}"));
    }
    line(style, Level::ERROR, &message, &[])
}

/// Returns a text for people, in any format of the log. It has no fields.
pub(super) fn plain_text(style: Style, text: impl Display) -> Vec<u8> {
    let before = if style.with_fields { "\n" } else { "" };
    format!("{before}{text}\n").into_bytes()
}

/// Returns the text before a line: the fields for the journal, if it gets them.
fn before(style: Style, fields: &[(&str, u64)]) -> String {
    let mut line = String::new();
    if style.with_fields {
        let mut head = Fields::begin(Writer::new(&mut line), TARGET);
        for (name, number) in fields {
            head.put(name, format_args!("{number}"));
        }
        // Writing to a string cannot fail.
        let _ = head.end();
    }
    line
}

fn line(style: Style, level: Level, message: &str, fields: &[(&str, u64)]) -> Vec<u8> {
    let mut time = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let text = match style.format {
        LogFormat::Text => {
            let fields = fields
                .iter()
                .map(|(name, number)| format!(" {name}={number}"));
            let fields: String = fields.collect();
            let head = match style.with_fields {
                true => String::new(),
                false => format!("{time} {level:>5} {TARGET}: "),
            };
            format!("{head}{message}{fields}\n")
        }
        LogFormat::Json => {
            let mut all = serde_json::Map::new();
            all.insert("message".to_owned(), message.into());
            let numbers = fields
                .iter()
                .map(|(name, number)| ((*name).to_owned(), (*number).into()));
            all.extend(numbers);
            let line = json!({
                "timestamp": time,
                "level": level.as_str(),
                "fields": all,
                "target": TARGET,
            });
            format!("{line}\n")
        }
    };
    (before(style, fields) + &text).into_bytes()
}
