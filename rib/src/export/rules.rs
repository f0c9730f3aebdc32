//! The advertisement rules of a group, and the changes of attributes (RFC 4271 §5 and §9.1.3, RFC
//! 4456 §6 to §10, RFC 1997).

use alloc::collections::BTreeMap;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use bgp_proto::{
    Asn, AttrCodes, Attributes, ClusterId, Community, ExtendedCommunity, Family, FamilyRow,
    Framing, NextHop, NextHopForm, RouterId,
};

use crate::attributes::{HopForm, LOCAL_PREF_DEFAULT, Scope};
use crate::peer::PeerInfo;
use crate::policy::{Policy, insert};
use crate::role::Role;

/// Octets in 1 Mbit.
const OCTETS_PER_MEGABIT: f32 = 125_000.0;

/// The number of an update group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// The paths of a prefix that are sent where several may be (RFC 7911).
///
/// Paths are counted before any is excluded by the advertisement rules of a peer, or because its
/// source does not receive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendPaths {
    /// The best one, the best of the others, and so on, up to this many; 0 counts as 1.
    Best(u8),
    /// Paths that are equal to the best one down to the cost of the next hop, which precedes the
    /// comparison of BGP Identifiers: the multipath set.
    EqualCost,
    /// All usable ones.
    All,
}

impl fmt::Display for SendPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best(most) => write!(f, "best {most}"),
            Self::EqualCost => f.write_str("equal-cost"),
            Self::All => f.write_str("all"),
        }
    }
}

/// The advertised next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextHopMode {
    /// As the RFCs require: the local address towards external peers and for locally originated
    /// routes, the received one towards internal peers (RFC 4271 §5.1.3, RFC 4456 §10).
    #[default]
    Auto,
    /// Always the local address, also for reflected routes.
    Own,
    /// Always the received one; the local address only if there is none.
    Keep,
}

/// Everything that determines the routes sent to the members of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupRules {
    /// The role of the members.
    pub role: Role,
    /// The local AS number towards them.
    pub local_asn: Asn,
    /// Their AS number.
    pub peer_asn: Asn,
    /// Their next hop mode.
    pub next_hop: NextHopMode,
    /// The local address as next hop of IPv4 routes.
    pub own_next_hop_v4: Option<Ipv4Addr>,
    /// The local address as next hop of IPv6 routes.
    pub own_next_hop_v6: Option<Ipv6Addr>,
    /// Whether the members support IPv4 routes with an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
    /// Whether the members support long-lived graceful restart (RFC 9494). Other members are not sent
    /// routes with LLGR_STALE, except internal peers.
    pub long_lived: bool,
    /// The bandwidth in Mbit/s that is sent with routes of which the next hop is the local address.
    pub link_bandwidth: Option<u32>,
    /// The cluster of the members, if they are clients (RFC 4456 §7).
    pub cluster_id: ClusterId,
    /// The attributes restricted to an administrative domain that members in another AS receive.
    pub domain: AttrCodes,
    /// The export policy.
    pub export: Policy,
    /// The families in which the members are sent several paths of a prefix (RFC 7911), and which
    /// ones.
    pub add_path: BTreeMap<Family, SendPaths>,
}

impl GroupRules {
    /// Returns the paths that are sent in a family; `None` for the best one only.
    pub(crate) fn send_paths(&self, family: Family) -> Option<SendPaths> {
        self.add_path.get(&family).copied()
    }

    /// Returns whether routes of this source and scope may be advertised to the members at all.
    /// `is_llgr_stale` states whether they have LLGR_STALE.
    pub(crate) fn passes(&self, source: Role, scope: Scope, is_llgr_stale: bool) -> bool {
        if is_llgr_stale && !self.long_lived && !self.role.is_internal() {
            return false; // RFC 9494 §4.3
        }
        // RFC 1997: NO_ADVERTISE; NO_EXPORT and NO_EXPORT_SUBCONFED.
        match scope {
            Scope::Everywhere => {}
            Scope::OwnAs if self.role.is_internal() => {}
            Scope::OwnAs | Scope::NoPeer => return false,
        }
        match (source, self.role) {
            (_, Role::Local) => false,
            // RFC 4456 §6: a route from a non-client is reflected to clients only; without
            // reflection this is RFC 4271 §9.2: internal routes are not advertised to internal
            // peers.
            (Role::Internal, Role::Internal) => false,
            _ => true,
        }
    }

    /// Returns whether routes of a family are sent back to their source, too, as if this speaker
    /// had originated them: route target memberships to clients. Only in this way does a client
    /// learn that its routes are wanted by others. RFC 4684 §3.2
    pub(crate) fn echoes(&self, row: &FamilyRow) -> bool {
        row.is_membership() && self.role == Role::Client
    }

    /// Returns the rules for one family.
    pub(crate) fn in_family(mut self, row: &FamilyRow) -> Self {
        if self.echoes(row) && self.own_next_hop(row).is_some() {
            self.next_hop = NextHopMode::Own; // RFC 4684 §3.2
        }
        self
    }

    fn own_next_hop(&self, row: &FamilyRow) -> Option<NextHop> {
        let v6 = || self.own_next_hop_v6.map(NextHop::v6);
        match row.framing {
            Framing::Ipv4 => self.own_next_hop_v4.map(NextHop::V4),
            Framing::Ipv6 => v6(),
            Framing::RouteTarget => self.own_next_hop_v4.map(NextHop::V4).or_else(v6),
            // With the local address as next hop, labels would have to be local, too.
            _ => None,
        }
    }

    /// Returns whether the received next hop is advertised.
    fn keeps(&self, received: HopForm, row: &FamilyRow) -> bool {
        let fits = match (received, row.framing) {
            (HopForm::Absent, _) => return row.next_hop == NextHopForm::Optional,
            (HopForm::V6, Framing::Ipv4) => self.extended_next_hop,
            _ => true,
        };
        fits && match self.next_hop {
            NextHopMode::Auto => self.role != Role::External,
            NextHopMode::Own => false,
            NextHopMode::Keep => true,
        }
    }
}

/// The source of a route, as far as rewriting depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    role: Role,
    id: RouterId,
    /// The cluster of a client.
    cluster: Option<ClusterId>,
}

impl Origin {
    /// Returns the source for the routes of a peer; without a peer they are locally originated,
    /// with identifier `own`.
    pub(crate) fn of(peer: Option<&PeerInfo>, own: RouterId) -> Self {
        match peer {
            Some(info) => Self {
                role: info.role,
                id: info.id,
                cluster: (info.role == Role::Client).then_some(info.cluster_id),
            },
            None => Self {
                role: Role::Local,
                id: own,
                cluster: None,
            },
        }
    }
}

/// Returns whether there is a next hop for the members. A route without one is not advertised.
pub(crate) fn has_next_hop(received: HopForm, rules: &GroupRules, row: &FamilyRow) -> bool {
    rules.keeps(received, row) || rules.own_next_hop(row).is_some()
}

/// Returns the attributes for the members of a group. `distance` is the interior cost of the
/// received next hop.
pub(crate) fn rewrite(
    mut attributes: Attributes,
    origin: &Origin,
    rules: &GroupRules,
    row: &FamilyRow,
    distance: impl FnOnce() -> u32,
) -> Attributes {
    if rules.keeps(HopForm::of(attributes.next_hop.as_ref()), row) {
        drop_link_local(&mut attributes.next_hop);
    } else {
        attributes.next_hop = rules.own_next_hop(row);
        replace_bandwidth(&mut attributes, origin, rules, row);
        // RFC 7311 §3.4.3. Checked before the mutable borrow, which allocates.
        if origin.role != Role::Local
            && attributes.rare.aigp.is_some()
            && let Some(aigp) = &mut attributes.rare.aigp
        {
            aigp.add(u64::from(distance()));
        }
    }
    // Locally originated routes keep the given flags of unknown attributes.
    if origin.role != Role::Local {
        attributes.pass_on();
    }
    if rules.role == Role::External {
        leave_as(&mut attributes, origin, rules);
    } else {
        // RFC 4271 §5.1.5: internal peers always receive LOCAL_PREF.
        attributes.local_pref.get_or_insert(LOCAL_PREF_DEFAULT);
        if origin.role.is_internal() {
            // RFC 4456 §8: only a reflected route has these.
            attributes.originator_id.get_or_insert(origin.id);
            // RFC 4456 §7, §8: the source cluster, and the receiving one, if that differs.
            let enters = rules.role == Role::Client || origin.cluster.is_none();
            let to = enters.then_some(rules.cluster_id);
            let entered = to.filter(|to| Some(*to) != origin.cluster);
            for id in origin.cluster.into_iter().chain(entered) {
                attributes.cluster_list.insert(0, id);
            }
        }
        if !rules.long_lived && attributes.communities.contains(&Community::LLGR_STALE) {
            // RFC 9494 §4.6: least preferred, and not beyond the local AS.
            attributes.local_pref = Some(0);
            insert(&mut attributes.communities, Community::NO_EXPORT);
        }
    }
    attributes
}

/// Sets the link bandwidth of a route of which the next hop is replaced by the local address: a received one is
/// that of another link. Only routes of IPv4 and IPv6 prefixes have one of their own.
/// RFC 10005 §3.3.1
fn replace_bandwidth(
    attributes: &mut Attributes,
    origin: &Origin,
    rules: &GroupRules,
    row: &FamilyRow,
) {
    let all = &mut attributes.extended_communities;
    let is_sent = matches!(row.framing, Framing::Ipv4 | Framing::Ipv6);
    let own = rules.link_bandwidth.filter(|_| is_sent);
    if origin.role != Role::Local || own.is_some() {
        all.retain(|community| !community.is_link_bandwidth());
    }
    if let Some(megabits) = own {
        let octets_per_s = megabits as f32 * OCTETS_PER_MEGABIT;
        // The non-transitive form does not leave the AS.
        let is_transitive = rules.role == Role::External;
        let asn = rules.local_asn.two_octet();
        insert(
            all,
            ExtendedCommunity::link_bandwidth(asn, octets_per_s, is_transitive),
        );
    }
}

/// Applies the changes at the border of the local AS.
fn leave_as(attributes: &mut Attributes, origin: &Origin, rules: &GroupRules) {
    // RFC 4271 §5.1.2 b.
    attributes.as_path.prepend(rules.local_asn);
    attributes.leave_as(rules.domain);
    // RFC 4271 §5.1.4: the MED of one neighboring AS is not sent to another.
    if origin.role != Role::Local {
        attributes.med = None;
    }
}

/// RFC 2545 §3: a link-local next hop is only for peers on that very link, and whether the members
/// are on it is unknown.
fn drop_link_local(next_hop: &mut Option<NextHop>) {
    if let Some(NextHop::V6 { global, link_local }) = next_hop
        && !global.is_unspecified()
    {
        *link_local = None;
    }
}

#[cfg(test)]
mod tests;
