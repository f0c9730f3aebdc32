//! The tables of a network's speakers.

use std::net::IpAddr;

use bgp_speaker::bgp_fsm::State;
use bgp_speaker::bgp_proto::{Family, Net};

use super::{Network, Node};

impl<N: Node> Network<N> {
    /// Returns the addresses of the peers with which a speaker has established sessions, in order.
    ///
    /// # Panics
    /// If there is no such speaker.
    #[must_use]
    pub fn established(&self, number: usize) -> Vec<IpAddr> {
        let peers = self.speaker(number).peers();
        let up = peers.filter(|peer| peer.session.state() == State::Established);
        let mut addresses: Vec<IpAddr> = up.map(|peer| peer.config.remote).collect();
        addresses.sort_unstable();
        addresses
    }

    /// Returns the prefixes of a family for which a speaker has a best path (Loc-RIB), in order of
    /// their text.
    ///
    /// # Panics
    /// If there is no such speaker.
    #[must_use]
    pub fn loc_rib(&self, number: usize, family: Family) -> Vec<String> {
        let views = self.speaker(number).rib().prefixes(family);
        let best = views.filter(|view| view.best().is_some());
        let mut nets: Vec<String> = best.map(|view| name(view.net)).collect();
        nets.sort();
        nets
    }

    /// Returns the prefixes of a family that a speaker advertises to a peer (Adj-RIB-Out), in order
    /// of their text.
    ///
    /// # Panics
    /// If there is no such speaker, or it has no such peer.
    #[must_use]
    pub fn adj_rib_out(&self, number: usize, family: Family, to: IpAddr) -> Vec<String> {
        let speaker = self.speaker(number);
        let peer = speaker.peers().find(|peer| peer.config.remote == to);
        let peer = peer
            .unwrap_or_else(|| panic!("speaker {number} has no peer {to}"))
            .id;
        let views = speaker.rib().prefixes(family);
        let sent = views.filter(|view| {
            let mut paths = speaker.sent_paths(family, view.net);
            paths.any(|(of, _)| of == peer)
        });
        let mut nets: Vec<String> = sent.map(|view| name(view.net)).collect();
        nets.sort();
        nets
    }
}

/// The family of a unicast prefix.
pub(super) const fn family(net: Net<'_>) -> Family {
    match net {
        Net::V6(_) => Family::IPV6_UNICAST,
        _ => Family::IPV4_UNICAST,
    }
}

fn name(net: Net<'_>) -> String {
    match net.prefix() {
        Some(prefix) => prefix.to_string(),
        None => format!("{net:?}"),
    }
}
