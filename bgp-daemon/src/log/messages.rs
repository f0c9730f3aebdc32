//! The messages of debugged neighbors, with a limit per second.

use std::net::IpAddr;

use bgp_io::bgp_fsm::Instant;
use bgp_io::{Speaker, TracedMessage};
use daemon_common::events::{self, Event, Text};

use crate::limits::{MESSAGES_LOGGED_MAX, MESSAGES_WINDOW};

/// Counts the messages of a time window, and those that were not logged.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// The end of the window.
    until: Option<Instant>,
    logged: u64,
    lost: u64,
    /// The neighbor of the last message that was not logged.
    last: Option<IpAddr>,
    /// Whether the traced neighbors differ from the debugged ones.
    is_over: bool,
}

impl Messages {
    /// Logs a message, or counts it.
    pub(super) fn log(&mut self, now: Instant, speaker: &Speaker, message: &TracedMessage) {
        self.lose(message.address, message.lost);
        if !self.admits(now) {
            self.lose(message.address, 1);
            return;
        }
        self.report();
        let name = speaker.peer_name(message.peer);
        self.is_over |= !events::log_debugged(&converted(name, message));
    }

    /// When to call [`look`](Self::look) again.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.until.filter(|_| self.lost > 0)
    }

    /// Reports the number of messages that were not logged, after the window has ended.
    pub(super) fn look(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.report();
        }
    }

    /// Returns once that the driver is to trace other neighbors.
    pub(super) fn take_over(&mut self) -> bool {
        std::mem::take(&mut self.is_over)
    }

    fn admits(&mut self, now: Instant) -> bool {
        if self.until.is_none_or(|until| until <= now) {
            self.until = Some(now + MESSAGES_WINDOW);
            self.logged = 0;
        }
        self.logged += 1;
        self.logged <= MESSAGES_LOGGED_MAX
    }

    fn lose(&mut self, address: IpAddr, count: u64) {
        self.lost += count;
        self.last = Some(address);
    }

    fn report(&mut self) {
        let count = std::mem::take(&mut self.lost);
        if let Some(address) = self.last.filter(|_| count > 0) {
            events::log_debugged(&Event::MessageLost { address, count });
        }
    }
}

fn converted(name: &str, message: &TracedMessage) -> Event {
    let (neighbor, address) = (Text::new(name), message.address);
    let (kind, text) = (Text::new(message.kind), Text::new(&message.text));
    let octets = message.octets as u64;
    match message.sent {
        true => Event::MessageSent {
            neighbor,
            address,
            kind,
            octets,
            text,
        },
        false => Event::MessageReceived {
            neighbor,
            address,
            kind,
            octets,
            text,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_beyond_the_limit_of_a_window_are_counted() {
        let mut messages = Messages::default();
        let (now, neighbor) = (Instant::ZERO, IpAddr::from([10, 0, 0, 1]));
        let admitted = (0..3 * MESSAGES_LOGGED_MAX).filter(|_| {
            let admitted = messages.admits(now);
            if !admitted {
                messages.lose(neighbor, 1);
            }
            admitted
        });
        assert_eq!(admitted.count() as u64, MESSAGES_LOGGED_MAX);
        assert_eq!(messages.lost, 2 * MESSAGES_LOGGED_MAX);
        let end = messages
            .poll_timeout()
            .expect("there is something to report");
        messages.look(now);
        assert_ne!(messages.lost, 0, "the window is not over");
        messages.look(end);
        assert_eq!((messages.lost, messages.poll_timeout()), (0, None));
        assert!(messages.admits(end), "the next window");
    }
}
