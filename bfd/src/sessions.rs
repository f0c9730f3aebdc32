//! A bounded set of sessions: demultiplexing, discriminators and deadlines.

use alloc::collections::BTreeMap;
use core::fmt;

use crate::client::Change;
use crate::config::{ConfigError, Role, SessionConfig};
use crate::discard::Discard;
use crate::due::Due;
use crate::encoded::Encoded;
use crate::limits::{LEAVING_TIME_MAX, MEMBERS_FOR_EACH, SESSIONS_MAX, SLOW_INTERVAL_US};
use crate::packet::{Discriminator, Packet};
use crate::path::{Arrival, Hops, Path};
use crate::random::Random;
use crate::session::{ConcatenatedPath, Session};
use crate::snapshot::{RestoreError, Snapshot, SnapshotError};
use crate::{Duration, Instant};

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this packet on the path of the session, with a time to live of 255.
    #[non_exhaustive]
    Send {
        /// The local discriminator of the session.
        id: Discriminator,
        /// Its path.
        path: Path,
        /// The UDP payload.
        packet: Encoded,
    },
    /// Notify the clients of the session.
    #[non_exhaustive]
    Changed {
        /// The local discriminator of the session.
        id: Discriminator,
        /// The change.
        change: Change,
    },
}

/// A reason not to add a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another session has this path.
    #[error("session {0} monitors this path")]
    PathInUse(Discriminator),
    /// A snapshot is invalid.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A snapshot has the discriminator of another session.
    #[error("another session has the discriminator {0}")]
    DiscriminatorInUse(Discriminator),
    /// There are as many sessions as the set may have.
    #[error("there are already {0} sessions")]
    Full(usize),
}

/// A session of the set.
#[derive(Clone, Debug)]
struct Member {
    session: Session,
    path: Path,
    /// Its deadline in the list of deadlines.
    due: Option<Instant>,
    /// Whether it was removed, and only notifies the remote system.
    is_removed: bool,
    /// When a removed session stops to send AdminDown; `None` before the first packet with it.
    leaves_at: Option<Instant>,
}

impl Member {
    /// Returns when it must be looked at.
    fn deadline(&self) -> Option<Instant> {
        let times = [self.session.poll_timeout(), self.leaves_at];
        times.into_iter().flatten().min()
    }

    /// Returns when it stops to send, for a removed session that has sent AdminDown at `now`.
    fn leaves_after(&self, now: Instant) -> Instant {
        let slow = Duration::from_micros(SLOW_INTERVAL_US.into());
        let interval = self.session.transmit_interval().unwrap_or(slow);
        let time = interval * u32::from(self.session.detect_multiplier().get());
        now + time.min(LEAVING_TIME_MAX)
    }
}

/// A set of sessions, each identified by its local discriminator.
///
/// After each call that changes the set, call [`Sessions::step`] until it returns `None`, and again at
/// [`Sessions::poll_timeout`]. The driver may do other work between two steps. It passes received packets
/// before it calls `step`, in the order of their arrival, and ends with the first one that arrived after it
/// began: so a flood of packets does not defer `step`.
pub struct Sessions<R> {
    members: BTreeMap<Discriminator, Member>,
    paths: BTreeMap<Path, Discriminator>,
    due: Due,
    /// The removed sessions that have sent AdminDown, and repeat it.
    leaving: Due,
    /// The number of removed sessions.
    removed: usize,
    random: R,
    sessions_max: usize,
    /// Sessions that were looked at.
    #[cfg(test)]
    visits: u64,
}

impl<R> fmt::Debug for Sessions<R> {
    /// Formats the members. Numbers of the random source must not be predicted, so that it is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("members", &self.members)
            .field("sessions_max", &self.sessions_max)
            .finish_non_exhaustive()
    }
}

impl<R: Random> Sessions<R> {
    /// Makes an empty set for at most `sessions_max` sessions, and never more than [`SESSIONS_MAX`].
    #[must_use]
    pub fn new(random: R, sessions_max: usize) -> Self {
        Self {
            members: BTreeMap::new(),
            paths: BTreeMap::new(),
            due: Due::default(),
            leaving: Due::default(),
            removed: 0,
            random,
            sessions_max: sessions_max.min(SESSIONS_MAX),
            #[cfg(test)]
            visits: 0,
        }
    }

    /// Adds a session with a random discriminator, and returns the discriminator. A removed session of
    /// the same path that still sends AdminDown continues instead, as after [`Session::enable`]: with its
    /// discriminator and its sequence numbers.
    ///
    /// Removed sessions do not count for the size of the set, but as many of them may still send. If there
    /// are more, the one that leaves first makes room, unless it has not sent AdminDown.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, another session has this path, or the set is full.
    pub fn add(
        &mut self,
        now: Instant,
        path: Path,
        config: SessionConfig,
    ) -> Result<Discriminator, AddError> {
        config.check()?;
        check_role(&path, &config)?;
        if let Some(&id) = self.paths.get(&path.key()) {
            if self.member(id).is_some() {
                return Err(AddError::PathInUse(id));
            }
            self.check_room()?;
            self.revive(now, id, path, config)?;
            return Ok(id);
        }
        self.check_room()?;
        if self.members.len() >= self.sessions_max * MEMBERS_FOR_EACH {
            let Some((_, id)) = self.leaving.first() else {
                return Err(AddError::Full(self.members.len()));
            };
            self.forget(id);
        }
        let id = self.new_discriminator();
        let session = Session::new(now, config, id, &mut self.random)?;
        self.insert(path, session);
        Ok(id)
    }

    /// Adds a session that continues one of another process, as [`Session::restore`] does. Restore all
    /// sessions before others are added, because those could have their discriminators or paths.
    ///
    /// # Errors
    ///
    /// The configuration or the snapshot is invalid, another session has the path or the discriminator, or
    /// the set is full.
    pub fn restore(
        &mut self,
        now: Instant,
        path: Path,
        config: SessionConfig,
        snapshot: &Snapshot,
    ) -> Result<Discriminator, AddError> {
        check_role(&path, &config)?;
        let id = snapshot.local_discriminator();
        if let Some(&id) = self.paths.get(&path.key()) {
            return Err(AddError::PathInUse(id));
        }
        if self.members.contains_key(&id) {
            return Err(AddError::DiscriminatorInUse(id));
        }
        self.check_room()?;
        let session = Session::restore(now, config, snapshot, &mut self.random);
        let session = session.map_err(|error| match error {
            RestoreError::Config(error) => AddError::Config(error),
            RestoreError::Snapshot(error) => AddError::Snapshot(error),
        })?;
        self.insert(path, session);
        Ok(id)
    }

    fn insert(&mut self, path: Path, session: Session) {
        let id = session.local_discriminator();
        let member = Member {
            session,
            path: path.canonical(),
            due: None,
            is_removed: false,
            leaves_at: None,
        };
        self.members.insert(id, member);
        self.paths.insert(path.key(), id);
        self.schedule(id);
    }

    /// Removes a session: it is disabled, and sends AdminDown until the remote system has had one
    /// detection time to receive it (RFC 5880 §6.8.16). Returns the change of the state; `None` if there
    /// is no such session.
    pub fn remove(&mut self, now: Instant, id: Discriminator) -> Option<Change> {
        self.member(id)?;
        let member = self.members.get_mut(&id)?;
        let session = &mut member.session;
        let from = session.state();
        let change = session.disable(now);
        let change = change.unwrap_or_else(|| session.change_from(from));
        member.is_removed = true;
        self.removed += 1;
        // A remote system that was never received, or no longer is, has no session to end.
        match member.session.remote_discriminator() {
            Some(_) => {
                self.let_leave(now, id);
                self.schedule(id);
            }
            None => self.forget(id),
        }
        Some(change)
    }

    /// Sets when a removed session leaves, once it has sent AdminDown.
    fn let_leave(&mut self, now: Instant, id: Discriminator) {
        if let Some(member) = self.members.get_mut(&id)
            && member.is_removed
            && member.leaves_at.is_none()
            && member.session.has_sent_state()
        {
            member.leaves_at = Some(member.leaves_after(now));
            self.leaving.replace(id, None, member.leaves_at);
        }
    }

    /// Continues a removed session.
    fn revive(
        &mut self,
        now: Instant,
        id: Discriminator,
        path: Path,
        config: SessionConfig,
    ) -> Result<(), AddError> {
        if let Some(member) = self.members.get_mut(&id) {
            member.session.revive(now, config)?;
            member.path = path.canonical();
            member.is_removed = false;
            self.removed -= 1;
            self.leaving.replace(id, member.leaves_at.take(), None);
            self.schedule(id);
        }
        Ok(())
    }

    /// Checks that the set has room for another session.
    fn check_room(&self) -> Result<(), AddError> {
        let present = self.members.len() - self.removed;
        match present < self.sessions_max {
            true => Ok(()),
            false => Err(AddError::Full(present)),
        }
    }

    /// Handles a UDP payload that was read at `now`. Returns the session, and the change that its clients
    /// are notified of. With a time of arrival, a gap before the packet is a failure, as in
    /// [`Session::receive_at`].
    ///
    /// # Errors
    ///
    /// The packet is discarded.
    pub fn receive(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        payload: &[u8],
    ) -> Result<(Discriminator, Option<Change>), Discard> {
        let packet = Packet::decode(payload)?;
        // RFC 5880 §6.8.6, RFC 5881 §3, RFC 5883 §3.
        let id = match packet.your_discriminator {
            Some(id) => Some(id),
            None => {
                let keys = Path::keys_of(arrival);
                keys.iter().find_map(|key| self.paths.get(key)).copied()
            }
        };
        let found = id.and_then(|id| Some((id, self.members.get_mut(&id)?)));
        let (id, member) = found.ok_or(Discard::NoSession)?;
        #[cfg(test)]
        {
            self.visits += 1;
        }
        if let Err(discard) = member.path.check(arrival) {
            member.session.count_discarded();
            return Err(discard);
        }
        let change = member
            .session
            .receive_packet(now, arrival.arrived_at, &packet, payload)?;
        let is_removed = member.is_removed;
        self.schedule(id);
        Ok((id, change.filter(|_| !is_removed)))
    }

    /// Does the next work that is due at `now`: one packet or one change. Returns `None` if no more is
    /// due.
    pub fn step(&mut self, now: Instant) -> Option<Step> {
        loop {
            let (at, id) = self.due.first()?;
            if at > now {
                return None;
            }
            #[cfg(test)]
            {
                self.visits += 1;
            }
            let member = self.members.get_mut(&id)?;
            if member.leaves_at.is_some_and(|at| at <= now) {
                self.forget(id);
                continue;
            }
            let is_removed = member.is_removed;
            let change = member.session.handle_timeout(now);
            let change = change.filter(|_| !is_removed);
            let step = match change {
                Some(change) => Some(Step::Changed { id, change }),
                None => {
                    let packet = member.session.transmit(now, &mut self.random);
                    let path = member.path;
                    packet.map(|packet| Step::Send { id, path, packet })
                }
            };
            self.let_leave(now, id);
            self.schedule(id);
            if step.is_some() {
                return step;
            }
        }
    }

    /// Returns when [`Sessions::step`] must be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| at)
    }

    /// Applies another configuration to a session, as [`Session::configure`] does. Returns whether
    /// there is such a session.
    ///
    /// # Errors
    ///
    /// The configuration is invalid. The former one stays in effect.
    pub fn configure(
        &mut self,
        now: Instant,
        id: Discriminator,
        config: SessionConfig,
    ) -> Result<bool, ConfigError> {
        if let Some(member) = self.member(id) {
            check_role(&member.path, &config)?;
        }
        let result = self.change(id, |session| session.configure(now, config));
        result.map_or(Ok(false), |result| result.map(|()| true))
    }

    /// Disables a session, as [`Session::disable`] does.
    pub fn disable(&mut self, now: Instant, id: Discriminator) -> Option<Change> {
        self.change(id, |session| session.disable(now))?
    }

    /// Enables a session, as [`Session::enable`] does.
    pub fn enable(&mut self, now: Instant, id: Discriminator) -> Option<Change> {
        self.change(id, |session| session.enable(now))?
    }

    /// Keeps a session down, as [`Session::hold_down`] does. Returns whether there is such a session.
    pub fn hold_down(&mut self, id: Discriminator, held: bool) -> bool {
        let found = self.change(id, |session| session.hold_down(held));
        found.is_some()
    }

    /// Signals the state of a concatenated path, as [`Session::signal`] does.
    pub fn signal(&mut self, now: Instant, id: Discriminator, path: ConcatenatedPath) -> bool {
        let signaled = self.change(id, |session| session.signal(now, path));
        signaled.unwrap_or(false)
    }

    /// Returns a session by its local discriminator.
    #[must_use]
    pub fn get(&self, id: Discriminator) -> Option<&Session> {
        Some(&self.member(id)?.session)
    }

    /// Returns a session by its local discriminator, also a removed one that still sends AdminDown.
    #[must_use]
    pub fn get_any(&self, id: Discriminator) -> Option<&Session> {
        Some(&self.members.get(&id)?.session)
    }

    /// Returns whether there is a session with this local discriminator, also a removed one that still
    /// sends.
    #[must_use]
    pub fn contains(&self, id: Discriminator) -> bool {
        self.members.contains_key(&id)
    }

    /// Returns the path of a session.
    #[must_use]
    pub fn path(&self, id: Discriminator) -> Option<Path> {
        Some(self.member(id)?.path)
    }

    /// Returns the session of a path.
    #[must_use]
    pub fn find(&self, path: Path) -> Option<&Session> {
        self.get(*self.paths.get(&path.key())?)
    }

    /// Returns all sessions with their paths, in the order of their discriminators.
    pub fn iter(&self) -> impl Iterator<Item = (&Session, Path)> {
        let members = self.members.values();
        let present = members.filter(|member| !member.is_removed);
        present.map(|member| (&member.session, member.path))
    }

    /// Returns the number of sessions, with those that were removed and still send.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether there are no sessions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns a session that is not removed.
    fn member(&self, id: Discriminator) -> Option<&Member> {
        let member = self.members.get(&id)?;
        (!member.is_removed).then_some(member)
    }

    /// Changes a session that is not removed.
    fn change<T>(
        &mut self,
        id: Discriminator,
        change: impl FnOnce(&mut Session) -> T,
    ) -> Option<T> {
        self.member(id)?;
        let result = change(&mut self.members.get_mut(&id)?.session);
        self.schedule(id);
        Some(result)
    }

    /// Updates the deadline of a session.
    fn schedule(&mut self, id: Discriminator) {
        if let Some(member) = self.members.get_mut(&id) {
            let due = member.deadline();
            self.due.replace(id, member.due, due);
            member.due = due;
        }
    }

    /// Removes a session without another packet.
    fn forget(&mut self, id: Discriminator) {
        if let Some(member) = self.members.remove(&id) {
            self.due.replace(id, member.due, None);
            self.leaving.replace(id, member.leaves_at, None);
            self.removed -= usize::from(member.is_removed);
            self.paths.remove(&member.path.key());
        }
    }

    /// Returns a random discriminator that no session has: at most as many attempts as sessions.
    fn new_discriminator(&mut self) -> Discriminator {
        let mut number = self.random.next_u64() as u32;
        loop {
            match Discriminator::new(number) {
                Some(id) if !self.members.contains_key(&id) => return id,
                _ => number = number.wrapping_add(1),
            }
        }
    }
}

/// Checks the role: on a single hop both systems are active (RFC 5881 §3).
fn check_role(path: &Path, config: &SessionConfig) -> Result<(), ConfigError> {
    match (path.hops(), config.role) {
        (Hops::Single, Role::Passive) => Err(ConfigError::PassiveSingleHop),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
