//! The applied configuration, in the keys of the file.

use std::net::{IpAddr, SocketAddr};

use bgp_proto::FamilySet;
use bgp_speaker::keys::RANGE_KEYS;
use bgp_speaker::{PEER_KEYS, PeerConfig, RangeConfig, SpeakerConfig};
use daemon_common::report::{Fact, NeighborSettings, Settings};
use rib::{Outcome, Policy, Then};

/// Returns the source of a neighbor's configuration by its address, or of the ranges'.
type From<'a> = dyn Fn(Option<IpAddr>) -> String + 'a;

/// Returns a speaker's configuration; `from` returns the source of a neighbor's or a range's.
pub fn settings(speaker: &SpeakerConfig, listen: &[SocketAddr], from: &From<'_>) -> Settings {
    let mut keys = Keys::default();
    keys.add("asn", speaker.local_asn);
    keys.add("router_id", speaker.router_id);
    keys.add_if("cluster_id", speaker.cluster_id);
    keys.add("listen", list(listen));
    keys.add("families", families(speaker.families));
    keys.add_if("next_hop_ipv4", speaker.own_next_hop_v4);
    keys.add_if("next_hop_ipv6", speaker.own_next_hop_v6);
    keys.add("multipath", speaker.multipath_max);
    Settings {
        keys: keys.0,
        neighbors: speaker
            .peers
            .iter()
            .map(|peer| neighbor(peer, from))
            .collect(),
        ranges: speaker.ranges.iter().map(|of| range(of, from)).collect(),
        ..Settings::default()
    }
}

fn range(range: &RangeConfig, from: &From<'_>) -> NeighborSettings {
    let mut keys = Keys::default();
    for key in RANGE_KEYS {
        keys.add_if(key.name, key.get(range).map(|value| value.plain()));
    }
    keys.of_peer(&range.template);
    NeighborSettings {
        name: range.name.clone(),
        keys: keys.0,
        ..policies(&range.template, from(None))
    }
}

fn neighbor(peer: &PeerConfig, from: &From<'_>) -> NeighborSettings {
    let mut keys = Keys::default();
    keys.add("address", peer.remote);
    keys.of_peer(peer);
    NeighborSettings {
        name: peer.name.clone(),
        keys: keys.0,
        ..policies(peer, from(Some(peer.remote)))
    }
}

fn policies(peer: &PeerConfig, from: String) -> NeighborSettings {
    NeighborSettings {
        from,
        import: lines(&peer.import),
        export: lines(&peer.export),
        ..NeighborSettings::default()
    }
}

/// Keys and values, in order.
#[derive(Default)]
struct Keys(Vec<Fact>);

impl Keys {
    fn add(&mut self, name: &str, value: impl ToString) {
        self.0.push(Fact {
            name: name.to_owned(),
            value: value.to_string(),
        });
    }

    fn add_if(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// Adds the keys of a neighbor, or of the neighbors in a range.
    fn of_peer(&mut self, peer: &PeerConfig) {
        for key in PEER_KEYS {
            self.add_if(key.name, key.shown(peer));
        }
    }
}

fn families(set: FamilySet) -> String {
    list(&set.iter().collect::<Vec<_>>())
}

fn list(all: &[impl ToString]) -> String {
    all.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns a policy, term by term.
fn lines(policy: &Policy) -> Vec<String> {
    let rules = match policy {
        Policy::AcceptAll => return vec!["accept".to_owned()],
        Policy::RejectAll => return vec!["deny".to_owned()],
        Policy::Rules(rules) => rules,
    };
    let terms = rules.terms.iter().map(|term| {
        let then = match term.then {
            Then::Accept => "accept",
            Then::Reject => "deny",
            Then::Next => "continue",
        };
        format!("{}: {then}", term.name)
    });
    let otherwise = match rules.otherwise {
        Outcome::Accept => "all else: accept",
        Outcome::Reject => "all else: deny",
    };
    terms.chain([otherwise.to_owned()]).collect()
}
