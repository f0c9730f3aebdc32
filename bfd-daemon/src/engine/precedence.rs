//! The precedence among the users of a path. There is one session for all of them, and the user that was first
//! decides on its timers and keys: no other user can make it faster, slower or fail.

use std::net::IpAddr;

use bfd::{Discriminator, Instant, Random};
use bfd_client::Wanted;

use super::client::Entry;
use super::combined::config_of;
use super::events::emit_problem;
use super::record::Key;
use super::{Engine, Identity};

impl<R: Random> Engine<R> {
    /// Applies the wish of an entry to its session.
    ///
    /// # Errors
    ///
    /// The keys of its user are invalid, or not the same; or another user decides, and wants another session. The
    /// session continues as before.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        identity: &Identity,
        remote: IpAddr,
    ) -> Result<(), String> {
        let Some(entry) = self.entry(identity, remote) else {
            return Ok(());
        };
        match entry.id {
            Some(id) if entry.follows => self.difference(id, entry).map_or(Ok(()), Err),
            Some(id) => self.adjust(now, id),
            None => Ok(()),
        }
    }

    /// Applies the wishes of a session's first user: the shortest interval and the least multiplier of its clients.
    ///
    /// # Errors
    ///
    /// Their keys are invalid, or not the same. The session continues as before.
    pub(super) fn adjust(&mut self, now: Instant, id: Discriminator) -> Result<(), String> {
        let users = self.users.get(&id).into_iter().flatten();
        let entries = users.filter_map(|(identity, remote)| self.entry(identity, *remote));
        let wanted = entries.filter(|entry| !entry.follows);
        let wanted: Vec<&Wanted> = wanted.map(|entry| &entry.wanted).collect();
        let mut auths = wanted.iter().map(|wanted| &wanted.auth);
        if let Some(first) = auths.next()
            && auths.any(|auth| auth != first)
        {
            return Err(
                "another client has other keys of BFD for this path: configure both alike".into(),
            );
        }
        let config = config_of(self.limits.receive_us_min(), wanted)?;
        let session = self.sessions.get(id);
        if session.is_some_and(|session| *session.config() == config) {
            return Ok(());
        }
        self.mark(Key::Session(id));
        let applied = self.sessions.configure(now, id, config);
        applied.map_err(|error| error.to_string())?;
        self.note_followers(id);
        Ok(())
    }

    /// Returns the user that decides on a session.
    pub(super) fn first_user(&self, id: Discriminator) -> Option<u32> {
        let users = self.users.get(&id).into_iter().flatten();
        let mut first = users.filter(|(identity, remote)| {
            let entry = self.entry(identity, *remote);
            entry.is_some_and(|entry| !entry.follows)
        });
        first.next().map(|(identity, _)| identity.uid)
    }

    /// Lets another user decide on a session, if none does: the first one by its ID. Call it when an entry has left
    /// the session.
    pub(super) fn promote(&mut self, id: Discriminator) {
        if self.first_user(id).is_some() {
            return;
        }
        let users = self.users.get(&id).into_iter().flatten();
        let users: Vec<(Identity, IpAddr)> = users.cloned().collect();
        let first = users.first().map(|(identity, _)| identity.uid);
        for (identity, remote) in users {
            if Some(identity.uid) != first {
                continue;
            }
            self.set_follows(&identity, remote, false);
            self.note(&identity, remote, None);
        }
    }

    /// Sets whether the timers of another user have precedence over those of an entry.
    fn set_follows(&mut self, identity: &Identity, remote: IpAddr, follows: bool) {
        if let Some(entry) = self.entry_mut(identity, remote)
            && entry.follows != follows
        {
            entry.follows = follows;
            self.mark(Key::Entry(identity.clone(), remote));
        }
    }

    /// Reports to the other users of a session whether it is as they want it.
    fn note_followers(&mut self, id: Discriminator) {
        let users = self.users.get(&id).into_iter().flatten();
        let followers = users.filter(|(identity, remote)| {
            let entry = self.entry(identity, *remote);
            entry.is_some_and(|entry| entry.follows)
        });
        let followers: Vec<(Identity, IpAddr)> = followers.cloned().collect();
        for (identity, remote) in followers {
            let entry = self.entry(&identity, remote);
            let note = entry.and_then(|entry| self.difference(id, entry));
            self.note(&identity, remote, note);
        }
    }

    /// Returns how a session differs from the wish of an entry whose user does not decide.
    fn difference(&self, id: Discriminator, entry: &Entry) -> Option<String> {
        let session = self.sessions.get(id)?.config();
        let wanted = match config_of(self.limits.receive_us_min(), [&entry.wanted]) {
            Ok(wanted) if wanted == *session => return None,
            Ok(wanted) => wanted,
            Err(reason) => return Some(reason),
        };
        let first = self.first_user(id)?;
        Some(match wanted.authentication == session.authentication {
            true => format!(
                "the user {first} was first on this path, and its timers count: packets every {} ms, multiplier \
                 {}; configure both daemons alike",
                session.desired_min_tx_us / 1000,
                session.detect_multiplier
            ),
            false => format!(
                "the user {first} was first on this path, and has other keys of BFD: configure both daemons alike"
            ),
        })
    }

    /// Sets the problem of an entry, and reports a new one.
    fn note(&mut self, identity: &Identity, remote: IpAddr, problem: Option<String>) {
        let Some(client) = self.clients.get_mut(identity) else {
            return;
        };
        let Some(entry) = client.entries.get_mut(&remote) else {
            return;
        };
        if entry.problem == problem {
            return;
        }
        entry.problem = problem;
        if let Some(problem) = &entry.problem {
            emit_problem(&identity.name, remote, entry.id.is_some(), problem);
        }
        client.report(remote);
    }
}
