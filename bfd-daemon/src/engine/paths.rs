//! The paths of sessions: when they are looked for, and what happens until the addresses of the host are there.

use std::net::IpAddr;

use bfd::{Instant, Random, State};
use bfd_client::{Hops, Wanted};

use super::client::Entry;
use super::events::emit_problem;
use super::{Engine, Identity};
use crate::limits::{ADDRESSES_WITHIN, RESOLVE_EVERY};
use crate::resolve::{Resolve, Way};

impl<R: Random> Engine<R> {
    /// Returns when [`Engine::retry`] must be called.
    #[must_use]
    pub fn resolve_at(&self) -> Option<Instant> {
        (!self.clients.is_empty()).then_some(self.resolve_at)
    }

    /// Looks for the paths that do not depend on the addresses of the host, of sessions that are not up: a
    /// route may be there now. Returns whether a session needs newer addresses, for
    /// [`Engine::resolve_again`].
    pub fn retry(&mut self, now: Instant, resolve: &impl Resolve) -> bool {
        self.resolve_at = now + RESOLVE_EVERY;
        self.forget_ended();
        self.forget_other_ports(now);
        let mut needs_addresses = false;
        for (identity, remote, hops) in self.unsettled() {
            match hops {
                Hops::Multi => self.place(now, &identity, remote, resolve),
                Hops::Single | Hops::Auto => needs_addresses = true,
            }
        }
        needs_addresses
    }

    /// Looks for the paths of the sessions that are not up, and of new wishes: an address or a route may be
    /// there now.
    pub fn resolve_again(&mut self, now: Instant, resolve: &impl Resolve) {
        self.forget_ended();
        for (identity, remote, _) in self.unsettled() {
            self.place(now, &identity, remote, resolve);
        }
    }

    /// Reports to the clients that the kernel has not returned the addresses of the host: new sessions wait
    /// for them.
    pub fn report_no_addresses(&mut self) {
        for (identity, client) in &mut self.clients {
            for (remote, entry) in &mut client.entries {
                if entry.since.is_none() || entry.problem.is_some() {
                    continue;
                }
                let problem = format!(
                    "the kernel has not returned the addresses of the host within {} s: the session waits \
                     for them",
                    ADDRESSES_WITHIN.as_secs()
                );
                emit_problem(&identity.name, *remote, entry.id.is_some(), &problem);
                entry.problem = Some(problem);
                if entry.expires.is_none() {
                    client.unreported.insert(*remote);
                }
            }
        }
    }

    /// Returns the sessions that are not up, and those with a wish for which no path was looked for.
    fn unsettled(&self) -> Vec<(Identity, IpAddr, Hops)> {
        let entries = self.all_entries();
        let unsettled = entries.filter(|(_, entry)| entry.since.is_some() || !self.is_up(entry));
        unsettled
            .map(|(identity, entry)| (identity.clone(), entry.wanted.remote, entry.wanted.hops))
            .collect()
    }

    fn is_up(&self, entry: &Entry) -> bool {
        let session = entry.id.and_then(|id| self.sessions.get(id));
        session.is_some_and(|session| session.state() == State::Up)
    }

    /// Handles a new wish: at once if newer addresses would change nothing. Otherwise they are requested.
    pub(super) fn place_wish(
        &mut self,
        now: Instant,
        identity: &Identity,
        remote: IpAddr,
        resolve: &impl Resolve,
    ) {
        self.place(now, identity, remote, resolve);
        let Some(client) = self.clients.get_mut(identity) else {
            return;
        };
        let entry = client.entries.get(&remote);
        if let Some(entry) = entry.filter(|entry| entry.since.is_some()) {
            self.resolve_at = self.resolve_at.min(now);
            // The state of a new session is sent when it has one.
            if entry.id.is_some() || entry.problem.is_some() {
                client.report(remote);
            }
        }
    }

    /// Gives an entry the session of its path, unless its wish is newer than the addresses of the host.
    fn place(&mut self, now: Instant, identity: &Identity, remote: IpAddr, resolve: &impl Resolve) {
        let Some(entry) = self.entry(identity, remote) else {
            return;
        };
        let id = entry.id;
        let current = id.and_then(|id| self.ways.get(&id)).copied();
        let is_answered = entry.since.is_none_or(|since| resolve.answers(since));
        let way = match self.kept(entry, resolve) {
            Some(way) => Ok(way),
            None if is_answered || entry.wanted.hops == Hops::Multi => resolve.way(&entry.wanted),
            None => return,
        };
        let placed = match way {
            Ok(way) if current == Some(way) => self.apply(now, identity, remote),
            Ok(way) => {
                self.release(now, identity, remote);
                self.join(now, identity, remote, way)
            }
            // The session continues on its former path, and fails if that is no longer there.
            Err(problem) => Err(problem),
        };
        let Some(client) = self.clients.get_mut(identity) else {
            return;
        };
        let Some(entry) = client.entries.get_mut(&remote) else {
            return;
        };
        let is_new_wish = entry.since.take().is_some();
        let way = entry.id.and_then(|id| self.ways.get(&id));
        let number = way.map(|way| way.interface).filter(|number| *number != 0);
        let interface = number.and_then(|number| resolve.interface(number));
        let is_other_interface = entry.interface != interface;
        entry.interface = interface;
        let is_other_problem = entry.problem != placed.clone().err();
        if is_other_problem {
            entry.problem = placed.err();
            if let Some(problem) = &entry.problem {
                emit_problem(&identity.name, remote, entry.id.is_some(), problem);
            }
        }
        if is_new_wish || is_other_problem || is_other_interface {
            client.report(remote);
        }
    }

    /// Returns the way of a session that is up, if it is right by the known addresses, but for the local one
    /// that its client does not name. A client that has just started does not know the address that it named
    /// before, and another one would be a failure for the remote system.
    fn kept(&self, entry: &Entry, resolve: &impl Resolve) -> Option<Way> {
        let current = *self.ways.get(&entry.id?)?;
        if !self.is_up(entry) {
            return None;
        }
        let wanted = Wanted {
            local: entry.wanted.local.or(Some(current.local)),
            ..entry.wanted.clone()
        };
        resolve.way(&wanted).ok().filter(|way| *way == current)
    }
}
