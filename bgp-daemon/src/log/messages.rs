//! The messages of debugged neighbors, with a limit per second.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bgp_io::bgp_fsm::Instant;
use bgp_io::{Speaker, TracedMessage};
use daemon_common::events::{self, Event, Text};
use daemon_common::limits::DEBUGGED_NEIGHBORS_MAX;

use crate::limits::{MESSAGES_LOGGED_MAX, MESSAGES_WINDOW};

/// Counts the messages of a time window, and those that were not logged.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// The end of the window.
    until: Option<Instant>,
    logged: u64,
    /// Messages of each neighbor that were not logged.
    lost: BTreeMap<IpAddr, u64>,
    /// Whether the traced neighbors differ from the debugged ones.
    is_over: bool,
}

impl Messages {
    /// Logs a message, or counts it.
    pub(super) fn log(&mut self, now: Instant, speaker: &Speaker, message: &TracedMessage) {
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
        self.until.filter(|_| !self.lost.is_empty())
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

    /// Counts messages of a neighbor that are not logged.
    pub(super) fn lose(&mut self, address: IpAddr, count: u64) {
        if count == 0 {
            return;
        }
        // There are more only where the debugged neighbors change within a window.
        if self.lost.len() >= DEBUGGED_NEIGHBORS_MAX && !self.lost.contains_key(&address) {
            self.report();
        }
        *self.lost.entry(address).or_default() += count;
    }

    fn report(&mut self) {
        self.losses().iter().for_each(|lost| {
            events::log_debugged(lost);
        });
    }

    /// Takes what was lost, one event for each neighbor.
    fn losses(&mut self) -> Vec<Event> {
        let lost = std::mem::take(&mut self.lost).into_iter();
        lost.map(|(address, count)| Event::MessageLost { address, count })
            .collect()
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
        assert_eq!(messages.lost[&neighbor], 2 * MESSAGES_LOGGED_MAX);
        let end = messages
            .poll_timeout()
            .expect("there is something to report");
        messages.look(now);
        assert!(!messages.lost.is_empty(), "the window is not over");
        messages.look(end);
        assert!(messages.lost.is_empty() && messages.poll_timeout().is_none());
        assert!(messages.admits(end), "the next window");
    }

    #[test]
    fn lost_messages_are_counted_for_each_neighbor() {
        let mut messages = Messages::default();
        let neighbor = |number: usize| IpAddr::from([10, 0, 0, number as u8]);
        // The message of another neighbor follows, of which none was lost.
        for (number, count) in [(1, 3), (2, 1), (1, 4), (3, 0)] {
            messages.lose(neighbor(number), count);
        }
        let lost = |number, count| Event::MessageLost {
            address: neighbor(number),
            count,
        };
        assert_eq!(messages.losses(), [lost(1, 7), lost(2, 1)]);
        assert!(messages.losses().is_empty());
        (0..3 * DEBUGGED_NEIGHBORS_MAX).for_each(|number| messages.lose(neighbor(number), 1));
        assert!(messages.lost.len() <= DEBUGGED_NEIGHBORS_MAX);
    }
}
