//! What an operator decides: the speaker, its peers and the ranges that dynamic peers come from.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Deref,
};

use bgp_fsm::{PeerAs, SessionConfig};
use bgp_proto::{Asn, ClusterId, Family, FamilySet, Prefix, RouterId};
use rib::{NextHopMode, NextHops, Policy, Role, SendPaths};

use crate::limits::BGP_PORT;

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
        PeerConfig {
            name: remote.to_string(),
            remote,
            port: BGP_PORT,
            local: None,
            role,
            session: SessionConfig {
                local_asn: self.local_asn,
                local_id: self.router_id,
                peer_asn,
                families: self.families,
                ..SessionConfig::default()
            },
            next_hop: NextHopMode::Auto,
            import: policy.clone(),
            own_as_max: 0,
            allow_as_sets: false,
            multihop: false,
            export: policy,
            send_paths: BTreeMap::new(),
            cluster_id: None,
            prefix_limits: BTreeMap::new(),
            ttl_security_hops: None,
            password: None,
        }
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

/// One configured peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// The operator's name for it, unique within the speaker.
    pub name: String,
    /// The peer's address.
    pub remote: IpAddr,
    /// The TCP port we dial.
    pub port: u16,
    /// The address we dial from, and the only one we accept its connections on.
    pub local: Option<IpAddr>,
    /// What the peer is to us (RFC 4456 §1).
    pub role: Role,
    /// The session: AS numbers, timers, families, capabilities.
    pub session: SessionConfig,
    /// Which next hop we announce to it.
    pub next_hop: NextHopMode,
    /// What we accept from it.
    pub import: Policy,
    /// How often our own AS number may be in the AS_PATH of what it sends (RFC 4271 §9.1.2).
    pub own_as_max: u8,
    /// Whether its routes may have an AS_SET or AS_CONFED_SET in the AS_PATH. Without it they are
    /// not used (RFC 9774 §3).
    pub allow_as_sets: bool,
    /// Whether an external peer may be more than one hop away, so that its next hops need not be
    /// on a link to it (RFC 4271 §5.1.3).
    pub multihop: bool,
    /// What we announce to it.
    pub export: Policy,
    /// Which paths of a prefix we send it in the families in which the session sends several
    /// ([`SessionConfig::add_path_send`], RFC 7911); all of them where nothing is said.
    pub send_paths: BTreeMap<Family, SendPaths>,
    /// The cluster it belongs to as our client, if another than the speaker's (RFC 4456 §7).
    pub cluster_id: Option<ClusterId>,
    /// How many paths it may announce, by family.
    pub prefix_limits: BTreeMap<Family, PrefixLimit>,
    /// GTSM (RFC 5082): the hops the peer may be away; 1 for a neighbour on the same link.
    pub ttl_security_hops: Option<u8>,
    /// The TCP-MD5 key (RFC 2385).
    pub password: Option<Password>,
}

/// How many paths of a family a peer may announce (RFC 4271 §6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixLimit {
    /// So many.
    pub max: u32,
    /// From this share of it on, in per cent, the operator is warned.
    pub warn_percent: u8,
    /// What happens beyond it.
    pub action: LimitAction,
}

/// What happens when a peer announces more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitAction {
    /// The operator is told.
    Warn,
    /// What is too many is refused.
    Drop,
    /// The session ends (Cease/Maximum Number of Prefixes Reached, RFC 4486 §4) and may come back
    /// after this many seconds.
    Restart {
        /// How long it rests.
        after_s: u32,
    },
}

/// A TCP-MD5 key, which no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl From<&str> for Password {
    fn from(key: &str) -> Self {
        Self(key.into())
    }
}

impl From<String> for Password {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl Deref for Password {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(hidden)")
    }
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
