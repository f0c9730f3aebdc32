//! The configuration in force, in the words of the file.

use std::net::{IpAddr, SocketAddr};

use admin::report::{Fact, NeighborSettings, Settings};
use bgp_fsm::{PeerAs, SessionConfig};
use bgp_proto::FamilySet;
use bgp_speaker::{PeerConfig, RangeConfig, SpeakerConfig};
use rib::{NextHopMode, Outcome, Policy, Role, Then};

/// What the neighbour at an address comes from, or a range.
type From<'a> = dyn Fn(Option<IpAddr>) -> String + 'a;

/// A speaker's configuration; `from` tells where a neighbour comes from, and a range.
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
    keys.add("prefix", range.prefix);
    keys.add("limit", range.limit);
    keys.of_session(&range.template);
    NeighborSettings {
        name: range.name.clone(),
        keys: keys.0,
        ..policies(&range.template, from(None))
    }
}

fn neighbor(peer: &PeerConfig, from: &From<'_>) -> NeighborSettings {
    let mut keys = Keys::default();
    keys.add("address", peer.remote);
    keys.of_session(peer);
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

    fn add_flag(&mut self, name: &str, value: bool) {
        self.add_if(name, value.then_some(true));
    }

    /// Whatever there is to say of a neighbour, and of those of a range.
    fn of_session(&mut self, peer: &PeerConfig) {
        let session = &peer.session;
        let by_default = SessionConfig::default();
        self.add_if(
            "port",
            Some(peer.port).filter(|port| *port != crate::limits::BGP_PORT),
        );
        self.add_if("source", peer.local);
        self.add_flag("passive", session.passive);
        match session.peer_asn {
            PeerAs::Exactly(asn) => self.add("asn", asn),
            PeerAs::Internal => self.add("asn", "internal"),
            PeerAs::External => self.add("asn", "external"),
            PeerAs::Any => self.add("asn", "any"),
        }
        self.add("local_asn", session.local_asn);
        self.add("families", families(session.families));
        let hold = Some(session.hold_time_s);
        self.add_if(
            "hold_time",
            hold.filter(|hold| *hold != by_default.hold_time_s),
        );
        self.add_if("keepalive", session.keepalive_s);
        let handshake = Some(session.handshake_s);
        self.add_if(
            "handshake_time",
            handshake.filter(|handshake| *handshake != by_default.handshake_s),
        );
        let graceful = session.graceful_restart.as_ref();
        self.add_if("graceful_restart", graceful.map(|graceful| graceful.time_s));
        self.add_if("ttl_security", peer.ttl_security_hops);
        self.add_if("password", peer.password.as_ref().map(|_| "set"));
        self.add_flag("route_reflector_client", peer.role == Role::Client);
        self.add_if("cluster_id", peer.cluster_id);
        match peer.next_hop {
            NextHopMode::Auto => {}
            NextHopMode::Own => self.add("next_hop", "self"),
            NextHopMode::Keep => self.add("next_hop", "keep"),
        }
        self.add_if("own_as_max", Some(peer.own_as_max).filter(|most| *most > 0));
        self.add_if("allow_as_sets", peer.allow_as_sets.then_some(true));
        self.add_if("multihop", peer.multihop.then_some(true));
        for (key, set) in [
            ("add_path receive", session.add_path_receive),
            ("add_path send", session.add_path_send),
        ] {
            self.add_if(key, (!set.is_empty()).then(|| families(set)));
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

/// A policy, term by term.
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
            Then::Next => "goes on",
        };
        format!("{}: {then}", term.name)
    });
    let otherwise = match rules.otherwise {
        Outcome::Accept => "all else: accept",
        Outcome::Reject => "all else: deny",
    };
    terms.chain([otherwise.to_owned()]).collect()
}
