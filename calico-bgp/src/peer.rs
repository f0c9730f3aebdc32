//! One peer of the datastore, as configuration of the speaker.

use std::net::IpAddr;

use bgp_config::SessionKeys;
use bgp_config::limits::{BGP_PORT, RESTART_TIME_S};
use bgp_fsm::{GracefulRestartConfig, PeerAs};
use bgp_proto::{Asn, ClusterId, Family, FamilySet};
use bgp_speaker::{Bfd, PeerConfig, PrefixLimits, SpeakerConfig};
use calico_model::FailureDetectionMode;
use rib::{NextHopMode, Role, SendPaths};

use crate::bfd;
use crate::export::Policies;
use crate::fields;
use crate::limits::NODE_PREFIXES_MAX;
use crate::own::Own;
use crate::view::{Node, Peering};

/// The origin of a peer; the beginning of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The full mesh.
    Mesh,
    /// A BGPPeer of all nodes.
    Global,
    /// The choice of reflectors; or the non-client peers and the clients of a reflector.
    Reflector,
    /// A BGPPeer of this node, of selected nodes, or the reverse side of one.
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

    /// Returns the reason for such peers, unless a resource is the reason.
    const fn reason(self) -> &'static str {
        match self {
            Self::Mesh => "the mesh of all nodes",
            Self::Reflector => "the fabric's reflectors",
            Self::Global | Self::Node => "a BGPPeer",
        }
    }
}

/// One peer as the datastore determines it.
#[derive(Clone, Debug)]
pub(crate) struct Want<'v> {
    pub(crate) origin: Origin,
    pub(crate) remote: IpAddr,
    pub(crate) port: u16,
    pub(crate) asn: Asn,
    /// The local AS towards it.
    pub(crate) local_asn: Asn,
    /// The node that it is, if known.
    pub(crate) node: Option<&'v Node>,
    /// Whether it is a node without route reflector.
    pub(crate) is_plain_node: bool,
    /// The node with its address, with its subnet.
    pub(crate) host: Option<&'v Node>,
    /// The local address of the session.
    pub(crate) source: Option<IpAddr>,
    pub(crate) passive: bool,
    /// The restart time for which the peer is asked to retain this daemon's routes, in seconds.
    pub(crate) restart_time_s: Option<u16>,
    /// The BGPPeer that configures it, if there is one.
    pub(crate) peering: Option<&'v Peering>,
    /// The name of this BGPPeer.
    pub(crate) by: Option<&'v str>,
    pub(crate) keys: Option<SessionKeys>,
    /// Names of filters, in order.
    pub(crate) filters: &'v [String],
    /// Its origin, as text for operators.
    pub(crate) from: String,
    /// The BGPPeer whose `peerSelector` selects it.
    pub(crate) selected: Option<&'v str>,
    /// Whether that BGPPeer selects this node, so that this is the reverse side.
    pub(crate) selects_us: bool,
}

impl<'v> Want<'v> {
    /// Makes a peer of which only the address is known.
    pub(crate) fn new(own: &Own<'v>, origin: Origin, remote: IpAddr) -> Self {
        Self {
            origin,
            remote,
            port: BGP_PORT,
            asn: own.asn,
            local_asn: own.asn,
            node: None,
            is_plain_node: false,
            host: None,
            source: own.node.address_beside(remote),
            passive: false,
            restart_time_s: None,
            peering: None,
            by: None,
            keys: None,
            filters: &[],
            from: origin.reason().to_owned(),
            selected: None,
            selects_us: false,
        }
    }

    /// Makes a peer with the address of a known node.
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
            host: Some(node),
            is_plain_node: !own.reflects(name, node),
            ..Self::new(own, origin, remote)
        }
    }

    /// Returns its name, as Calico's tools show it.
    pub(crate) fn name(&self) -> String {
        let address = self.remote.to_string().replace(['.', ':'], "_");
        let name = format!("{}_{address}", self.origin.word());
        match (self.origin, self.port) {
            (Origin::Mesh, _) | (_, BGP_PORT) => name,
            (_, port) => format!("{name}_port_{port}"),
        }
    }

    /// Returns whether it is in the local AS.
    pub(crate) fn is_internal(&self) -> bool {
        self.asn == self.local_asn
    }

    /// Returns whether it has BFD because the fabric determines it.
    const fn has_fabric_bfd(&self, own: &Own<'_>) -> bool {
        match self.origin {
            Origin::Reflector => own.bfd.reflectors,
            Origin::Mesh => own.bfd.mesh,
            Origin::Global | Origin::Node => false,
        }
    }

    /// Returns Calico's field for BFD of the BGPPeer that configures it.
    fn failure_detection(&self) -> Option<FailureDetectionMode> {
        self.peering?.spec.failure_detection_mode
    }

    /// RFC 4456: clients are internal peers that are not reflectors of the same cluster.
    fn role(&self, own: &Own<'_>) -> Role {
        let cluster = self.node.and_then(|node| node.cluster_id);
        match own.cluster_id {
            _ if !self.is_internal() => Role::External,
            // The other reflectors of the fabric have clusters of their own.
            _ if self.origin == Origin::Reflector => Role::Internal,
            Some(own) if cluster.map(ClusterId) != Some(own) => Role::Client,
            _ => Role::Internal,
        }
    }

    pub(crate) fn peer(self, own: &Own<'_>, policies: &mut Policies<'_>) -> PeerConfig {
        let families = families(self.remote, own.host.families);
        let role = self.role(own);
        // A node with multipath receives several paths, and a reflector then sends them.
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
        peer.session.graceful_restart = Some(
            GracefulRestartConfig::new(self.restart_time_s.unwrap_or(RESTART_TIME_S))
                .with_forwarding(families),
        );
        peer.session.hostname = Some(own.host.name.clone());
        peer.import = policies.import(&self);
        peer.export = policies.export(&self);
        if self.is_plain_node {
            peer.prefix_limits = PrefixLimits::of_all(NODE_PREFIXES_MAX);
        }
        peer.bfd = self.has_fabric_bfd(own).then(Bfd::default);
        if let Some(peering) = self.peering {
            let limits = (peer.prefix_limits.clone(), peer.prefix_limits_out.clone());
            fields::apply(peering, &mut peer);
            // These annotations describe the sessions of the BGPPeer's nodes, not those of their peers.
            if self.selects_us {
                (peer.prefix_limits, peer.prefix_limits_out) = limits;
                peer.is_transit = false;
            }
        }
        let end = (self.host, self.remote);
        peer.bfd = bfd::session(own.node, end, self.failure_detection(), peer.bfd);
        // If this speaker keeps next hops towards a peer, the peer keeps them towards this speaker.
        peer.multihop = peer.next_hop == NextHopMode::Keep;
        if let Some(keys) = self.keys {
            (peer.password, peer.second_password) = (Some(keys.password), keys.second);
        }
        peer
    }
}

/// Returns the families of a session over this address: the routes of its own address family.
fn families(remote: IpAddr, of_speaker: FamilySet) -> FamilySet {
    let family = match remote {
        IpAddr::V4(_) => Family::IPV4_UNICAST,
        IpAddr::V6(_) => Family::IPV6_UNICAST,
    };
    let carried = of_speaker.iter().filter(|carried| *carried == family);
    carried.collect()
}

/// Returns whether this node is passive towards a node, so that one side of each pair dials. Both
/// sides compare the same two texts, as Calico does.
pub(crate) fn waits_for(own: IpAddr, remote: IpAddr) -> bool {
    remote.to_string() > own.to_string()
}
