//! What an operator decides: the speaker, its peers and the ranges that dynamic peers come from.

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
    /// Our autonomous system.
    pub local_asn: Asn,
    /// Our BGP Identifier (RFC 6286).
    pub router_id: RouterId,
    /// Our CLUSTER_ID as a route reflector (RFC 4456 §7); the router id when absent.
    pub cluster_id: Option<ClusterId>,
    /// The families this speaker has tables for; a peer's families are cut down to these.
    pub families: FamilySet,
    /// How many equally good paths a prefix may use at once; at least 1.
    pub multipath_max: u16,
    /// Whether next hops are resolved by the driver or taken as reachable.
    pub next_hops: NextHops,
    /// The IPv4 address put into our own routes; the session's local address when absent.
    pub own_next_hop_v4: Option<Ipv4Addr>,
    /// The IPv6 address put into our own routes; the session's local address when absent.
    pub own_next_hop_v6: Option<Ipv6Addr>,
    /// The configured peers.
    pub peers: Vec<PeerConfig>,
    /// The ranges from which unknown peers are accepted.
    pub ranges: Vec<RangeConfig>,
}

impl SpeakerConfig {
    /// A speaker with tables for IPv4 and IPv6 unicast that takes next hops as reachable and has
    /// no peers yet; what else there is to decide is as little as it can be.
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

    /// A peer of this speaker, to be put among its [`peers`](Self::peers): named by its address,
    /// offered this speaker's families. Inside our AS everything is accepted and announced; with an
    /// external one nothing is before it has a policy (RFC 8212).
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

    /// Returns a peer of this speaker of which nothing else is said yet.
    pub(crate) fn vacant(&self) -> PeerConfig {
        let mut peer = PeerConfig::vacant();
        (peer.session.local_asn, peer.session.local_id) = (self.local_asn, self.router_id);
        peer.session.families = self.families;
        peer
    }

    /// The longest range that covers an address, and its place among the ranges.
    #[must_use]
    pub fn range_of(&self, address: IpAddr) -> Option<(usize, &RangeConfig)> {
        let ranges = self.ranges.iter().enumerate();
        let covering = ranges.filter(|(_, range)| range.covers(address));
        covering.max_by_key(|(_, range)| range.prefix.len())
    }

    /// Every CLUSTER_ID in use: the speaker's and those of its clients.
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

    /// The CLUSTER_ID in force (RFC 4456 §7).
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        self.cluster_id.unwrap_or(ClusterId(self.router_id.0))
    }
}

/// Returns what stands in for the policy that an external peer lacks: nothing passes (RFC 8212 §2).
/// It differs from [`Policy::RejectAll`] only in its name, which reports show.
#[must_use]
pub fn no_policy() -> Policy {
    Policy::from(Rules {
        name: "deny (no policy, RFC 8212)".to_owned(),
        terms: Vec::new(),
        otherwise: Outcome::Reject,
    })
}

/// A range of addresses from which peers may come unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeConfig {
    /// The operator's name for it.
    pub name: String,
    /// The remote addresses covered.
    pub prefix: Prefix,
    /// How many sessions of this range may exist at once; the one too many is told so.
    pub limit: u16,
    /// Whether those of it that were there before a restart of ours are waited for
    /// ([`crate::Restart::dynamic`]): not where it is known that they have gone elsewhere. Whoever
    /// comes all the same is waited for once there.
    pub awaited: bool,
    /// The peer each of them becomes; its `name` and `remote` are filled in, it never dials.
    pub template: PeerConfig,
}

impl PeerConfig {
    /// Returns the attributes of an administrative domain that pass the session although the peer
    /// is in another AS.
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
    /// What the peer at an address of the range becomes.
    #[must_use]
    pub fn peer(&self, remote: IpAddr) -> PeerConfig {
        let mut peer = self.template.clone();
        peer.name = format!("{}-{remote}", self.name);
        peer.remote = remote;
        peer.session.passive = true;
        peer
    }

    /// Whether `address` lies in the range.
    #[must_use]
    pub fn covers(&self, address: IpAddr) -> bool {
        self.prefix.contains(address)
    }
}
