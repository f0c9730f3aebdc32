//! The ends of sessions without their clients.

use std::net::IpAddr;

use bfd::{Instant, Random};
use daemon_common::events::{Event, Text, emit};

use super::record::Key;
use super::{Engine, Identity};

impl<R: Random> Engine<R> {
    /// Lets all sessions of a client end after the grace, unless the client wants them again. Unreported failures
    /// are reported when it does.
    pub(super) fn abandon(&mut self, now: Instant, identity: &Identity) {
        let Some(client) = self.clients.get_mut(identity) else {
            return;
        };
        client.unreported.clear();
        let entries = client.entries.iter();
        let wanted = entries.filter(|(_, entry)| entry.expires.is_none());
        let wanted: Vec<IpAddr> = wanted.map(|(remote, _)| *remote).collect();
        let at = now + self.limits.grace();
        for remote in wanted {
            self.set_expiry(identity, remote, Some(at));
            self.mark(Key::Entry(identity.clone(), remote));
        }
    }

    /// Sets when an entry ends without its client.
    pub(super) fn set_expiry(
        &mut self,
        identity: &Identity,
        remote: IpAddr,
        expires: Option<Instant>,
    ) {
        let Some(entry) = self.entry_mut(identity, remote) else {
            return;
        };
        if let Some(former) = std::mem::replace(&mut entry.expires, expires) {
            self.expiring.remove(&(former, identity.clone(), remote));
        }
        if let Some(at) = expires {
            self.expiring.insert((at, identity.clone(), remote));
        }
    }

    /// Ends the sessions of clients that have been away for the grace.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.expiring.first().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, identity, remote)) = self.expiring.pop_first()
        {
            emit(Event::BfdSessionExpired {
                client: Text::new(&identity.name),
                address: remote,
            });
            self.remove(now, &identity, remote);
        }
    }
}
