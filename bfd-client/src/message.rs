//! The messages, and their form in octets.

use std::fmt;
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::limits::{
    AUTH_KEY_OCTETS_MAX, AUTH_KEYS_MAX, INTERVAL_MS_MAX, MESSAGE_OCTETS_MAX, NAME_OCTETS_MAX,
    VERSION,
};

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The first message. A client with the user and the name of an earlier one continues its sessions.
    Hello {
        /// [`VERSION`] of the client.
        version: u32,
        /// The name of the client.
        name: String,
    },
    /// Makes the session with this remote system, or changes it.
    Set(Wanted),
    /// Ends the session with this remote system in AdminDown.
    Remove {
        /// The address of the remote system.
        remote: IpAddr,
    },
}

/// A session that a client wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// The address of the remote system.
    pub remote: IpAddr,
    /// The local address; the kernel's choice if absent.
    pub local: Option<IpAddr>,
    /// Whether the path crosses routers.
    pub hops: Hops,
    /// The interval of sent packets, in milliseconds.
    pub interval_ms: u32,
    /// The shortest interval of received packets, in milliseconds. The daemon raises it to its own limit.
    pub receive_ms: u32,
    /// The interval of sent packets while the session is not up, in milliseconds; at least a second
    /// (RFC 5880 §6.8.3).
    pub idle_ms: u32,
    /// The packets that may be missing.
    pub multiplier: u8,
    /// The least time to live of packets over routers.
    pub ttl_min: u8,
    /// The authentication, if any.
    pub auth: Option<Auth>,
}

/// The authentication of a session: the first key signs, and all are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// The type: the code of RFC 5880 §4.1, from 1 to 5.
    pub kind: u8,
    /// The keys, 1 to [`AUTH_KEYS_MAX`].
    pub keys: Vec<AuthKey>,
}

/// A key of a session. Its `Debug` does not have the key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthKey {
    /// The number in the field Auth Key ID.
    pub id: u8,
    /// The password or key, 1 to [`AUTH_KEY_OCTETS_MAX`] octets.
    pub secret: String,
}

impl fmt::Debug for AuthKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthKey({}, hidden)", self.id)
    }
}

/// Whether the path of a session crosses routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hops {
    /// A single hop if the remote system is in a subnet of the host, otherwise over routers.
    #[default]
    Auto,
    /// A single hop (RFC 5881).
    Single,
    /// Over routers (RFC 5883).
    Multi,
}

/// A message of `cambric-bfd`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// Answers [`Request::Hello`].
    Welcome(Welcome),
    /// The state of a session, after it was set and after each change.
    State(SessionState),
    /// A request was rejected: the session with this remote system, or the client as a whole.
    Rejected {
        /// The address of the remote system; absent if the connection ends.
        remote: Option<IpAddr>,
        /// The reason.
        reason: String,
    },
}

/// The limits of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Welcome {
    /// [`VERSION`] of `cambric-bfd`.
    pub version: u32,
    /// The most sessions.
    pub sessions_max: u32,
    /// The shortest interval, in milliseconds.
    pub interval_ms_min: u32,
    /// The most packets that its sessions may send in a second.
    pub packets_per_second_max: u32,
    /// How long its sessions continue without it, in seconds.
    pub grace_s: u32,
}

/// The state of a session of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionState {
    /// The address of the remote system.
    pub remote: IpAddr,
    /// The state of the session.
    pub state: State,
    /// The result for the client.
    pub liveness: Liveness,
    /// The failures since the last such message about this session, also those before the client
    /// connected again.
    pub failures: u64,
    /// The reason for the last failure, in words.
    pub diagnostic: String,
    /// The C bit of the last received packet (RFC 5882 §4.3.2).
    pub control_plane_independent: bool,
    /// The interface of a path over a single hop.
    pub interface: Option<String>,
    /// Why there is no session on the path now.
    pub problem: Option<String>,
}

/// The state of a session (RFC 5880 §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Disabled.
    AdminDown,
    /// Down.
    Down,
    /// The remote system was received.
    Init,
    /// Both systems receive each other.
    Up,
}

/// The result of a session for a client (RFC 5882). Only [`Liveness::Failed`] is a reason to act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Liveness {
    /// The session was not Up yet: the remote system may not use BFD.
    #[default]
    Unknown,
    /// The session is Up.
    Alive,
    /// The session was Up, and has failed.
    Failed,
    /// The local operator has disabled the session.
    DisabledHere,
    /// The remote operator has disabled the session.
    DisabledThere,
}

/// A reason to reject a message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// It has more octets than a message may have.
    #[error("a message has at most {MESSAGE_OCTETS_MAX} octets")]
    Length,
    /// It is not JSON, or has other fields.
    #[error("not a message: {0}")]
    Form(#[from] serde_json::Error),
    /// A value is not allowed.
    #[error("{0}")]
    Value(&'static str),
}

impl Request {
    /// Returns the first message of a client.
    #[must_use]
    pub fn hello(name: &str) -> Self {
        Self::Hello {
            version: VERSION,
            name: name.to_owned(),
        }
    }

    /// Decodes a message of a client, and checks its values.
    ///
    /// # Errors
    ///
    /// It is no message of this protocol, or a value is not allowed.
    pub fn read(octets: &[u8]) -> Result<Self, MessageError> {
        let request: Self = decode(octets)?;
        match &request {
            Self::Hello { name, .. } => check_name(name)?,
            Self::Set(wanted) => wanted.check()?,
            Self::Remove { .. } => {}
        }
        Ok(request)
    }
}

fn check_name(name: &str) -> Result<(), MessageError> {
    let is_plain = name.bytes().all(|octet| octet.is_ascii_graphic());
    match is_plain && (1..=NAME_OCTETS_MAX).contains(&name.len()) {
        true => Ok(()),
        false => Err(MessageError::Value(
            "the name of a client has 1 to 64 printable characters without spaces",
        )),
    }
}

impl Wanted {
    /// Checks the values that do not depend on the limits of a client.
    fn check(&self) -> Result<(), MessageError> {
        let is_usable = |address: IpAddr| !address.is_unspecified() && !address.is_multicast();
        if !is_usable(self.remote) || !self.local.is_none_or(is_usable) {
            return Err(MessageError::Value("an address is not a unicast address"));
        }
        if self
            .local
            .is_some_and(|local| local.is_ipv4() != self.remote.is_ipv4())
        {
            return Err(MessageError::Value("the addresses are of two IP versions"));
        }
        let intervals = [self.interval_ms, self.receive_ms, self.idle_ms];
        if !intervals
            .iter()
            .all(|one| (1..=INTERVAL_MS_MAX).contains(one))
        {
            return Err(MessageError::Value("an interval has 1 to 60000 ms"));
        }
        if self.multiplier == 0 {
            return Err(MessageError::Value("the multiplier is at least 1"));
        }
        let is_valid = |auth: &Auth| {
            let lengths = 1..=AUTH_KEY_OCTETS_MAX;
            (1..=AUTH_KEYS_MAX).contains(&auth.keys.len())
                && auth
                    .keys
                    .iter()
                    .all(|key| lengths.contains(&key.secret.len()))
        };
        if !self.auth.as_ref().is_none_or(is_valid) {
            return Err(MessageError::Value(
                "an authentication has 1 to 8 keys of 1 to 20 octets",
            ));
        }
        Ok(())
    }
}

/// Encodes a message.
///
/// # Errors
///
/// It is longer than a message may be.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, MessageError> {
    let octets = serde_json::to_vec(message)?;
    match octets.len() <= MESSAGE_OCTETS_MAX {
        true => Ok(octets),
        false => Err(MessageError::Length),
    }
}

/// Decodes a message.
///
/// # Errors
///
/// It is too long, is not JSON, or has other fields.
pub fn decode<T: DeserializeOwned>(octets: &[u8]) -> Result<T, MessageError> {
    if octets.len() > MESSAGE_OCTETS_MAX {
        return Err(MessageError::Length);
    }
    Ok(serde_json::from_slice(octets)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::IDLE_MS;

    fn wanted() -> Wanted {
        Wanted {
            remote: "10.0.0.2".parse().expect("an address"),
            local: None,
            hops: Hops::Auto,
            interval_ms: 300,
            receive_ms: 300,
            idle_ms: IDLE_MS,
            multiplier: 3,
            ttl_min: 254,
            auth: None,
        }
    }

    fn auth(keys: usize, octets: usize) -> Auth {
        let key = AuthKey {
            id: 7,
            secret: "\u{1}".repeat(octets),
        };
        Auth {
            kind: 5,
            keys: vec![key; keys],
        }
    }

    #[test]
    fn longest_keys_fit_in_a_message_and_are_not_shown() {
        let mut wanted = wanted();
        wanted.auth = Some(auth(AUTH_KEYS_MAX, AUTH_KEY_OCTETS_MAX));
        let request = Request::Set(wanted);
        assert_eq!(read(&request).expect("valid"), request);
        let shown = format!("{request:?}");
        assert!(
            !shown.contains("\\u{1}") && shown.contains("hidden"),
            "{shown}"
        );
    }

    fn read(request: &Request) -> Result<Request, MessageError> {
        Request::read(&encode(request).expect("short"))
    }

    #[test]
    fn requests_are_written_and_read() {
        let remote = wanted().remote;
        for request in [
            Request::hello("cambric-bgp-client"),
            Request::Set(wanted()),
            Request::Remove { remote },
        ] {
            assert_eq!(read(&request).expect("valid"), request);
        }
        let written = encode(&Request::Remove { remote }).expect("short");
        assert_eq!(written, br#"{"remove":{"remote":"10.0.0.2"}}"#);
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        let with = |change: fn(&mut Wanted)| {
            let mut wanted = wanted();
            change(&mut wanted);
            read(&Request::Set(wanted))
        };
        assert!(with(|_| ()).is_ok());
        for change in [
            (|wanted| wanted.interval_ms = 0) as fn(&mut Wanted),
            |wanted| wanted.interval_ms = INTERVAL_MS_MAX + 1,
            |wanted| wanted.receive_ms = 0,
            |wanted| wanted.idle_ms = INTERVAL_MS_MAX + 1,
            |wanted| wanted.multiplier = 0,
            |wanted| wanted.auth = Some(auth(0, 1)),
            |wanted| wanted.auth = Some(auth(AUTH_KEYS_MAX + 1, 1)),
            |wanted| wanted.auth = Some(auth(1, 0)),
            |wanted| wanted.auth = Some(auth(1, AUTH_KEY_OCTETS_MAX + 1)),
            |wanted| wanted.remote = [224, 0, 0, 1].into(),
            |wanted| wanted.local = Some([0, 0, 0, 0].into()),
            |wanted| wanted.local = "2001:db8::1".parse().ok(),
        ] {
            assert!(matches!(with(change), Err(MessageError::Value(_))));
        }
        for name in ["", "a b", &"n".repeat(NAME_OCTETS_MAX + 1)] {
            assert!(read(&Request::hello(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn unknown_fields_and_long_messages_are_rejected() {
        let unknown = br#"{"remove":{"remote":"10.0.0.2","now":true}}"#;
        assert!(matches!(Request::read(unknown), Err(MessageError::Form(_))));
        let long = vec![b' '; MESSAGE_OCTETS_MAX + 1];
        assert!(matches!(Request::read(&long), Err(MessageError::Length)));
    }

    proptest! {
        #[test]
        fn any_octets_are_a_request_or_an_error(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::read(&octets);
            let _ = decode::<Notice>(&octets);
        }
    }
}
