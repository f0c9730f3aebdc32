//! The configuration by the operator: the speaker, its peers and the ranges of dynamic peers.

use alloc::{
    borrow::ToOwned,
    collections::BTreeSet,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp_fsm::PeerAs;
use bgp_proto::{Asn, AttrCode, AttrCodes, ClusterId, FamilySet, Prefix, RouterId};
use rib::{NextHops, Outcome, Policy, Role, Rules};

use crate::keys::PeerConfig;
pub use values::{LimitAction, Password, PrefixLimit};

mod values;

/// The whole configuration of a [`crate::Speaker`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeakerConfig {
    /// Local autonomous system.
    pub local_asn: Asn,
    /// Local BGP Identifier (RFC 6286).
    pub router_id: RouterId,
    /// CLUSTER_ID of this speaker as a route reflector (RFC 4456 §7); the router ID if absent.
    pub cluster_id: Option<ClusterId>,
    /// The families with tables; a peer's other families are ignored.
    pub families: FamilySet,
    /// How many equal-cost paths a prefix may use at once; at least 1.
    pub multipath_max: u16,
    /// Whether the driver resolves next hops, or all are treated as reachable.
    pub next_hops: NextHops,
    /// The IPv4 next hop of locally originated routes; the session's local address if absent.
    pub own_next_hop_v4: Option<Ipv4Addr>,
    /// The IPv6 next hop of locally originated routes; the session's local address if absent.
    pub own_next_hop_v6: Option<Ipv6Addr>,
    /// The configured peers.
    pub peers: Vec<PeerConfig>,
    /// The ranges from which unconfigured peers are accepted.
    pub ranges: Vec<RangeConfig>,
}

impl SpeakerConfig {
    /// Returns a speaker with tables for IPv4 and IPv6 unicast that treats next hops as reachable
    /// and has no peers; all other settings are minimal.
    #[must_use]
    pub const fn new(local_asn: Asn, router_id: RouterId) -> Self {
        Self {
            local_asn,
            router_id,
            cluster_id: None,
            families: FamilySet::UNICAST,
            multipath_max: 1,
            next_hops: NextHops::AssumeReachable,
            own_next_hop_v4: None,
            own_next_hop_v6: None,
            peers: Vec::new(),
            ranges: Vec::new(),
        }
    }

    /// Returns a peer of this speaker, to be added to its [`peers`](Self::peers): named by its
    /// address, with this speaker's families. An internal peer accepts and advertises all routes;
    /// an external one none until a policy is set (RFC 8212).
    #[must_use]
    pub fn neighbor(&self, remote: IpAddr, role: Role) -> PeerConfig {
        let (peer_asn, policy) = match role.is_internal() {
            true => (PeerAs::Internal, Policy::AcceptAll),
            false => (PeerAs::External, Policy::RejectAll),
        };
        let mut peer = self.vacant();
        (peer.name, peer.remote, peer.role) = (remote.to_string(), remote, role);
        peer.session.peer_asn = peer_asn;
        (peer.import, peer.export) = (policy.clone(), policy);
        peer
    }

    /// Returns a peer of this speaker with default settings.
    pub(crate) fn vacant(&self) -> PeerConfig {
        let mut peer = PeerConfig::vacant();
        (peer.session.local_asn, peer.session.local_id) = (self.local_asn, self.router_id);
        peer.session.families = self.families;
        peer
    }

    /// Returns the longest range that covers an address, with its index.
    #[must_use]
    pub fn range_of(&self, address: IpAddr) -> Option<(usize, &RangeConfig)> {
        let ranges = self.ranges.iter().enumerate();
        let covering = ranges.filter(|(_, range)| range.covers(address));
        covering.max_by_key(|(_, range)| range.prefix.len())
    }

    /// Returns every CLUSTER_ID in use: the speaker's and those of its clients.
    #[must_use]
    pub fn cluster_ids(&self) -> BTreeSet<ClusterId> {
        let ranges = self.ranges.iter().map(|range| &range.template);
        let own = self
            .peers
            .iter()
            .chain(ranges)
            .filter_map(|peer| peer.cluster_id);
        own.chain([self.cluster_id()]).collect()
    }

    /// Returns the CLUSTER_ID in effect (RFC 4456 §7).
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        self.cluster_id.unwrap_or(ClusterId(self.router_id.0))
    }
}

/// Returns the default policy of an external peer without a policy: all routes are rejected (RFC
/// 8212 §2). It differs from [`Policy::RejectAll`] only in its name, which reports show.
#[must_use]
pub fn no_policy() -> Policy {
    Policy::from(Rules {
        name: "deny (no policy, RFC 8212)".to_owned(),
        terms: Vec::new(),
        otherwise: Outcome::Reject,
    })
}

/// A range of addresses from which unconfigured peers are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeConfig {
    /// Its configured name.
    pub name: String,
    /// The remote addresses covered.
    pub prefix: Prefix,
    /// The maximum number of peers of this range at once; a peer beyond it is rejected with a
    /// NOTIFICATION.
    pub limit: u16,
    /// Whether the speaker waits after its restart for peers of this range that had a session
    /// before ([`crate::Restart::dynamic`]): not if they are known to have chosen other reflectors.
    /// A peer that connects nevertheless is waited for from then on.
    pub awaited: bool,
    /// The configuration of each of these peers, except its `name` and `remote`; the speaker never
    /// dials them.
    pub template: PeerConfig,
}

impl PeerConfig {
    /// Returns the attributes of an administrative domain that are accepted although the peer is in
    /// another AS.
    pub(crate) fn domain(&self) -> AttrCodes {
        let allowed = [
            (self.aigp, AttrCode::Aigp),
            (self.tunnel_encapsulation, AttrCode::TunnelEncapsulation),
            (self.prefix_sid, AttrCode::PrefixSid),
        ];
        let allowed = allowed.into_iter().filter(|(is_allowed, _)| *is_allowed);
        allowed.map(|(_, code)| code).collect()
    }
}

impl RangeConfig {
    /// Returns the configuration of the peer at an address of the range.
    #[must_use]
    pub fn peer(&self, remote: IpAddr) -> PeerConfig {
        let mut peer = self.template.clone();
        peer.name = format!("{}-{remote}", self.name);
        peer.remote = remote;
        peer.session.passive = true;
        peer
    }

    /// Returns whether `address` is in the range.
    #[must_use]
    pub fn covers(&self, address: IpAddr) -> bool {
        self.prefix.contains(address)
    }
}
