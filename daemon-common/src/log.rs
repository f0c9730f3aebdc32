//! The path of log lines to standard error: one bounded queue and one writer thread for each
//! process.
//!
//! Standard error is a file, a terminal, a pipe or the journal's stream socket. Each of them can
//! stop accepting lines, and then `write` blocks. Only the writer thread calls it: a daemon's loop
//! puts lines into the queue and continues. Lines that do not fit are lost and counted by level;
//! once there is capacity, one line reports how many. If standard error is the journal's stream,
//! the writer sends the lines to the journal's own socket, with priority and fields, see `journal`.
//!
//! [`Repeats`] prevents frequent events from filling the queue.
//!
//! The last lines are written nevertheless: [`Logging`] waits for the writer when it is dropped,
//! and so does a panic, both at most for [`LOG_FLUSH`].

mod format;
mod journal;
mod lines;
mod queue;
mod repeats;
mod sink;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::io;
use std::time::Instant;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::limits::{LOG_FLUSH, LOG_STALLED};
use crate::report::LogFigures;
pub use format::LogFormat;
pub(crate) use format::Style;
pub(crate) use journal::entry::WithFields;
pub use repeats::{Repeats, Summary};
use sink::Sink;

static SINK: Sink = Sink::new();

/// The log of this process: as long as it is held, lines are queued, written by a thread of their
/// own, and flushed at the end.
#[derive(Debug)]
#[must_use = "the last lines are written when it is dropped"]
pub struct Logging(());

impl Logging {
    /// Starts the writer thread, if it does not run yet, and reports panics through it.
    ///
    /// # Errors
    ///
    /// The machine does not give a thread or a file descriptor.
    pub fn begin() -> io::Result<Self> {
        start_writer()?;
        std::panic::set_hook(Box::new(|panic| SINK.panicked(panic)));
        Ok(Self(()))
    }

    /// Writes a text for people, in any format of the log.
    pub fn write(&self, text: impl Display) {
        SINK.push(Level::ERROR, lines::plain_text(SINK.style(), text));
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        SINK.leave(LOG_FLUSH);
    }
}

/// Starts the writer thread, if it does not run yet.
pub(crate) fn start_writer() -> io::Result<()> {
    SINK.begin()
}

/// Sets the format of the lines that the sink itself adds. Returns how all lines are to be written.
pub(crate) fn set_format(format: LogFormat) -> Style {
    SINK.set_format(format)
}

/// Marks the following lines as the last ones of this process: the capacity reserved for errors is
/// theirs, too.
pub(crate) fn open_reserve() {
    SINK.open_reserve();
}

/// Returns the counts of this process's log lines.
pub fn figures() -> LogFigures {
    let (queue, stalled) = SINK.look(Instant::now());
    LogFigures {
        waiting: queue.waiting as u64,
        peak: queue.peak as u64,
        lost_error: queue.lost.of(Level::ERROR),
        lost_warn: queue.lost.of(Level::WARN),
        lost_info: queue.lost.of(Level::INFO),
        lost_debug: queue.lost.of(Level::DEBUG),
        stalled_s: stalled
            .filter(|stalled| *stalled >= LOG_STALLED)
            .map(|stalled| stalled.as_secs()),
        summarized: 0,
    }
}

/// Where `tracing` writes its lines to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToSink;

impl<'a> MakeWriter<'a> for ToSink {
    type Writer = LineOf;

    fn make_writer(&'a self) -> LineOf {
        LineOf(Level::ERROR)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> LineOf {
        LineOf(*meta.level())
    }
}

/// One line of a level: the formatter passes it on with a single `write`.
#[derive(Debug)]
pub(crate) struct LineOf(Level);

impl io::Write for LineOf {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        SINK.push(self.0, line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
