//! The writer thread, and waiting for it.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::panic::PanicHookInfo;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use tracing::Level;

use super::format::{LogFormat, Style};
use super::journal::Journal;
use super::journal::entry::{for_stream, has_fields};
use super::lines;
use super::queue::{Counts, Entry, Queue};
use crate::limits::{LOG_FLUSH, LOG_LAST_LINES, LOG_RETRY};

/// A queue and the thread that empties it.
#[derive(Debug)]
pub(super) struct Sink {
    state: Mutex<State>,
    /// There is something to write.
    work: Condvar,
    /// All is written.
    drained: Condvar,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    style: Style,
    /// The writer thread, once it was started.
    writer: Option<ThreadId>,
    /// Whether the writer waits for work.
    idle: bool,
    /// Since when the writer has been writing one entry.
    writing: Option<Instant>,
    /// Entries that the writer has finished with.
    turns: u64,
    /// How many there were when a flush gave up.
    gave_up: Option<u64>,
}

/// A queue at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) waiting: usize,
    pub(super) peak: usize,
    pub(super) lost: Counts,
}

impl State {
    /// Returns whether nothing is left to write, or there is no writer.
    fn is_drained(&self) -> bool {
        self.writer.is_none() || (self.queue.is_done() && self.writing.is_none())
    }

    /// Returns whether a flush timed out, and the writer has made no progress since.
    fn is_given_up(&self) -> bool {
        self.gave_up == Some(self.turns)
    }

    fn note_flush(&mut self) {
        self.gave_up = (!self.is_drained()).then_some(self.turns);
    }
}

impl Sink {
    pub(super) const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                queue: Queue::new(),
                style: Style {
                    format: LogFormat::Text,
                    with_fields: false,
                },
                writer: None,
                idle: false,
                writing: None,
                turns: 0,
                gave_up: None,
            }),
            work: Condvar::new(),
            drained: Condvar::new(),
        }
    }

    /// Starts the writer of standard error, or of the journal where that is behind it, unless it runs.
    pub(super) fn begin(&'static self) -> io::Result<()> {
        // The standard library's handle has a lock, which a writer that waits would keep.
        let stream: File = io::stderr().as_fd().try_clone_to_owned()?.into();
        let journal = Journal::of(&stream);
        self.write_to(Output { stream, journal })
    }

    /// Starts the writer, unless it runs.
    pub(super) fn write_to(&'static self, out: Output) -> io::Result<()> {
        let mut state = self.lock();
        if state.writer.is_none() {
            state.style.with_fields = out.journal.is_some();
            let builder = thread::Builder::new().name("log".to_owned());
            let writer = builder.spawn(move || {
                self.work(out);
            })?;
            state.writer = Some(writer.thread().id());
        }
        Ok(())
    }

    /// Sets the format of the lines, and returns how they are to reach the queue.
    pub(super) fn set_format(&self, format: LogFormat) -> Style {
        let mut state = self.lock();
        state.style.format = format;
        state.style
    }

    /// How lines are to reach the queue.
    pub(super) fn style(&self) -> Style {
        self.lock().style
    }

    /// Queues a line, or counts it as lost. Never waits for the writer.
    pub(super) fn push(&self, level: Level, line: Vec<u8>) {
        let mut state = self.lock();
        state.queue.push(level, line);
        if state.idle {
            state.idle = false;
            self.work.notify_one();
        }
    }

    /// Reserves room for the last lines of a process that ends.
    pub(super) fn open_reserve(&self) {
        self.lock().queue.open_reserve();
    }

    /// The queue, and how long the writer has waited for its reader.
    pub(super) fn look(&self, now: Instant) -> (Look, Option<Duration>) {
        let state = self.lock();
        let look = Look {
            waiting: state.queue.waiting(),
            peak: state.queue.peak,
            lost: state.queue.lost,
        };
        let since = |at| now.saturating_duration_since(at);
        (look, state.writing.map(since))
    }

    /// Writes the last lines of a process that ends: all in the first half of `limit`, then the
    /// last ones only.
    pub(super) fn leave(&self, limit: Duration) {
        let mut state = self.lock();
        if state.is_given_up() {
            return;
        }
        state = self.drain(state, limit / 2);
        if !state.is_drained() {
            state.queue.keep_last(LOG_LAST_LINES);
            state = self.drain(state, limit / 2);
        }
        state.note_flush();
    }

    /// Reports a panic of any thread, and waits until it is written.
    pub(super) fn panicked(&self, panic: &PanicHookInfo<'_>) {
        let (style, writer) = {
            let state = self.lock();
            (state.style, state.writer)
        };
        if writer.is_none_or(|writer| writer == thread::current().id()) {
            let with_fields = false;
            let style = Style {
                with_fields,
                ..style
            };
            let _ = io::stderr().write_all(&lines::panicked(style, panic));
            return;
        }
        self.push(Level::ERROR, lines::panicked(style, panic));
        self.flush(LOG_FLUSH);
    }

    /// Waits until all is written, for a limited time. After a timeout the next call waits only if
    /// the writer has made progress since: panics that tasks survive do not delay the loop
    /// repeatedly.
    fn flush(&self, limit: Duration) {
        let mut state = self.lock();
        if !state.is_given_up() {
            state = self.drain(state, limit);
            state.note_flush();
        }
    }

    /// Waits until all is written, at most so long.
    fn drain<'s>(&'s self, state: MutexGuard<'s, State>, limit: Duration) -> MutexGuard<'s, State> {
        let drained = self
            .drained
            .wait_timeout_while(state, limit, |state| !state.is_drained());
        drained.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Writes entry after entry, forever.
    fn work(&self, mut out: Output) {
        let mut state = self.lock();
        loop {
            let Some(entry) = state.queue.pop() else {
                self.drained.notify_all();
                state.idle = true;
                let woken = self.work.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                state.idle = false;
                continue;
            };
            state.writing = Some(Instant::now());
            let style = state.style;
            drop(state);
            let outcome = match &entry {
                Entry::Line(level, line) => out.put(*level, line),
                Entry::Lost(lost) => {
                    let (level, line) = lines::lost(style, lost);
                    out.put(level, &line)
                }
            };
            state = self.lock();
            state.queue.written(outcome.map_err(|_| &entry));
            state.writing = None;
            state.turns += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a sink writes to.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) stream: File,
    /// The journal, where the stream is one of it.
    pub(super) journal: Option<Journal>,
}

impl Output {
    /// Writes a queued line. Lines that the journal's socket rejects are written to the stream, and
    /// so are texts without fields: the process may end with one, and the journal identifies the
    /// unit of an ended process only by its stream.
    fn put(&mut self, level: Level, line: &[u8]) -> io::Result<()> {
        let Some(journal) = &mut self.journal else {
            return put(&mut self.stream, line);
        };
        if has_fields(line) && journal.send(level, line).is_ok() {
            return Ok(());
        }
        put(&mut self.stream, &for_stream(level, line))
    }
}

/// Writes a complete line, also if other processes have made standard error non-blocking.
fn put(out: &mut impl Write, mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        match out.write(line) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => line = line.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::park_timeout(LOG_RETRY),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
