//! BFD: a set of sessions takes any sequence of operations, and packets of any arrival.

use std::net::{IpAddr, Ipv4Addr};

use bfd::{
    AddError, Arrival, ConcatenatedPath, Discriminator, Duration, Family, Hops, Instant, Path,
    Seeded, SessionConfig, Sessions, Step, limits::MEMBERS_FOR_EACH,
};

use crate::bfd::{changed, config, signed};
use crate::octets::Octets;

const SESSIONS_MAX: usize = 3;

/// Performs the operations that the octets select; checks the invariants after each.
pub fn bfd_sessions(data: &[u8]) {
    let mut octets = Octets(data);
    let mut rig = Rig {
        set: Sessions::new(Seeded::new(u64::from(octets.short())), SESSIONS_MAX),
        now: Instant::from_secs(100),
        ids: Vec::new(),
        last: Vec::new(),
    };
    for _ in 0..1000 {
        if octets.is_empty() {
            return;
        }
        rig.operate(&mut octets);
        rig.work();
        rig.check();
    }
}

struct Rig {
    set: Sessions<Seeded>,
    now: Instant,
    /// The sessions that are not removed.
    ids: Vec<Discriminator>,
    /// The last packet of any session.
    last: Vec<u8>,
}

/// One of a few addresses, in one of two forms.
fn address(octet: u8) -> IpAddr {
    let address = Ipv4Addr::new(10, 0, 0, octet % 3);
    match octet & 0x80 {
        0 => IpAddr::V4(address),
        _ => IpAddr::V6(address.to_ipv6_mapped()),
    }
}

fn path(octets: &mut Octets<'_>) -> Path {
    let (kind, remote) = (octets.octet(), address(octets.octet()));
    let interface = u32::from(kind >> 7);
    match kind % 3 {
        0 => Path::PointToPoint {
            interface,
            family: Family::of(remote),
        },
        1 => Path::SingleHop { interface, remote },
        _ => Path::Multihop {
            table: interface,
            local: address(0),
            remote,
            ttl_min: 250 + (kind >> 4) % 6,
        },
    }
}

/// The arrival of a packet of the remote system of a path, with some changes.
fn arrival(path: Option<Path>, now: Instant, octets: &mut Octets<'_>) -> Arrival {
    let change = octets.octet();
    let (hops, number, source) = match path {
        Some(Path::SingleHop { interface, remote }) => (Hops::Single, interface, remote),
        Some(Path::Multihop { table, remote, .. }) => (Hops::Multi, table, remote),
        Some(Path::PointToPoint { interface, .. }) => (Hops::Single, interface, address(2)),
        _ => (Hops::Single, 0, address(change)),
    };
    let ttl = if change & 1 == 0 { 255 } else { octets.octet() };
    let interface = number ^ u32::from(change & 2);
    Arrival::new(hops, interface, source, address(0), ttl).with(|arrival| {
        arrival.table = interface;
        if change & 4 != 0 {
            let before_ns = u64::from(octets.short()) * 1_000_000;
            arrival.arrived_at = Some(Instant(now.0.saturating_sub(before_ns)));
        }
    })
}

impl Rig {
    fn id(&self, octet: u8) -> Option<Discriminator> {
        let nth = usize::from(octet).checked_rem(self.ids.len())?;
        self.ids.get(nth).copied()
    }

    fn operate(&mut self, octets: &mut Octets<'_>) {
        let now = self.now;
        let kind = octets.octet() % 10;
        let id = self.id(octets.octet());
        match (kind, id) {
            (0 | 1, _) => self.add(octets),
            (2..=4, _) => self.receive(id, octets),
            (5, Some(id)) => {
                let change = self.set.remove(now, id);
                assert!(change.is_some(), "a known session is removed");
                self.ids.retain(|known| *known != id);
            }
            (6, Some(id)) => {
                let _change = match octets.flag() {
                    true => self.set.enable(now, id),
                    false => self.set.disable(now, id),
                };
            }
            (7, Some(id)) => {
                self.set.hold_down(id, octets.flag());
                self.set.signal(now, id, ConcatenatedPath::DownForward);
                let configured = self.set.configure(now, id, config(octets));
                assert_eq!(configured, Ok(true));
            }
            (8, Some(id)) => self.upgrade(id),
            _ => self.now += Duration::from_millis(octets.short().into()),
        }
    }

    fn add(&mut self, octets: &mut Octets<'_>) {
        let path = path(octets);
        let config = match octets.flag() {
            true => config(octets),
            false => SessionConfig::default(),
        };
        match self.set.add(self.now, path, config) {
            Ok(id) => {
                assert!(!self.ids.contains(&id));
                self.ids.push(id);
            }
            Err(AddError::PathInUse(id)) => assert!(self.ids.contains(&id)),
            Err(error) => assert_eq!(error, AddError::Full(SESSIONS_MAX)),
        }
    }

    fn receive(&mut self, id: Option<Discriminator>, octets: &mut Octets<'_>) {
        let path = id.and_then(|id| self.set.path(id));
        let arrival = arrival(path, self.now, octets);
        let yours = id.filter(|_| octets.flag()).map(Discriminator::get);
        let mut payload = changed(&self.last, yours, octets);
        if let Some(session) = id.and_then(|id| self.set.get(id)) {
            payload = signed(payload, session.config(), octets);
        }
        if let Ok((id, Some(_))) = self.set.receive(self.now, &arrival, &payload) {
            assert!(self.ids.contains(&id), "a removed session has no changes");
        }
    }

    /// Moves a session to another set and back.
    fn upgrade(&mut self, id: Discriminator) {
        let (Some(session), Some(path)) = (self.set.get(id), self.set.path(id)) else {
            panic!("a known session");
        };
        let snapshot = session.snapshot(self.now);
        let config = session.config().clone();
        let mut other = Sessions::new(Seeded::new(1), 1);
        let restored = other.restore(self.now, path, config.clone(), &snapshot);
        assert_eq!(restored, Ok(id));
        let again = self.set.restore(self.now, path, config, &snapshot);
        let used = [AddError::PathInUse(id), AddError::DiscriminatorInUse(id)];
        assert!(again.is_err_and(|error| used.contains(&error)));
    }

    /// Does all that is due.
    fn work(&mut self) {
        for _ in 0..8 * MEMBERS_FOR_EACH * SESSIONS_MAX {
            match self.set.step(self.now) {
                None => return,
                Some(Step::Send { packet, .. }) => self.last = packet.octets().to_vec(),
                Some(Step::Changed { id, .. }) => assert!(self.ids.contains(&id)),
            }
        }
        panic!("work that is done stays due");
    }

    fn check(&self) {
        let next = self.set.poll_timeout();
        assert!(next.is_none_or(|next| next > self.now));
        assert!(self.set.len() <= MEMBERS_FOR_EACH * SESSIONS_MAX);
        assert_eq!(self.set.iter().count(), self.ids.len());
        for (session, path) in self.set.iter() {
            let found = self.set.find(path);
            let id = session.local_discriminator();
            assert_eq!(found.map(bfd::Session::local_discriminator), Some(id));
        }
    }
}
