//! The connections of clients.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::task::Poll;

use bfd::{Instant, Random};
use bfd_client::limits::VERSION;
use bfd_client::{Credentials, MessageError, Notice, Request, Socket, encode};
use daemon_common::events::{Event, Text, emit};

use crate::engine::{Engine, Identity};
use crate::limits::{
    CONNECTIONS_MAX, CONNECTIONS_OF_USER_MAX, CONNECTIONS_PENDING_MAX, HELLO_WAIT,
    MESSAGES_PER_TURN, REJECTED_USERS_MAX, USERS_WITHIN,
};
use crate::resolve::Resolve;
use crate::users::{Decision, Users};

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    connections: Vec<Connection>,
    /// The connections of users on which there is no decision yet: at most one of each user.
    pending: Vec<Pending>,
    /// The users with a rejected connection that was reported.
    rejected: BTreeSet<u32>,
}

/// A connection that waits for a decision. Nothing is read from it.
#[derive(Debug)]
struct Pending {
    socket: Socket,
    credentials: Credentials,
    /// When it is closed.
    until: Instant,
}

/// One connection.
#[derive(Debug)]
struct Connection {
    socket: Socket,
    credentials: Credentials,
    /// The client, after its first message.
    identity: Option<Identity>,
    /// Until when its first message must have come.
    hello_until: Instant,
    /// A notice that is to be sent.
    waiting: Option<Notice>,
    /// The socket did not take all notices. Nothing is read before it does.
    is_blocked: bool,
    /// A newer connection of its client has replaced it.
    is_replaced: bool,
}

/// The end of a connection.
enum End {
    /// The client has closed it, or it is broken.
    Closed,
    /// It is closed for this reason, which the client is sent.
    Rejected(String),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

impl From<MessageError> for End {
    fn from(error: MessageError) -> Self {
        Self::Rejected(error.to_string())
    }
}

impl Clients {
    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Adds a connection, if its user may have one. While the users of the host are looked up, it waits.
    pub(crate) fn add(&mut self, now: Instant, socket: Socket, users: &mut Users) {
        let Ok(credentials) = socket.credentials() else {
            return;
        };
        let new = Pending {
            socket,
            credentials,
            until: now + USERS_WITHIN,
        };
        self.decide(now, new, users);
    }

    /// Decides on the connections that wait.
    pub(crate) fn admit(&mut self, now: Instant, users: &mut Users) {
        for waiting in std::mem::take(&mut self.pending) {
            self.decide(now, waiting, users);
        }
    }

    fn decide(&mut self, now: Instant, new: Pending, users: &mut Users) {
        let uid = new.credentials.uid;
        match users.decide(now, uid) {
            Decision::Accepted => self.accept(now, new),
            Decision::Rejected => {
                let reason = format!("the user {uid} is not in `users` of cambric-bfd");
                self.reject(&new, reason);
            }
            Decision::Pending => {
                // A newer connection replaces that of a process that has ended.
                self.pending
                    .retain(|waiting| waiting.credentials.uid != uid);
                if now < new.until && self.pending.len() < CONNECTIONS_PENDING_MAX {
                    self.pending.push(new);
                } else {
                    let reason = format!(
                        "the host has not returned the users of cambric-bfd yet, and the user {uid} is not \
                         known: set `users` to numbers if it stays so"
                    );
                    self.reject(&new, reason);
                }
            }
        }
    }

    fn accept(&mut self, now: Instant, new: Pending) {
        let uid = new.credentials.uid;
        let connections = self.connections.iter();
        let of_user = connections.filter(|connection| connection.credentials.uid == uid);
        let reason = if of_user.count() >= CONNECTIONS_OF_USER_MAX {
            format!("there are already {CONNECTIONS_OF_USER_MAX} connections of the user {uid}")
        } else if self.connections.len() >= CONNECTIONS_MAX {
            format!("there are already {CONNECTIONS_MAX} connections")
        } else {
            self.connections.push(Connection {
                socket: new.socket,
                credentials: new.credentials,
                identity: None,
                hello_until: now + HELLO_WAIT,
                waiting: None,
                is_blocked: false,
                is_replaced: false,
            });
            return;
        };
        self.reject(&new, reason);
    }

    /// Closes a new connection. The first one of each user is reported.
    fn reject(&mut self, new: &Pending, reason: String) {
        let uid = new.credentials.uid;
        if self.rejected.len() < REJECTED_USERS_MAX && self.rejected.insert(uid) {
            emit(Event::BfdClientRejected {
                user: uid.into(),
                reason: Text::new(&reason),
            });
        }
        reject(&new.socket, reason);
    }

    /// Waits until a connection has work. Cancel-safe.
    pub(crate) async fn ready(&self) {
        poll_fn(|cx| {
            let mut ready = Poll::Pending;
            for connection in &self.connections {
                let one = match connection.is_blocked {
                    true => connection.socket.poll_writable(cx),
                    false => connection.socket.poll_readable(cx),
                };
                if one.is_ready() {
                    ready = Poll::Ready(());
                }
            }
            ready
        })
        .await;
    }

    /// Returns when a connection without a first message, or without a decision, is closed.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let silent = self.connections.iter();
        let silent = silent.filter(|connection| connection.identity.is_none());
        let silent = silent.map(|connection| connection.hello_until);
        silent
            .chain(self.pending.iter().map(|pending| pending.until))
            .min()
    }

    /// Reads and answers requests, and sends changed states, as many as a turn may. Returns whether more may wait.
    pub(crate) fn serve<R: Random>(
        &mut self,
        now: Instant,
        engine: &mut Engine<R>,
        host: &impl Resolve,
    ) -> bool {
        let share = (MESSAGES_PER_TURN / self.connections.len().max(1)).max(1);
        let (mut has_more, mut at) = (false, 0);
        // The first message of a client concerns all of its sessions: one in a turn.
        let mut may_greet = true;
        while at < self.connections.len() {
            match self.serve_one(now, at, share, &mut may_greet, engine, host) {
                Ok(more) => {
                    has_more |= more;
                    at += 1;
                }
                Err(end) => self.close(now, at, end, engine),
            }
        }
        has_more
    }

    fn serve_one<R: Random>(
        &mut self,
        now: Instant,
        at: usize,
        mut share: usize,
        may_greet: &mut bool,
        engine: &mut Engine<R>,
        host: &impl Resolve,
    ) -> Result<bool, End> {
        let mut buffer = Vec::new();
        loop {
            let Some(connection) = self.connections.get_mut(at) else {
                return Ok(false);
            };
            // Before a socket that takes nothing ends the turn.
            if connection.is_replaced {
                return Err(End::Rejected("a newer connection replaces it".to_owned()));
            }
            if !connection.flush(engine, &mut share)? {
                return Ok(false);
            }
            let is_deferred = connection.identity.is_none() && !*may_greet;
            if share == 0 || is_deferred {
                return Ok(true);
            }
            share -= 1;
            let request = match connection.socket.receive(&mut buffer) {
                Ok(Some(octets)) => Request::read(octets)?,
                Ok(None) => return Err(End::Closed),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let is_late = connection.identity.is_none() && now >= connection.hello_until;
                    return match is_late {
                        true => Err(End::Rejected("no first message".to_owned())),
                        false => Ok(false),
                    };
                }
                Err(error) => return Err(error.into()),
            };
            if let Request::Hello { version, name } = request {
                *may_greet = false;
                self.greet(now, at, version, name, engine)?;
            } else {
                connection.request(now, request, engine, host)?;
            }
        }
    }

    /// Handles the first message: a newer connection of a client replaces an older one.
    fn greet<R: Random>(
        &mut self,
        now: Instant,
        at: usize,
        version: u32,
        name: String,
        engine: &mut Engine<R>,
    ) -> Result<(), End> {
        if version != VERSION {
            return Err(End::Rejected(format!(
                "version {version} of the protocol: this daemon has {VERSION}"
            )));
        }
        let Some(connection) = self.connections.get_mut(at) else {
            return Ok(());
        };
        if connection.identity.is_some() {
            return Err(End::Rejected("a second first message".to_owned()));
        }
        let uid = connection.credentials.uid;
        let identity = Identity { uid, name };
        let welcome = engine.attach(now, &identity).map_err(End::Rejected)?;
        emit(Event::BfdClientConnected {
            client: Text::new(&identity.name),
            pid: u64::try_from(connection.credentials.pid).unwrap_or_default(),
        });
        connection.waiting = Some(Notice::Welcome(welcome));
        connection.identity = Some(identity.clone());
        for (other, connection) in self.connections.iter_mut().enumerate() {
            if other != at && connection.identity.as_ref() == Some(&identity) {
                // Its next turn closes it, without an effect on the sessions.
                connection.identity = None;
                connection.is_replaced = true;
                connection.hello_until = now;
            }
        }
        Ok(())
    }

    fn close<R: Random>(&mut self, now: Instant, at: usize, end: End, engine: &mut Engine<R>) {
        let connection = self.connections.swap_remove(at);
        let reason = match end {
            End::Closed => "it has closed the connection".to_owned(),
            End::Rejected(reason) => {
                reject(&connection.socket, reason.clone());
                reason
            }
        };
        if let Some(identity) = connection.identity {
            engine.detach(now, &identity);
            emit(Event::BfdClientLost {
                client: Text::new(&identity.name),
                reason: Text::new(reason),
            });
        }
    }
}

impl Connection {
    /// Sends what waits, then the changed states, within a share. Returns whether the socket took it.
    fn flush<R: Random>(&mut self, engine: &mut Engine<R>, share: &mut usize) -> Result<bool, End> {
        self.is_blocked = true;
        if let Some(notice) = &self.waiting {
            if !send(&self.socket, notice)? {
                return Ok(false);
            }
            self.waiting = None;
            *share = share.saturating_sub(1);
        }
        while *share > 0
            && let Some(identity) = &self.identity
            && let Some(state) = engine.unreported(identity)
        {
            if !send(&self.socket, &Notice::State(state.clone()))? {
                return Ok(false);
            }
            engine.reported(identity, &state);
            *share -= 1;
        }
        self.is_blocked = false;
        Ok(true)
    }

    fn request<R: Random>(
        &mut self,
        now: Instant,
        request: Request,
        engine: &mut Engine<R>,
        host: &impl Resolve,
    ) -> Result<(), End> {
        let Some(identity) = &self.identity else {
            return Err(End::Rejected("the first message is `hello`".to_owned()));
        };
        match request {
            Request::Hello { .. } => {}
            Request::Set(wanted) => {
                let remote = wanted.remote;
                if let Err(reason) = engine.set(now, identity, &wanted, host) {
                    self.reject(identity.clone(), remote, reason);
                }
            }
            Request::Remove { remote } => engine.remove(now, identity, remote),
        }
        Ok(())
    }

    fn reject(&mut self, identity: Identity, remote: IpAddr, reason: String) {
        emit(Event::BfdSessionRejected {
            client: Text::new(identity.name),
            address: remote,
            reason: Text::new(&reason),
        });
        self.waiting = Some(Notice::Rejected {
            remote: Some(remote),
            reason,
        });
    }
}

/// Sends a notice. Returns whether the socket took it.
fn send(socket: &Socket, notice: &Notice) -> Result<bool, End> {
    match socket.send(&encode(notice)?) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Sends the reason why a connection is closed, if the socket takes it.
fn reject(socket: &Socket, reason: String) {
    let notice = Notice::Rejected {
        remote: None,
        reason,
    };
    if let Ok(octets) = encode(&notice) {
        let _ = socket.send(&octets);
    }
}

#[cfg(test)]
mod tests;
