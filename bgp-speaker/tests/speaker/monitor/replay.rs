//! A program that keeps tables from the records holds what the speakers hold, whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use bgp_fsm::GracefulRestartConfig;
use bgp_proto::{Attributes, Community, Family, FamilySet};
use bgp_speaker::{Input, Monitor, Record, Speaker, SpeakerConfig};
use proptest::prelude::*;
use rib::{Edit, Match, Outcome, PeerId, Policy, PrefixRange, Role, Rules, Stage, Term, Then};
use testkit::Network;
use testkit::fixture::{address, clients, neighbor, prefix, speaker_config};
use testkit::limits::RETRANSMIT;

use super::{OUT, POST, PRE};

const REFLECTOR: usize = 1;
const CLIENTS: [usize; 3] = [2, 3, 4];
const NETS: [&str; 6] = [
    "10.65.0.0/26",
    "10.65.0.64/26",
    "10.66.0.0/16",
    "10.66.1.0/24",
    "2001:db8::/64",
    "2001:db8:1::/64",
];

/// The routes of a table: attributes by family, path identifier and destination.
type Table = BTreeMap<(Family, u32, String), Attributes>;

/// The tables as the records describe them.
#[derive(Debug, Default)]
struct Replay(BTreeMap<(IpAddr, Stage), Table>);

impl Replay {
    fn apply(&mut self, record: Record) {
        match record {
            Record::Routes {
                neighbor, routes, ..
            } => {
                let table = self.0.entry((neighbor.address, routes.stage)).or_default();
                for nlri in routes.nlri() {
                    let key = (routes.family, nlri.path_id, nlri.net.to_string());
                    match &routes.attributes {
                        Some(set) => drop(table.insert(key, (**set).clone())),
                        None => drop(table.remove(&key)),
                    }
                }
            }
            Record::Down {
                neighbor, retained, ..
            } => {
                for ((address, stage), table) in &mut self.0 {
                    if *address == neighbor.address {
                        let is_kept = |family| *stage != OUT && retained.contains(family);
                        table.retain(|(family, ..), _| is_kept(*family));
                    }
                }
            }
            Record::Up { .. } | Record::EndOfRib { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn table(&self, neighbor: IpAddr, stage: Stage) -> Table {
        self.0.get(&(neighbor, stage)).cloned().unwrap_or_default()
    }
}

/// Returns the Adj-RIB-In of a peer, before or after policy.
fn adj_rib_in(speaker: &Speaker, peer: PeerId, stage: Stage) -> Table {
    let mut table = Table::new();
    for family in FamilySet::UNICAST.iter() {
        for route in speaker.rib().prefixes(family) {
            let net = route.net.to_string();
            for path in route.paths.into_iter().filter(|path| path.peer == peer) {
                let attributes = match stage {
                    PRE => Some(path.received),
                    _ => path.accepted,
                };
                let key = (family, path.path_id, net.clone());
                attributes.and_then(|attributes| table.insert(key, attributes));
            }
        }
    }
    table
}

#[derive(Clone, Debug)]
enum Op {
    Announce(usize, usize, u16),
    Withdraw(usize, usize),
    Cut(usize),
    Mend(usize),
    Crash(usize),
    AskRefresh(usize),
    BeAsked(usize),
    Import(u8),
    Export(u8),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let (client, net) = (2..5_usize, 0..NETS.len());
    prop_oneof![
        8 => (client.clone(), net.clone(), 0..3_u16).prop_map(|(c, n, s)| Op::Announce(c, n, s)),
        4 => (client.clone(), net).prop_map(|(c, n)| Op::Withdraw(c, n)),
        1 => client.clone().prop_map(Op::Cut),
        2 => client.clone().prop_map(Op::Mend),
        1 => client.clone().prop_map(Op::Crash),
        1 => client.clone().prop_map(Op::AskRefresh),
        1 => client.prop_map(Op::BeAsked),
        1 => (0..3_u8).prop_map(Op::Import),
        1 => (0..3_u8).prop_map(Op::Export),
        2 => (1..150_u64).prop_map(Op::Pass),
    ]
}

/// Returns one of three policies: all, all but some, and all with another attribute.
fn policy(number: u8) -> Policy {
    let inside = PrefixRange::inside("10.66.0.0/16".parse().expect("a prefix"));
    let (when, edit, then) = match number {
        0 => return Policy::AcceptAll,
        1 => (
            vec![Match::Net([inside].into_iter().collect())],
            vec![],
            Then::Reject,
        ),
        _ => {
            let community = Edit::AddCommunity(Community::new(64_512, 7));
            (vec![], vec![community], Then::Accept)
        }
    };
    Policy::from(Rules::new(
        number.to_string(),
        vec![Term::new("1", when, edit, then)],
        Outcome::Accept,
    ))
}

fn reflector(import: u8, export: u8, add_path: bool) -> SpeakerConfig {
    let mut config = speaker_config(REFLECTOR);
    let mut range = clients(REFLECTOR, 10);
    range.template.session.graceful_restart = Some(GracefulRestartConfig::default());
    (range.template.import, range.template.export) = (policy(import), policy(export));
    if add_path {
        range.template.session.add_path_send = FamilySet::UNICAST;
        range.template.session.add_path_receive = FamilySet::UNICAST;
    }
    config.ranges.push(range);
    config
}

/// Returns a client. The first one restarts gracefully, the second one uses path identifiers.
fn client(number: usize) -> SpeakerConfig {
    let mut config = speaker_config(number);
    let mut peer = neighbor(number, REFLECTOR, Role::Internal);
    if number == CLIENTS[0] {
        peer.session.graceful_restart =
            Some(GracefulRestartConfig::default().with_forwarding(FamilySet::UNICAST));
    }
    if number == CLIENTS[1] {
        peer.session.add_path_send = FamilySet::UNICAST;
        peer.session.add_path_receive = FamilySet::UNICAST;
    }
    config.peers.push(peer);
    config
}

fn at(number: usize) -> IpAddr {
    address(number).into()
}

struct World {
    network: Network,
    replay: Replay,
    policies: (u8, u8),
    add_path: bool,
    /// Clients with octets that may be on their way.
    cut: BTreeSet<usize>,
}

impl World {
    fn new(add_path: bool) -> Self {
        let mut network = Network::new(3);
        let config = reflector(0, 0, add_path);
        network.start_with(REFLECTOR, at(REFLECTOR), config, |speaker| {
            speaker.start_monitor(bgp_fsm::Instant::ZERO, Monitor::new([PRE, POST, OUT]));
        });
        for number in CLIENTS {
            network.start(number, at(number), client(number));
        }
        network.advance(Duration::from_secs(20));
        Self {
            network,
            replay: Replay::default(),
            policies: (0, 0),
            add_path,
            cut: BTreeSet::new(),
        }
    }

    fn act(&mut self, op: Op) {
        let now = self.network.now();
        match op {
            Op::Announce(client, net, set) => self.local(client, net, Some(set)),
            Op::Withdraw(client, net) => self.local(client, net, None),
            Op::Cut(client) => {
                self.cut.insert(client);
                self.network.cut(at(REFLECTOR), at(client));
            }
            Op::Mend(client) => self.mend(client),
            Op::Crash(number) => {
                self.network.start(number, at(number), client(number));
            }
            Op::AskRefresh(client) => self.request_refresh(REFLECTOR, client),
            Op::BeAsked(client) => self.request_refresh(client, REFLECTOR),
            Op::Import(import) => self.policies.0 = import,
            Op::Export(export) => self.policies.1 = export,
            Op::Pass(seconds) => self.network.advance(Duration::from_secs(seconds)),
        }
        let config = reflector(self.policies.0, self.policies.1, self.add_path);
        let speaker = self.network.speaker_mut(REFLECTOR);
        if *speaker.config() != config {
            speaker.reconfigure(now, config).expect("taken");
        }
        self.network.settle();
    }

    fn mend(&mut self, client: usize) {
        self.cut.remove(&client);
        self.network.mend(at(REFLECTOR), at(client));
        // Segments that were lost in the cut are sent again.
        self.network.advance(2 * RETRANSMIT);
    }

    fn local(&mut self, client: usize, net: usize, set: Option<u16>) {
        let now = self.network.now();
        let net = prefix(NETS[net]);
        let family = match net {
            bgp_proto::Net::V6(_) => Family::IPV6_UNICAST,
            _ => Family::IPV4_UNICAST,
        };
        let attributes = set.map(|set| Attributes {
            communities: vec![Community::new(64_512, set)],
            ..Attributes::default()
        });
        let input = Input::Local {
            family,
            net,
            attributes,
            interface: None,
        };
        self.network.speaker_mut(client).handle(now, input);
    }

    fn request_refresh(&mut self, us: usize, them: usize) {
        let speaker = self.network.speaker_mut(us);
        let mut peers = speaker.peers();
        let peer = peers.find(|peer| peer.config.remote == at(them));
        let peer = peer.map(|peer| peer.id);
        drop(peers);
        if let Some(peer) = peer {
            // Without a session nothing is requested.
            let _ = speaker.request_refresh(peer, None);
        }
    }

    fn take_records(&mut self) {
        let speaker = self.network.speaker_mut(REFLECTOR);
        while let Some(record) = speaker.poll_record() {
            self.replay.apply(record);
        }
        self.network.settle();
    }

    /// Compares the tables of the records with those of the speakers.
    fn check(&self) {
        let speaker = self.network.speaker(REFLECTOR);
        for number in CLIENTS {
            let mut peers = speaker.peers();
            let peer = peers.find(|peer| peer.config.remote == at(number));
            for stage in [PRE, POST] {
                let held = peer
                    .as_ref()
                    .map(|peer| adj_rib_in(speaker, peer.id, stage));
                let replayed = self.replay.table(at(number), stage);
                assert_eq!(replayed, held.unwrap_or_default(), "{number} {stage}");
            }
            let is_up = !self.cut.contains(&number)
                && self.network.established(number) == [at(REFLECTOR)]
                && self.network.established(REFLECTOR).contains(&at(number));
            if is_up {
                let client = self.network.speaker(number);
                let id = client.peers().next().expect("a peer").id;
                let held = adj_rib_in(client, id, PRE);
                assert_eq!(self.replay.table(at(number), OUT), held, "{number} {OUT}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_describe_the_tables(
        ops in prop::collection::vec((op(), any::<bool>()), 1..60),
        add_path in any::<bool>(),
    ) {
        let mut world = World::new(add_path);
        for (op, looks) in ops {
            world.act(op);
            if looks {
                world.take_records();
                world.check();
            }
        }
        for client in CLIENTS {
            world.mend(client);
        }
        world.network.advance(Duration::from_secs(1000));
        world.take_records();
        world.check();
        let up = world.network.established(REFLECTOR);
        prop_assert_eq!(up.len(), CLIENTS.len());
    }
}
