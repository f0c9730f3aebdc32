//! The TCP-MD5 keys of those who may dial us, on a listening socket.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use bgp_speaker::bgp_proto::Prefix;
use bgp_speaker::{Password, SpeakerConfig};
use tokio::net::TcpListener;

use crate::IoError;
use crate::sockopt::set_md5_key;

/// Whose key it is: that of one neighbor, or of all in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Whose {
    /// The neighbor, or the first address of the range.
    pub address: IpAddr,
    /// How many bits of it count.
    pub prefix_len: u8,
}

impl Whose {
    pub(crate) const fn neighbor(address: IpAddr) -> Self {
        let prefix_len = if address.is_ipv4() { 32 } else { 128 };
        Self {
            address,
            prefix_len,
        }
    }

    const fn range(prefix: Prefix) -> Self {
        let (address, prefix_len) = match prefix {
            Prefix::V4(prefix) => (IpAddr::V4(prefix.addr()), prefix.len()),
            Prefix::V6(prefix) => (IpAddr::V6(prefix.addr()), prefix.len()),
        };
        Self {
            address,
            prefix_len,
        }
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            prefix_len,
        } = self;
        if *self == Self::neighbor(*address) {
            write!(f, "neighbor {address}")
        } else {
            write!(f, "neighbor_range {address}/{prefix_len}")
        }
    }
}

/// Keys by those they are for.
pub(crate) type Keys = BTreeMap<Whose, Password>;

/// The keys that a configuration asks for.
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

/// Takes from a listening socket the keys it should no longer have, and gives it those it lacks.
/// `held` is what it has, and after a failure what it has got so far.
pub(crate) fn set_keys(
    socket: &TcpListener,
    ipv4: bool,
    held: &mut Keys,
    wanted: &Keys,
) -> Result<(), IoError> {
    let of_ours = |whose: &Whose| whose.address.is_ipv4() == ipv4;
    let gone: Vec<Whose> = held
        .keys()
        .filter(|whose| !wanted.contains_key(whose))
        .copied()
        .collect();
    for whose in gone {
        set_md5_key(socket, whose.address, whose.prefix_len, &[])
            .map_err(|error| IoError::key(whose, 0, error))?;
        held.remove(&whose);
    }
    let count = wanted.keys().filter(|whose| of_ours(whose)).count();
    for (&whose, key) in wanted.iter().filter(|(whose, _)| of_ours(whose)) {
        if key.is_empty() {
            return Err(IoError::KeyLength { whose, octets: 0 });
        }
        if held.get(&whose) == Some(key) {
            continue;
        }
        set_md5_key(socket, whose.address, whose.prefix_len, key.as_bytes()).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENOMEM) => IoError::key_room(whose, held.len(), count),
                _ => IoError::key(whose, key.len(), error),
            }
        })?;
        held.insert(whose, key.clone());
    }
    Ok(())
}
