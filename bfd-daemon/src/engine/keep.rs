//! The export of the engine's state, and its continuation in another process.

use bfd::{Discriminator, Instant, Random, Session};

use super::client::Entry;
use super::record::{EntryRecord, Key, Record, SessionRecord};
use super::{Engine, Load, config_of};

/// The result of a take-over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The sessions that continue, with those that only send AdminDown.
    pub sessions: usize,
    /// Why a session does not continue: the first reason.
    pub lost: Option<String>,
}

impl<R: Random> Engine<R> {
    /// Sets whether the subjects whose state changes are collected, for [`Engine::take_changed`].
    pub fn remember(&mut self, remembers: bool) {
        self.changed = remembers.then(Default::default);
    }

    /// Returns a subject whose state has changed since it was last returned.
    pub fn take_changed(&mut self) -> Option<Key> {
        self.changed.as_mut()?.pop_first()
    }

    /// Returns the state of a subject; `None` if it is there no longer. `port` returns the source port of a
    /// session.
    pub fn record(
        &self,
        now: Instant,
        key: &Key,
        port: impl Fn(Discriminator) -> Option<u16>,
    ) -> Option<Record> {
        match key {
            Key::Session(id) => {
                let session = self.sessions.get_any(*id)?;
                let present = self.ways.get(id);
                let way = *present.or_else(|| self.leaving.get(id))?;
                let config = session.config();
                Some(Record::Session(Box::new(SessionRecord {
                    saved_at: now,
                    snapshot: session.snapshot(now),
                    way,
                    port: port(*id),
                    is_leaving: present.is_none(),
                    intervals_us: [
                        config.desired_min_tx_us,
                        config.idle_tx_us,
                        config.required_min_rx_us,
                    ],
                    multiplier: config.detect_multiplier,
                    authentication: config.authentication.clone(),
                })))
            }
            Key::Entry(identity, remote) => {
                let entry = self.entry(identity, *remote)?;
                Some(Record::Entry(EntryRecord {
                    identity: identity.clone(),
                    wanted: entry.wanted.clone(),
                    id: entry.id,
                    follows: entry.follows,
                    failures: entry.failures,
                    expires: entry.expires,
                }))
            }
        }
    }

    /// Continues the sessions of another process. Its clients have the grace to connect again.
    ///
    /// Call it before any other function.
    pub fn restore(&mut self, now: Instant, records: Vec<Record>) -> Restored {
        let mut restored = Restored::default();
        let (mut sessions, mut entries) = (Vec::new(), Vec::new());
        for record in records {
            match record {
                Record::Session(session) => sessions.push(session),
                Record::Entry(entry) => entries.push(entry),
            }
        }
        // A removed session takes no path and no room of a present one.
        sessions.sort_by_key(|record| record.is_leaving);
        for record in sessions {
            match self.restore_session(now, &record) {
                Ok(()) => restored.sessions += 1,
                Err(reason) => {
                    restored.lost.get_or_insert(reason);
                }
            }
        }
        for record in entries {
            self.restore_entry(now, record);
        }
        let used: Vec<Discriminator> = self.users.keys().copied().collect();
        for id in used {
            self.promote(id);
        }
        // Removed ones continue to send AdminDown, and so do those that no client wants.
        let unwanted = |id: &&Discriminator| !self.users.contains_key(id);
        let unwanted: Vec<Discriminator> = self.ways.keys().filter(unwanted).copied().collect();
        for id in unwanted {
            self.sessions.remove(now, id);
            if let Some(way) = self.ways.remove(&id) {
                self.leaving.insert(id, way);
            }
            self.mark(Key::Session(id));
        }
        self.forget_ended();
        restored
    }

    fn restore_session(&mut self, now: Instant, record: &SessionRecord) -> Result<(), String> {
        let age = now.saturating_duration_since(record.saved_at);
        let snapshot = record.snapshot.clone().aged(age);
        let config = config_of(0, [])?.with(|config| {
            let [send, idle, receive] = record.intervals_us;
            config.desired_min_tx_us = send;
            config.idle_tx_us = idle;
            config.required_min_rx_us = receive;
            config.detect_multiplier = record.multiplier;
            config.authentication.clone_from(&record.authentication);
        });
        let restored = self
            .sessions
            .restore(now, record.way.path, config, &snapshot);
        let id = restored.map_err(|error| format!("{}: {error}", record.way.remote))?;
        self.ways.insert(id, record.way);
        Ok(())
    }

    fn restore_entry(&mut self, now: Instant, record: EntryRecord) {
        let remote = record.wanted.remote;
        let is_present = |id: &Discriminator| self.sessions.get(*id).is_some();
        let id = record.id.filter(is_present);
        if let Some(id) = id {
            let user = (record.identity.clone(), remote);
            self.users.entry(id).or_default().insert(user);
        }
        let until = now + self.limits.grace();
        self.mark(Key::Entry(record.identity.clone(), remote));
        let identity = record.identity;
        let client = self.clients.entry(identity.clone()).or_default();
        let mut entry = Entry::new(record.wanted);
        entry.id = id;
        entry.follows = id.is_some() && record.follows;
        entry.failures = record.failures;
        let one = Load::of(&entry.wanted);
        if client.entries.insert(remote, entry).is_none() {
            let load = self.loads.entry(identity.uid).or_default();
            *load = load.with(one);
        }
        self.set_expiry(&identity, remote, Some(record.expires.unwrap_or(until)));
    }

    /// Returns the sessions with their ways, also removed ones that still send.
    pub fn all(&self) -> impl Iterator<Item = (Discriminator, bool, &Session)> {
        let ways = self.ways.iter().chain(&self.leaving);
        ways.filter_map(|(id, way)| Some((*id, way.remote.is_ipv4(), self.sessions.get_any(*id)?)))
    }

    /// Notes that the state of a subject has changed.
    pub(super) fn mark(&mut self, key: Key) {
        if let Some(changed) = &mut self.changed {
            changed.insert(key);
        }
    }
}
