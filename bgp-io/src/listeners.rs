//! The listening sockets: each is opened when the machine has its address, and has the keys of the
//! applied configuration, as far as the kernel accepts them.

use std::net::SocketAddr;

use bgp_speaker::SpeakerConfig;

use crate::filter::{Source, sources};
use crate::keys::{Keyless, Keys, keys_of};
use crate::limits::LISTEN_RETRY;
use crate::listen_socket::ListenSocket;
use crate::sockets::Rules;
use crate::{Event, Io, IoError, PeerScope};

/// Returns the configuration's requirements on listening sockets.
fn rules_of(config: &SpeakerConfig) -> (Keys, Vec<Source>) {
    (keys_of(config), sources(config))
}

impl Io {
    /// Returns the listening addresses, with the assigned ports where 0 was configured.
    pub fn listening(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listeners.iter().map(|listener| listener.address)
    }

    /// Returns the addresses on which it cannot listen yet, usually because the machine does not
    /// have them.
    pub fn unbound(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.unbound.iter().copied()
    }

    /// Returns the TCP-MD5 keys that are missing on a listening socket, each with the error. Connections
    /// of their peers are rejected.
    pub fn keyless(&self) -> impl Iterator<Item = (PeerScope, &IoError)> + '_ {
        self.keyless.iter().map(|(scope, error)| (*scope, &**error))
    }

    /// Opens the first listening sockets. An address that the machine does not have yet is not an
    /// error.
    pub(crate) fn listen(&mut self, addresses: Vec<SocketAddr>) -> Result<(), IoError> {
        let (keys, sources) = rules_of(self.speaker.config());
        let binder = self.binder.clone();
        let rules = Rules {
            keys: &keys,
            sources: &sources,
            binder: binder.as_deref(),
        };
        let mut keyless = Keyless::new();
        for address in addresses {
            match ListenSocket::open(address, rules, &mut keyless) {
                Ok(listener) => self.listeners.push(listener),
                Err(error @ IoError::NoSuchAddress { .. }) => {
                    self.unbound.push(address);
                    self.events.push(Event::ListenFailed(error));
                }
                Err(error) => return Err(error),
            }
        }
        self.report_keyless(keyless);
        Ok(())
    }

    /// Changes the listening addresses. Sockets with an unchanged address and all connections stay.
    /// An address that cannot be used is tried again: see [`unbound`](Self::unbound).
    pub fn listen_on(&mut self, addresses: &[SocketAddr]) {
        self.admit_strangers();
        let is_gone = |listener: &ListenSocket| !addresses.contains(&listener.wanted);
        for at in 0..self.listeners.len() {
            if self.listeners.get(at).is_some_and(is_gone) {
                // A connection that already waits is accepted, so that the peer need not repeat it.
                self.take_waiting(at);
            }
        }
        // Removal comes first: a socket for all addresses conflicts with a socket for one of them.
        self.listeners.retain(|listener| !is_gone(listener));
        self.unbound.retain(|address| addresses.contains(address));
        let (keys, sources) = rules_of(self.speaker.config());
        let binder = self.binder.clone();
        let rules = Rules {
            keys: &keys,
            sources: &sources,
            binder: binder.as_deref(),
        };
        for address in addresses {
            let mut listeners = self.listeners.iter();
            if listeners.any(|one| one.wanted == *address) || self.unbound.contains(address) {
                continue;
            }
            // Its missing keys are reported below, for all sockets together.
            match ListenSocket::open(*address, rules, &mut Keyless::new()) {
                Ok(listener) => self.add_listener(listener),
                Err(error) => {
                    self.unbound.push(*address);
                    self.events.push(Event::ListenFailed(error));
                }
            }
        }
        self.arm();
    }

    fn add_listener(&mut self, listener: ListenSocket) {
        self.events.push(Event::Listening(listener.address));
        self.listeners.push(listener);
    }

    /// Sets the configured keys on the listening sockets, and opens missing sockets.
    pub(crate) fn arm(&mut self) {
        self.admit_strangers();
        let (keys, sources) = rules_of(self.speaker.config());
        let binder = self.binder.clone();
        let rules = Rules {
            keys: &keys,
            sources: &sources,
            binder: binder.as_deref(),
        };
        let mut keyless = Keyless::new();
        for at in 0..self.listeners.len() {
            if let Some(listener) = self.listeners.get_mut(at) {
                let ipv4 = listener.address.is_ipv4();
                (listener.guard).set(&listener.socket, ipv4, &sources);
                (listener.keys).set(&listener.socket, ipv4, &keys, &mut keyless);
            }
            // At once, so that few connections are older than the keys.
            self.take_backlog(at);
        }
        for address in std::mem::take(&mut self.unbound) {
            match ListenSocket::open(address, rules, &mut keyless) {
                Ok(listener) => self.add_listener(listener),
                Err(_) => self.unbound.push(address),
            }
        }
        self.report_keyless(keyless);
        // A flood that began above has to reach the sockets that were set after it.
        if self.strangers.are_dropped() {
            self.refuse_strangers();
        }
    }

    fn report_keyless(&mut self, keyless: Keyless) {
        let old = std::mem::replace(&mut self.keyless, keyless);
        let new = (self.keyless.iter()).filter(|(scope, _)| !old.contains_key(scope));
        self.events
            .extend(new.map(|(&scope, error)| Event::KeyFailed {
                scope,
                error: error.clone(),
            }));
        let settled = old
            .into_keys()
            .filter(|scope| !self.keyless.contains_key(scope));
        self.events.extend(settled.map(Event::KeyInstalled));
        let waits = !self.keyless.is_empty() || !self.unbound.is_empty();
        self.arm_at = waits.then(|| self.clock.now() + LISTEN_RETRY);
    }
}
