//! The load generator: one thread, one epoll, all sessions of a workload, each from an address of
//! its own.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bgp_io::bgp_proto::{HEADER_OCTETS, MessageKind, Open};
use bytes::Bytes;
use netns_lab::Host;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use testkit::{Encode, Keepalive};

use crate::chance::Chance;
use crate::intake::Intake;
use crate::ledger::Ledger;
use crate::limits::{DIALED_WITHIN, DIALING_MAX, EVENTS_MAX, QUIET, READ_OCTETS_MAX, REDIAL_AFTER};
use crate::routes::Routes;
use crate::session::{Session, State, dial};
use crate::wire::{AddPath, Offer};

/// All sessions, and the state of their routes.
#[derive(Debug)]
pub struct Generator {
    host: Host,
    daemon: SocketAddrV4,
    epoll: Epoll,
    sessions: Vec<Session>,
    /// The state of the receivers.
    pub intake: Intake,
    /// Since when the state has been correct without interruption.
    right_at: Option<Instant>,
    /// When octets of an UPDATE were last received.
    received_at: Instant,
    scratch: Vec<u8>,
    chance: Chance,
    /// Whether a connection that ends is dialed again, or ends the run.
    pub redials: bool,
    /// The TCP-MD5 key of all sessions.
    pub password: Option<&'static str>,
    /// Established sessions that have ended.
    pub lost: usize,
    established: usize,
}

impl Generator {
    /// Makes sessions with the identifiers of `offers` as source addresses; none is dialed yet.
    pub fn new(
        host: &Host,
        daemon: Ipv4Addr,
        offers: impl IntoIterator<Item = Offer>,
        intake: Intake,
    ) -> Result<Self> {
        let now = Instant::now();
        let sessions = offers.into_iter().map(Session::new);
        Ok(Self {
            host: host.clone(),
            daemon: SocketAddrV4::new(daemon, 179),
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll")?,
            sessions: sessions.collect(),
            intake,
            right_at: None,
            received_at: now,
            scratch: vec![0; READ_OCTETS_MAX],
            chance: Chance::new(0),
            redials: true,
            password: None,
            lost: 0,
            established: 0,
        })
    }

    /// Returns the routes of the workload.
    pub fn routes(&self) -> Rc<Routes> {
        self.intake.routes.clone()
    }

    /// Returns the ledger, to change the expected routes.
    pub const fn ledger(&mut self) -> &mut Ledger {
        &mut self.intake.ledger
    }

    /// Returns the number of sessions.
    pub const fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the number of established sessions.
    pub const fn established(&self) -> usize {
        self.established
    }

    /// Returns a session, to change its behavior.
    pub fn session(&mut self, at: usize) -> &mut Session {
        &mut self.sessions[at]
    }

    /// Opens all sessions, a few at a time, and waits until no more messages arrive.
    pub fn establish(&mut self, limit: Duration) -> Result<()> {
        self.redials = true;
        let deadline = Instant::now() + limit;
        let all = self.sessions.len();
        while self.established < all {
            let busy = self
                .sessions
                .iter()
                .filter(|session| session.is_opening())
                .count();
            let idle = (0..all).filter(|&at| self.sessions[at].state == State::Idle);
            let next: Vec<_> = idle.take(DIALING_MAX.saturating_sub(busy)).collect();
            self.dial(&next)?;
            self.turn(Duration::from_millis(20))?;
            ensure!(
                Instant::now() < deadline,
                "{} of {all} sessions established after {limit:?}: {}",
                self.established,
                self.intake.fault()
            );
        }
        self.redials = false;
        self.rest(limit)
    }

    /// Returns since when the state has been correct, if it is.
    pub const fn right_at(&self) -> Option<Instant> {
        self.right_at
    }

    /// Begins a phase: the state must be correct from now on.
    pub fn begin(&mut self) -> Instant {
        self.right_at = None;
        Instant::now()
    }

    /// Sends octets over a session.
    pub fn send(&mut self, at: usize, octets: Bytes) -> Result<()> {
        self.sessions[at].out.push(octets);
        self.flush(at)
    }

    /// Waits until the state is correct, and returns since when it is. It may be correct for a
    /// moment only: [`Self::settle`] excludes that.
    pub fn until_right(&mut self, what: &str, limit: Duration) -> Result<Instant> {
        let deadline = Instant::now() + limit;
        if self.intake.ledger.is_right() {
            return Ok(*self.right_at.get_or_insert_with(Instant::now));
        }
        loop {
            self.turn(Duration::from_millis(100))?;
            if let Some(at) = self.right_at {
                return Ok(at);
            }
            ensure!(
                Instant::now() < deadline,
                "{what}: {}",
                self.standing(limit)
            );
        }
    }

    /// Waits until the state is correct and stays so while no messages arrive; returns since when
    /// it is.
    pub fn settle(&mut self, what: &str, limit: Duration) -> Result<Instant> {
        let deadline = Instant::now() + limit;
        loop {
            let at = self.until_right(what, deadline.saturating_duration_since(Instant::now()))?;
            self.rest(limit)?;
            if self.right_at == Some(at) {
                return Ok(at);
            }
        }
    }

    /// Waits until only KEEPALIVEs have arrived for a while.
    pub fn rest(&mut self, limit: Duration) -> Result<()> {
        let began = Instant::now();
        self.received_at = began;
        while self.received_at.elapsed() < QUIET {
            self.turn(Duration::from_millis(20))?;
            ensure!(began.elapsed() < limit, "no rest within {limit:?}");
        }
        Ok(())
    }

    /// Runs for this time.
    pub fn run_for(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while let left @ 1.. = end.saturating_duration_since(Instant::now()).as_nanos() {
            self.turn(Duration::from_nanos(left.try_into().unwrap_or(u64::MAX)))?;
        }
        Ok(())
    }

    fn standing(&self, limit: Duration) -> String {
        let (right, target) = self.intake.ledger.standing();
        let wrong: Vec<_> = self.intake.ledger.wrong(4);
        let wrong = wrong.iter().map(|(session, prefix, held, expected)| {
            let prefix = self.intake.routes.prefixes.get(*prefix);
            format!("session {session}, {prefix:x?}: holds {held}, must hold {expected}")
        });
        format!(
            "{right} of {target} routes right after {limit:?}, {} sessions established; {}; {}",
            self.established,
            wrong.collect::<Vec<_>>().join("; "),
            self.intake.fault()
        )
    }

    /// Waits for events of the sockets, at most `longest`, and handles them.
    pub fn turn(&mut self, longest: Duration) -> Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        // Rounded up to a whole millisecond, the unit of the kernel.
        let wait = u16::try_from(longest.as_millis() + 1).unwrap_or(u16::MAX);
        let count = match self.epoll.wait(&mut events, EpollTimeout::from(wait)) {
            Err(nix::Error::EINTR) => 0,
            other => other.context("epoll")?,
        };
        for event in &events[..count] {
            let at = event.data() as usize;
            if event.events().contains(EpollFlags::EPOLLOUT) {
                self.writable(at)?;
            }
            if event.events() != EpollFlags::EPOLLOUT {
                self.readable(at)?;
            }
        }
        let now = Instant::now();
        self.keep_alive(now)?;
        self.dial_again(now)
    }

    fn keep_alive(&mut self, now: Instant) -> Result<()> {
        for at in 0..self.sessions.len() {
            let session = &mut self.sessions[at];
            if session.state == State::Established && now >= session.keepalive_at {
                session.keepalive_at = now + session.keepalive_every;
                self.send(at, Keepalive.octets().freeze())?;
            }
        }
        Ok(())
    }

    fn dial_again(&mut self, now: Instant) -> Result<()> {
        let due = |session: &Session| match session.state {
            State::Waiting(at) => at <= now,
            State::Dialing(until) => until <= now,
            _ => false,
        };
        let all = 0..self.sessions.len();
        let due: Vec<_> = all.filter(|&at| due(&self.sessions[at])).collect();
        self.dial(&due)
    }

    /// Dials from these sessions, all at once.
    pub fn dial(&mut self, which: &[usize]) -> Result<()> {
        if which.is_empty() {
            return Ok(());
        }
        let callers: Vec<_> = which
            .iter()
            .map(|&at| (self.sessions[at].source, self.sessions[at].window))
            .collect();
        let (daemon, password) = (self.daemon, self.password);
        let dialed = self.host.run(|| {
            let dial = |&(source, window)| dial(source, daemon, window, password);
            callers.iter().map(dial).collect::<Vec<_>>()
        })?;
        for (&at, stream) in which.iter().zip(dialed) {
            match stream {
                Ok(stream) => {
                    let session = &mut self.sessions[at];
                    // Jittered, as RFC 4271 §10 requires for timers.
                    let wait = DIALED_WITHIN.mul_f64(self.chance.below(1000) as f64 / 1000.0);
                    session.state = State::Dialing(Instant::now() + DIALED_WITHIN + wait);
                    session.interest = EpollFlags::EPOLLOUT;
                    let event = EpollEvent::new(EpollFlags::EPOLLOUT, at as u64);
                    self.epoll.add(&stream, event).context("epoll")?;
                    session.stream = Some(stream);
                }
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => self.end(at, "")?,
                Err(error) => return Err(error).context("dialing"),
            }
        }
        Ok(())
    }

    fn writable(&mut self, at: usize) -> Result<()> {
        let session = &mut self.sessions[at];
        if matches!(session.state, State::Dialing(_))
            && let Some(stream) = &session.stream
        {
            if stream.take_error()?.is_some() {
                return self.end(at, "refused");
            }
            session.state = State::Opening;
            session.out.push(session.offer.open().octets().freeze());
        }
        self.flush(at)
    }

    fn flush(&mut self, at: usize) -> Result<()> {
        let session = &mut self.sessions[at];
        let Some(stream) = &mut session.stream else {
            bail!("session {at} is not there to send on");
        };
        match session.out.flush(stream) {
            Ok(()) => self.watch(at),
            Err(error) => self.end(at, &error.to_string()),
        }
    }

    /// Updates the events of a socket that the kernel reports.
    fn watch(&mut self, at: usize) -> Result<()> {
        let session = &mut self.sessions[at];
        let mut interest = EpollFlags::empty();
        interest.set(EpollFlags::EPOLLIN, session.reads);
        interest.set(EpollFlags::EPOLLOUT, !session.out.is_empty());
        if let Some(stream) = &session.stream
            && interest != session.interest
        {
            session.interest = interest;
            let mut event = EpollEvent::new(interest, at as u64);
            self.epoll.modify(stream, &mut event).context("epoll")?;
        }
        Ok(())
    }

    /// Sets whether a session reads received octets.
    pub fn reads(&mut self, at: usize, reads: bool) -> Result<()> {
        self.sessions[at].reads = reads;
        self.watch(at)
    }

    fn readable(&mut self, at: usize) -> Result<()> {
        let session = &mut self.sessions[at];
        let Some(stream) = &mut session.stream else {
            return Ok(());
        };
        let begun = session.rest.len();
        self.scratch[..begun].copy_from_slice(&session.rest);
        let read = match stream.read(&mut self.scratch[begun..]) {
            Ok(0) => return self.end(at, "the daemon closed the connection"),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return self.end(at, &error.to_string()),
        };
        session.rest.clear();
        let octets = std::mem::take(&mut self.scratch);
        let taken = self.take(at, &octets[..begun + read]);
        self.scratch = octets;
        taken?;
        if self.intake.ledger.is_right() {
            self.right_at.get_or_insert_with(Instant::now);
        } else {
            self.right_at = None;
        }
        Ok(())
    }

    /// Takes the messages received over a session.
    fn take(&mut self, at: usize, mut octets: &[u8]) -> Result<()> {
        let mut has_sent = false;
        while let Some(length) =
            testkit::message_octets(octets)?.filter(|&length| length <= octets.len())
        {
            let (message, rest) = octets.split_at(length);
            octets = rest;
            has_sent = true;
            let body = &message[HEADER_OCTETS..];
            match MessageKind(message[18]) {
                MessageKind::Update => {
                    self.intake.update(at, body)?;
                    self.received_at = Instant::now();
                }
                MessageKind::Notification => {
                    return self.end(at, &format!("NOTIFICATION {body:02x?}"));
                }
                MessageKind::Open => self.opened(at, body)?,
                MessageKind::Keepalive => self.kept_alive(at)?,
                other => bail!("a message of type {}", other.0),
            }
        }
        let session = &mut self.sessions[at];
        if has_sent {
            session.signs.note(Instant::now());
        }
        session.rest.extend_from_slice(octets);
        Ok(())
    }

    fn opened(&mut self, at: usize, open: &[u8]) -> Result<()> {
        let open = Open::parse(open).map_err(|fault| anyhow!("an OPEN with {fault}"))?;
        let add_path = AddPath::of(&open);
        let offered = self.sessions[at].offer.add_path;
        ensure!(
            !offered || add_path.receives,
            "the daemon takes no path identifiers"
        );
        self.intake.path_ids[at] = offered && add_path.sends;
        self.send(at, Keepalive.octets().freeze())
    }

    fn kept_alive(&mut self, at: usize) -> Result<()> {
        let now = Instant::now();
        self.sessions[at].keepalives.note(now);
        if self.sessions[at].state == State::Opening {
            self.sessions[at].state = State::Established;
            self.established += 1;
            self.sessions[at].keepalive_at = now + self.sessions[at].keepalive_every;
            let greeting = self.sessions[at].greeting.clone();
            self.send(at, greeting)?;
        }
        Ok(())
    }

    /// Closes a session's connection from this side, without a NOTIFICATION.
    pub fn cut(&mut self, at: usize) {
        let session = &mut self.sessions[at];
        if session.state == State::Established {
            self.established -= 1;
        }
        session.state = State::Idle;
        // Dropping it removes it from the epoll set, too.
        session.stream = None;
        session.out.clear();
        session.rest.clear();
        for gaps in [&mut session.keepalives, &mut session.signs] {
            gaps.last = None;
        }
        self.intake.ledger.forget(at);
    }

    fn end(&mut self, at: usize, why: &str) -> Result<()> {
        let was = self.sessions[at].state;
        self.cut(at);
        if was == State::Established {
            self.lost += 1;
        }
        ensure!(self.redials, "session {at} ended: {why}");
        if !why.is_empty() {
            self.intake.remark(|| format!("session {at} ended: {why}"));
        }
        self.sessions[at].state = State::Waiting(Instant::now() + REDIAL_AFTER);
        Ok(())
    }
}
