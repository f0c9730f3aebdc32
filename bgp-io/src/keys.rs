//! The TCP-MD5 keys of neighbors that may connect, on a listening socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use bgp_speaker::{Password, SpeakerConfig};

use crate::error::optmem_max;
use crate::sockopt::set_md5_key;
use crate::{IoError, PeerScope};

/// Keys by their neighbors.
pub(crate) type Keys = BTreeMap<PeerScope, Password>;

/// Returns the keys of a configuration.
pub(crate) fn keys_of(config: &SpeakerConfig) -> Keys {
    let peers = config
        .peers
        .iter()
        .filter_map(|peer| Some((PeerScope::neighbor(peer.remote), peer.password.clone()?)));
    let ranges = config.ranges.iter().filter_map(|range| {
        let password = range.template.password.clone()?;
        Some((PeerScope::range(range.prefix), password))
    });
    ranges.chain(peers).collect()
}

/// The keys that could not be set, with the errors.
pub(crate) type Keyless = BTreeMap<PeerScope, Arc<IoError>>;

/// The keys of one listening socket.
#[derive(Default)]
pub(crate) struct Keyring {
    /// The keys in the kernel.
    held: Keys,
    /// Keys that may be newer than connections in the backlog.
    pub(crate) fresh: BTreeSet<PeerScope>,
}

impl Keyring {
    /// Removes unwanted keys from a socket, and sets missing ones. A key that fails is recorded in
    /// `keyless` and does not affect the others.
    pub(crate) fn set(
        &mut self,
        socket: &impl AsFd,
        ipv4: bool,
        wanted: &Keys,
        keyless: &mut Keyless,
    ) {
        let of_ours = |scope: &PeerScope| scope.address.is_ipv4() == ipv4;
        let gone: Vec<PeerScope> = self.held.keys().copied().collect();
        for scope in gone.into_iter().filter(|scope| !wanted.contains_key(scope)) {
            match set_md5_key(socket, scope.address, scope.prefix_len, &[]) {
                Ok(()) => self.held.remove(&scope).map_or((), drop),
                Err(error) => note(keyless, scope, IoError::key(scope, 0, error)),
            }
        }
        let count = wanted.keys().filter(|scope| of_ours(scope)).count();
        let mut room = None;
        for (&scope, key) in wanted.iter().filter(|(scope, _)| of_ours(scope)) {
            let old = self.held.get(&scope);
            if old == Some(key) {
                continue;
            }
            let limit = match room {
                // All keys take the same memory: there is none left for another one.
                Some(limit) if old.is_none() => limit,
                _ => match self.give(socket, scope, key) {
                    Ok(()) => continue,
                    Err(Lack::NoRoom) => *room.get_or_insert_with(optmem_max),
                    Err(Lack::Failed(error)) => {
                        note(keyless, scope, error);
                        continue;
                    }
                },
            };
            note(
                keyless,
                scope,
                IoError::KeyRoom {
                    scope,
                    held: self.held.len(),
                    wanted: count,
                    optmem_max: limit,
                },
            );
        }
    }

    fn give(&mut self, socket: &impl AsFd, scope: PeerScope, key: &Password) -> Result<(), Lack> {
        IoError::check_key(scope, key).map_err(Lack::Failed)?;
        set_md5_key(socket, scope.address, scope.prefix_len, key.as_bytes()).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENOMEM) => Lack::NoRoom,
                _ => Lack::Failed(IoError::key(scope, key.len(), error)),
            }
        })?;
        self.held.insert(scope, key.clone());
        self.fresh.insert(scope);
        Ok(())
    }

    /// Returns whether the kernel has checked connections from this address against this key. `range`
    /// is the longest configured range that covers it.
    pub(crate) fn vouches(&self, remote: IpAddr, range: Option<PeerScope>, key: &Password) -> bool {
        // The kernel takes the most specific key, too.
        let found = [Some(PeerScope::neighbor(remote)), range]
            .into_iter()
            .flatten()
            .find_map(|scope| Some((scope, self.held.get(&scope)?)));
        found.is_some_and(|(scope, held)| held == key && !self.fresh.contains(&scope))
    }
}

/// Why a key was not set.
enum Lack {
    NoRoom,
    Failed(IoError),
}

fn note(keyless: &mut Keyless, scope: PeerScope, error: IoError) {
    keyless.insert(scope, Arc::new(error));
}
