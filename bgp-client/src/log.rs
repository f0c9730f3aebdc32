//! What happens in the kernel, in the log.

use std::time::Duration;

use daemon_common::log::{Repeats, Summary};
use tracing::Level;

use crate::limits::LOG_KEYS_MAX;

/// Events of the kernel on their way into the log; repeated ones are summarized by kind and error.
#[derive(Debug)]
pub(crate) struct Log(Repeats<Key>);

/// What counts as the same event again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Routes that the kernel refuses with this error number.
    Refused(i32),
    /// Routes that the kernel refuses with errors for which there is no room.
    RefusedOtherwise,
    Overrun,
    Changed,
}

impl Log {
    pub(crate) const fn new() -> Self {
        Self(Repeats::new(LOG_KEYS_MAX))
    }

    /// Logs one event of the kernel, if it is out of the ordinary, or counts it.
    pub(crate) fn kernel(&mut self, now: Duration, event: &fib_sync::Event) {
        if let fib_sync::Event::Link(link) = event {
            let (name, up, running) = (&link.name, link.up, link.running);
            tracing::debug!(name, up, running, "link");
        }
        if let Some((level, text)) = self.admit(now, event) {
            write(level, &text);
        }
    }

    /// When to call [`look`](Self::look) again.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.0.poll_timeout()
    }

    /// Logs the summaries that are due.
    pub(crate) fn look(&mut self, now: Duration) {
        self.0.due(now).iter().for_each(summary);
    }

    /// Logs all summaries: the daemon ends.
    pub(crate) fn finish(&mut self, now: Duration) {
        self.0.finish(now).iter().for_each(summary);
    }

    fn admit(&mut self, now: Duration, event: &fib_sync::Event) -> Option<(Level, String)> {
        let (key, level, text) = line(event)?;
        let others = match key {
            Key::Refused(_) => Key::RefusedOtherwise,
            key => key,
        };
        let text = self.0.admit(now, key, others, level, text)?;
        Some((level, text))
    }
}

fn line(event: &fib_sync::Event) -> Option<(Key, Level, String)> {
    match event {
        fib_sync::Event::Applied(key, Err(error)) if !error.is_cancelled() => {
            let text = format!("kernel route {key}: {error}");
            Some((Key::Refused(error.errno), Level::WARN, text))
        }
        fib_sync::Event::Overrun => {
            let text = "kernel notifications were lost: reading the tables again".to_owned();
            Some((Key::Overrun, Level::WARN, text))
        }
        fib_sync::Event::DumpDone {
            table,
            complete: false,
            ..
        } => {
            let text = format!("table {table} changed while it was read: reading it again");
            Some((Key::Changed, Level::INFO, text))
        }
        _ => None,
    }
}

fn summary(summary: &Summary) {
    write(summary.level, &summary.to_string());
}

fn write(level: Level, text: &str) {
    match level {
        Level::INFO => tracing::info!("{text}"),
        _ => tracing::warn!("{text}"),
    }
}

#[cfg(test)]
mod tests {
    use daemon_common::limits::{REPEATS_LOGGED, REPEATS_WINDOW};
    use fib_sync::{Event, OpError, RouteKey};

    use super::*;

    #[test]
    fn refused_routes_are_summarized_by_error() {
        let mut log = Log::new();
        let mut lines = Vec::new();
        for number in 0..2000_u32 {
            let prefix = format!("10.{}.{}.0/24", number / 256, number % 256);
            let key = RouteKey::new(254, prefix.parse().expect("a prefix"), 1024, 0);
            // ENETUNREACH mostly, and ENOSPC once.
            let errno = if number == 1000 { 28 } else { 101 };
            let event = Event::Applied(key, Err(OpError::new(errno)));
            lines.extend(log.admit(Duration::ZERO, &event));
        }
        assert_eq!(lines.len() as u64, REPEATS_LOGGED + 1);
        assert!(
            lines[5].1.starts_with("kernel route 10.3.232.0/24"),
            "{lines:?}"
        );
        assert_eq!(log.poll_timeout(), Some(REPEATS_WINDOW));
        let summaries = log.0.due(REPEATS_WINDOW);
        let texts: Vec<_> = summaries.iter().map(ToString::to_string).collect();
        let begin = "1994 more in 10 s, the last: kernel route 10.7.207.0/24";
        assert!(texts.len() == 1 && texts[0].starts_with(begin), "{texts:?}");
    }
}
