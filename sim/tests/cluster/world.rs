//! Machines, the store, and a network between them in which octets arrive within a tick.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bgp_proto::next_frame;
use bgp_speaker::bgp_fsm::{self, Conn, Instant};
use bgp_speaker::rib::{Budget, PeerId, Progress};
use bgp_speaker::{Event, Input, Output};
use calico_model::{FabricKey, RESOURCES_PREFIX};
use calico_store::{Delete, KeyRange, Op, Put, Txn};
use etcd_lite::{Core, CoreConfig};

use crate::machine::Machine;

/// How far time goes at once.
const TICK: Duration = Duration::from_millis(250);

type End = (usize, PeerId, Conn);

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) machines: Vec<Machine>,
    pub(crate) clients: usize,
    pub(crate) core: Core,
    /// The other end of each.
    ends: BTreeMap<End, End>,
    dirty: BTreeSet<usize>,
    by_address: BTreeMap<IpAddr, usize>,
    /// Sessions of clients that have ended: the client, and with whom.
    pub(crate) downs: BTreeSet<(usize, IpAddr)>,
    /// Every client has every route, and is to have them from now on.
    pub(crate) whole: bool,
}

impl World {
    /// Clients first, then reflectors, each of these in a zone of its own; all run.
    pub(crate) fn new(clients: usize, reflectors: usize) -> Self {
        let mut world = Self::empty(clients);
        for at in 0..clients + reflectors {
            let name = match at < clients {
                true => format!("node{at}"),
                false => format!("rr{}", at - clients),
            };
            world.add(name, at >= clients);
        }
        world
    }

    /// Clients, then nodes that reflect for whoever has selected them by their label, if they have it,
    /// as with Calico's own daemons; all run.
    pub(crate) fn labelled(clients: usize, reflectors: usize) -> Self {
        let mut world = Self::empty(clients);
        let all = r#"{"spec":{"peerSelector":"has(route-reflector)"}}"#;
        world.put(&format!("{RESOURCES_PREFIX}bgppeers/reflectors"), all);
        for at in 0..clients + reflectors {
            world.add(format!("node{at}"), false);
        }
        world
    }

    /// A store without a mesh.
    fn empty(clients: usize) -> Self {
        let mut world = Self {
            now: Instant::ZERO,
            machines: Vec::new(),
            clients,
            core: Core::new(CoreConfig::default()),
            ends: BTreeMap::new(),
            dirty: BTreeSet::new(),
            by_address: BTreeMap::new(),
            downs: BTreeSet::new(),
            whole: false,
        };
        world.lock(false);
        let mesh = r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false}}"#;
        world.put(
            &format!("{RESOURCES_PREFIX}bgpconfigurations/default"),
            mesh,
        );
        world.write_pool();
        world
    }

    fn add(&mut self, name: String, reflects: bool) {
        let at = self.machines.len();
        let [high, low] = u16::try_from(at + 1).expect("few").to_be_bytes();
        let address = Ipv4Addr::new(10, 0, high, low);
        self.by_address.insert(address.into(), at);
        let mut machine = Machine::new(name, address, reflects);
        machine.start();
        self.machines.push(machine);
        self.write_node(at, None);
    }

    /// Writes the Node of a machine: a plain one, or one of those that reflect, with the label or
    /// without.
    pub(crate) fn write_node(&mut self, at: usize, label: Option<bool>) {
        let Machine { name, address, .. } = &self.machines[at];
        let (label, cluster) = match label {
            None => ("", ""),
            Some(false) => ("", r#","routeReflectorClusterID":"244.0.0.1""#),
            Some(true) => (
                r#","route-reflector":"""#,
                r#","routeReflectorClusterID":"244.0.0.1""#,
            ),
        };
        let node = format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"topology.kubernetes.io/zone":"{name}"{label}}}}},
                "spec":{{"bgp":{{"ipv4Address":"{address}/16"{cluster}}}}}}}"#
        );
        let key = format!("{RESOURCES_PREFIX}nodes/{name}");
        self.put(&key, &node);
    }

    pub(crate) fn delete_node(&mut self, at: usize) {
        let name = &self.machines[at].name;
        self.delete(format!("{RESOURCES_PREFIX}nodes/{name}"));
    }

    pub(crate) fn write_pool(&mut self) {
        let pool = r#"{"metadata":{"name":"pool"},"spec":{"cidr":"10.65.0.0/16"}}"#;
        self.put(&format!("{RESOURCES_PREFIX}ippools/pool"), pool);
    }

    pub(crate) fn delete_pool(&mut self) {
        self.delete(format!("{RESOURCES_PREFIX}ippools/pool"));
    }

    /// Somebody says that the store is not to be acted upon, or that it is again.
    pub(crate) fn lock(&mut self, locked: bool) {
        let ready = !locked;
        let said = format!(r#"{{"spec":{{"clusterGUID":"one","datastoreReady":{ready}}}}}"#);
        self.put(
            &format!("{RESOURCES_PREFIX}clusterinformations/default"),
            &said,
        );
    }

    /// The place of a reflector among the machines.
    pub(crate) const fn reflector(&self, nth: usize) -> usize {
        self.clients + nth
    }

    pub(crate) fn put(&mut self, key: &str, value: &str) {
        let then = vec![Op::Put(Put::new(key.to_owned(), value.to_owned()))];
        self.core
            .txn(&Txn {
                then,
                ..Txn::default()
            })
            .expect("written");
    }

    pub(crate) fn drain(&mut self, nth: usize, on: bool) {
        let key = FabricKey::Drain(format!("rr{nth}")).to_string();
        if on {
            return self.put(&key, "{}");
        }
        self.delete(key);
    }

    fn delete(&mut self, key: String) {
        let range = KeyRange::key(key);
        let previous = false;
        let then = vec![Op::Delete(Delete { range, previous })];
        self.core
            .txn(&Txn {
                then,
                ..Txn::default()
            })
            .expect("deleted");
    }

    /// These do not reach the store from now on.
    pub(crate) fn cut(&mut self, machines: impl Iterator<Item = usize>) {
        for at in machines {
            self.machines[at].cut = true;
        }
    }

    /// Everybody reaches the store again.
    pub(crate) fn mend(&mut self) {
        for machine in &mut self.machines {
            machine.cut = false;
        }
    }

    pub(crate) fn kill(&mut self, at: usize) {
        self.machines[at].kill();
        let ends = self.ends.keys().filter(|end| end.0 == at);
        for end in ends.copied().collect::<Vec<_>>() {
            self.close(end);
        }
    }

    /// Lets time pass. Once all clients have all routes, none ever lacks one.
    pub(crate) fn pass(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            self.now += TICK;
            self.core
                .expire(self.now.saturating_duration_since(Instant::ZERO));
            for at in 0..self.machines.len() {
                let route = (at < self.clients).then(|| u16::try_from(at).expect("few"));
                self.machines[at].turn(self.now, &mut self.core, route);
                self.dirty.insert(at);
            }
            self.settle();
            self.check();
        }
    }

    fn check(&mut self) {
        let lacks = |machine: &Machine| machine.prefixes() < self.clients;
        let lacking = self.machines[..self.clients]
            .iter()
            .find(|machine| lacks(machine));
        match lacking {
            Some(machine) if self.whole => panic!(
                "{:?}: {} has {} of {} routes; sessions with {:?}",
                self.now,
                machine.name,
                machine.prefixes(),
                self.clients,
                machine.sessions()
            ),
            Some(_) => {}
            None => self.whole = true,
        }
    }

    /// Lets everything happen that needs no time.
    fn settle(&mut self) {
        while let Some(at) = self.dirty.pop_first() {
            self.read(at);
            self.outputs(at);
            let now = self.now;
            while let Some(speaker) = self.machines[at].speaker_mut()
                && speaker.run(now, Budget(4096)) == Progress::More
            {}
            self.outputs(at);
            self.write_all(at);
        }
        let waits = |(at, peer, conn): &&End| {
            let speaker = self.machines[*at].speaker();
            speaker.is_some_and(|speaker| speaker.wants_write(*peer, *conn))
        };
        let waiting = self.ends.keys().find(waits);
        assert_eq!(waiting, None, "octets lie about that nobody will write");
    }

    fn read(&mut self, at: usize) {
        let now = self.now;
        for ((peer, conn), mut octets) in std::mem::take(&mut self.machines[at].inbox) {
            while self.ends.contains_key(&(at, peer, conn))
                && (self.machines[at].speaker_mut())
                    .is_some_and(|speaker| speaker.reads(peer, conn))
                && let Ok(Some(frame)) = next_frame(&mut octets, 4096)
            {
                if let Some(speaker) = self.machines[at].speaker_mut() {
                    let input = bgp_fsm::Input::Received { conn, frame };
                    speaker.handle(now, Input::Session(peer, input));
                }
                self.outputs(at);
            }
            if !octets.is_empty() && self.ends.contains_key(&(at, peer, conn)) {
                self.machines[at].inbox.insert((peer, conn), octets);
            }
        }
    }

    fn outputs(&mut self, at: usize) {
        while let Some(speaker) = self.machines[at].speaker_mut()
            && let Some(output) = speaker.poll_output()
        {
            match output {
                Output::Dial { peer, remote, .. } => self.dial(at, peer, remote),
                Output::Close { peer, conn } => {
                    self.write((at, peer, conn));
                    self.close((at, peer, conn));
                }
                Output::Event(event) => self.hear(at, &event),
                Output::Promote(peer) => self.promote(at, peer),
                // No stream of this network dies without a word.
                Output::Probe { peer, conn, .. } => {
                    let answered = bgp_fsm::Input::Probed(bgp_fsm::Probed::Answered);
                    self.session((at, peer, conn), answered);
                }
                Output::Gone(_) | Output::Track(_) | Output::Secure { .. } => {}
            }
        }
    }

    fn promote(&mut self, at: usize, peer: PeerId) {
        let (held, inbound) = ((at, peer, Conn::Held), (at, peer, Conn::Inbound));
        if let Some(other) = self.ends.remove(&held) {
            self.ends.insert(inbound, other);
            self.ends.insert(other, inbound);
        }
        let inbox = &mut self.machines[at].inbox;
        if let Some(octets) = inbox.remove(&(peer, Conn::Held)) {
            inbox.insert((peer, Conn::Inbound), octets);
        }
        self.session(inbound, bgp_fsm::Input::Promoted);
    }

    fn hear(&mut self, at: usize, event: &Event) {
        let Some(run) = &mut self.machines[at].run else {
            return;
        };
        run.fabric.hear(event);
        if let (Event::Down { peer, .. }, Some(speaker)) = (event, &run.speaker)
            && at < self.clients
            && let Some(config) = speaker.peer_config(*peer)
        {
            self.downs.insert((at, config.remote));
        }
    }

    fn dial(&mut self, from: usize, peer: PeerId, remote: SocketAddr) {
        let now = self.now;
        let to = self.by_address.get(&remote.ip()).copied();
        let local = SocketAddr::new(self.machines[from].address.into(), 40_000);
        let accepted = to.and_then(|to| {
            let speaker = self.machines[to].speaker_mut()?;
            Some((to, speaker.accept(now, remote, local).ok()?))
        });
        let ours = (from, peer, Conn::Outbound);
        let Some((to, (accepted, place))) = accepted else {
            return self.session(ours, bgp_fsm::Input::Failed(Conn::Outbound));
        };
        self.outputs(to);
        let theirs = (to, accepted, place);
        self.ends.insert(ours, theirs);
        self.ends.insert(theirs, ours);
        for (end, local, remote) in [(ours, local, remote), (theirs, remote, local)] {
            let conn = end.2;
            self.session(
                end,
                bgp_fsm::Input::Opened {
                    conn,
                    local,
                    remote,
                },
            );
        }
    }

    fn session(&mut self, (at, peer, _): End, input: bgp_fsm::Input) {
        let now = self.now;
        if let Some(speaker) = self.machines[at].speaker_mut() {
            speaker.handle(now, Input::Session(peer, input));
        }
        self.dirty.insert(at);
    }

    /// Both ends of a stream are gone; what was written is read first.
    fn close(&mut self, end: End) {
        let Some(other) = self.ends.get(&end).copied() else {
            return;
        };
        self.read(other.0);
        self.ends.remove(&end);
        self.machines[end.0].inbox.remove(&(end.1, end.2));
        if self.ends.remove(&other).is_some() {
            self.machines[other.0].inbox.remove(&(other.1, other.2));
            self.session(other, bgp_fsm::Input::Closed(other.2));
        }
    }

    fn write_all(&mut self, at: usize) {
        while let Some(speaker) = self.machines[at].speaker_mut()
            && let Some(peer) = speaker.poll_writable()
        {
            for conn in Conn::ALL {
                self.write((at, peer, conn));
            }
        }
    }

    /// Writes until nothing comes: the speaker does not name this peer again for what is left.
    fn write(&mut self, end: End) {
        let Some(&other) = self.ends.get(&end) else {
            return;
        };
        let mut slices = Vec::new();
        while let Some(speaker) = self.machines[end.0].speaker_mut() {
            speaker.fill(end.1, end.2, &mut slices, usize::MAX);
            if slices.is_empty() {
                break;
            }
            let inbox = &mut self.machines[other.0].inbox;
            let inbox = inbox.entry((other.1, other.2)).or_default();
            let mut sent = 0;
            for octets in slices.drain(..) {
                inbox.extend_from_slice(&octets);
                sent += octets.len();
            }
            if let Some(speaker) = self.machines[end.0].speaker_mut() {
                speaker.sent(end.1, end.2, sent);
            }
            self.dirty.extend([other.0, end.0]);
        }
    }
}
