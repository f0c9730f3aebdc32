//! One peer out of the store, as the speaker takes it.

use std::net::IpAddr;

use bgp_config::limits::{BGP_PORT, RESTART_TIME_S};
use bgp_fsm::{GracefulRestartConfig, PeerAs};
use bgp_proto::{Asn, ClusterId, Family, FamilySet};
use bgp_speaker::{Password, PeerConfig, SpeakerConfig};
use rib::{NextHopMode, Role, SendPaths};

use crate::export::Policies;
use crate::fields;
use crate::own::Own;
use crate::view::{Node, Peering};

/// Where a peer comes from; the beginning of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The mesh of all nodes.
    Mesh,
    /// A peering of all nodes.
    Global,
    /// The choice of reflectors, or a reflector's fellows and clients.
    Reflector,
    /// A peering of this node, or of some, or the other side of one.
    Node,
}

impl Origin {
    const fn word(self) -> &'static str {
        match self {
            Self::Mesh => "Mesh",
            Self::Reflector => "Reflector",
            Self::Global => "Global",
            Self::Node => "Node",
        }
    }

    /// What puts such peers there, unless a resource does.
    const fn reason(self) -> &'static str {
        match self {
            Self::Mesh => "the mesh of all nodes",
            Self::Reflector => "the fabric's reflectors",
            Self::Global | Self::Node => "a BGPPeer",
        }
    }
}

/// What the store says of one peer.
#[derive(Clone, Debug)]
pub(crate) struct Want<'v> {
    pub(crate) origin: Origin,
    pub(crate) remote: IpAddr,
    pub(crate) port: u16,
    pub(crate) asn: Asn,
    /// Our AS towards it.
    pub(crate) local_asn: Asn,
    /// The node that it is, as far as is known.
    pub(crate) node: Option<&'v Node>,
    /// The address to dial from, and to be dialled on.
    pub(crate) source: Option<IpAddr>,
    pub(crate) passive: bool,
    /// How long it shall keep our routes over a restart of ours, in seconds.
    pub(crate) restart_time_s: Option<u16>,
    /// The BGPPeer that it is there for, if it is one.
    pub(crate) peering: Option<&'v Peering>,
    pub(crate) password: Option<Password>,
    /// Names of filters, in order.
    pub(crate) filters: &'v [String],
    /// What it comes from, for people.
    pub(crate) from: String,
    /// The BGPPeer whose `peerSelector` it is there for.
    pub(crate) selected: Option<&'v str>,
    /// Whether that one selects us, and this is the other side of it.
    pub(crate) selects_us: bool,
}

impl<'v> Want<'v> {
    /// A peer of which nothing but the address is known.
    pub(crate) fn new(own: &Own<'v>, origin: Origin, remote: IpAddr) -> Self {
        Self {
            origin,
            remote,
            port: BGP_PORT,
            asn: own.asn,
            local_asn: own.asn,
            node: None,
            source: own.node.address_beside(remote),
            passive: false,
            restart_time_s: None,
            peering: None,
            password: None,
            filters: &[],
            from: origin.reason().to_owned(),
            selected: None,
            selects_us: false,
        }
    }

    /// The same, of an address of a node.
    pub(crate) fn of_node(
        own: &Own<'v>,
        origin: Origin,
        (name, node): (&str, &'v Node),
        remote: IpAddr,
    ) -> Self {
        Self {
            port: own.port_of(name),
            asn: own.asn_of(node),
            node: Some(node),
            ..Self::new(own, origin, remote)
        }
    }

    /// Its name, as Calico's tools know it.
    pub(crate) fn name(&self) -> String {
        let address = self.remote.to_string().replace(['.', ':'], "_");
        let name = format!("{}_{address}", self.origin.word());
        match (self.origin, self.port) {
            (Origin::Mesh, _) | (_, BGP_PORT) => name,
            (_, port) => format!("{name}_port_{port}"),
        }
    }

    /// Whether it is of our own AS.
    pub(crate) fn is_internal(&self) -> bool {
        self.asn == self.local_asn
    }

    /// RFC 4456: our clients are internal peers that are no reflectors of our own cluster.
    fn role(&self, own: &Own<'_>) -> Role {
        let cluster = self.node.and_then(|node| node.cluster_id);
        match own.cluster_id {
            _ if !self.is_internal() => Role::External,
            // Fellow reflectors of the fabric are in clusters of their own.
            _ if self.origin == Origin::Reflector => Role::Internal,
            Some(own) if cluster.map(ClusterId) != Some(own) => Role::Client,
            _ => Role::Internal,
        }
    }

    pub(crate) fn peer(self, own: &Own<'_>, policies: &mut Policies<'_>) -> PeerConfig {
        let families = families(self.remote, own.host.families);
        let role = self.role(own);
        // Who can use several paths at once takes them, and a reflector then has them to give.
        let several = own.host.multipath_max > 1;
        let sends = several && role == Role::Client;
        let mut peer = SpeakerConfig::new(own.asn, own.router_id).neighbor(self.remote, role);
        (peer.name, peer.port, peer.local) = (self.name(), self.port, self.source);
        peer.session.local_asn = self.local_asn;
        peer.session.peer_asn = PeerAs::Exactly(self.asn);
        peer.session.passive = self.passive;
        peer.session.families = families;
        if several {
            peer.session.add_path_receive = families;
        }
        if sends {
            peer.session.add_path_send = families;
            peer.send_paths = families.iter().map(|f| (f, SendPaths::EqualCost)).collect();
        }
        peer.session.graceful_restart = Some(GracefulRestartConfig {
            time_s: self.restart_time_s.unwrap_or(RESTART_TIME_S),
            restarting: false,
            families_forwarding: families,
        });
        peer.session.hostname = Some(own.host.name.clone());
        peer.import = policies.import(&self);
        peer.export = policies.export(&self);
        if let Some(peering) = self.peering {
            fields::apply(peering, &mut peer);
        }
        // Where we keep next hops towards a peer, it keeps those of others towards us.
        peer.multihop = peer.next_hop == NextHopMode::Keep;
        peer.password = self.password;
        peer
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
pub(crate) fn waits_for(own: IpAddr, remote: IpAddr) -> bool {
    remote.to_string() > own.to_string()
}
