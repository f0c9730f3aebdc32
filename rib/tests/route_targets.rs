//! Route target memberships in the tables (RFC 4684 §3.2): their advertisement to clients and
//! non-clients, and the route targets that each peer wants.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::{
    AsPath, Asn, Attributes, ClusterId, EncodeParams, ExtendedCommunity, Family, FamilySet, Net,
    NextHop, Nlri, PeerKind, RouteTargetMembership, RouterId, SessionParams, UpdateView,
    UpdateWriter,
};
use bytes::BytesMut;
use rib::{
    Budget, Cursor, DownMode, ExportSink, GroupId, GroupRules, NextHopMode, PeerId, PeerInfo,
    Policy, Progress, Rib, RibConfig, Role, Run,
};

const FAMILY: Family = Family::ROUTE_TARGET;
const ASN: Asn = Asn(64_512);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);
const CLUSTER: ClusterId = ClusterId(OWN);
const ENCODE: EncodeParams = EncodeParams {
    as4: true,
    add_path: false,
    octets_max: 4096,
};

/// The clients are 1 and 2, the others are non-clients.
const fn role(peer: u16) -> Role {
    match peer {
        1 | 2 => Role::Client,
        _ => Role::Internal,
    }
}

fn address(peer: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, u8::try_from(peer).expect("small"))
}

const TARGET: ExtendedCommunity = ExtendedCommunity::route_target_as2(64_512, 7);

fn membership() -> Vec<u8> {
    let mut nlri = Vec::new();
    RouteTargetMembership::new(ASN, TARGET).put_nlri(&mut nlri);
    nlri
}

/// The routes that one member of a group holds.
struct Member {
    peer: PeerId,
    holds: BTreeMap<Vec<u8>, Attributes>,
}

impl Member {
    fn new(peer: u16) -> Self {
        let peer = PeerId(peer);
        let holds = BTreeMap::new();
        Self { peer, holds }
    }

    fn remove(&mut self, net: Net<'_>) {
        let Net::Opaque(octets) = net else {
            panic!("{net}")
        };
        self.holds.remove(octets);
    }
}

/// Every member of a group reads its own copy of the output.
struct Members<'m>(&'m mut [Member]);

impl ExportSink for Members<'_> {
    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>) {
        let Net::Opaque(octets) = nlri.net else {
            panic!("{}", nlri.net)
        };
        let others = self.0.iter_mut().filter(|member| member.peer != run.source);
        others.for_each(|member| {
            (member.holds).insert(octets.to_vec(), run.attributes.clone());
        });
    }

    fn unreach(&mut self, nlri: &Nlri<'_>, except: Option<PeerId>) {
        let members = self.0.iter_mut();
        let others = members.filter(|member| Some(member.peer) != except);
        others.for_each(|member| member.remove(nlri.net));
    }

    fn unreach_only(&mut self, net: Net<'_>, to: PeerId) {
        let members = self.0.iter_mut();
        members
            .filter(|member| member.peer == to)
            .for_each(|member| member.remove(net));
    }
}

struct Fabric {
    rib: Rib,
    groups: [(GroupId, Vec<Member>); 2],
}

impl Fabric {
    fn new() -> Self {
        let mut config = RibConfig::new(ASN, RouterId(OWN));
        config.cluster_ids = [CLUSTER].into();
        let mut rib = Rib::new(config, 1);
        (1..=4).for_each(|peer| up(&mut rib, peer, Policy::AcceptAll));
        let groups = [(Role::Client, [1, 2]), (Role::Internal, [3, 4])];
        let groups = groups.map(|(role, members)| {
            let group = rib.add_group(rules(role));
            rib.group_cursor(group, FAMILY);
            (group, members.map(Member::new).into())
        });
        Self { rib, groups }
    }

    fn announce(&mut self, peer: u16, local_pref: u32) {
        self.receive(peer, Some(attributes(peer, local_pref)));
    }

    fn receive(&mut self, peer: u16, attributes: Option<Attributes>) {
        receive(&mut self.rib, peer, attributes);
        for (group, members) in &mut self.groups {
            let mut sink = Members(members);
            while self.rib.export(*group, FAMILY, Budget(1), &mut sink) != Progress::Done {}
        }
    }

    /// Returns the attributes that a peer holds of the membership.
    fn held(&self, peer: u16) -> Option<&Attributes> {
        let members = self.groups.iter().flat_map(|(_, members)| members);
        let mut member = members.filter(|member| member.peer == PeerId(peer));
        member.next().expect("a member").holds.get(&membership())
    }

    fn holders(&self) -> Vec<u16> {
        (1..=4).filter(|&peer| self.held(peer).is_some()).collect()
    }
}

fn up(rib: &mut Rib, peer: u16, import: Policy) {
    rib.peer_up(
        PeerId(peer),
        PeerInfo {
            cluster_id: CLUSTER,
            domain: Default::default(),
            role: role(peer),
            asn: ASN,
            id: RouterId(address(peer)),
            address: IpAddr::V4(address(peer)),
            local: None,
            import,
            local_asn: ASN,
            as_path: Default::default(),
            link: None,
            origin: Default::default(),
        },
    );
}

fn rules(role: Role) -> GroupRules {
    GroupRules {
        role,
        local_asn: ASN,
        peer_asn: ASN,
        next_hop: NextHopMode::Auto,
        own_next_hop_v4: Some(OWN),
        own_next_hop_v6: None,
        extended_next_hop: false,
        long_lived: false,
        link_bandwidth: None,
        cluster_id: CLUSTER,
        domain: Default::default(),
        export: Policy::AcceptAll,
        add_path: Default::default(),
    }
}

fn attributes(peer: u16, local_pref: u32) -> Attributes {
    Attributes {
        next_hop: Some(NextHop::V4(address(peer))),
        local_pref: Some(local_pref),
        ..Attributes::default()
    }
}

/// Announces a peer's membership, or withdraws it.
fn receive(rib: &mut Rib, peer: u16, attributes: Option<Attributes>) {
    let mut block = Vec::new();
    let mut out = BytesMut::new();
    let mut writer = match &attributes {
        Some(attributes) => {
            attributes.encode(true, &mut block);
            let next_hop = attributes.next_hop.as_ref().expect("a next hop");
            UpdateWriter::reach(&mut out, FAMILY, &block, next_hop, &ENCODE)
        }
        None => UpdateWriter::unreach(&mut out, FAMILY, &ENCODE),
    };
    let nlri = membership();
    writer.push(&Nlri::new(Net::Opaque(&nlri))).expect("room");
    writer.finish();
    let params = SessionParams {
        local_asn: ASN,
        peer_asn: ASN,
        kind: PeerKind::Internal,
        as4: true,
        families: FAMILY.into(),
        ..SessionParams::default()
    };
    let (view, faults) = UpdateView::parse(&out[19..], &params).expect("parses");
    assert!(faults.is_empty());
    for batch in view.batches() {
        assert_eq!(rib.ingest(PeerId(peer), &batch).faults, []);
    }
    while rib.decide(Budget(64)) != Progress::Done {}
}

/// RFC 4684 §3.2, rule i.
#[test]
fn membership_of_a_client_is_sent_back_to_it() {
    let mut fabric = Fabric::new();
    fabric.announce(1, 100);
    assert_eq!(fabric.holders(), [1, 2, 3, 4]);
    for client in [1, 2] {
        let held = fabric.held(client).expect("held");
        assert_eq!(held.originator_id, Some(RouterId(OWN)));
        assert_eq!(held.next_hop, Some(NextHop::V4(OWN)));
        assert_eq!(held.cluster_list, [CLUSTER]);
    }
    let held = fabric.held(3).expect("held");
    assert_eq!(held.originator_id, Some(RouterId(address(1))));
    assert_eq!(held.next_hop, Some(NextHop::V4(address(1))));
    // Another source of the same membership changes nothing for the clients.
    fabric.announce(2, 100);
    fabric.receive(1, None);
    assert_eq!(fabric.holders(), [1, 2, 3, 4]);
    fabric.receive(2, None);
    assert_eq!(fabric.holders(), []);
}

/// RFC 4684 §3.2, rule ii.
#[test]
fn nonclients_are_sent_the_path_of_a_client() {
    for client_first in [true, false] {
        let mut fabric = Fabric::new();
        let order = if client_first { [1, 3] } else { [3, 1] };
        for peer in order {
            // The path of the non-client would be the best one.
            fabric.announce(peer, if peer == 3 { 500 } else { 0 });
        }
        assert_eq!(fabric.holders(), [1, 2, 3, 4]);
        for peer in [3, 4] {
            let held = fabric.held(peer).expect("held");
            assert_eq!(held.originator_id, Some(RouterId(address(1))), "{peer}");
        }
        fabric.receive(1, None);
        assert_eq!(fabric.holders(), [1, 2], "non-clients reflect nothing");
        assert_eq!(fabric.held(1).expect("held").local_pref, Some(100));
        fabric.announce(2, 50);
        assert_eq!(fabric.holders(), [1, 2, 3, 4]);
        fabric.receive(3, None);
        assert_eq!(fabric.holders(), [1, 2, 3, 4]);
    }
}

#[test]
fn late_client_is_sent_its_own_membership() {
    let mut fabric = Fabric::new();
    fabric.announce(1, 100);
    let (group, _) = fabric.groups[0];
    let mut late = [Member::new(1)];
    let mut cursor = Cursor::initial();
    let mut sink = Members(&mut late);
    let done = fabric
        .rib
        .export_private(group, FAMILY, &mut cursor, Budget(9), &mut sink);
    assert_eq!(done, Progress::Done);
    assert_eq!(late[0].holds, fabric.groups[0].1[0].holds);
    receive(&mut fabric.rib, 1, None);
    let mut sink = Members(&mut late);
    let done = fabric
        .rib
        .export_private(group, FAMILY, &mut cursor, Budget(9), &mut sink);
    assert_eq!(done, Progress::Done);
    assert!(late[0].holds.is_empty());
}

fn wants(rib: &Rib, peer: u16) -> bool {
    rib.route_targets(PeerId(peer)).wants(&Attributes {
        extended_communities: vec![TARGET],
        ..Attributes::default()
    })
}

#[test]
fn wanted_targets_follow_the_adj_rib_in() {
    let mut rib = Fabric::new().rib;
    let changes = |rib: &mut Rib| {
        let changed: Vec<_> = std::iter::from_fn(|| rib.poll_route_targets()).collect();
        changed
    };
    receive(&mut rib, 1, Some(attributes(1, 100)));
    assert!(wants(&rib, 1) && !wants(&rib, 2));
    assert_eq!(changes(&mut rib), [PeerId(1)]);
    receive(&mut rib, 1, Some(attributes(1, 200)));
    assert_eq!(changes(&mut rib), [], "the same targets");

    // A policy that rejects the path.
    rib.change_peer(PeerId(1), |info| info.import = Policy::RejectAll);
    while rib.decide(Budget(1)) != Progress::Done {}
    assert!(!wants(&rib, 1));
    rib.change_peer(PeerId(1), |info| info.import = Policy::AcceptAll);
    while rib.decide(Budget(1)) != Progress::Done {}
    assert_eq!((wants(&rib, 1), changes(&mut rib)), (true, vec![PeerId(1)]));

    // A restart, and the paths that are not sent again after it.
    rib.peer_down(
        PeerId(1),
        DownMode::Stale {
            kept: FAMILY.into(),
            long_lived: FamilySet::EMPTY,
        },
    );
    up(&mut rib, 1, Policy::AcceptAll);
    while rib.decide(Budget(1)) != Progress::Done {}
    assert!(wants(&rib, 1), "stale");
    rib.end_of_rib(PeerId(1), FAMILY);
    while rib.decide(Budget(1)) != Progress::Done {}
    assert!(!wants(&rib, 1));

    // The end of a session.
    receive(&mut rib, 1, Some(attributes(1, 100)));
    rib.peer_down(PeerId(1), DownMode::Flush);
    while rib.decide(Budget(1)) != Progress::Done {}
    assert!(!wants(&rib, 1));
}

#[test]
fn membership_counts_unless_it_is_invalid() {
    let with = |edit: fn(&mut Attributes)| {
        let mut attributes = attributes(3, 100);
        edit(&mut attributes);
        attributes
    };
    for (attributes, counts) in [
        (with(|_| {}), true),
        // It is reflected back, and other clients of the peer may want the same.
        (with(|set| set.cluster_list = vec![CLUSTER]), true),
        (with(|set| set.originator_id = Some(RouterId(OWN))), false),
        (with(|set| set.as_path = AsPath::sequence(&[ASN])), false),
    ] {
        let mut rib = Fabric::new().rib;
        receive(&mut rib, 3, Some(attributes.clone()));
        assert_eq!(wants(&rib, 3), counts, "{attributes:?}");
        receive(&mut rib, 3, None);
        assert!(!wants(&rib, 3));
    }
}
