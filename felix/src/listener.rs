//! A socket for requests over TCP, at the address of the settings in effect.

use daemon_common::control::BindError;
use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;

use crate::limits::LISTEN_RETRY;

/// A socket, open where the settings require it and nowhere else.
#[derive(Debug)]
pub(crate) struct Listener<W, S> {
    /// The settings in effect; `None`: no socket.
    wanted: Option<W>,
    socket: Option<S>,
    /// When it is tried to open the socket.
    open_at: Option<Instant>,
    /// Why the socket is not open.
    problem: Option<String>,
}

impl<W: Clone + PartialEq, S> Listener<W, S> {
    pub(crate) const fn new() -> Self {
        Self {
            wanted: None,
            socket: None,
            open_at: None,
            problem: None,
        }
    }

    /// Opens the socket that the settings require, or closes it.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        wanted: Option<W>,
        open: impl FnOnce(W) -> Result<S, BindError>,
    ) {
        if wanted != self.wanted {
            // The next socket may have the same port, which is free when the runtime has run.
            let was_open = self.socket.take().is_some();
            let at = if was_open { now + LISTEN_RETRY } else { now };
            self.open_at = wanted.is_some().then_some(at);
            self.problem = None;
            self.wanted = wanted;
        }
        let is_due = self.open_at.is_some_and(|at| at <= now);
        let Some(wanted) = self.wanted.clone().filter(|_| is_due) else {
            return;
        };
        match open(wanted) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.problem = None;
                self.open_at = None;
            }
            Err(error) => {
                let problem = error.to_string();
                if self.problem.as_ref() != Some(&problem) {
                    let reason = Text::new(&problem);
                    emit(Event::ListenerFailed { reason });
                }
                self.problem = Some(problem);
                self.open_at = Some(now + LISTEN_RETRY);
            }
        }
    }

    /// Returns when the next action is due without an event.
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.open_at
    }

    /// Returns why the socket is not open.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Error;
    use std::time::Duration;

    use super::*;

    fn taken() -> Result<u16, BindError> {
        let address = "127.0.0.1:1".parse().unwrap();
        Err(BindError::Health(address, Error::other("taken")))
    }

    #[test]
    fn socket_follows_the_settings_and_is_tried_again() {
        let (now, later) = (Instant(7), |s: u64| Instant(7) + Duration::from_secs(s));
        let mut listener = Listener::new();
        listener.follow(now, None, |_: u16| panic!("nothing is wanted"));
        assert_eq!(listener.poll_timeout(), None);
        listener.follow(now, Some(1), |_| taken());
        assert!(
            listener
                .problem()
                .is_some_and(|text| text.contains("taken"))
        );
        assert_eq!(listener.poll_timeout(), Some(later(1)));
        listener.follow(now, Some(1), |_| panic!("not yet"));
        listener.follow(later(1), Some(1), Ok);
        assert_eq!((listener.problem(), listener.socket), (None, Some(1)));
        listener.follow(later(2), Some(1), |_| panic!("it is open"));
        // The old socket is closed before the new one is opened.
        listener.follow(later(2), Some(2), |_| panic!("not yet"));
        assert_eq!(
            (listener.socket, listener.poll_timeout()),
            (None, Some(later(3)))
        );
        listener.follow(later(3), Some(2), Ok);
        assert_eq!(listener.socket, Some(2));
        listener.follow(later(3), None, |_| panic!("nothing is wanted"));
        assert_eq!((listener.socket, listener.poll_timeout()), (None, None));
    }
}
