//! The guarded ports, and the users that may use them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use nix::unistd::User;
use serde::{Deserialize, Serialize};

use crate::limits::{PEERS_MAX, PEERS_SHOWN};

/// A daemon with guarded ports. Each has its own entries, so that two daemons of one host never
/// overwrite each other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// `cambric-bgp-client`.
    BgpClient,
    /// `cambric-route-reflector`.
    RouteReflector,
}

impl Holder {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::BgpClient, Self::RouteReflector];

    /// Returns the daemon's name without the suite's prefix.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BgpClient => "bgp-client",
            Self::RouteReflector => "route-reflector",
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The ports and peers that are guarded, and the users that may use them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// TCP ports, at either end of a connection.
    pub ports: BTreeSet<u16>,
    /// Peers with another port than the guarded ones: address and port of a destination.
    #[serde(default)]
    pub peers: BTreeSet<SocketAddr>,
    /// Numeric user ids.
    pub users: BTreeSet<u32>,
}

impl Cover {
    /// Adds peers, unless their port is already covered. Returns the number of peers beyond the
    /// table's limit.
    pub fn dial(&mut self, peers: impl IntoIterator<Item = SocketAddr>) -> usize {
        let ports = &self.ports;
        let bare = |peer: &SocketAddr| peer.port() == 0 || ports.contains(&peer.port());
        // An IPv4-mapped address is reached over IPv4.
        let sent = |peer: SocketAddr| SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let peers = peers.into_iter().filter(|peer| !bare(peer));
        self.peers.extend(peers.map(sent));
        let mut more = 0;
        while self.peers.len() > PEERS_MAX {
            self.peers.pop_last();
            more += 1;
        }
        more
    }

    /// Returns the peers of `wanted` that this cover lacks, as text.
    pub fn lacks_peers(&self, wanted: &Self) -> Option<String> {
        let peers = wanted.peers.difference(&self.peers);
        let peers: Vec<_> = peers
            .filter(|peer| !self.ports.contains(&peer.port()))
            .collect();
        (!peers.is_empty()).then(|| format!("it does not cover peer {}", some(&peers)))
    }

    /// Returns what this cover lacks of `wanted`, as text; `None` if it lacks nothing.
    pub fn lacks(&self, wanted: &Self) -> Option<String> {
        let ports: Vec<_> = wanted.ports.difference(&self.ports).collect();
        let users: Vec<_> = wanted.users.difference(&self.users).collect();
        match (ports.is_empty(), users.is_empty()) {
            (true, true) => self.lacks_peers(wanted),
            (false, _) => Some(format!("it does not cover port {}", list(ports))),
            (true, false) => Some(format!("it does not allow user id {}", list(users))),
        }
    }
}

impl fmt::Display for Cover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ports, users) = (list(&self.ports), list(&self.users));
        write!(f, "ports {ports}, ")?;
        if !self.peers.is_empty() {
            let peers: Vec<_> = self.peers.iter().collect();
            write!(f, "peers {}, ", some(&peers))?;
        }
        write!(f, "allowed user ids {users}")
    }
}

fn list<T: fmt::Display>(values: impl IntoIterator<Item = T>) -> String {
    let values = values.into_iter().map(|value| value.to_string());
    values.collect::<Vec<_>>().join(" ")
}

/// Returns the first of these peers, and the number of further ones.
fn some(peers: &[&SocketAddr]) -> String {
    let shown = list(peers.iter().take(PEERS_SHOWN));
    match peers.len().saturating_sub(PEERS_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The user of the packaged `cambric-bfd`.
const BFD_USER: &str = "cambric-bfd";

/// A user name that does not exist on the host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host has no user `{0}`")]
pub struct UnknownUser(String);

/// Returns the id of a user given by name, or by number.
///
/// # Errors
///
/// The host has no such user. A number need not belong to a user.
pub fn user_id(user: &str) -> Result<u32, UnknownUser> {
    if let Ok(id) = user.parse() {
        return Ok(id);
    }
    match User::from_name(user) {
        Ok(Some(found)) => Ok(found.uid.as_raw()),
        Ok(None) | Err(_) => Err(UnknownUser(user.to_owned())),
    }
}

/// Returns the users that may send BFD: root, and the user of `cambric-bfd` if the host has it.
pub(crate) fn bfd_users() -> BTreeSet<u32> {
    let user = user_id(BFD_USER).ok();
    user.into_iter().chain([0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        assert_eq!(user_id("root"), Ok(0));
        assert_eq!(user_id("4242"), Ok(4242));
        for unknown in ["", "-1", "4294967296", "no-such-user-here", "a\0b"] {
            let error = user_id(unknown).expect_err("no user");
            assert!(error.to_string().contains(unknown), "{error}");
        }
    }

    #[test]
    fn missing_ports_and_users_are_named() {
        let cover = |ports: &[u16], users: &[u32]| Cover {
            ports: ports.iter().copied().collect(),
            users: users.iter().copied().collect(),
            ..Cover::default()
        };
        let held = cover(&[179, 1790], &[0, 998]);
        assert_eq!(held.lacks(&cover(&[179], &[0])), None);
        let lacks = held.lacks(&cover(&[179, 180], &[0]));
        assert_eq!(lacks.as_deref(), Some("it does not cover port 180"));
        let lacks = held.lacks(&cover(&[179], &[0, 5]));
        assert_eq!(lacks.as_deref(), Some("it does not allow user id 5"));
    }

    fn peers(count: u16) -> impl Iterator<Item = SocketAddr> {
        (0..count).map(|port| SocketAddr::from(([10, 0, 0, 9], 1024 + port)))
    }

    #[test]
    fn peer_at_a_guarded_port_needs_no_entry() {
        let mut cover = Cover {
            ports: [179, 1024].into(),
            ..Cover::default()
        };
        assert_eq!(cover.dial(peers(2)), 0);
        let other = SocketAddr::from(([10, 0, 0, 9], 1025));
        assert_eq!(cover.peers, [other].into());
        let mut held = Cover::default();
        held.ports.extend([179, 1024, 1025]);
        assert_eq!(held.lacks(&cover), None, "the port is guarded");
        held.ports.remove(&1025);
        let lacks = held.lacks(&cover);
        assert_eq!(
            lacks.as_deref(),
            Some("it does not cover peer 10.0.0.9:1025")
        );
        held.peers.insert(other);
        assert_eq!(held.lacks(&cover), None);
    }

    #[test]
    fn peers_beyond_the_limit_are_counted() {
        let mut cover = Cover::default();
        let most = u16::try_from(PEERS_MAX).expect("fits");
        assert_eq!(cover.dial(peers(most)), 0);
        assert_eq!(cover.clone().dial(peers(most + 3)), 3);
        assert_eq!(cover.peers.len(), PEERS_MAX);
        let text = cover.to_string();
        assert!(text.ends_with("more, allowed user ids "), "{text}");
        assert!(text.len() < 400, "{text}");
    }
}
