//! The state of a group that sends several paths of a prefix, and its output.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::{
    Asn, Attributes, Community, EncodeParams, Family, FamilySet, Ipv4Prefix, Net, NextHop, Nlri,
    PeerKind, RouterId, SessionParams, UpdateView, UpdateWriter,
};
use bytes::BytesMut;
use rib::limits::PATHS_PER_PEER_MAX;
use rib::{
    Budget, Cursor, ExportSink, GroupId, GroupRules, NextHopMode, PeerId, PeerInfo, Policy,
    Progress, Rib, RibConfig, Role, Run, SendPaths,
};

const FAMILY: Family = Family::IPV4_UNICAST;
const ASN: Asn = Asn(64_512);
const ENCODE: EncodeParams = EncodeParams {
    as4: true,
    add_path: true,
    octets_max: 4096,
};

fn net() -> Net<'static> {
    Net::V4(Ipv4Prefix::host(Ipv4Addr::new(10, 65, 0, 1)))
}

/// A receiving member: the communities of its routes, by path identifier.
#[derive(Debug, Default)]
struct Member {
    holds: BTreeMap<u32, Vec<Community>>,
    words: usize,
}

impl ExportSink for Member {
    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>) {
        self.words += 1;
        let communities = run.attributes.communities.clone();
        self.holds.insert(nlri.path_id, communities);
    }

    fn unreach(&mut self, nlri: &Nlri<'_>, _: Option<PeerId>) {
        self.words += 1;
        self.holds.remove(&nlri.path_id);
    }

    fn unreach_only(&mut self, _: Net<'_>, to: PeerId) {
        panic!("{to:?} is no member");
    }
}

/// Returns tables with three announcing clients, and a group of receivers.
fn tables(send: Option<SendPaths>) -> (Rib, GroupId) {
    let config = RibConfig::new(ASN, RouterId(Ipv4Addr::new(10, 0, 0, 100)));
    let mut rib = Rib::new(config, 1);
    for peer in 1..=3 {
        let address = Ipv4Addr::new(10, 0, 0, peer);
        rib.peer_up(
            PeerId(peer.into()),
            PeerInfo {
                cluster_id: Default::default(),
                domain: Default::default(),
                role: Role::Client,
                asn: ASN,
                id: RouterId(address),
                address: IpAddr::V4(address),
                local: None,
                import: Policy::AcceptAll,
                local_asn: ASN,
                as_path: Default::default(),
                link: None,
                origin: rib::OriginRules::default(),
            },
        );
    }
    let group = group(&mut rib, send);
    (rib, group)
}

fn group(rib: &mut Rib, send: Option<SendPaths>) -> GroupId {
    let group = rib.add_group(GroupRules {
        role: Role::Client,
        local_asn: ASN,
        peer_asn: ASN,
        next_hop: NextHopMode::Auto,
        own_next_hop_v4: None,
        own_next_hop_v6: None,
        extended_next_hop: false,
        long_lived: false,
        link_bandwidth: None,
        cluster_id: Default::default(),
        domain: Default::default(),
        export: Policy::AcceptAll,
        add_path: send.map(|send| (FAMILY, send)).into_iter().collect(),
    });
    rib.group_cursor(group, FAMILY);
    group
}

/// Announces a peer's path with one community, or withdraws it.
fn receive(rib: &mut Rib, peer: u16, path_id: u32, community: Option<u16>) {
    let attributes = Attributes {
        next_hop: Some(NextHop::V4(Ipv4Addr::new(10, 0, 0, peer as u8))),
        local_pref: Some(100),
        communities: vec![Community::new(64_512, community.unwrap_or_default())],
        ..Attributes::default()
    };
    let mut block = Vec::new();
    attributes.encode(true, &mut block);
    let next_hop = attributes.next_hop.clone().expect("next hop");
    let mut out = BytesMut::new();
    let mut writer = match community {
        Some(_) => UpdateWriter::reach(&mut out, FAMILY, &block, &next_hop, &ENCODE),
        None => UpdateWriter::unreach(&mut out, FAMILY, &ENCODE),
    };
    let nlri = Nlri {
        path_id,
        net: net(),
    };
    writer.push(&nlri).expect("room");
    writer.finish();
    let params = SessionParams {
        local_asn: ASN,
        peer_asn: ASN,
        kind: PeerKind::Internal,
        as4: true,
        families: FamilySet::UNICAST,
        add_path_receive: FamilySet::UNICAST,
        ..SessionParams::default()
    };
    let (view, _) = UpdateView::parse(&out[19..], &params).expect("parses");
    for batch in view.batches() {
        rib.ingest(PeerId(peer), &batch);
    }
    while rib.decide(Budget(64)) != Progress::Done {}
}

fn export(rib: &mut Rib, group: GroupId, member: &mut Member) {
    while rib.export(group, FAMILY, Budget(64), member) != Progress::Done {}
}

#[test]
fn stuck_member_costs_bounded_identifiers() {
    let (mut rib, group) = tables(Some(SendPaths::All));
    let (mut reads, mut lags) = (Member::default(), Member::default());
    receive(&mut rib, 1, 0, Some(0));
    receive(&mut rib, 2, 0, Some(0));
    export(&mut rib, group, &mut reads);
    // Both were at the shared cursor until now.
    lags.holds.clone_from(&reads.holds);
    let mut cursor = rib.group_cursor(group, FAMILY);
    for round in 1..1000 {
        receive(&mut rib, 1, round, Some(1));
        export(&mut rib, group, &mut reads);
        receive(&mut rib, 1, round, None);
        export(&mut rib, group, &mut reads);
        rib.trim(FAMILY, &[cursor]);
        assert!(rib.stats().sent_ids <= PATHS_PER_PEER_MAX + 1);
    }
    assert_eq!(rib.stats().sent_ids, PATHS_PER_PEER_MAX + 1);
    receive(&mut rib, 2, 0, Some(9));
    export(&mut rib, group, &mut reads);
    loop {
        let progress = rib.export_private(group, FAMILY, &mut cursor, Budget(1), &mut lags);
        if progress == Progress::Done {
            break;
        }
    }
    assert_eq!(lags.holds, reads.holds);
    assert_eq!(lags.holds.len(), 2);
    // With all readers at the end, the next change drops identifiers that no member holds.
    rib.trim(FAMILY, &[]);
    receive(&mut rib, 2, 0, Some(10));
    assert_eq!(rib.stats().sent_ids, 2);
}

#[test]
fn plain_group_gets_only_changes_of_the_best_path() {
    let (mut rib, several) = tables(Some(SendPaths::All));
    let plain = group(&mut rib, None);
    let (mut many, mut one) = (Member::default(), Member::default());
    receive(&mut rib, 1, 0, Some(0));
    for round in 0..=50 {
        receive(&mut rib, 2, 0, Some(round));
        receive(&mut rib, 3, 1, Some(round));
        if round % 7 == 0 {
            receive(&mut rib, 3, 1, None);
        }
        export(&mut rib, several, &mut many);
        export(&mut rib, plain, &mut one);
        rib.trim(FAMILY, &[]);
    }
    assert_eq!(one.words, 1, "the best, once");
    assert_eq!(many.holds.len(), 3);
    // An unchanged path causes no message to members that receive all paths.
    let before = many.words;
    receive(&mut rib, 2, 0, Some(99));
    export(&mut rib, several, &mut many);
    assert_eq!(many.words, before + 1);
}

#[test]
fn no_path_ids_are_kept_without_an_add_path_group() {
    let (mut rib, plain) = tables(None);
    let mut one = Member::default();
    receive(&mut rib, 1, 0, Some(0));
    export(&mut rib, plain, &mut one);
    rib.trim(FAMILY, &[]);
    receive(&mut rib, 2, 0, Some(1));
    let stats = rib.stats();
    assert_eq!((stats.sent_ids, stats.log_entries), (0, 0), "a loser came");

    // Only as long as there is such a group.
    let several = group(&mut rib, Some(SendPaths::EqualCost));
    let mut many = Member::default();
    let mut cursor = Cursor::initial();
    let done = rib.export_private(several, FAMILY, &mut cursor, Budget(9), &mut many);
    assert_eq!(done, Progress::Done);
    assert_eq!((many.holds.len(), rib.stats().sent_ids), (2, 2));
    rib.remove_group(several);
    receive(&mut rib, 2, 0, Some(2));
    let stats = rib.stats();
    assert_eq!((stats.sent_ids, stats.log_entries), (0, 0));
}
