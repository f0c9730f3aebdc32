//! Ports and users that the guard is about.

use std::collections::BTreeSet;
use std::fmt;

use nix::unistd::User;
use serde::{Deserialize, Serialize};

/// A daemon on whose behalf ports are guarded. Each has its own entries, so that two daemons of one
/// host never overwrite each other's.
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

    /// The daemon's name without the suite's.
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

/// The ports that are guarded, and the users that may use them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// TCP ports, at either end of a connection.
    pub ports: BTreeSet<u16>,
    /// Numeric user ids.
    pub users: BTreeSet<u32>,
}

impl Cover {
    /// Names what of `wanted` this cover lacks; `None` if it lacks nothing.
    pub fn lacks(&self, wanted: &Self) -> Option<String> {
        let ports: Vec<_> = wanted.ports.difference(&self.ports).collect();
        let users: Vec<_> = wanted.users.difference(&self.users).collect();
        match (ports.is_empty(), users.is_empty()) {
            (true, true) => None,
            (false, _) => Some(format!("it does not cover port {}", list(ports))),
            (true, false) => Some(format!("it does not allow user id {}", list(users))),
        }
    }
}

impl fmt::Display for Cover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ports, users) = (list(&self.ports), list(&self.users));
        write!(f, "ports {ports}, allowed user ids {users}")
    }
}

fn list<T: fmt::Display>(values: impl IntoIterator<Item = T>) -> String {
    let values = values.into_iter().map(|value| value.to_string());
    values.collect::<Vec<_>>().join(" ")
}

/// A user name that the host does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the host has no user `{0}`")]
pub struct UnknownUser(String);

/// The id of a user by name, or by number.
///
/// # Errors
///
/// The host has no such user. A number needs none.
pub fn user_id(user: &str) -> Result<u32, UnknownUser> {
    if let Ok(id) = user.parse() {
        return Ok(id);
    }
    match User::from_name(user) {
        Ok(Some(found)) => Ok(found.uid.as_raw()),
        Ok(None) | Err(_) => Err(UnknownUser(user.to_owned())),
    }
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
        };
        let held = cover(&[179, 1790], &[0, 998]);
        assert_eq!(held.lacks(&cover(&[179], &[0])), None);
        let lacks = held.lacks(&cover(&[179, 180], &[0]));
        assert_eq!(lacks.as_deref(), Some("it does not cover port 180"));
        let lacks = held.lacks(&cover(&[179], &[0, 5]));
        assert_eq!(lacks.as_deref(), Some("it does not allow user id 5"));
    }
}
