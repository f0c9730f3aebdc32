//! The process of BFD of a machine: the shipped engine, with a simulated socket, and with the memory that
//! survives the process.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use bfd::{Arrival, Encoded, Instant, Path, Seeded, State};
use bfd_client::Wanted;
use cambric_bfd::limits::STOP_MAX;
use cambric_bfd::{Engine, Identity, Key, Limits, Outgoing, Record, Resolve, Way};

use crate::agenda::{At, Daemon, Event};
use crate::limits::{INBOX_MAX, TURN_GAP};
use crate::machine::Slot;
use crate::time::nanos;
use crate::world::{Cx, World};

/// The number of the only link of a machine.
const LINK: u32 = 2;

/// The time to live of packets on a link.
const TTL: u8 = 255;

/// A packet of BFD on its way.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    from: At,
    to: At,
    arrival: Arrival,
    payload: Encoded,
}

/// The parts of a machine that BFD has.
#[derive(Default)]
pub(crate) struct Monitor {
    pub(crate) slot: Slot<Bfd>,
    /// The records in the memory that the keeper stores.
    memory: BTreeMap<Key, Vec<u8>>,
    /// The packets in the receiving socket that the keeper stores.
    inbox: VecDeque<Packet>,
    /// When the process that was asked to end has sent its last packet: the next one starts later.
    pub(crate) ends_at: u64,
    /// Whether there is a keeper that stores them without the process.
    is_kept: bool,
    /// The failures that the BGP daemon has received.
    pub(crate) failures: u64,
}

/// The running process.
pub(crate) struct Bfd {
    at: At,
    engine: Engine<Seeded>,
    link: Link,
    /// Whether the sessions of a client end with it: a planted fault.
    ends_with_client: bool,
}

/// The paths of a machine: all others are on its link.
#[derive(Debug)]
struct Link(IpAddr);

impl Resolve for Link {
    fn way(&self, wanted: &Wanted) -> Result<Way, String> {
        Ok(Way {
            path: Path::SingleHop {
                interface: LINK,
                remote: wanted.remote,
            },
            local: wanted.local.unwrap_or(self.0),
            remote: wanted.remote,
            interface: LINK,
        })
    }

    fn interface(&self, number: u32) -> Option<String> {
        (number == LINK).then(|| "up0".to_owned())
    }
}

/// Returns the identity of the BGP daemon.
pub(crate) fn client() -> Identity {
    Identity {
        uid: 0,
        name: "bgp".to_owned(),
    }
}

impl Monitor {
    /// Starts the process, with the state of an earlier one if it was kept.
    pub(crate) fn start(&mut self, now: u64, at: At, address: IpAddr, seed: u64) {
        self.slot.life += 1;
        let mut engine = Engine::new(Seeded::new(seed), Limits::default());
        engine.remember(true);
        let records = self.memory.values().map(|octets| Record::decode(octets));
        let records: Vec<Record> = records.filter_map(Result::ok).collect();
        engine.restore(Instant(now), records);
        self.is_kept = true;
        self.slot.run = Some(Bfd {
            at,
            engine,
            link: Link(address),
            ends_with_client: false,
        });
    }

    /// Plants the fault that sessions end with their client.
    pub(crate) fn end_with_client(&mut self) {
        if let Some(bfd) = &mut self.slot.run {
            bfd.ends_with_client = true;
        }
    }

    /// Forgets what the keeper stores: there is none any more.
    pub(crate) fn forget(&mut self) {
        self.memory.clear();
        self.inbox.clear();
        self.is_kept = false;
    }

    /// Ends the process in order: the sessions of all clients end in AdminDown.
    pub(crate) fn leave(&mut self, cx: &mut Cx<'_>) {
        let Some(mut bfd) = self.slot.kill() else {
            return;
        };
        let end = Instant(cx.now) + STOP_MAX;
        let mut now = Instant(cx.now);
        bfd.engine.stop(now);
        while !bfd.engine.is_empty() && now < end {
            while let Some(outgoing) = bfd.engine.step(now) {
                bfd.send(cx, now.0, &outgoing);
            }
            let next = bfd.engine.poll_timeout().unwrap_or(end);
            now = next.max(now + TURN_GAP);
        }
        self.ends_at = now.0;
        self.forget();
    }

    /// Performs the pending work, as the daemon does in each turn. Returns when the next turn is due.
    pub(crate) fn turn(&mut self, cx: &mut Cx<'_>) -> Option<u64> {
        let bfd = self.slot.run.as_mut()?;
        let now = Instant(cx.now);
        for packet in self.inbox.drain(..) {
            // The engine counts what it discards.
            let _ = bfd
                .engine
                .receive(now, &packet.arrival, packet.payload.octets());
        }
        let is_due = bfd.engine.resolve_at().is_some_and(|at| at <= now);
        if is_due && bfd.engine.retry(now, &bfd.link) {
            bfd.engine.resolve_again(now, &bfd.link);
        }
        while let Some(outgoing) = bfd.engine.step(now) {
            bfd.save(now, &mut self.memory);
            bfd.send(cx, cx.now, &outgoing);
        }
        bfd.save(now, &mut self.memory);
        if bfd.engine.unreported(&client()).is_some() {
            cx.wake(bfd.at, Daemon::Bgp);
        }
        let times = [bfd.engine.poll_timeout(), bfd.engine.resolve_at()];
        times.into_iter().flatten().min().map(|at| at.0)
    }

    /// Notes that the BGP daemon has ended. `for_good`: it has removed its sessions before.
    pub(crate) fn client_ended(&mut self, now: u64, for_good: bool) {
        let Some(bfd) = &mut self.slot.run else {
            return;
        };
        if for_good || bfd.ends_with_client {
            bfd.remove_all(Instant(now));
        }
        bfd.engine.detach(Instant(now), &client());
    }

    /// Returns whether all of its sessions, and at least so many, are up.
    pub(crate) fn has_up(&self, least: usize) -> bool {
        let Some(bfd) = &self.slot.run else {
            return false;
        };
        let states = bfd.engine.views().map(|view| view.session);
        let states: Vec<_> = states.collect();
        let is_up = |found: &Option<(Way, &bfd::Session)>| {
            found.is_some_and(|(_, session)| session.state() == State::Up)
        };
        states.len() >= least && states.iter().all(is_up)
    }
}

impl Bfd {
    pub(crate) const fn engine(&mut self) -> &mut Engine<Seeded> {
        &mut self.engine
    }

    /// Makes or changes a session of the BGP daemon.
    pub(crate) fn set(&mut self, now: u64, wanted: &Wanted) -> Result<(), String> {
        self.engine.set(Instant(now), &client(), wanted, &self.link)
    }

    fn remove_all(&mut self, now: Instant) {
        let remotes = self.engine.views().map(|view| view.wanted.remote);
        for remote in remotes.collect::<Vec<_>>() {
            self.engine.remove(now, &client(), remote);
        }
    }

    /// Writes the changed states, for the next process.
    fn save(&mut self, now: Instant, memory: &mut BTreeMap<Key, Vec<u8>>) {
        while let Some(key) = self.engine.take_changed() {
            let record = self.engine.record(now, &key, |_| None);
            match record.and_then(|record| record.encode()) {
                Some(octets) => drop(memory.insert(key, octets)),
                None => drop(memory.remove(&key)),
            }
        }
    }

    /// Sends a packet, unless the path loses it.
    fn send(&self, cx: &mut Cx<'_>, at: u64, outgoing: &Outgoing) {
        let way = &outgoing.way;
        let Some(to) = cx.machine_of(way.remote) else {
            return;
        };
        let Some(delay) = cx.net.packet(cx.chance, self.at, to) else {
            return;
        };
        let due = at + delay;
        let arrival = Arrival::new(way.path.hops(), LINK, way.local, way.remote, TTL);
        let packet = Packet {
            from: self.at,
            to,
            arrival: arrival.with(|arrival| arrival.arrived_at = Some(Instant(due))),
            payload: outgoing.packet,
        };
        cx.agenda.push(due, Event::Packet(packet));
    }
}

impl World {
    /// Delivers a packet to the socket of a machine.
    pub(crate) fn packet(&mut self, packet: Packet) {
        let (from, to) = (packet.from, packet.to);
        let Some(machine) = self.machines.get_mut(to) else {
            return;
        };
        let monitor = &mut machine.bfd;
        let has_socket = monitor.slot.run.is_some() || monitor.is_kept;
        if self.net.is_cut(from, to) || !has_socket || monitor.inbox.len() >= INBOX_MAX {
            return;
        }
        monitor.inbox.push_back(packet);
        self.wake(to, Daemon::Bfd);
    }

    /// Returns the detection time of all sessions.
    pub(crate) fn detection(&self) -> u64 {
        let (interval_ms, multiplier) = self.options.bfd.unwrap_or_default();
        nanos(Duration::from_millis(interval_ms.into()) * multiplier.into())
    }
}
