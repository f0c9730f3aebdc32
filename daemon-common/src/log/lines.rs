//! The lines that the sink itself writes, in the format of the others.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::thread;

use serde_json::json;
use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::format::LogFormat;
use super::queue::Counts;

/// The module that these lines name as theirs.
const TARGET: &str = "daemon_common::log";

/// Reports lines that were not written.
pub(super) fn lost(format: LogFormat, lost: &Counts) -> Vec<u8> {
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
    line(format, level, message, &fields)
}

/// Reports a panic, with a backtrace if `RUST_BACKTRACE` asks for one.
pub(super) fn panicked(format: LogFormat, panic: &PanicHookInfo<'_>) -> Vec<u8> {
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
    line(format, Level::ERROR, &message, &[])
}

fn line(format: LogFormat, level: Level, message: &str, fields: &[(&str, u64)]) -> Vec<u8> {
    let mut time = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let text = match format {
        LogFormat::Text => {
            let fields = fields
                .iter()
                .map(|(name, number)| format!(" {name}={number}"));
            let fields: String = fields.collect();
            format!("{time} {level:>5} {TARGET}: {message}{fields}\n")
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
    text.into_bytes()
}
