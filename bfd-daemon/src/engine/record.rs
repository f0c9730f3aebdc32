//! The records in which the state of an engine outlives its process, and their form in octets.

use std::net::IpAddr;
use std::num::NonZeroU8;

use bfd::{Authentication, Discriminator, Instant, Path, Snapshot, SnapshotError};
use bfd_client::limits::AUTH_KEYS_MAX;
use bfd_client::{Auth, AuthKey, Hops, Wanted};

use super::{Identity, auth};
use crate::limits::{NAME_OCTETS_MAX, RECORD_OCTETS_MAX};
use crate::resolve::Way;

/// The subject of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A session, by its local discriminator.
    Session(Discriminator),
    /// The wish of a client for the session with a remote system.
    Entry(Identity, IpAddr),
}

/// The state of one subject.
#[derive(Clone, Debug)]
pub enum Record {
    /// A session.
    Session(Box<SessionRecord>),
    /// The wish of a client.
    Entry(EntryRecord),
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    /// The time of the snapshot, since the start of the system.
    pub saved_at: Instant,
    /// The variables of the session.
    pub snapshot: Snapshot,
    /// Its path and addresses.
    pub way: Way,
    /// The source port of its packets, if it has one of its own.
    pub port: Option<u16>,
    /// Whether it was removed, and only sends AdminDown.
    pub is_leaving: bool,
    /// The configured intervals, in microseconds: of sent packets, of those of a session that is not up,
    /// and of received packets.
    pub intervals_us: [u32; 3],
    /// The configured multiplier.
    pub multiplier: NonZeroU8,
    /// The configured authentication.
    pub authentication: Option<Authentication>,
}

/// The wish of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRecord {
    /// The client.
    pub identity: Identity,
    /// The wanted session.
    pub wanted: Wanted,
    /// Its session, if there is one.
    pub id: Option<Discriminator>,
    /// Whether another user decides on this session.
    pub follows: bool,
    /// Failures that the client was not sent yet.
    pub failures: u64,
    /// When the session ends without its client, since the start of the system.
    pub expires: Option<Instant>,
}

/// A reason to reject a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It is truncated, or has octets after its end.
    #[error("a record is truncated, or has octets after its end")]
    Length,
    /// A field has a value that is not defined.
    #[error("a record has an undefined value in the field {0}")]
    Value(&'static str),
    /// The snapshot of a session is invalid.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

const SESSION: u8 = 1;
const ENTRY: u8 = 2;
const SINGLE_HOP: u8 = 1;
const MULTIHOP: u8 = 2;

impl Record {
    /// Returns the subject of the record.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Session(session) => Key::Session(session.snapshot.local_discriminator()),
            Self::Entry(entry) => Key::Entry(entry.identity.clone(), entry.wanted.remote),
        }
    }

    /// Encodes the record; `None` if it has no form in octets, or a longer one than records may have.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(RECORD_OCTETS_MAX);
        match self {
            Self::Session(session) => session.write(&mut out)?,
            Self::Entry(entry) => entry.write(&mut out)?,
        }
        (out.len() <= RECORD_OCTETS_MAX).then_some(out)
    }

    /// Decodes a record.
    ///
    /// # Errors
    ///
    /// The octets are no record of this version.
    pub fn decode(octets: &[u8]) -> Result<Self, RecordError> {
        let mut from = Reader(octets);
        let record = match from.octet()? {
            SESSION => Self::Session(Box::new(SessionRecord::read(&mut from)?)),
            ENTRY => Self::Entry(EntryRecord::read(&mut from)?),
            _ => return Err(RecordError::Value("kind")),
        };
        match from.0.is_empty() {
            true => Ok(record),
            false => Err(RecordError::Length),
        }
    }
}

impl SessionRecord {
    fn write(&self, out: &mut Vec<u8>) -> Option<()> {
        out.push(SESSION);
        out.extend(self.saved_at.0.to_be_bytes());
        match self.way.path {
            Path::SingleHop { .. } => out.extend([SINGLE_HOP, 0]),
            Path::Multihop { ttl_min, .. } => out.extend([MULTIHOP, ttl_min]),
            // No session of this daemon has another path.
            _ => return None,
        }
        address(out, self.way.local);
        address(out, self.way.remote);
        out.extend(self.way.interface.to_be_bytes());
        out.extend(self.port.unwrap_or(0).to_be_bytes());
        out.push(self.is_leaving.into());
        intervals(out, self.intervals_us);
        out.push(self.multiplier.get());
        let auth = self.authentication.as_ref();
        let kind = auth.map_or(0, |auth| auth.auth_type().code());
        let keys = auth.into_iter().flat_map(Authentication::keys);
        let keys: Vec<(u8, &[u8])> = keys.map(|key| (key.id, key.secret.octets())).collect();
        write_keys(out, kind, &keys)?;
        out.extend(self.snapshot.encode());
        Some(())
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RecordError> {
        let saved_at = Instant(from.number()?);
        let [kind, ttl_min] = from.take()?;
        let (local, remote) = (from.address()?, from.address()?);
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(RecordError::Value("addresses"));
        }
        let interface = u32::from_be_bytes(from.take()?);
        let path = match (kind, ttl_min) {
            (SINGLE_HOP, 0) => Path::SingleHop { interface, remote },
            (MULTIHOP, _) => Path::Multihop {
                table: 0,
                local,
                remote,
                ttl_min,
            },
            _ => return Err(RecordError::Value("path")),
        };
        let port = u16::from_be_bytes(from.take()?);
        let is_leaving = from.flag()?;
        let intervals_us = from.intervals()?;
        let multiplier = NonZeroU8::new(from.octet()?).ok_or(RecordError::Value("multiplier"))?;
        let auth = from.auth()?.as_ref().map(auth::of).transpose();
        let authentication = auth.map_err(|_| RecordError::Value("authentication"))?;
        let snapshot = Snapshot::decode(std::mem::take(&mut from.0))?;
        Ok(Self {
            saved_at,
            snapshot,
            way: Way {
                path,
                local,
                remote,
                interface,
            },
            port: (port != 0).then_some(port),
            is_leaving,
            intervals_us,
            multiplier,
            authentication,
        })
    }
}

impl EntryRecord {
    fn write(&self, out: &mut Vec<u8>) -> Option<()> {
        out.push(ENTRY);
        out.extend(self.identity.uid.to_be_bytes());
        out.push(self.identity.name.len().try_into().ok()?);
        out.extend(self.identity.name.as_bytes());
        let wanted = &self.wanted;
        address(out, wanted.remote);
        out.push(wanted.local.is_some().into());
        if let Some(local) = wanted.local {
            address(out, local);
        }
        out.push(match wanted.hops {
            Hops::Auto => 0,
            Hops::Single => 1,
            Hops::Multi => 2,
        });
        intervals(out, [wanted.interval_ms, wanted.idle_ms, wanted.receive_ms]);
        out.extend([wanted.multiplier, wanted.ttl_min]);
        let auth = wanted.auth.as_ref();
        let keys = auth.into_iter().flat_map(|auth| &auth.keys);
        let keys: Vec<(u8, &[u8])> = keys.map(|key| (key.id, key.secret.as_bytes())).collect();
        write_keys(out, auth.map_or(0, |auth| auth.kind), &keys)?;
        out.extend(self.id.map_or(0, Discriminator::get).to_be_bytes());
        out.extend(self.failures.to_be_bytes());
        out.push(u8::from(self.expires.is_some()) | u8::from(self.follows) << 1);
        out.extend(self.expires.map_or(0, |at| at.0).to_be_bytes());
        Some(())
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, RecordError> {
        let uid = u32::from_be_bytes(from.take()?);
        let length = usize::from(from.octet()?);
        let name = from.octets(length)?;
        let name = std::str::from_utf8(name).map_err(|_| RecordError::Value("name"))?;
        if !(1..=NAME_OCTETS_MAX).contains(&length) {
            return Err(RecordError::Value("name"));
        }
        let remote = from.address()?;
        let local = match from.flag()? {
            true => Some(from.address()?),
            false => None,
        };
        let hops = match from.octet()? {
            0 => Hops::Auto,
            1 => Hops::Single,
            2 => Hops::Multi,
            _ => return Err(RecordError::Value("hops")),
        };
        let [interval_ms, idle_ms, receive_ms] = from.intervals()?;
        let [multiplier, ttl_min] = from.take()?;
        if [interval_ms, idle_ms, receive_ms].contains(&0) || multiplier == 0 {
            return Err(RecordError::Value("interval"));
        }
        let auth = from.auth()?;
        let id = Discriminator::new(u32::from_be_bytes(from.take()?));
        let failures = from.number()?;
        let flags = from.octet()?;
        if flags > 3 {
            return Err(RecordError::Value("flags"));
        }
        let (expires, follows) = (flags & 1 != 0, flags & 2 != 0);
        let at = Instant(from.number()?);
        Ok(Self {
            identity: Identity {
                uid,
                name: name.to_owned(),
            },
            wanted: Wanted {
                remote,
                local,
                hops,
                interval_ms,
                receive_ms,
                idle_ms,
                multiplier,
                ttl_min,
                auth,
            },
            id,
            follows,
            failures,
            expires: expires.then_some(at),
        })
    }
}

fn address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            out.push(4);
            out.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(6);
            out.extend(v6.octets());
        }
    }
}

/// Writes the type of an authentication, 0 for none, and its keys.
fn write_keys(out: &mut Vec<u8>, kind: u8, keys: &[(u8, &[u8])]) -> Option<()> {
    out.extend([kind, keys.len().try_into().ok()?]);
    for (id, secret) in keys {
        out.extend([*id, secret.len().try_into().ok()?]);
        out.extend(*secret);
    }
    Some(())
}

fn intervals(out: &mut Vec<u8>, intervals: [u32; 3]) {
    out.extend(intervals.iter().flat_map(|one| one.to_be_bytes()));
}

/// The rest of an encoded record.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (octets, rest) = self.0.split_first_chunk().ok_or(RecordError::Length)?;
        self.0 = rest;
        Ok(*octets)
    }

    fn octets(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let (octets, rest) = self.0.split_at_checked(length).ok_or(RecordError::Length)?;
        self.0 = rest;
        Ok(octets)
    }

    fn octet(&mut self) -> Result<u8, RecordError> {
        self.take().map(|[octet]| octet)
    }

    fn number(&mut self) -> Result<u64, RecordError> {
        self.take().map(u64::from_be_bytes)
    }

    fn auth(&mut self) -> Result<Option<Auth>, RecordError> {
        let [kind, count] = self.take()?;
        if usize::from(count) > AUTH_KEYS_MAX || (kind == 0) != (count == 0) {
            return Err(RecordError::Value("authentication"));
        }
        let mut keys = Vec::new();
        for _ in 0..count {
            let [id, length] = self.take()?;
            let secret = str::from_utf8(self.octets(length.into())?);
            let secret = secret.map_err(|_| RecordError::Value("key"))?.to_owned();
            keys.push(AuthKey { id, secret });
        }
        Ok((count > 0).then_some(Auth { kind, keys }))
    }

    fn intervals(&mut self) -> Result<[u32; 3], RecordError> {
        let mut next = || self.take().map(u32::from_be_bytes);
        Ok([next()?, next()?, next()?])
    }

    fn flag(&mut self) -> Result<bool, RecordError> {
        match self.octet()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(RecordError::Value("flag")),
        }
    }

    fn address(&mut self) -> Result<IpAddr, RecordError> {
        match self.octet()? {
            4 => Ok(IpAddr::from(self.take::<4>()?)),
            6 => Ok(IpAddr::from(self.take::<16>()?)),
            _ => Err(RecordError::Value("address")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bfd::{Seeded, Session, SessionConfig};
    use bfd_client::limits::{AUTH_KEY_OCTETS_MAX, IDLE_MS};
    use proptest::prelude::*;

    use super::*;

    fn session(path: Path) -> Record {
        let id = Discriminator::new(7).expect("not zero");
        let config = SessionConfig::default();
        let session = Session::new(Instant::ZERO, config, id, &mut Seeded::new(1));
        let now = Instant::ZERO + Duration::from_millis(5);
        let (local, remote) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        Record::Session(Box::new(SessionRecord {
            saved_at: now,
            snapshot: session.expect("valid").snapshot(now),
            way: Way {
                path,
                local,
                remote,
                interface: 7,
            },
            port: Some(50_000),
            is_leaving: false,
            intervals_us: [100_000, 1_000_000, 300_000],
            authentication: Some(auth::of(&longest()).expect("valid")),
            multiplier: NonZeroU8::MIN,
        }))
    }

    /// The longest authentication.
    fn longest() -> Auth {
        let key = |id| AuthKey {
            id,
            secret: "k".repeat(AUTH_KEY_OCTETS_MAX),
        };
        Auth {
            kind: 5,
            keys: (0..AUTH_KEYS_MAX as u8).map(key).collect(),
        }
    }

    fn entry(local: Option<IpAddr>) -> EntryRecord {
        EntryRecord {
            identity: Identity {
                uid: 9,
                name: "n".repeat(NAME_OCTETS_MAX),
            },
            wanted: Wanted {
                remote: "2001:db8::2".parse().expect("an address"),
                local,
                hops: Hops::Multi,
                interval_ms: 300,
                receive_ms: 300,
                idle_ms: IDLE_MS,
                multiplier: 3,
                ttl_min: 254,
                auth: local.map(|_| longest()),
            },
            id: Discriminator::new(7),
            follows: true,
            failures: 2,
            expires: Some(Instant::from_secs(9)),
        }
    }

    #[test]
    fn records_are_written_and_read() {
        let (local, remote) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let single = Path::SingleHop {
            interface: 7,
            remote,
        };
        let multi = Path::Multihop {
            table: 0,
            local,
            remote,
            ttl_min: 250,
        };
        for path in [single, multi] {
            let octets = session(path).encode().expect("short");
            let Ok(Record::Session(read)) = Record::decode(&octets) else {
                panic!("no session");
            };
            assert_eq!((read.way.path, read.port), (path, Some(50_000)));
            assert_eq!(Record::Session(read).encode().as_ref(), Some(&octets));
        }
        for local in [None, "2001:db8::1".parse().ok()] {
            let octets = Record::Entry(entry(local)).encode().expect("short");
            let Ok(Record::Entry(read)) = Record::decode(&octets) else {
                panic!("no entry");
            };
            assert_eq!(read, entry(local));
        }
    }

    #[test]
    fn snapshot_of_another_version_is_rejected() {
        let remote = [10, 0, 0, 2].into();
        let path = Path::SingleHop {
            interface: 7,
            remote,
        };
        let mut octets = session(path).encode().expect("short");
        let Record::Session(read) = Record::decode(&octets).expect("a record") else {
            panic!("no session");
        };
        let at = octets.len() - read.snapshot.encode().len();
        octets[at] = 77;
        let error = Record::decode(&octets).expect_err("another version");
        assert_eq!(error, RecordError::Snapshot(SnapshotError::Version(77)));
    }

    proptest! {
        #[test]
        fn any_octets_are_a_record_or_an_error(
            kind in 0..4u8,
            octets in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let octets: Vec<u8> = [kind].into_iter().chain(octets).collect();
            if let Ok(record) = Record::decode(&octets) {
                let _ = record.encode();
            }
        }
    }
}
