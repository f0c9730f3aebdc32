//! The users that may be clients. A thread of its own resolves their names, because a directory service may answer
//! slowly, and no packet waits for it.

use std::collections::BTreeMap;
use std::io;

use bfd::Instant;
use nix::unistd::{User, geteuid};

use crate::config::{Config, USERS, number_of};
use crate::limits::{USERS_READ_EVERY, USERS_STACK_OCTETS, USERS_WITHIN};
use crate::worker::Worker;

/// The answer for each name: its ID, or `None` if the host has no such user. A name is missing if the host could
/// not look it up.
pub(crate) type Found = BTreeMap<String, Option<u32>>;

/// Looks names up, as the host is configured (`nsswitch.conf`).
pub(crate) fn look_up(names: Vec<String>) -> Found {
    let found = names.into_iter().filter_map(|name| {
        let user = User::from_name(&name).ok()?;
        Some((name, user.map(|user| user.uid.as_raw())))
    });
    found.collect()
}

/// Returns notes on users that the host does not have, but for those of the packages.
fn missing(found: &Found) -> impl Iterator<Item = String> {
    let missing = found.iter().filter(|(_, id)| id.is_none());
    let missing = missing.filter(|(name, _)| !USERS.contains(&name.as_str()));
    missing.map(|(name, _)| format!("users: this host has no user {name}"))
}

/// Returns the names among users.
fn names(configured: &[String]) -> Vec<String> {
    let names = configured.iter();
    names
        .filter(|name| number_of(name).is_none())
        .cloned()
        .collect()
}

/// Returns notes on what is allowed but worth knowing. It waits for the users of the host.
#[must_use]
pub fn notes(config: &Config) -> Vec<String> {
    missing(&look_up(names(&config.users))).collect()
}

/// The decision on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Its user may be a client.
    Accepted,
    /// Its user may not.
    Rejected,
    /// The names of users are looked up.
    Pending,
}

/// The users that may have connections.
#[derive(Debug)]
pub(crate) struct Users {
    /// The configured users, by name or number.
    configured: Vec<String>,
    found: Found,
    worker: Worker<Vec<String>, Found>,
    /// When the names in flight were requested.
    request: Option<Instant>,
    /// Whether other names were configured since then.
    is_outdated: bool,
    /// When names are looked up again, for an unknown user.
    read_at: Instant,
}

impl Users {
    /// Starts the thread that looks names up, with the names of these users. It has the priority of the calling
    /// one: call it before that is raised.
    ///
    /// # Errors
    ///
    /// The system has no room for a thread.
    pub(crate) fn start(
        now: Instant,
        configured: &[String],
        look_up: impl Fn(Vec<String>) -> Found + Send + 'static,
    ) -> io::Result<Self> {
        let mut users = Self {
            configured: Vec::new(),
            found: Found::new(),
            worker: Worker::start("users", USERS_STACK_OCTETS, look_up)?,
            request: None,
            is_outdated: false,
            read_at: Instant::ZERO,
        };
        users.configure(now, configured);
        Ok(users)
    }

    /// Applies other users. A removed one is rejected at once, also if the new names are not looked up yet.
    pub(crate) fn configure(&mut self, now: Instant, configured: &[String]) {
        self.configured = configured.to_vec();
        self.found.retain(|name, _| configured.contains(name));
        match self.request {
            Some(_) => self.is_outdated = true,
            None => self.request(now),
        }
    }

    /// Requests the names.
    fn request(&mut self, now: Instant) {
        let names = names(&self.configured);
        if !names.is_empty() {
            self.request = Some(now);
            self.worker.request(names);
        }
    }

    /// Waits until names are looked up. Cancel-safe.
    pub(crate) async fn ready(&self) {
        self.worker.ready().await;
    }

    /// Takes an answer that has arrived. Never waits.
    pub(crate) fn turn(&mut self, now: Instant) {
        if self.request.is_none() {
            return;
        }
        let Some(found) = self.worker.answer() else {
            return;
        };
        let configured = found
            .into_iter()
            .filter(|(name, _)| self.configured.contains(name));
        self.found.extend(configured);
        self.request = None;
        self.read_at = now + USERS_READ_EVERY;
        if std::mem::take(&mut self.is_outdated) {
            self.request(now);
        }
    }

    /// Decides on a connection of a user. Before a user is rejected, the names are looked up again: the package
    /// of its daemon may have been installed later.
    pub(crate) fn decide(&mut self, now: Instant, uid: u32) -> Decision {
        if self.contains(uid) {
            return Decision::Accepted;
        }
        if self.request.is_none() && now >= self.read_at {
            self.request(now);
        }
        match self.request {
            Some(_) => Decision::Pending,
            None => Decision::Rejected,
        }
    }

    fn contains(&self, uid: u32) -> bool {
        let mut configured = self.configured.iter();
        let is_configured = configured.any(|name| {
            let found = self.found.get(name).copied().flatten();
            number_of(name).or(found) == Some(uid)
        });
        uid == 0 || uid == geteuid().as_raw() || is_configured
    }

    /// Returns notes for the operator: on users that the host does not have, and on a slow lookup.
    pub(crate) fn notes(&self, now: Instant) -> Vec<String> {
        let mut notes: Vec<String> = missing(&self.found).collect();
        let waits = self.request.map(|at| now.saturating_duration_since(at));
        notes.extend(waits.filter(|time| *time >= USERS_WITHIN).map(|time| {
            format!(
                "users: the host has not returned the names of users for {} s: clients of users that it has not \
                 returned before wait; set `users` to numbers, which need no directory service",
                time.as_secs()
            )
        }));
        notes
    }
}

#[cfg(test)]
mod tests;
