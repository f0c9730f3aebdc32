//! One peer out of the store, as the speaker takes it.

use std::net::IpAddr;

use bgp_fsm::{GracefulRestartConfig, PeerAs, SessionConfig};
use bgp_proto::{Asn, Family, FamilySet};
use bgp_speaker::PeerConfig;
use rib::{NextHopMode, Policy, Role};

use super::derive::Own;
use crate::limits::{BGP_PORT, RESTART_TIME_S};

/// Where a peer comes from; the beginning of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The mesh of all nodes.
    Mesh,
    /// The choice of reflectors, or a reflector's fellows and clients.
    Reflector,
}

impl Origin {
    const fn word(self) -> &'static str {
        match self {
            Self::Mesh => "Mesh",
            Self::Reflector => "Reflector",
        }
    }
}

/// What the store says of one peer.
#[derive(Clone, Debug)]
pub(super) struct Want {
    pub(super) origin: Origin,
    pub(super) remote: IpAddr,
    pub(super) port: u16,
    pub(super) asn: Asn,
    /// The address to dial from, and to be dialled on.
    pub(super) source: Option<IpAddr>,
    pub(super) passive: bool,
}

impl Want {
    /// Its name, as Calico's tools know it.
    pub(super) fn name(&self) -> String {
        let address = self.remote.to_string().replace(['.', ':'], "_");
        let name = format!("{}_{address}", self.origin.word());
        match self.port {
            BGP_PORT => name,
            port => format!("{name}_port_{port}"),
        }
    }

    pub(super) fn peer(&self, own: &Own<'_>) -> PeerConfig {
        let families = families(self.remote, own.host.families);
        PeerConfig {
            name: self.name(),
            remote: self.remote,
            port: self.port,
            local: self.source,
            role: if self.asn == own.asn {
                Role::Internal
            } else {
                Role::External
            },
            session: SessionConfig {
                local_asn: own.asn,
                local_id: own.router_id,
                peer_asn: PeerAs::Exactly(self.asn),
                passive: self.passive,
                families,
                graceful_restart: Some(GracefulRestartConfig {
                    time_s: RESTART_TIME_S,
                    restarting: false,
                    families_forwarding: families,
                }),
                hostname: Some(own.host.name.clone()),
                ..SessionConfig::default()
            },
            next_hop: NextHopMode::Auto,
            import: Policy::AcceptAll,
            export: Policy::AcceptAll,
            send_paths: Default::default(),
            cluster_id: None,
            prefix_limits: Default::default(),
            ttl_security_hops: None,
            password: None,
        }
    }
}

/// What a session over this address carries: the routes of its own family.
fn families(remote: IpAddr, of_speaker: FamilySet) -> FamilySet {
    let family = match remote {
        IpAddr::V4(_) => Family::IPV4_UNICAST,
        IpAddr::V6(_) => Family::IPV6_UNICAST,
    };
    let carried = of_speaker.iter().filter(|carried| *carried == family);
    carried.collect()
}

/// Whether we wait for a node instead of dialling it, so that one side of each pair dials. Both
/// compare the same two texts, as Calico does.
pub(super) fn waits_for(own: IpAddr, remote: IpAddr) -> bool {
    remote.to_string() > own.to_string()
}
