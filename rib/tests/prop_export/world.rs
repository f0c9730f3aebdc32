//! The tables under test, the peers that follow them, and the model.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use bgp_proto::{
    Attributes, EncodeParams, Family, FamilySet, Fault, Ipv4Prefix, Nlri, PeerKind, Prefix, Remedy,
    SessionParams, UpdateView, UpdateWriter,
};
use bytes::BytesMut;
use rib::{
    Budget, Cursor, DownMode, GroupId, NextHops, PeerId, Policy, PrefixRange, Progress, Reach, Rib,
    RibConfig, RibLimits, RibStats, Role, SendPaths, Track,
};

use crate::doubts::{Doubt, Doubts};
use crate::ear::Sent;
use crate::events::{Event, NETS, PEERS, Variant};
use crate::model::{CLUSTER_ID, Exported, From, LOCAL_ASN, Model, ModelPath, ROUTER_ID};
use crate::parts::{
    GroupKey, address_of, attributes_of, info_of, interface_of, net_of, octets_of, role_of,
    rules_of,
};

#[derive(Clone, Debug)]
pub struct Setup {
    pub family: Family,
    pub track: bool,
    pub multipath_max: u16,
    pub always_compare_med: bool,
    /// The own bandwidth that all groups are sent, in Mbit/s.
    pub link_bandwidth: Option<u32>,
    /// Slow readers lose their position at once.
    pub tight: bool,
    /// By peer: the paths that it is sent; `None` for one per prefix.
    pub sends: [Option<SendPaths>; PEERS as usize + 1],
    /// The import policy of some peers.
    pub import: Policy,
    /// The export policy of internal peers.
    pub export: Policy,
}

impl Setup {
    pub fn group_of(&self, peer: PeerId) -> GroupKey {
        (role_of(peer.0), self.sends[usize::from(peer.0)])
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Mode {
    Shared,
    Private(Cursor),
}

#[derive(Debug)]
pub struct Member {
    pub mode: Mode,
    /// By prefix and path identifier.
    pub holds: BTreeMap<(u8, u32), Exported>,
}

/// Paths in use by prefix, the best one first.
pub type Fib = BTreeMap<u8, Vec<(PeerId, u32, Attributes)>>;

#[derive(Debug)]
pub struct World {
    pub setup: Setup,
    pub rib: Rib,
    pub model: Model,
    pub groups: BTreeMap<GroupKey, GroupId>,
    /// The identifiers of paths in a group.
    pub ids: BTreeMap<(GroupKey, u8, From), u32>,
    pub members: BTreeMap<PeerId, Member>,
    /// Import policies that differ from the initial one.
    pub imports: BTreeMap<u16, Policy>,
    /// Whether origins are validated.
    pub validates: bool,
    pub watched: BTreeMap<IpAddr, ()>,
    pub reader: Cursor,
    /// The routes of the reader of changes: the paths in use.
    pub fib: Fib,
    pub transcript: Vec<Sent>,
}

impl Member {
    /// Applies a message as the peer `me` would.
    pub fn take(&mut self, me: PeerId, sent: &Sent) {
        match sent {
            Sent::Reach {
                net,
                path_id,
                exported,
                source,
            } if *source != me => {
                self.holds.insert((*net, *path_id), exported.clone());
            }
            Sent::Unreach {
                net,
                path_id,
                except,
            } if *except != Some(me) => {
                self.holds.remove(&(*net, *path_id));
            }
            Sent::UnreachOnly { net, to } if *to == me => {
                self.holds.remove(&(*net, 0));
            }
            _ => {}
        }
    }
}

impl World {
    pub fn new(setup: Setup, seed: u64) -> Self {
        let limits = if setup.tight {
            let mut limits = RibLimits::default();
            (limits.log_entries_min, limits.tombstones_max) = (3, 2);
            limits
        } else {
            RibLimits::default()
        };
        let mut rib = Rib::new(
            RibConfig::new(LOCAL_ASN, ROUTER_ID).with(|config| {
                config.cluster_ids = [CLUSTER_ID].into();
                config.decision.always_compare_med = setup.always_compare_med;
                config.multipath_max = setup.multipath_max;
                config.next_hops = if setup.track {
                    NextHops::Track
                } else {
                    NextHops::AssumeReachable
                };
                config.limits = limits;
            }),
            seed,
        );
        let keys: BTreeSet<_> = (1..=PEERS)
            .map(|peer| setup.group_of(PeerId(peer)))
            .collect();
        let groups = keys
            .into_iter()
            .map(|key| (key, rib.add_group(rules_of(&setup, key))))
            .collect();
        let model = Model {
            export: setup.export.clone(),
            family: setup.family,
            track: setup.track,
            multipath_max: usize::from(setup.multipath_max),
            always_compare_med: setup.always_compare_med,
            link_bandwidth: setup.link_bandwidth,
            peers: BTreeMap::new(),
            doubts: Doubts::default(),
            failed: BTreeSet::new(),
            paths: BTreeMap::new(),
            costs: (0..3)
                .map(|at| {
                    (
                        address_of(setup.family, at).address().expect("ip"),
                        Some(1 + u32::from(at) % 2),
                    )
                })
                .collect(),
        };
        let mut world = Self {
            setup,
            rib,
            model,
            groups,
            ids: BTreeMap::new(),
            members: BTreeMap::new(),
            imports: BTreeMap::new(),
            validates: false,
            watched: BTreeMap::new(),
            reader: Cursor::initial(),
            fib: BTreeMap::new(),
            transcript: Vec::new(),
        };
        for peer in [1, 3, 5, 6, 7] {
            world.up(peer, false);
        }
        world
    }

    pub fn apply(&mut self, event: &Event) {
        self.act(event);
        self.follow_ids();
    }

    /// Asserts that an identifier stays with its path for as long as the path exists.
    fn follow_ids(&mut self) {
        let family = self.setup.family;
        let mut ids = BTreeMap::new();
        for (&key, &group) in self.groups.iter().filter(|(key, _)| key.1.is_some()) {
            for net in 0..NETS {
                let octets = octets_of(family, net, 0);
                for sent in self.rib.sent(group, family, net_of(family, net, &octets)) {
                    let Some(id) = sent.path_id else { continue };
                    let path = (key, net, (sent.source, sent.received_id));
                    let before = self.ids.get(&path).copied();
                    assert!(before.is_none_or(|before| before == id), "{path:?}");
                    ids.insert(path, id);
                }
            }
        }
        self.ids = ids;
    }

    fn act(&mut self, event: &Event) {
        let family = self.setup.family;
        match event {
            Event::Reach {
                peer,
                nets,
                path_id,
                variant,
            } => {
                self.reach(*peer, nets, *path_id, variant);
            }
            Event::Unreach {
                peer,
                nets,
                path_id,
            } => self.unreach(*peer, nets, *path_id),
            Event::Local {
                net,
                variant,
                interface,
            } => self.local(*net, variant.as_ref(), *interface),
            Event::Down { peer, stale } => self.down(*peer, *stale),
            Event::Up { peer, alias } => self.up(*peer, *alias),
            Event::Import { peer, policy } => self.import(*peer, *policy),
            Event::Reevaluate { net, inside } => self.reevaluate(*net, *inside),
            Event::Doubt {
                net,
                peer,
                doubt,
                inside,
            } => {
                self.doubt(*net, *peer, *doubt);
                self.reevaluate(*net, *inside);
            }
            Event::EndOfRib { peer } => {
                self.rib.end_of_rib(PeerId(*peer), family);
                self.drop_paths(*peer, |path| path.stale);
            }
            Event::Expire { peer } => {
                self.rib.stale_expired(PeerId(*peer));
                self.drop_paths(*peer, |path| path.stale);
            }
            Event::BeginRefresh { peer } if self.members.contains_key(&PeerId(*peer)) => {
                self.rib.begin_refresh(PeerId(*peer), family);
                self.each_path(*peer, |path| path.awaits_refresh = true);
            }
            Event::EndRefresh { peer } if self.members.contains_key(&PeerId(*peer)) => {
                self.rib.end_refresh(PeerId(*peer), family);
                self.drop_paths(*peer, |path| path.awaits_refresh);
            }
            Event::BeginRefresh { .. } | Event::EndRefresh { .. } => {}
            Event::Resolve { next_hop, cost } => {
                let address = address_of(family, *next_hop).address().expect("ip");
                self.model.costs.insert(address, *cost);
                if self.watched.contains_key(&address) {
                    self.rib
                        .resolve(address, cost.map_or(Reach::Unreachable, Reach::Cost));
                }
            }
            Event::FailOrigin { peer, has_failed } => {
                let origin = info_of(*peer, false, &self.setup.import).id;
                self.rib.fail_origin(origin, *has_failed);
                match has_failed {
                    true => self.model.failed.insert(origin),
                    false => self.model.failed.remove(&origin),
                };
            }
            Event::Message { peer } => {
                self.rib.message_received(PeerId(*peer));
                self.each_path(*peer, |path| path.doubted &= path.stale);
            }
            Event::Decide { budget } => {
                self.answer_tracks();
                let _ = self.rib.decide(Budget(*budget));
            }
            Event::Export { group, budget } => {
                let group = self.groups.keys().nth(group % self.groups.len());
                let _ = self.export(*group.expect("group"), *budget);
            }
            Event::Private { peer, budget } => {
                let _ = self.private(PeerId(*peer), *budget);
            }
            Event::Lag { peer } => self.lag(PeerId(*peer)),
            Event::Again { peer } => self.again(PeerId(*peer)),
            Event::Move { peer, send } => self.go_over(PeerId(*peer), *send),
            Event::Read { budget } => {
                let _ = self.read(*budget);
            }
            Event::Trim { all: true } => self.trim(),
            Event::Trim { all: false } => self.rib.trim(family, &[]),
            Event::Settle => {
                self.quiesce();
                self.check();
            }
        }
    }

    fn params(&self, peer: u16) -> SessionParams {
        let family = FamilySet::EMPTY.with(self.setup.family);
        SessionParams {
            local_asn: LOCAL_ASN,
            peer_asn: info_of(peer, false, &self.setup.import).asn,
            kind: if role_of(peer) == Role::External {
                PeerKind::External
            } else {
                PeerKind::Internal
            },
            as4: true,
            families: family,
            add_path_receive: family,
            ..SessionParams::default()
        }
    }

    /// Sends an UPDATE through the codec into the tables. Returns its attributes for the model;
    /// `None` if they must be treated as withdrawn.
    fn send(&mut self, peer: u16, message: &[u8]) -> Option<Attributes> {
        let params = self.params(peer);
        let (view, faults) = UpdateView::parse(&message[19..], &params).expect("well-formed");
        assert_eq!(faults, []);
        let mut attributes = None;
        for batch in view.batches() {
            attributes = batch.attrs.as_ref().map(|block| block.parse());
            self.rib.ingest(PeerId(peer), &batch);
        }
        let (attributes, faults) = attributes?;
        (Fault::worst(&faults) < Some(Remedy::TreatAsWithdraw)).then_some(attributes)
    }

    fn reach(&mut self, peer: u16, nets: &[u8], path_id: u32, variant: &Variant) {
        let id = PeerId(peer);
        if !self.members.contains_key(&id) {
            return;
        }
        let family = self.setup.family;
        let attributes = attributes_of(family, peer, variant);
        let mut block = Vec::new();
        attributes.encode(true, &mut block);
        let mut message = BytesMut::new();
        let next_hop = attributes.next_hop.clone().expect("next hop");
        let params = EncodeParams {
            as4: true,
            add_path: true,
            octets_max: 4096,
        };
        let mut writer = UpdateWriter::reach(&mut message, family, &block, &next_hop, &params);
        for &net in nets {
            let octets = octets_of(family, net, variant.label);
            writer
                .push(&Nlri {
                    path_id,
                    net: net_of(family, net, &octets),
                })
                .expect("room");
        }
        writer.finish();
        let received = self.send(peer, &message);
        for &net in nets {
            let key = (net, id, path_id);
            match &received {
                Some(received) => {
                    let path = ModelPath {
                        received: received.clone(),
                        octets: octets_of(family, net, variant.label),
                        stale: false,
                        doubted: false,
                        awaits_refresh: false,
                        interface: None,
                    };
                    let origin = self.model.origin(id, &path);
                    self.model.doubt(net, origin, false);
                    self.model.paths.insert(key, path);
                }
                None => self.model.withdraw(key),
            }
        }
    }

    fn unreach(&mut self, peer: u16, nets: &[u8], path_id: u32) {
        let id = PeerId(peer);
        if !self.members.contains_key(&id) {
            return;
        }
        let family = self.setup.family;
        let mut message = BytesMut::new();
        let params = EncodeParams {
            as4: true,
            add_path: true,
            octets_max: 4096,
        };
        let mut writer = UpdateWriter::unreach(&mut message, family, &params);
        for &net in nets {
            // RFC 8277 §2.4: the label of a withdrawal is ignored.
            let octets = octets_of(family, net, 0x80);
            writer
                .push(&Nlri {
                    path_id,
                    net: net_of(family, net, &octets),
                })
                .expect("room");
        }
        writer.finish();
        self.send(peer, &message);
        for &net in nets {
            self.model.withdraw((net, id, path_id));
        }
    }

    fn local(&mut self, net: u8, variant: Option<&Variant>, interface: u8) {
        let family = self.setup.family;
        let octets = octets_of(family, net, 9);
        let key = (net, PeerId::LOCAL, 0);
        match variant {
            Some(variant) => {
                let mut attributes = attributes_of(family, 0, variant);
                if variant.reflected > 1 && family != Family::IPV4_LABELED_UNICAST {
                    attributes.next_hop = None;
                }
                let interface = interface_of(interface);
                let destination = net_of(family, net, &octets);
                self.rib
                    .announce(family, destination, attributes.clone(), interface);
                let path = ModelPath {
                    received: attributes,
                    octets,
                    stale: false,
                    doubted: false,
                    awaits_refresh: false,
                    interface,
                };
                self.model.paths.insert(key, path);
            }
            None => {
                self.rib.withdraw(family, net_of(family, net, &octets));
                self.model.paths.remove(&key);
            }
        }
    }

    fn up(&mut self, peer: u16, alias: bool) {
        let id = PeerId(peer);
        if self.members.contains_key(&id) {
            return;
        }
        let mut info = info_of(peer, alias, &self.setup.import);
        if let Some(import) = self.imports.get(&peer) {
            info.import = import.clone();
        }
        self.rib.peer_up(id, info.clone());
        let before = self.model.peers.insert(id, info.clone());
        if before.is_some_and(|before| before != info) {
            self.drop_paths(peer, |_| true);
        }
        let mode = Mode::Private(Cursor::initial());
        self.members.insert(
            id,
            Member {
                mode,
                holds: BTreeMap::new(),
            },
        );
    }

    /// Changes the import policy of a peer, established or not.
    fn import(&mut self, peer: u16, number: u8) {
        let policy = match number {
            0 => Policy::AcceptAll,
            1 => Policy::RejectAll,
            2 => self.setup.import.clone(),
            3 => self.setup.export.clone(),
            _ => info_of(peer, false, &self.setup.import).import,
        };
        self.imports.insert(peer, policy.clone());
        if let Some(info) = self.model.peers.get_mut(&PeerId(peer)) {
            info.import = policy.clone();
        }
        self.rib
            .change_peer(PeerId(peer), |info| info.import = policy);
    }

    /// Validates origins from now on; the prefix is to be evaluated again.
    fn doubt(&mut self, net: u8, peer: u16, doubt: Option<Doubt>) {
        self.model.doubts.set(net, PeerId(peer), doubt);
        if !self.validates {
            self.validates = true;
            let check = Arc::new(self.model.doubts.clone());
            self.rib.set_origin_check(Some(check));
        }
    }

    fn reevaluate(&mut self, net: u8, inside: Option<u8>) {
        let family = self.setup.family;
        let octets = octets_of(family, net, 0);
        // Destinations that are not prefixes are in every range.
        let prefix = net_of(family, net, &octets).prefix();
        let prefix = prefix.unwrap_or(Prefix::V4(Ipv4Prefix::DEFAULT));
        let range = match inside.and_then(|len| Prefix::new(prefix.addr(), len)) {
            Some(prefix) => PrefixRange::inside(prefix),
            None => PrefixRange::equal(prefix),
        };
        self.rib.reevaluate(family, &range);
    }

    fn down(&mut self, peer: u16, stale: bool) {
        if self.members.remove(&PeerId(peer)).is_none() {
            return;
        }
        if stale {
            let kept = FamilySet::EMPTY.with(self.setup.family);
            self.rib.peer_down(
                PeerId(peer),
                DownMode::Stale {
                    kept,
                    long_lived: FamilySet::EMPTY,
                },
            );
            self.drop_paths(peer, |path| path.stale);
            self.each_path(peer, |path| {
                path.stale = true;
                path.awaits_refresh = false;
            });
        } else {
            self.rib.peer_down(PeerId(peer), DownMode::Flush);
            self.drop_paths(peer, |_| true);
        }
    }

    fn drop_paths(&mut self, peer: u16, gone: impl Fn(&ModelPath) -> bool) {
        self.model
            .paths
            .retain(|key, path| key.1 != PeerId(peer) || !gone(path));
    }

    fn each_path(&mut self, peer: u16, change: impl Fn(&mut ModelPath)) {
        let paths = self
            .model
            .paths
            .iter_mut()
            .filter(|(key, _)| key.1 == PeerId(peer));
        paths.for_each(|(_, path)| change(path));
    }

    fn answer_tracks(&mut self) {
        while let Some(track) = self.rib.poll_track() {
            assert!(self.setup.track);
            match track {
                Track::Watch(address) => {
                    assert_eq!(self.watched.insert(address, ()), None);
                    let cost = self.model.costs.get(&address).copied().flatten();
                    self.rib
                        .resolve(address, cost.map_or(Reach::Unreachable, Reach::Cost));
                }
                Track::Unwatch(address) => assert_eq!(self.watched.remove(&address), Some(())),
            }
        }
    }

    /// Runs until no work remains.
    pub fn quiesce(&mut self) {
        self.answer_tracks();
        while self.rib.decide(Budget(3)) != Progress::Done {}
        self.answer_tracks();
        while self.rib.decide(Budget(3)) != Progress::Done {}
        for group in self.groups.keys().copied().collect::<Vec<_>>() {
            while self.export(group, 2) != Progress::Done {}
        }
        for peer in 1..=PEERS {
            while self.private(PeerId(peer), 2) != Progress::Done {}
        }
        while self.read(2) != Progress::Done {}
        self.trim();
        self.follow_ids();
    }

    /// Disconnects all peers and readers; no state remains.
    pub fn tear_down(&mut self) {
        for peer in 1..=PEERS {
            self.up(peer, false);
            self.down(peer, false);
        }
        for net in 0..NETS {
            self.local(net, None, 0);
        }
        self.quiesce();
        self.check();
        assert_eq!(self.rib.stats(), RibStats::default());
        self.answer_tracks();
        assert_eq!(self.watched, BTreeMap::new());
    }
}
