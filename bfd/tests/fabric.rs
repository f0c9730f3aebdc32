//! A fabric of hosts, each with a set of sessions to all others: any failures, restarts and commands.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use bfd::{
    Arrival, Change, Discriminator, Duration, Encoded, Hops, Instant, Liveness, Path, Seeded,
    SessionConfig, Sessions, Side, State, Step,
};
use proptest::prelude::*;

const HOSTS: usize = 5;

/// Longer than the start of a session after each failure, with all timers.
const SETTLE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug)]
enum Op {
    /// The host stops without a packet, or starts with new sessions to all others.
    Power(usize, bool),
    /// Packets from one host to another are lost, or arrive.
    Link(usize, usize, bool),
    /// The operator of the first host enables or disables its session with the second one.
    Enable(usize, usize, bool),
    Remove(usize, usize),
    Add(usize, usize),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let pair =
        || (0..HOSTS, 0..HOSTS - 1).prop_map(|(one, other)| (one, (one + 1 + other) % HOSTS));
    prop_oneof![
        1 => (0..HOSTS, any::<bool>()).prop_map(|(host, on)| Op::Power(host, on)),
        1 => (pair(), any::<bool>()).prop_map(|((one, other), works)| Op::Link(one, other, works)),
        1 => (pair(), any::<bool>()).prop_map(|((one, other), on)| Op::Enable(one, other, on)),
        1 => pair().prop_map(|(one, other)| Op::Remove(one, other)),
        1 => pair().prop_map(|(one, other)| Op::Add(one, other)),
        4 => (0_u64..3_000).prop_map(Op::Pass),
    ]
}

struct Host {
    /// `None` while it is switched off.
    set: Option<Sessions<Seeded>>,
    sessions: BTreeMap<usize, Discriminator>,
}

struct Fabric {
    hosts: Vec<Host>,
    now: Instant,
    seed: u64,
    sent: u64,
    /// Packets on their way to a host: in the order of their arrival.
    flying: BTreeMap<(Instant, u64), (usize, Arrival, Encoded)>,
    cut: BTreeSet<(usize, usize)>,
    disabled: BTreeSet<(usize, usize)>,
    /// The pairs that have lost packets or sessions.
    disturbed: BTreeSet<(usize, usize)>,
}

fn address(host: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, host as u8))
}

fn host_of(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(address) => usize::from(address.octets()[3]),
        IpAddr::V6(_) => panic!("all hosts have IPv4 addresses"),
    }
}

fn path(local: usize, remote: usize) -> Path {
    Path::Multihop {
        table: 0,
        local: address(local),
        remote: address(remote),
        ttl_min: 254,
    }
}

fn config() -> SessionConfig {
    SessionConfig::default().with(|config| {
        config.desired_min_tx_us = 100_000;
        config.required_min_rx_us = 100_000;
    })
}

impl Fabric {
    fn new() -> Self {
        let hosts = (0..HOSTS).map(|_| Host {
            set: None,
            sessions: BTreeMap::new(),
        });
        let mut fabric = Self {
            hosts: hosts.collect(),
            now: Instant::ZERO,
            seed: 0,
            sent: 0,
            flying: BTreeMap::new(),
            cut: BTreeSet::new(),
            disabled: BTreeSet::new(),
            disturbed: BTreeSet::new(),
        };
        for host in 0..HOSTS {
            fabric.perform(Op::Power(host, true));
        }
        fabric.pass(SETTLE);
        fabric.disturbed.clear();
        fabric.check();
        fabric
    }

    fn perform(&mut self, op: Op) {
        let now = self.now;
        match op {
            Op::Power(host, on) => self.power(host, on),
            Op::Link(one, other, true) => {
                self.cut.remove(&(one, other));
            }
            Op::Link(one, other, false) => {
                self.cut.insert((one, other));
                self.disturb(one, other);
            }
            Op::Enable(one, other, on) => {
                let host = &mut self.hosts[one];
                let (Some(set), Some(&id)) = (&mut host.set, host.sessions.get(&other)) else {
                    return;
                };
                if on {
                    set.enable(now, id);
                    self.disabled.remove(&(one, other));
                } else {
                    set.disable(now, id);
                    self.disabled.insert((one, other));
                }
            }
            Op::Remove(one, other) => {
                let host = &mut self.hosts[one];
                if let (Some(set), Some(id)) = (&mut host.set, host.sessions.remove(&other)) {
                    set.remove(now, id).expect("a session");
                }
            }
            Op::Add(one, other) => self.add(one, other),
            Op::Pass(millis) => self.pass(Duration::from_millis(millis)),
        }
        self.work();
    }

    fn power(&mut self, host: usize, on: bool) {
        self.hosts[host].set = None;
        self.hosts[host].sessions.clear();
        for other in (0..HOSTS).filter(|other| *other != host) {
            self.disturb(host, other);
        }
        if on {
            self.seed += 1;
            self.hosts[host].set = Some(Sessions::new(Seeded::new(self.seed), HOSTS));
            for other in (0..HOSTS).filter(|other| *other != host) {
                self.add(host, other);
            }
        }
    }

    fn add(&mut self, one: usize, other: usize) {
        let host = &mut self.hosts[one];
        if let (Some(set), None) = (&mut host.set, host.sessions.get(&other)) {
            let added = set.add(self.now, path(one, other), config());
            host.sessions.insert(other, added.expect("there is room"));
            self.disabled.remove(&(one, other));
        }
    }

    fn disturb(&mut self, one: usize, other: usize) {
        self.disturbed.extend([(one, other), (other, one)]);
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.work();
            let sets = self.hosts.iter().filter_map(|host| host.set.as_ref());
            let due = sets.filter_map(Sessions::poll_timeout);
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            match due.chain(arrival).min() {
                Some(next) if next <= end => self.now = next.max(self.now),
                _ => break,
            }
        }
        self.now = end;
    }

    /// Delivers all packets that have arrived, and does all work that is due.
    fn work(&mut self) {
        while let Some(entry) = self.flying.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (host, arrival, packet) = entry.remove();
            let Some(set) = &mut self.hosts[host].set else {
                continue;
            };
            let received = set.receive(self.now, &arrival, packet.octets());
            if let Ok((id, Some(change))) = received {
                self.notice(host, id, &change);
            }
        }
        for host in 0..HOSTS {
            while let Some(step) = self.step(host) {
                match step {
                    Step::Send { path, packet, .. } => self.send(path, packet),
                    Step::Changed { id, change, .. } => self.notice(host, id, &change),
                }
            }
        }
    }

    fn step(&mut self, host: usize) -> Option<Step> {
        self.hosts[host].set.as_mut()?.step(self.now)
    }

    fn send(&mut self, path: Path, packet: Encoded) {
        let Path::Multihop { local, remote, .. } = path else {
            panic!("all paths are multihop");
        };
        let (from, to) = (host_of(local), host_of(remote));
        if self.cut.contains(&(from, to)) {
            return;
        }
        self.sent += 1;
        // Each path has its own length, so that packets of different hosts overtake each other.
        let delay = Duration::from_micros(500 + 700 * (from * to % 7) as u64);
        let arrival = Arrival::new(Hops::Multi, 1, local, remote, 254);
        let arrived_at = Some(self.now + delay);
        let arrival = arrival.with(|arrival| arrival.arrived_at = arrived_at);
        let key = (self.now + delay, self.sent);
        self.flying.insert(key, (to, arrival, packet));
    }

    /// Asserts that a failure has a cause.
    fn notice(&self, host: usize, id: Discriminator, change: &Change) {
        let mut sessions = self.hosts[host].sessions.iter();
        let (peer, _) = sessions
            .find(|(_, known)| **known == id)
            .expect("a known session");
        if matches!(change.liveness, Liveness::Failed { .. }) {
            let pair = (host, *peer);
            assert!(
                self.disturbed.contains(&pair),
                "{pair:?} at {}: {change}",
                self.now
            );
        }
    }

    fn has(&self, one: usize, other: usize) -> bool {
        self.hosts[one].sessions.contains_key(&other)
    }

    /// Compares the sessions with the paths that work.
    fn check(&self) {
        for (one, host) in self.hosts.iter().enumerate() {
            for (&other, &id) in &host.sessions {
                let set = host.set.as_ref().expect("a host with sessions is on");
                let session = set.get(id).expect("a session");
                let works = [(one, other), (other, one)];
                let works = works.iter().all(|pair| !self.cut.contains(pair));
                let reaches = works && self.has(other, one);
                let disabled = self.disabled.contains(&(one, other));
                let remote_disabled = self.disabled.contains(&(other, one));
                let is_up = reaches && !disabled && !remote_disabled;
                assert_eq!(session.state() == State::Up, is_up, "{one} to {other}");
                if disabled {
                    assert_eq!(session.liveness(), Liveness::Disabled(Side::Local));
                } else if reaches && remote_disabled {
                    assert_eq!(session.liveness(), Liveness::Disabled(Side::Remote));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn fabric_converges_and_every_failure_has_a_cause(ops in prop::collection::vec(op(), 1..40)) {
        let mut fabric = Fabric::new();
        for op in ops {
            fabric.perform(op);
        }
        fabric.pass(SETTLE);
        fabric.check();
    }
}
