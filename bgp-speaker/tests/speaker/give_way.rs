//! The limit of the octets in all accounts: clients that want all VPN routes have a list of the sent
//! ones in their accounts.

use std::time::Duration;

use bgp_proto::{
    Attributes, ExtendedCommunity, Family, FamilySet, Net, NextHop, RouteTargetMembership,
};
use bgp_speaker::{Event, Input, MemoryAction, SpeakerConfig};
use rib::{PeerId, Role};
use testkit::Network;
use testkit::fixture::{address, neighbor, speaker_config};

use super::network;

const VPN: Family = Family::IPV4_VPN;
const MEMBERS: Family = Family::ROUTE_TARGET;
const SENDERS: std::ops::RangeInclusive<usize> = 2..=5;
const READERS: std::ops::RangeInclusive<usize> = 6..=11;

fn config(number: usize, peers: impl Iterator<Item = usize>, role: Role) -> SpeakerConfig {
    let families = FamilySet::EMPTY.with(VPN).with(MEMBERS);
    let mut config = speaker_config(number);
    config.families = families;
    config.peers = peers
        .map(|of| {
            let mut peer = neighbor(number, of, role);
            peer.session.families = families;
            peer.session.connect_retry_s = 5;
            peer.session.passive = role == Role::Client;
            peer
        })
        .collect();
    config
}

/// A reflector with clients that announce VPN routes, and clients that want all of them.
struct Fabric {
    network: Network,
    sent: u8,
}

impl Fabric {
    fn new(octets_max: usize) -> Self {
        let clients = || SENDERS.chain(READERS);
        let mut configs = vec![(1, config(1, clients(), Role::Client))];
        configs.extend(clients().map(|number| {
            let to = std::iter::once(1);
            (number, config(number, to, Role::Internal))
        }));
        let mut network = network(configs);
        network.speaker_mut(1).limit_memory(Some(octets_max));
        network.advance(Duration::from_secs(30));
        let mut fabric = Self { network, sent: 0 };
        for reader in READERS {
            let mut default = Vec::new();
            RouteTargetMembership::DEFAULT.put_nlri(&mut default);
            fabric.local(reader, (MEMBERS, &default), Attributes::default());
        }
        fabric.network.advance(Duration::from_secs(10));
        fabric
    }

    fn local(&mut self, number: usize, route: (Family, &[u8]), attributes: Attributes) {
        let now = self.network.now();
        let input = Input::Local {
            family: route.0,
            net: Net::Opaque(route.1),
            attributes: Some(attributes),
            interface: None,
        };
        self.network.speaker_mut(number).handle(now, input);
    }

    /// Lets some of the senders announce ten routes more.
    fn announce(&mut self, senders: impl Iterator<Item = usize>) {
        for sender in senders {
            let second = u8::try_from(sender).expect("a number of a client");
            for at in self.sent..self.sent + 10 {
                let net = [112, 0, 6, 0x41, 0, 0, 0xfc, 0, 0, 0, 0, 1, 10, second, at];
                let attributes = Attributes {
                    local_pref: Some(100),
                    next_hop: Some(NextHop::V4(address(sender))),
                    extended_communities: vec![ExtendedCommunity::route_target_as2(64_512, 7)],
                    ..Attributes::default()
                };
                self.local(sender, (VPN, &net), attributes);
            }
        }
        self.sent += 10;
        self.network.advance(Duration::from_secs(2));
    }

    /// Returns the clients by their address, in the order of the actions.
    fn actions(&self) -> Vec<(usize, MemoryAction)> {
        let node = self.network.node(1);
        let actions = node.events.iter().filter_map(|event| match event {
            Event::MemoryLimit { peer, action, .. } => Some((self.number_of(*peer), *action)),
            _ => None,
        });
        actions.collect()
    }

    fn number_of(&self, peer: PeerId) -> usize {
        let view = self.network.speaker(1).peer(peer).expect("a client");
        let mut clients = SENDERS.chain(READERS);
        let number = clients.find(|number| view.config.remote == address(*number));
        number.expect("a client of the test")
    }
}

/// The list of each such client is longer than the paths of each sender.
#[test]
fn client_with_the_longest_list_of_sent_paths_gives_way() {
    let mut fabric = Fabric::new(240_000);
    while fabric.sent < 250 && fabric.actions().len() < 2 {
        fabric.announce(SENDERS);
    }
    let reader = *READERS.start();
    let expected = [(reader, MemoryAction::Reject), (reader, MemoryAction::End)];
    assert_eq!(fabric.actions().get(..2), Some(&expected[..]));
    fabric.network.advance(Duration::from_secs(10));
    let actions = fabric.actions();
    let mut limited = actions.iter().map(|(number, _)| number);
    assert!(
        limited.all(|number| READERS.contains(number)),
        "{actions:?}"
    );
    // Its list has made room for the others.
    let established = fabric.network.established(1).len();
    assert_eq!(established, SENDERS.count() + READERS.count() - 1);
}

/// One sender has more octets than the list of its routes: new paths are rejected. Nothing else
/// grows then, so no session ends.
#[test]
fn only_sender_for_many_lists_stays_connected() {
    let mut fabric = Fabric::new(80_000);
    for _ in 0..25 {
        fabric.announce(2..=2);
    }
    assert_eq!(fabric.actions(), [(2, MemoryAction::Reject)]);
    let established = fabric.network.established(1).len();
    assert_eq!(established, SENDERS.count() + READERS.count());
}
