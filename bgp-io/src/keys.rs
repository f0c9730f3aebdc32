//! The TCP-MD5 keys of neighbors that may connect, on a listening socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use bgp_speaker::{Password, SpeakerConfig};

use crate::error::optmem_max;
use crate::sockopt::set_md5_key;
use crate::{IoError, Whose};

/// Keys by their neighbors.
pub(crate) type Keys = BTreeMap<Whose, Password>;

/// Returns the keys of a configuration.
pub(crate) fn keys_of(config: &SpeakerConfig) -> Keys {
    let peers = config
        .peers
        .iter()
        .filter_map(|peer| Some((Whose::neighbor(peer.remote), peer.password.clone()?)));
    let ranges = config.ranges.iter().filter_map(|range| {
        let password = range.template.password.clone()?;
        Some((Whose::range(range.prefix), password))
    });
    ranges.chain(peers).collect()
}

/// The keys that could not be set, with the errors.
pub(crate) type Keyless = BTreeMap<Whose, Arc<IoError>>;

/// The keys of one listening socket.
#[derive(Default)]
pub(crate) struct Keyring {
    /// The keys in the kernel.
    held: Keys,
    /// Keys that may be newer than connections in the backlog.
    pub(crate) fresh: BTreeSet<Whose>,
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
        let of_ours = |whose: &Whose| whose.address.is_ipv4() == ipv4;
        let gone: Vec<Whose> = self.held.keys().copied().collect();
        for whose in gone.into_iter().filter(|whose| !wanted.contains_key(whose)) {
            match set_md5_key(socket, whose.address, whose.prefix_len, &[]) {
                Ok(()) => self.held.remove(&whose).map_or((), drop),
                Err(error) => note(keyless, whose, IoError::key(whose, 0, error)),
            }
        }
        let count = wanted.keys().filter(|whose| of_ours(whose)).count();
        let mut room = None;
        for (&whose, key) in wanted.iter().filter(|(whose, _)| of_ours(whose)) {
            let old = self.held.get(&whose);
            if old == Some(key) {
                continue;
            }
            let limit = match room {
                // All keys take the same memory: there is none left for another one.
                Some(limit) if old.is_none() => limit,
                _ => match self.give(socket, whose, key) {
                    Ok(()) => continue,
                    Err(Lack::NoRoom) => *room.get_or_insert_with(optmem_max),
                    Err(Lack::Failed(error)) => {
                        note(keyless, whose, error);
                        continue;
                    }
                },
            };
            note(
                keyless,
                whose,
                IoError::KeyRoom {
                    whose,
                    held: self.held.len(),
                    wanted: count,
                    optmem_max: limit,
                },
            );
        }
    }

    fn give(&mut self, socket: &impl AsFd, whose: Whose, key: &Password) -> Result<(), Lack> {
        IoError::check_key(whose, key).map_err(Lack::Failed)?;
        set_md5_key(socket, whose.address, whose.prefix_len, key.as_bytes()).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENOMEM) => Lack::NoRoom,
                _ => Lack::Failed(IoError::key(whose, key.len(), error)),
            }
        })?;
        self.held.insert(whose, key.clone());
        self.fresh.insert(whose);
        Ok(())
    }

    /// Returns whether the kernel has checked connections from this address against this key. `range`
    /// is the longest configured range that covers it.
    pub(crate) fn vouches(&self, remote: IpAddr, range: Option<Whose>, key: &Password) -> bool {
        // The kernel takes the most specific key, too.
        let found = [Some(Whose::neighbor(remote)), range]
            .into_iter()
            .flatten()
            .find_map(|whose| Some((whose, self.held.get(&whose)?)));
        found.is_some_and(|(whose, held)| held == key && !self.fresh.contains(&whose))
    }
}

/// Why a key was not set.
enum Lack {
    NoRoom,
    Failed(IoError),
}

fn note(keyless: &mut Keyless, whose: Whose, error: IoError) {
    keyless.insert(whose, Arc::new(error));
}
