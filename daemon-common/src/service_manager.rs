//! Messages of a daemon's loop to the service manager: a ping for its watchdog, and one line on the
//! daemon's state.
//!
//! The loop sends them itself, after complete turns. A thread or a task of its own would send pings
//! for a loop that hangs.

use std::fmt::Write as _;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{Instant, sleep};

use crate::events::{Event, Text, emit};
use crate::limits::{SERVICE_STATE_EVERY, SERVICE_STATE_OCTETS_MAX, WATCHDOG_PINGS};

/// The service manager (systemd) that has started this process; without one nothing is sent.
#[derive(Debug, Default)]
pub struct ServiceManager {
    channel: Option<Channel>,
}

#[derive(Debug)]
struct Channel {
    /// Not blocking: a service manager that does not read must not stop the daemon.
    socket: UnixDatagram,
    path: PathBuf,
    /// Interval between pings, if the watchdog is enabled.
    ping_every: Option<Duration>,
    ping_at: Instant,
    /// The last accepted state.
    state: String,
    /// Before this time the state is not computed again.
    state_at: Instant,
    /// The state may have changed since it was computed.
    is_state_old: bool,
    /// The last message was rejected, which was reported.
    is_broken: bool,
}

impl ServiceManager {
    /// Returns the service manager that the environment names: `NOTIFY_SOCKET`, and `WATCHDOG_USEC`
    /// if its watchdog is enabled.
    pub fn from_environment() -> Self {
        let path = std::env::var_os("NOTIFY_SOCKET").map(PathBuf::from);
        Self::new(path, sd_notify::watchdog_enabled())
    }

    /// Returns the service manager with this socket. `watchdog` is the time without a ping after
    /// which it kills the daemon.
    pub fn new(path: Option<PathBuf>, watchdog: Option<Duration>) -> Self {
        let Some(path) = path else {
            return Self::default();
        };
        let channel = Channel::open(path, watchdog);
        Self {
            channel: channel.map_err(|error| report(&error)).ok(),
        }
    }

    /// Records a complete turn of the daemon's loop: sends what is due. `state` returns the state
    /// in one short line, and is called at most once a second.
    pub fn turned(&mut self, state: impl FnOnce() -> String) {
        if let Some(channel) = &mut self.channel {
            channel.turned(Instant::now(), state);
        }
    }

    /// Returns the time until the loop must turn, also without an event; `None` if never.
    pub fn rest(&self) -> Option<Duration> {
        let at = self.channel.as_ref()?.poll_timeout()?;
        Some(at.saturating_duration_since(Instant::now()))
    }

    /// Waits until the loop must turn. Cancel-safe.
    pub async fn due(&self) {
        match self.rest() {
            Some(rest) => sleep(rest).await,
            None => pending().await,
        }
    }
}

impl Channel {
    fn open(path: PathBuf, watchdog: Option<Duration>) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        let now = Instant::now();
        Ok(Self {
            socket,
            path,
            ping_every: watchdog.map(|limit| limit / WATCHDOG_PINGS),
            ping_at: now,
            state: String::new(),
            state_at: now,
            is_state_old: true,
            is_broken: false,
        })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let ping = self.ping_every.map(|_| self.ping_at);
        let state = self.is_state_old.then_some(self.state_at);
        ping.into_iter().chain(state).min()
    }

    fn turned(&mut self, now: Instant, state: impl FnOnce() -> String) {
        let ping = self.ping_every.filter(|_| now >= self.ping_at);
        self.is_state_old = true;
        let state = (now >= self.state_at).then(|| line(&state()));
        let changed = state.as_ref().filter(|state| **state != self.state);
        let mut message = String::new();
        let states = [
            ping.map(|_| NotifyState::Watchdog),
            changed.map(|state| NotifyState::Status(state)),
        ];
        for state in states.into_iter().flatten() {
            let _ = writeln!(message, "{state}");
        }
        let sent = message.is_empty() || self.send(&message);
        // A ping that was not accepted is not repeated before the next one: the watchdog waits for
        // several of them.
        if let Some(every) = ping {
            self.ping_at = now + every;
        }
        if let Some(state) = state {
            self.state_at = now + SERVICE_STATE_EVERY;
            if sent {
                self.state = state;
                self.is_state_old = false;
            }
        }
    }

    /// Returns whether the socket accepted the message.
    fn send(&mut self, message: &str) -> bool {
        let sent = self.socket.send_to(message.as_bytes(), &self.path);
        match &sent {
            Ok(_) => self.is_broken = false,
            // Its queue is full.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => {
                if !self.is_broken {
                    report(error);
                }
                self.is_broken = true;
            }
        }
        sent.is_ok()
    }
}

/// Returns the start of a state as one line: each line of a message is a message of its own.
fn line(state: &str) -> String {
    let mut line = state.replace(char::is_control, " ");
    line.truncate(line.floor_char_boundary(SERVICE_STATE_OCTETS_MAX));
    line
}

fn report(error: &io::Error) {
    let reason = Text::new(error);
    emit(Event::DaemonNotifyFailed { reason });
}

#[cfg(test)]
mod tests;
