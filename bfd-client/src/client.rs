//! The end of a daemon that uses sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use instant::Instant;

use crate::limits::{MESSAGES_PER_TURN, RECONNECT, RECONNECT_FIRST};
use crate::message::{Notice, Request, SessionState, Wanted, Welcome, decode, encode};
use crate::socket::Socket;

/// A client of `cambric-bfd`. It has a connection while it wants sessions, and connects again after a loss.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    name: String,
    wanted: BTreeMap<IpAddr, Wanted>,
    /// The remote systems whose sessions are to be set or removed.
    unsent: BTreeSet<IpAddr>,
    /// The first message is to be sent.
    greets: bool,
    socket: Option<Socket>,
    /// When to connect.
    connect_at: Instant,
    /// When the present connection was accepted by the daemon.
    welcomed_at: Option<Instant>,
    /// The pause before the next attempt to connect.
    pause: Duration,
    /// The last reason why there is no connection, which is reported once.
    problem: Option<String>,
    buffer: Vec<u8>,
}

/// An event of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `cambric-bfd` has accepted the client.
    Connected(Welcome),
    /// There is no connection: no session has a known state.
    Lost {
        /// The reason.
        reason: String,
    },
    /// The state of a wanted session.
    State(SessionState),
    /// A wanted session was rejected.
    Rejected {
        /// The address of its remote system.
        remote: IpAddr,
        /// The reason.
        reason: String,
    },
}

impl Client {
    /// Makes a client of the daemon with this socket. The name identifies it over its restarts.
    #[must_use]
    pub fn new(path: PathBuf, name: impl Into<String>) -> Self {
        Self {
            path,
            name: name.into(),
            wanted: BTreeMap::new(),
            unsent: BTreeSet::new(),
            greets: false,
            socket: None,
            connect_at: Instant::ZERO,
            welcomed_at: None,
            pause: RECONNECT_FIRST,
            problem: None,
            buffer: Vec::new(),
        }
    }

    /// Sets all wanted sessions.
    pub fn want(&mut self, wanted: BTreeMap<IpAddr, Wanted>) {
        let changed = |(remote, one): &(&IpAddr, &Wanted)| self.wanted.get(*remote) != Some(one);
        let changed = wanted.iter().filter(changed).map(|(remote, _)| *remote);
        let removed = self
            .wanted
            .keys()
            .filter(|remote| !wanted.contains_key(remote));
        let unsent: Vec<IpAddr> = changed.chain(removed.copied()).collect();
        self.unsent.extend(unsent);
        self.wanted = wanted;
    }

    /// Returns the wanted sessions.
    #[must_use]
    pub const fn wanted(&self) -> &BTreeMap<IpAddr, Wanted> {
        &self.wanted
    }

    /// Returns whether there is a connection.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Waits until [`Client::turn`] has work, other than at [`Client::poll_timeout`]. Cancel-safe.
    pub async fn ready(&self) {
        match &self.socket {
            Some(socket) => socket.ready(self.greets || !self.unsent.is_empty()).await,
            None => pending().await,
        }
    }

    /// Returns when to connect again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waits = self.socket.is_none() && !self.wanted.is_empty();
        waits.then_some(self.connect_at)
    }

    /// Sends and receives what is possible now. Must be called inside a tokio runtime.
    pub fn turn(&mut self, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        self.connect(now, &mut events);
        if let Err(error) = self.exchange(now, &mut events) {
            self.lose(now, &error, &mut events);
        }
        events
    }

    /// Ends all sessions in AdminDown, as far as the connection takes the requests at once.
    pub fn leave(&mut self) {
        self.want(BTreeMap::new());
        // The daemon ends, too: what the socket does not take expires there.
        let _ = self.send();
    }

    fn connect(&mut self, now: Instant, events: &mut Vec<Event>) {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        match Socket::connect(&self.path) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.greets = true;
                self.unsent = self.wanted.keys().copied().collect();
            }
            Err(error) => self.lose(now, &error, events),
        }
    }

    fn lose(&mut self, now: Instant, error: &io::Error, events: &mut Vec<Event>) {
        self.socket = None;
        // A connection that ends at once, such as that of a process that replaces another one again and
        // again, is no restart of the daemon.
        let lasted = self.welcomed_at.take();
        if lasted.is_some_and(|at| now.saturating_duration_since(at) >= RECONNECT) {
            self.pause = RECONNECT_FIRST;
        }
        self.connect_at = now + self.pause;
        self.pause = (self.pause * 2).min(RECONNECT);
        let path = self.path.display();
        let reason = match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                format!("cambric-bfd does not run: no socket {path}")
            }
            _ => format!("{path}: {error}"),
        };
        if self.problem.as_ref() != Some(&reason) {
            self.problem = Some(reason.clone());
            events.push(Event::Lost { reason });
        }
    }

    fn exchange(&mut self, now: Instant, events: &mut Vec<Event>) -> io::Result<()> {
        self.send()?;
        for _ in 0..MESSAGES_PER_TURN {
            let Some(socket) = &self.socket else {
                return Ok(());
            };
            let octets = match socket.receive(&mut self.buffer) {
                Ok(Some(octets)) => octets,
                Ok(None) => return Err(io::Error::other("cambric-bfd has closed the connection")),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The daemon has closed the connection with unread requests. Its reason follows.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => continue,
                Err(error) => return Err(error),
            };
            let notice = decode(octets).map_err(io::Error::other)?;
            self.receive(now, notice, events)?;
        }
        Ok(())
    }

    fn receive(&mut self, now: Instant, notice: Notice, events: &mut Vec<Event>) -> io::Result<()> {
        match notice {
            Notice::Welcome(welcome) => {
                self.problem = None;
                self.welcomed_at = Some(now);
                events.push(Event::Connected(welcome));
            }
            Notice::State(state) if self.wanted.contains_key(&state.remote) => {
                events.push(Event::State(state));
            }
            Notice::Rejected {
                remote: Some(remote),
                reason,
            } if self.wanted.contains_key(&remote) => {
                events.push(Event::Rejected { remote, reason });
            }
            Notice::Rejected {
                remote: None,
                reason,
            } => return Err(io::Error::other(reason)),
            // Of a session that is no longer wanted.
            Notice::State(_) | Notice::Rejected { .. } => {}
        }
        Ok(())
    }

    /// Sends as many requests as the socket takes.
    fn send(&mut self) -> io::Result<()> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let send = |request: &Request| {
            let octets = encode(request).map_err(io::Error::other)?;
            match socket.send(&octets) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(error),
            }
        };
        if self.greets {
            if !send(&Request::hello(&self.name))? {
                return Ok(());
            }
            self.greets = false;
        }
        while let Some(&remote) = self.unsent.first() {
            let request = match self.wanted.get(&remote) {
                Some(wanted) => Request::Set(wanted.clone()),
                None => Request::Remove { remote },
            };
            if !send(&request)? {
                return Ok(());
            }
            self.unsent.remove(&remote);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Hops;
    use crate::socket::Listener;

    const NOW: Instant = Instant::from_secs(1);

    fn remote(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn sessions(last: impl IntoIterator<Item = u8>) -> BTreeMap<IpAddr, Wanted> {
        let wanted = last.into_iter().map(|last| Wanted {
            remote: remote(last),
            local: None,
            hops: Hops::Auto,
            interval_ms: 300,
            receive_ms: 300,
            idle_ms: crate::limits::IDLE_MS,
            multiplier: 3,
            ttl_min: 254,
            auth: None,
        });
        wanted.map(|wanted| (wanted.remote, wanted)).collect()
    }

    async fn request(server: &Socket) -> Request {
        let mut buffer = Vec::new();
        loop {
            match server.receive(&mut buffer) {
                Ok(Some(octets)) => return Request::read(octets).expect("a request"),
                Ok(None) => panic!("closed"),
                Err(_) => server.ready(false).await,
            }
        }
    }

    #[tokio::test]
    async fn client_sends_all_sessions_again_after_a_loss() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("clients.sock");
        let mut client = Client::new(path.clone(), "test");
        assert_eq!(client.poll_timeout(), None, "it wants nothing");
        client.want(sessions([2]));
        let events = client.turn(NOW);
        assert!(matches!(&*events, [Event::Lost { .. }]), "{events:?}");
        let later = client.poll_timeout().expect("it tries again");
        assert_eq!(client.turn(later), [], "the same reason is reported once");
        let listener = Listener::bind(&path).expect("bound");
        for _ in 0..2 {
            let now = client.poll_timeout().expect("it tries again");
            client.turn(now);
            assert!(client.is_connected());
            let server = listener.accept().await.expect("accepted");
            assert_eq!(request(&server).await, Request::hello("test"));
            let Request::Set(set) = request(&server).await else {
                panic!("no session");
            };
            assert_eq!(set.remote, remote(2));
            let welcome = Notice::Welcome(Welcome::default());
            server
                .send(&encode(&welcome).expect("short"))
                .expect("sent");
            drop(server);
            let events = client.turn(now);
            let lost = matches!(&*events, [Event::Connected(_), Event::Lost { .. }]);
            assert!(lost, "{events:?}");
        }
    }

    #[tokio::test]
    async fn client_returns_soon_after_a_connection_that_lasted() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("clients.sock");
        let mut client = Client::new(path.clone(), "test");
        client.want(sessions([2]));
        let pause = |client: &mut Client, now| {
            client.turn(now);
            client.poll_timeout().expect("no connection") - now
        };
        let mut now = NOW;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            pauses.push(pause(&mut client, now));
            now = client.poll_timeout().expect("it tries again");
        }
        let doubled = [50, 100, 200, 400, 800, 1000].map(Duration::from_millis);
        assert_eq!(pauses, doubled);
        let listener = Listener::bind(&path).expect("bound");
        for lasts in [Duration::ZERO, RECONNECT, Duration::ZERO] {
            client.turn(now);
            let server = listener.accept().await.expect("accepted");
            let welcome = Notice::Welcome(Welcome::default());
            let welcome = encode(&welcome).expect("short");
            server.send(&welcome).expect("sent");
            client.turn(now);
            drop(server);
            now += lasts;
            pauses.push(pause(&mut client, now));
            now += pauses[pauses.len() - 1];
        }
        let expected = [1000, 50, 100].map(Duration::from_millis);
        assert_eq!(pauses[6..], expected);
    }

    #[tokio::test]
    async fn only_changed_sessions_are_sent() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("clients.sock");
        let listener = Listener::bind(&path).expect("bound");
        let mut client = Client::new(path, "test");
        client.want(sessions([2, 3]));
        client.turn(NOW);
        let server = listener.accept().await.expect("accepted");
        for _ in 0..3 {
            request(&server).await;
        }
        client.want(sessions([3, 4]));
        client.turn(NOW);
        let removed = Request::Remove { remote: remote(2) };
        assert_eq!(request(&server).await, removed);
        let Request::Set(set) = request(&server).await else {
            panic!("no session");
        };
        assert_eq!(set.remote, remote(4));
        client.leave();
        for last in [3, 4] {
            let removed = Request::Remove {
                remote: remote(last),
            };
            assert_eq!(request(&server).await, removed);
        }
    }
}
