//! The sessions of all clients, without sockets and clocks.

mod auth;
mod client;
mod combined;
mod events;
mod expiry;
mod keep;
mod load;
mod other_port;
mod paths;
mod precedence;
mod record;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bfd::{
    Arrival, Change, Discard, Discriminator, Encoded, Instant, Liveness, Random, Session, Sessions,
    State, Step,
};
use bfd_client::{SessionState, Wanted, Welcome, limits::VERSION};

pub use self::client::Identity;
use self::client::{Client, Entry};
use self::combined::config_of;
use self::events::emit_change;
pub use self::keep::Restored;
pub use self::load::Load;
#[cfg(test)]
pub(crate) use self::record::EntryRecord;
pub use self::record::{Key, Record, RecordError};
use crate::config::Limits;
use crate::limits::{CLIENTS_MAX, CLIENTS_OF_USER_MAX, SESSIONS_OF_ALL_MAX};
use crate::resolve::{Resolve, Way};

/// A packet to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// The local discriminator of its session.
    pub id: Discriminator,
    /// Its addresses and interface.
    pub way: Way,
    /// The UDP payload.
    pub packet: Encoded,
}

/// One session of a client, for reports.
#[derive(Clone, Copy, Debug)]
pub struct View<'e> {
    /// The client.
    pub client: &'e Identity,
    /// Whether the client is connected.
    pub is_connected: bool,
    /// The wanted session.
    pub wanted: &'e Wanted,
    /// Its path and the session, if there is one now.
    pub session: Option<(Way, &'e Session)>,
    /// The interface of a path over a single hop.
    pub interface: Option<&'e str>,
    /// Why it has no session, or none that can come up.
    pub problem: Option<&'e str>,
    /// When the session ends unless its client connects again.
    pub expires: Option<Instant>,
}

/// The sessions of all clients.
#[derive(Debug)]
pub struct Engine<R> {
    sessions: Sessions<R>,
    limits: Limits,
    clients: BTreeMap<Identity, Client>,
    /// The clients of each session, each with the address by which it has the session.
    users: BTreeMap<Discriminator, BTreeSet<(Identity, IpAddr)>>,
    ways: BTreeMap<Discriminator, Way>,
    /// The ways of removed sessions, which still send.
    leaving: BTreeMap<Discriminator, Way>,
    /// The load of each user with sessions.
    loads: BTreeMap<u32, Load>,
    /// The ends of sessions without their clients.
    expiring: BTreeSet<(Instant, Identity, IpAddr)>,
    /// When paths are looked for again.
    resolve_at: Instant,
    /// Packets that were discarded.
    discarded: u64,
    /// The subjects with a state that is to be kept, if states are.
    changed: Option<BTreeSet<Key>>,
    /// Entries that were looked at.
    #[cfg(test)]
    visits: std::cell::Cell<u64>,
}

impl<R: Random> Engine<R> {
    /// Makes an engine without sessions.
    #[must_use]
    pub fn new(random: R, limits: Limits) -> Self {
        Self {
            sessions: Sessions::new(random, SESSIONS_OF_ALL_MAX),
            limits,
            clients: BTreeMap::new(),
            users: BTreeMap::new(),
            ways: BTreeMap::new(),
            leaving: BTreeMap::new(),
            loads: BTreeMap::new(),
            expiring: BTreeSet::new(),
            resolve_at: Instant::ZERO,
            discarded: 0,
            changed: None,
            #[cfg(test)]
            visits: Default::default(),
        }
    }

    /// Sets the limits of requests. Present sessions stay.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Connects a client: its sessions of an earlier connection continue, and end after the grace unless
    /// it wants them again.
    ///
    /// # Errors
    ///
    /// There are as many clients as there may be, or as many of this user.
    pub fn attach(&mut self, now: Instant, identity: &Identity) -> Result<Welcome, String> {
        if !self.clients.contains_key(identity) {
            let of_user = self.clients.keys().filter(|of| of.uid == identity.uid);
            if of_user.count() >= CLIENTS_OF_USER_MAX {
                return Err(format!(
                    "there are already {CLIENTS_OF_USER_MAX} clients of this user"
                ));
            }
            if self.clients.len() >= CLIENTS_MAX {
                return Err(format!("there are already {CLIENTS_MAX} clients"));
            }
        }
        let client = self.clients.entry(identity.clone()).or_default();
        client.is_connected = true;
        self.abandon(now, identity);
        Ok(Welcome {
            version: VERSION,
            sessions_max: self.limits.sessions,
            interval_ms_min: self.limits.interval_ms_min,
            packets_per_second_max: self.limits.packets_per_second,
            grace_s: self.limits.grace_s,
        })
    }

    /// Disconnects a client. Its sessions continue for the grace.
    pub fn detach(&mut self, now: Instant, identity: &Identity) {
        let Some(client) = self.clients.get_mut(identity) else {
            return;
        };
        client.is_connected = false;
        match client.entries.is_empty() {
            true => drop(self.clients.remove(identity)),
            false => self.abandon(now, identity),
        }
    }

    /// Makes or changes a session of a client. If its path depends on newer addresses than those of `resolve`,
    /// [`Engine::resolve_again`] does it.
    ///
    /// # Errors
    ///
    /// A limit of its user would be exceeded. A session that it has already continues unchanged.
    pub fn set(
        &mut self,
        now: Instant,
        identity: &Identity,
        wanted: &Wanted,
        resolve: &impl Resolve,
    ) -> Result<(), String> {
        let remote = wanted.remote;
        let former = self.entry(identity, remote);
        let former = former.map(|entry| Load::of(&entry.wanted));
        let load = self.loads.get(&identity.uid).copied().unwrap_or_default();
        let others = load.without(former.unwrap_or_default());
        let load = others.with(Load::of(wanted));
        load.check(&self.limits, wanted)?;
        let all: u64 = self.loads.values().map(|load| load.sessions).sum();
        if former.is_none() && all >= SESSIONS_OF_ALL_MAX as u64 {
            return Err(format!(
                "all clients have {SESSIONS_OF_ALL_MAX} sessions already"
            ));
        }
        let Some(client) = self.clients.get_mut(identity) else {
            return Err("the client is not connected".to_owned());
        };
        let entry = client.entries.entry(remote);
        let entry = entry.or_insert_with(|| Entry::new(wanted.clone()));
        entry.wanted = wanted.clone();
        entry.since = Some(now);
        self.loads.insert(identity.uid, load);
        self.set_expiry(identity, remote, None);
        self.mark(Key::Entry(identity.clone(), remote));
        self.place_wish(now, identity, remote, resolve);
        Ok(())
    }

    /// Ends a session of a client.
    pub fn remove(&mut self, now: Instant, identity: &Identity, remote: IpAddr) {
        self.release(now, identity, remote);
        self.set_expiry(identity, remote, None);
        if let Some(client) = self.clients.get_mut(identity) {
            if let Some(entry) = client.entries.remove(&remote)
                && let Some(load) = self.loads.get_mut(&identity.uid)
            {
                *load = load.without(Load::of(&entry.wanted));
                if load.sessions == 0 {
                    self.loads.remove(&identity.uid);
                }
            }
            client.unreported.remove(&remote);
            if client.entries.is_empty() && !client.is_connected {
                self.clients.remove(identity);
            }
        }
        self.mark(Key::Entry(identity.clone(), remote));
    }

    /// Ends all sessions, in AdminDown.
    pub fn stop(&mut self, now: Instant) {
        for (identity, remote) in self.entries() {
            self.remove(now, &identity, remote);
        }
    }

    /// Returns whether no session is left that sends.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn entries(&self) -> Vec<(Identity, IpAddr)> {
        let entries = self.all_entries();
        entries
            .map(|(identity, entry)| (identity.clone(), entry.wanted.remote))
            .collect()
    }

    /// Returns all entries: for work that is not done for each message or packet.
    fn all_entries(&self) -> impl Iterator<Item = (&Identity, &Entry)> {
        let clients = self.clients.iter();
        let entries = clients.flat_map(|(identity, client)| {
            let entries = client.entries.values();
            entries.map(move |entry| (identity, entry))
        });
        entries.inspect(move |_| self.visit())
    }

    /// Counts an entry that is looked at.
    fn visit(&self) {
        #[cfg(test)]
        self.visits.update(|visits| visits + 1);
    }

    /// Handles a received packet. Call it for all packets that have arrived, before [`Engine::step`].
    ///
    /// # Errors
    ///
    /// The packet is discarded.
    pub fn receive(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        payload: &[u8],
    ) -> Result<(), Discard> {
        match self.sessions.receive(now, arrival, payload) {
            Ok((id, change)) => {
                self.mark(Key::Session(id));
                if let Some(change) = change {
                    self.changed(id, change);
                }
                Ok(())
            }
            Err(discard) => {
                self.discarded += 1;
                self.note_other_port(now, arrival, discard);
                Err(discard)
            }
        }
    }

    /// Does the work that is due, until a packet is to be sent; `None` if nothing more is due.
    pub fn step(&mut self, now: Instant) -> Option<Outgoing> {
        self.expire(now);
        loop {
            match self.sessions.step(now)? {
                Step::Changed { id, change, .. } => {
                    self.mark(Key::Session(id));
                    self.changed(id, change);
                }
                Step::Send { id, packet, .. } => {
                    self.mark(Key::Session(id));
                    let leaving = self.leaving.get(&id);
                    if let Some(&way) = self.ways.get(&id).or(leaving) {
                        return Some(Outgoing { id, way, packet });
                    }
                }
            }
        }
    }

    /// Returns when [`Engine::step`] must be called at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let expires = self.expiring.first().map(|(at, ..)| *at);
        let times = [self.sessions.poll_timeout(), expires];
        times.into_iter().flatten().min()
    }

    /// Returns the next state that a client was not sent yet.
    #[must_use]
    pub fn unreported(&self, identity: &Identity) -> Option<SessionState> {
        let client = self.clients.get(identity)?;
        let remote = client.unreported.first()?;
        let entry = client.entries.get(remote)?;
        let session = entry.id.and_then(|id| self.sessions.get(id));
        Some(entry.state(session))
    }

    /// Records that a client was sent this state.
    pub fn reported(&mut self, identity: &Identity, state: &SessionState) {
        let Some(client) = self.clients.get_mut(identity) else {
            return;
        };
        client.unreported.remove(&state.remote);
        if let Some(entry) = client.entries.get_mut(&state.remote) {
            entry.failures = entry.failures.saturating_sub(state.failures);
        }
        if state.failures > 0 {
            self.mark(Key::Entry(identity.clone(), state.remote));
        }
    }

    /// Returns all sessions of all clients.
    pub fn views(&self) -> impl Iterator<Item = View<'_>> {
        self.clients.iter().flat_map(move |(identity, client)| {
            client.entries.values().map(move |entry| View {
                client: identity,
                is_connected: client.is_connected,
                wanted: &entry.wanted,
                session: entry.id.and_then(|id| {
                    let way = self.ways.get(&id)?;
                    Some((*way, self.sessions.get(id)?))
                }),
                interface: entry.interface.as_deref(),
                problem: entry.problem(),
                expires: entry.expires,
            })
        })
    }

    /// Returns the load of each user with sessions.
    pub fn loads(&self) -> impl Iterator<Item = (u32, Load)> {
        self.loads.iter().map(|(uid, load)| (*uid, *load))
    }

    /// Returns the number of clients, with those that are away.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of sessions, with removed ones that still send.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the number of discarded packets.
    #[must_use]
    pub const fn discarded(&self) -> u64 {
        self.discarded
    }

    fn entry(&self, identity: &Identity, remote: IpAddr) -> Option<&Entry> {
        self.visit();
        self.clients.get(identity)?.entries.get(&remote)
    }

    fn entry_mut(&mut self, identity: &Identity, remote: IpAddr) -> Option<&mut Entry> {
        self.visit();
        self.clients.get_mut(identity)?.entries.get_mut(&remote)
    }

    /// Adds an entry to the session of a path, which is made if it is missing.
    fn join(
        &mut self,
        now: Instant,
        identity: &Identity,
        remote: IpAddr,
        way: Way,
    ) -> Result<(), String> {
        let found = self.sessions.find(way.path);
        let id = match found.map(Session::local_discriminator) {
            Some(id) if self.ways.get(&id) != Some(&way) => {
                return Err(format!(
                    "another client monitors the path to {remote} with another local address or another \
                     least time to live: configure both alike"
                ));
            }
            Some(id) => id,
            None => {
                let wanted = self.entry(identity, remote).map(|entry| &entry.wanted);
                let config = config_of(self.limits.receive_us_min(), wanted)?;
                let added = self.sessions.add(now, way.path, config);
                added.map_err(|error| error.to_string())?
            }
        };
        let first = self.first_user(id);
        self.ways.insert(id, way);
        self.leaving.remove(&id);
        let user = (identity.clone(), remote);
        self.users.entry(id).or_default().insert(user);
        if let Some(entry) = self.entry_mut(identity, remote) {
            entry.id = Some(id);
            entry.follows = first.is_some_and(|first| first != identity.uid);
        }
        self.mark(Key::Session(id));
        self.mark(Key::Entry(identity.clone(), remote));
        self.apply(now, identity, remote)
    }

    /// Removes an entry from its session, and the session with its last entry.
    fn release(&mut self, now: Instant, identity: &Identity, remote: IpAddr) {
        let Some(id) = self.entry_mut(identity, remote).and_then(|entry| {
            entry.other_port = None;
            entry.follows = false;
            entry.id.take()
        }) else {
            return;
        };
        self.mark(Key::Session(id));
        self.mark(Key::Entry(identity.clone(), remote));
        let Some(users) = self.users.get_mut(&id) else {
            return;
        };
        users.remove(&(identity.clone(), remote));
        if !users.is_empty() {
            self.promote(id);
            // The session continues by the wishes of the others, which are valid.
            let _ = self.adjust(now, id);
            return;
        }
        self.users.remove(&id);
        self.sessions.remove(now, id);
        // A session without a remote system has ended at once.
        if let Some(way) = self.ways.remove(&id)
            && self.sessions.contains(id)
        {
            self.leaving.insert(id, way);
        }
        if self.leaving.len() > self.sessions.len() {
            self.forget_ended();
        }
    }

    /// Removes the ways of removed sessions that no longer send.
    fn forget_ended(&mut self) {
        let (sessions, changed) = (&self.sessions, &mut self.changed);
        self.leaving.retain(|id, _| {
            let is_kept = sessions.contains(*id);
            if let Some(changed) = changed.as_mut().filter(|_| !is_kept) {
                changed.insert(Key::Session(*id));
            }
            is_kept
        });
    }

    /// Returns whether there is a session, also a removed one that still sends.
    #[must_use]
    pub fn contains(&self, id: Discriminator) -> bool {
        self.sessions.contains(id)
    }

    /// Notes a change for the clients of a session.
    fn changed(&mut self, id: Discriminator, change: Change) {
        let has_failed =
            change.from == State::Up && matches!(change.liveness, Liveness::Failed { .. });
        for (identity, remote) in self.users.get(&id).into_iter().flatten() {
            let Some(client) = self.clients.get_mut(identity) else {
                continue;
            };
            if let Some(entry) = client.entries.get_mut(remote) {
                entry.failures += u64::from(has_failed);
                entry.other_port = None;
                client.report(*remote);
            }
            if let Some(changed) = self.changed.as_mut().filter(|_| has_failed) {
                changed.insert(Key::Entry(identity.clone(), *remote));
            }
        }
        if let Some(way) = self.ways.get(&id) {
            emit_change(way, &change);
        }
    }
}
