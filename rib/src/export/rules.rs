//! What may be announced to a group, and how attributes change on the way (RFC 4271 §5 and §9.1.3,
//! RFC 4456 §6 to §10, RFC 1997).

use alloc::collections::BTreeMap;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use bgp_proto::{
    Asn, AttrCodes, Attributes, ClusterId, Family, FamilyRow, Framing, NextHop, NextHopForm,
    RouterId,
};

use crate::attributes::{HopForm, LOCAL_PREF_DEFAULT, Scope};
use crate::peer::PeerInfo;
use crate::policy::Policy;
use crate::role::Role;

/// The number of an update group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// Which paths of a prefix are sent where several may be (RFC 7911).
///
/// Paths are counted before anything is left out: by what may be announced to a peer at all, and
/// because nothing goes back to where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendPaths {
    /// The best one, the best of the others, and so on, up to this many; 0 counts as 1.
    Best(u8),
    /// Those as good as the best one down to the cost of the next hop, which is before BGP
    /// Identifiers and the like are compared: what may be used at once.
    EqualCost,
    /// All that can be used.
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

/// Which next hop is announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NextHopMode {
    /// What the RFCs ask for: to external peers and for our own routes our own address, to
    /// internal peers the one received (RFC 4271 §5.1.3, RFC 4456 §10).
    #[default]
    Auto,
    /// Always our own address, also for reflected routes.
    Own,
    /// Always the one received; our own address only where there is none.
    Keep,
}

/// All that decides what the members of a group are sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupRules {
    /// What the members are to us.
    pub role: Role,
    /// Our AS number towards them.
    pub local_asn: Asn,
    /// Their AS number.
    pub peer_asn: Asn,
    /// Which next hop they are sent.
    pub next_hop: NextHopMode,
    /// Our own address as a next hop of IPv4 routes.
    pub own_next_hop_v4: Option<Ipv4Addr>,
    /// Our own address as a next hop of IPv6 routes.
    pub own_next_hop_v6: Option<Ipv6Addr>,
    /// Whether the members take IPv4 routes with an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
    /// The cluster of the members, if they are our clients (RFC 4456 §7).
    pub cluster_id: ClusterId,
    /// The attributes of an administrative domain that members in another AS are sent.
    pub domain: AttrCodes,
    /// What the members are sent at all.
    pub export: Policy,
    /// The families in which the members are sent several paths of a prefix (RFC 7911), and which
    /// ones.
    pub add_path: BTreeMap<Family, SendPaths>,
}

impl GroupRules {
    /// Which paths are sent in a family; `None` if only the best.
    pub(crate) fn send_paths(&self, family: Family) -> Option<SendPaths> {
        self.add_path.get(&family).copied()
    }

    /// Whether routes of this source and scope may be advertised to the members at all.
    pub(crate) fn passes(&self, source: Role, scope: Scope) -> bool {
        // RFC 1997: NO_ADVERTISE; NO_EXPORT and NO_EXPORT_SUBCONFED.
        match scope {
            Scope::Everywhere => {}
            Scope::OwnAs if self.role.is_internal() => {}
            Scope::OwnAs | Scope::Nobody => return false,
        }
        match (source, self.role) {
            (_, Role::Local) => false,
            // RFC 4456 §6: a route from a non-client goes to clients only; without reflection
            // that is RFC 4271 §9.2: internal routes do not go to internal peers.
            (Role::Internal, Role::Internal) => false,
            _ => true,
        }
    }

    fn own_next_hop(&self, row: &FamilyRow) -> Option<NextHop> {
        match row.framing {
            Framing::Ipv4 => self.own_next_hop_v4.map(NextHop::V4),
            Framing::Ipv6 => self.own_next_hop_v6.map(NextHop::v6),
            // With our address, labels and the like would have to be ours, too.
            _ => None,
        }
    }

    /// Whether the next hop received is the one to tell.
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

/// Where a route comes from, as far as rewriting it goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    role: Role,
    id: RouterId,
    /// The cluster of a client.
    cluster: Option<ClusterId>,
}

impl Origin {
    /// Where the routes of a peer come from; without a peer they are our own, of identifier `own`.
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

/// Whether there is a next hop that the members may be sent. A route without one stays here.
pub(crate) fn has_next_hop(received: HopForm, rules: &GroupRules, row: &FamilyRow) -> bool {
    rules.keeps(received, row) || rules.own_next_hop(row).is_some()
}

/// The attributes that the members of a group are sent. `distance` is the interior cost of the next
/// hop received.
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
        // RFC 7311 §3.4.3. Looked at before it is borrowed to be changed, which takes room.
        if origin.role != Role::Local
            && attributes.rare.aigp.is_some()
            && let Some(aigp) = &mut attributes.rare.aigp
        {
            aigp.add(u64::from(distance()));
        }
    }
    // Routes of our own keep the flags of unknown attributes as they were given.
    if origin.role != Role::Local {
        attributes.pass_on();
    }
    if rules.role == Role::External {
        leave_as(&mut attributes, origin, rules);
    } else {
        // RFC 4271 §5.1.5: internal peers are always sent a degree of preference.
        attributes.local_pref.get_or_insert(LOCAL_PREF_DEFAULT);
        if origin.role.is_internal() {
            // RFC 4456 §8: only a route that is reflected has these.
            attributes.originator_id.get_or_insert(origin.id);
            // RFC 4456 §7, §8: the cluster it comes from, and the one it goes to, if it is another.
            let enters = rules.role == Role::Client || origin.cluster.is_none();
            let to = enters.then_some(rules.cluster_id);
            let entered = to.filter(|to| Some(*to) != origin.cluster);
            for id in origin.cluster.into_iter().chain(entered) {
                attributes.cluster_list.insert(0, id);
            }
        }
    }
    attributes
}

/// What changes at the border of our AS.
fn leave_as(attributes: &mut Attributes, origin: &Origin, rules: &GroupRules) {
    // RFC 4271 §5.1.2 b.
    attributes.as_path.prepend(rules.local_asn);
    attributes.leave_as(rules.domain);
    // RFC 4271 §5.1.4: what one neighboring AS has said is not for another.
    if origin.role != Role::Local {
        attributes.med = None;
    }
}

/// RFC 2545 §3: a link-local next hop is for peers on that very link, and we do not know that the
/// members are on it.
fn drop_link_local(next_hop: &mut Option<NextHop>) {
    if let Some(NextHop::V6 { global, link_local }) = next_hop
        && !global.is_unspecified()
    {
        *link_local = None;
    }
}

#[cfg(test)]
mod tests;
