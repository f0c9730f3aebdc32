//! A naive speaker: all paths in one map, everything computed on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp_proto::attr::{FLAG_PARTIAL, SegmentKind};
use bgp_proto::{
    Asn, AttrCode, Attributes, ClusterId, Community, ExtendedCommunity, Family, NextHop, RouterId,
};
use rib::{Ineligible, InterfaceName, PeerId, PeerInfo, Policy, Role, SendPaths};

use crate::doubts::Doubts;
use crate::naive::{self, Seen};
use crate::parts::{GroupKey, domain_of, link_of};

pub const LOCAL_ASN: Asn = Asn(64_512);
pub const ROUTER_ID: RouterId = RouterId(Ipv4Addr::new(10, 0, 0, 100));
pub const CLUSTER_ID: ClusterId = ClusterId(Ipv4Addr::new(1, 1, 1, 1));
pub const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);
pub const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x100);

/// The output for a peer about one prefix: attributes and NLRI.
pub type Exported = (Attributes, Vec<u8>);

/// The source of a path: peer and path identifier.
pub type From = (PeerId, u32);

#[derive(Clone, Debug)]
pub struct ModelPath {
    pub received: Attributes,
    pub octets: Vec<u8>,
    pub stale: bool,
    /// Another peer has withdrawn the routes of its origin.
    pub doubted: bool,
    pub awaits_refresh: bool,
    pub interface: Option<InterfaceName>,
}

#[derive(Debug)]
pub struct Model {
    /// The export policy of internal peers.
    pub export: Policy,
    pub family: Family,
    pub track: bool,
    pub multipath_max: usize,
    pub always_compare_med: bool,
    /// The own bandwidth that all groups are sent, in Mbit/s.
    pub link_bandwidth: Option<u32>,
    pub peers: BTreeMap<PeerId, PeerInfo>,
    pub doubts: Doubts,
    /// By prefix, peer and path identifier.
    pub paths: BTreeMap<(u8, PeerId, u32), ModelPath>,
    pub costs: BTreeMap<IpAddr, Option<u32>>,
    /// The origins that have failed.
    pub failed: BTreeSet<RouterId>,
}

/// A path that takes part in the decision.
#[derive(Clone, Debug)]
pub struct Runner {
    pub peer: PeerId,
    pub path_id: u32,
    pub attributes: Attributes,
    pub octets: Vec<u8>,
    pub interface: Option<InterfaceName>,
}

impl Model {
    /// Returns the attributes of a path after import, or why it is not used.
    pub fn import(
        &self,
        net: u8,
        peer: PeerId,
        path: &ModelPath,
    ) -> Result<Attributes, Ineligible> {
        let mut attributes = path.received.clone();
        let Some(info) = self.peers.get(&peer) else {
            self.cost(&attributes)
                .ok_or(Ineligible::NextHopUnresolved)?;
            return Ok(attributes);
        };
        let origin = self.origin(peer, path);
        if path.stale && (path.doubted || origin.is_some_and(|one| self.failed.contains(&one))) {
            return Err(Ineligible::OriginFailed);
        }
        if info.role == Role::External {
            attributes.local_pref = None;
            if !domain_of(peer.0).contains(AttrCode::TunnelEncapsulation) {
                attributes.rare.tunnel_encapsulation = None;
            }
        }
        // RFC 8326 §4.1
        if attributes
            .communities
            .contains(&Community::GRACEFUL_SHUTDOWN)
        {
            attributes.local_pref = Some(0);
        }
        match info.import {
            Policy::AcceptAll => {}
            Policy::RejectAll => return Err(Ineligible::Policy),
            Policy::Rules(ref rules) => {
                let seen = Seen {
                    family: self.family,
                    net: crate::parts::net_of(self.family, net, &path.octets),
                    attributes,
                    source: info.role,
                    peer: info.role,
                    interface: None,
                };
                attributes = naive::evaluate(rules, seen).ok_or(Ineligible::Policy)?;
            }
        }
        let received = &path.received;
        if !info.as_path.allow_as_sets && received.as_path.to_string().contains('{') {
            return Err(Ineligible::AsSet);
        }
        let is_external = info.role == Role::External && info.as_path.enforce_first_as;
        if is_external && received.as_path.asns().next() != Some(info.asn) {
            return Err(Ineligible::FirstAs);
        }
        let length = received
            .as_path
            .segments()
            .map(|segment| match segment.kind {
                SegmentKind::Sequence => segment.asns().count(),
                SegmentKind::Set => 1,
                _ => 0,
            });
        let length_max = usize::from(info.as_path.length_max);
        if length_max > 0 && length.sum::<usize>() > length_max {
            return Err(Ineligible::AsPathTooLong);
        }
        for own in [LOCAL_ASN, info.local_asn] {
            let times = received.as_path.asns().filter(|asn| *asn == own).count();
            if times > usize::from(info.as_path.own_as_max) {
                return Err(Ineligible::AsLoop);
            }
        }
        if received.originator_id == Some(ROUTER_ID) {
            return Err(Ineligible::OwnOriginator);
        }
        if received.cluster_list.contains(&CLUSTER_ID) {
            return Err(Ineligible::ClusterLoop);
        }
        let next_hop = received.next_hop_address();
        if next_hop.is_some() && next_hop == info.local {
            return Err(Ineligible::OwnNextHop);
        }
        // Only the first next hop is on the link of the peer that has one.
        let on_link = [
            IpAddr::from([10, 9, 0, 1]),
            IpAddr::from([0xfd00, 9, 0, 0, 0, 0, 0, 1]),
        ];
        let is_off_link = next_hop.is_some_and(|address| !on_link.contains(&address));
        if link_of(peer.0).is_some() && is_off_link {
            return Err(Ineligible::NextHopOffLink);
        }
        if !self.doubts.accept(self.family, net, peer, received) {
            return Err(Ineligible::Unconfirmed);
        }
        self.cost(&attributes)
            .ok_or(Ineligible::NextHopUnresolved)?;
        Ok(attributes)
    }

    /// Returns the speaker inside the AS that originates a path.
    pub fn origin(&self, peer: PeerId, path: &ModelPath) -> Option<RouterId> {
        let info = self.peers.get(&peer)?;
        let is_internal = matches!(info.role, Role::Internal | Role::Client);
        is_internal.then(|| path.received.originator_id.unwrap_or(info.id))
    }

    /// Handles an announced or withdrawn path of an origin: the paths of other peers, or of all, are doubted
    /// or not.
    pub fn doubt(&mut self, net: u8, origin: Option<RouterId>, is_doubted: bool) {
        let Some(origin) = origin else { return };
        let range = (net, PeerId(0), 0)..=(net, PeerId(u16::MAX), u32::MAX);
        let keys: Vec<_> = self
            .paths
            .range(range)
            .filter(|((_, peer, _), path)| self.origin(*peer, path) == Some(origin))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            self.paths.get_mut(&key).expect("it is there").doubted = is_doubted;
        }
    }

    /// Handles the withdrawal of a path.
    pub fn withdraw(&mut self, key: (u8, PeerId, u32)) {
        let (net, peer, _) = key;
        let Some(path) = self.paths.remove(&key) else {
            return;
        };
        let origin = self.origin(peer, &path);
        let mut others = self.paths.iter();
        let has_more = others.any(|((of, from, _), path)| {
            (*of, *from) == (net, peer) && self.origin(peer, path) == origin
        });
        if !has_more {
            self.doubt(net, origin, true);
        }
    }

    fn cost(&self, attributes: &Attributes) -> Option<u32> {
        match attributes.next_hop_address() {
            Some(address) if self.track => *self.costs.get(&address)?,
            _ => Some(0),
        }
    }

    /// Returns the usable paths of a prefix.
    fn usable(&self, net: u8) -> Vec<Runner> {
        let range = (net, PeerId(0), 0)..=(net, PeerId(u16::MAX), u32::MAX);
        let mut left: Vec<Runner> = Vec::new();
        for (&(_, peer, path_id), path) in self.paths.range(range) {
            if let Ok(attributes) = self.import(net, peer, path) {
                left.push(Runner {
                    peer,
                    path_id,
                    attributes,
                    octets: path.octets.clone(),
                    interface: path.interface,
                });
            }
        }
        left
    }

    /// Returns those that are equal to the best down to the cost of the next hop, the best first.
    fn equal(&self, mut left: Vec<Runner>) -> Vec<Runner> {
        least(&mut left, |path| path.peer != PeerId::LOCAL);
        least(&mut left, |path| {
            u32::MAX - path.attributes.local_pref.unwrap_or(100)
        });
        least(&mut left, |path| path.attributes.as_path.length());
        least(&mut left, |path| path.attributes.origin);
        let med = |path: &Runner| path.attributes.med.unwrap_or(0);
        let all = left.clone();
        left.retain(|path| {
            !all.iter().any(|other| {
                let same = self.always_compare_med || neighbor(path) == neighbor(other);
                same && med(other) < med(path)
            })
        });
        least(&mut left, |path| self.role(path.peer) != Role::External);
        least(&mut left, |path| self.cost(&path.attributes));
        left.sort_by_key(|path| {
            let info = self.peers.get(&path.peer);
            let id = path
                .attributes
                .originator_id
                .or_else(|| info.map(|info| info.id));
            let address = info.map(|info| info.address);
            (
                id,
                path.attributes.cluster_list.len(),
                address,
                path.path_id,
            )
        });
        left
    }

    /// Returns the paths of a prefix that are in use, the best first.
    pub fn chosen(&self, net: u8) -> Vec<Runner> {
        let mut chosen: Vec<Runner> = Vec::new();
        for path in self.equal(self.usable(net)) {
            let hop = |path: &Runner| path.attributes.next_hop_address();
            if chosen.len() < self.multipath_max && !chosen.iter().any(|c| hop(c) == hop(&path)) {
                chosen.push(path);
            }
        }
        chosen
    }

    pub fn role(&self, peer: PeerId) -> Role {
        self.peers.get(&peer).map_or(Role::Local, |info| info.role)
    }

    /// Returns the paths of a prefix that may be sent to a member.
    fn sent(&self, net: u8, send: Option<SendPaths>) -> Vec<Runner> {
        let mut left = self.usable(net);
        let most = match send {
            Some(SendPaths::All) => return left,
            Some(SendPaths::EqualCost) => return self.equal(left),
            Some(SendPaths::Best(most)) => most.max(1),
            None => 1,
        };
        let mut sent = Vec::new();
        while let Some(best) = self.equal(left.clone()).into_iter().next()
            && sent.len() < usize::from(most)
        {
            left.retain(|path| (path.peer, path.path_id) != (best.peer, best.path_id));
            sent.push(best);
        }
        sent
    }

    /// Returns the paths that a member of a group must hold, each with its source: peer and
    /// identifier.
    pub fn exported(
        &self,
        net: u8,
        member: PeerId,
        (receiver, send): GroupKey,
    ) -> Vec<(From, Exported)> {
        let sent = self.sent(net, send).into_iter();
        sent.filter_map(|path| {
            let from = (path.peer, path.path_id);
            Some((from, self.export_one(net, path, member, receiver)?))
        })
        .collect()
    }

    /// Returns the output for a member about one path.
    fn export_one(
        &self,
        net: u8,
        best: Runner,
        member: PeerId,
        receiver: Role,
    ) -> Option<Exported> {
        let source = self.role(best.peer);
        if best.peer == member || source == Role::Internal && receiver == Role::Internal {
            return None;
        }
        let mut exported = best.attributes;
        let has = |community| exported.communities.contains(&community);
        if has(Community::NO_ADVERTISE)
            || receiver == Role::External
                && (has(Community::NO_EXPORT) || has(Community::NO_EXPORT_SUBCONFED))
        {
            return None;
        }
        if receiver == Role::Internal {
            let Policy::Rules(rules) = &self.export else {
                unreachable!("rules");
            };
            let seen = Seen {
                family: self.family,
                net: crate::parts::net_of(self.family, net, &best.octets),
                attributes: exported,
                source,
                peer: receiver,
                interface: best.interface,
            };
            exported = naive::evaluate(rules, seen)?;
        }
        let is_replaced = receiver == Role::External || exported.next_hop.is_none();
        if is_replaced {
            exported.next_hop = Some(match self.family {
                Family::IPV4_UNICAST => NextHop::V4(OWN_V4),
                Family::IPV6_UNICAST => NextHop::v6(OWN_V6),
                _ => return None,
            });
        }
        if is_replaced && (source != Role::Local || self.link_bandwidth.is_some()) {
            let all = &mut exported.extended_communities;
            all.retain(|community| !community.is_link_bandwidth());
            if let Some(megabits) = self.link_bandwidth {
                let (asn, octets_per_s) = (LOCAL_ASN.two_octet(), megabits as f32 * 125_000.0);
                let is_transitive = receiver == Role::External;
                let own = ExtendedCommunity::link_bandwidth(asn, octets_per_s, is_transitive);
                all.push(own);
                all.sort_unstable();
            }
        }
        if source != Role::Local {
            exported.unknown.retain(|unknown| unknown.is_transitive());
            exported
                .unknown
                .iter_mut()
                .for_each(|unknown| unknown.flags |= FLAG_PARTIAL);
        }
        if receiver == Role::External {
            exported.as_path.prepend(LOCAL_ASN);
            exported.local_pref = None;
            exported.originator_id = None;
            exported.cluster_list = Vec::new();
            exported.rare.tunnel_encapsulation = None;
            exported
                .extended_communities
                .retain(ExtendedCommunity::is_transitive);
            if source != Role::Local {
                exported.med = None;
            }
            return Some((exported, best.octets));
        }
        exported.local_pref = exported.local_pref.or(Some(100));
        if let Some(info) = self
            .peers
            .get(&best.peer)
            .filter(|info| info.role != Role::External)
        {
            exported.originator_id = exported.originator_id.or(Some(info.id));
            exported.cluster_list.insert(0, CLUSTER_ID);
        }
        Some((exported, best.octets))
    }
}

fn neighbor(path: &Runner) -> Asn {
    path.attributes.as_path.first_as().unwrap_or(LOCAL_ASN)
}

fn least<T: Ord>(paths: &mut Vec<Runner>, key: impl Fn(&Runner) -> T) {
    if let Some(least) = paths.iter().map(&key).min() {
        paths.retain(|path| key(path) == least);
    }
}
