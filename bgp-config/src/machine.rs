//! Checks of a file against the machine, and against the packaged example.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use daemon_common::config::{Problem, Problems};

use crate::file::{BgpFile, listen_default};
use crate::limits::{BGP_PORT, SAMPLE_ROUTER_IDS};
use crate::section::Section;

impl<K, D, N> BgpFile<K, D, N> {
    /// Reports neighbors that are this daemon itself: their address and port are ones on which it
    /// listens. `is_local` returns whether the machine has an address; the file contains further
    /// local addresses.
    pub fn check_own_addresses(
        &self,
        is_local: impl Fn(IpAddr) -> bool,
        problems: &mut Problems<'_>,
    ) {
        let listen: Vec<SocketAddr> = self.listen.as_ref().map_or_else(
            || listen_default(BGP_PORT),
            |listen| listen.get_ref().iter().map(|at| *at.get_ref()).collect(),
        );
        let own = self.own_addresses();
        let is_own = |address: IpAddr| own.contains(&address) || is_local(address);
        for neighbor in &self.neighbor {
            let (Some(address), Some(place)) = (neighbor.address(), neighbor.0.place_of("address"))
            else {
                continue;
            };
            let port = neighbor.port().unwrap_or(BGP_PORT);
            let covers = |at: &&SocketAddr| {
                let same_family = at.is_ipv4() == address.is_ipv4();
                let all = at.ip().is_unspecified() && same_family && is_own(address);
                at.port() == port && (at.ip() == address || all)
            };
            if let Some(at) = listen.iter().find(covers) {
                let message =
                    format!("the neighbor {address} is this daemon itself, which listens on {at}");
                let problem = Problem::at(place.clone(), message);
                problems.push(problem.help("give the address of the other speaker"));
            }
        }
    }

    /// Returns the local addresses in the file.
    fn own_addresses(&self) -> BTreeSet<IpAddr> {
        let router_id = self.router_id.as_ref().map(|id| IpAddr::V4(*id.get_ref()));
        let sources = self.neighbor.iter().filter_map(Section::source);
        router_id.into_iter().chain(sources).collect()
    }

    /// Reports a router ID that is the example of the packaged file.
    pub fn check_sample(&self, problems: &mut Problems<'_>) {
        let Some(id) = &self.router_id else {
            return;
        };
        if SAMPLE_ROUTER_IDS.contains(id.get_ref()) {
            let message = format!(
                "router_id {} is the example of the packaged file",
                id.get_ref()
            );
            let help = "set it to an IPv4 address of this host, which no other speaker has";
            problems.push(Problem::at(id.span(), message).help(help));
        }
    }
}
