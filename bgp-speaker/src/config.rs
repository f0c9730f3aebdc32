//! The configuration by the operator: the speaker, its peers and the ranges of dynamic peers.

use alloc::{
    collections::BTreeSet,
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp_fsm::PeerAs;
use bgp_proto::{Asn, AttrCode, AttrCodes, ClusterId, FamilySet, Prefix, RouterId};
use rib::{
    DecisionRules, NextHops, OriginRules, Outcome, Policy, RibConfig, RibLimits, Role, Rules,
};

use crate::keys::PeerConfig;
pub use values::{
    Bfd, BfdAuth, BfdGraceful, BfdKeysError, BfdMode, LimitAction, Password, PrefixLimit,
    PrefixLimitOut, PrefixLimits, PrefixLimitsOut,
};

mod values;

/// The whole configuration of a [`crate::Speaker`]: [`SpeakerConfig::new`], then what is to differ.
///
/// ```
/// use bgp_speaker::bgp_proto::{Asn, RouterId};
/// use bgp_speaker::rib::Role;
/// use bgp_speaker::{RangeConfig, SpeakerConfig};
///
/// let mut config = SpeakerConfig::new(Asn(64512), RouterId("192.0.2.1".parse()?));
/// config.multipath_max = 4;
/// config.decision.always_compare_med = true;
/// let template = config.neighbor("198.51.100.0".parse()?, Role::Client);
/// let clients = RangeConfig::new("198.51.100.0/24".parse()?, 100, template);
/// let config = config.with_range(clients);
/// assert!(config.range_of("198.51.100.7".parse()?).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpeakerConfig {
    /// Local autonomous system.
    pub local_asn: Asn,
    /// Local BGP Identifier (RFC 6286).
    pub router_id: RouterId,
    /// CLUSTER_ID of this speaker as a route reflector (RFC 4456 §7); the router ID if absent.
    pub cluster_id: Option<ClusterId>,
    /// The families with tables; a peer's other families are ignored.
    pub families: FamilySet,
    /// The options of the decision process.
    pub decision: DecisionRules,
    /// How many equal-cost paths a prefix may use at once; at least 1.
    pub multipath_max: u16,
    /// Whether the driver resolves next hops, or all are treated as reachable.
    pub next_hops: NextHops,
    /// How much the tables keep for readers and peers that lag behind.
    pub limits: RibLimits,
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
            decision: DecisionRules::DEFAULT,
            multipath_max: 1,
            next_hops: NextHops::AssumeReachable,
            limits: RibLimits::DEFAULT,
            own_next_hop_v4: None,
            own_next_hop_v6: None,
            peers: Vec::new(),
            ranges: Vec::new(),
        }
    }

    /// Returns the configuration with one more peer.
    #[must_use]
    pub fn with_peer(self, peer: PeerConfig) -> Self {
        self.with_peers([peer])
    }

    /// Returns the configuration with these peers beside those that it has.
    #[must_use]
    pub fn with_peers(mut self, peers: impl IntoIterator<Item = PeerConfig>) -> Self {
        self.peers.extend(peers);
        self
    }

    /// Returns the configuration with one more range.
    #[must_use]
    pub fn with_range(mut self, range: RangeConfig) -> Self {
        self.ranges.push(range);
        self
    }

    /// Returns what the tables are made with.
    #[must_use]
    pub fn rib(&self) -> RibConfig {
        RibConfig::new(self.local_asn, self.router_id).with(|config| {
            config.cluster_ids = self.cluster_ids();
            config.decision = self.decision;
            config.multipath_max = self.multipath_max;
            config.next_hops = self.next_hops;
            config.limits = self.limits;
        })
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
    Policy::from(Rules::new(
        "deny (no policy, RFC 8212)",
        Vec::new(),
        Outcome::Reject,
    ))
}

/// A range of addresses from which unconfigured peers are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

    /// Returns the settings for the validation of the origin of its routes.
    pub(crate) const fn origin(&self) -> OriginRules {
        OriginRules {
            mode: self.origin_validation,
            is_transit: self.is_transit,
        }
    }
}

impl RangeConfig {
    /// Returns the range with the prefix as its name, whose peers are waited for after a restart.
    #[must_use]
    pub fn new(prefix: Prefix, limit: u16, template: PeerConfig) -> Self {
        Self {
            name: prefix.to_string(),
            prefix,
            limit,
            awaited: true,
            template,
        }
    }

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
