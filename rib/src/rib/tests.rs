//! Repeated evaluation of routes by prefix, compared with a model that stores for each route the
//! policy by which it was evaluated last.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::vec::Vec;

use bgp_proto::{
    EncodeParams, FamilySet, Nlri, PeerKind, Prefix, SessionParams, UpdateView, UpdateWriter,
};
use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::eligible::Ineligible;
use crate::explain::PathView;
use crate::export::{NextHopMode, SendPaths};
use crate::limits::{REEVALUATE_RANGES_MAX, SWEEP_PER_UNIT};
use crate::policy::{Edit, Match, Outcome, Policy, Rules, Term, Then};
use crate::rejected::PolicyDirection;
use crate::role::Role;

const FAMILY: Family = Family::IPV4_UNICAST;
const PEERS: u16 = 3;

fn rib() -> Rib {
    let config = RibConfig {
        local_asn: Asn(64_512),
        ..RibConfig::default()
    };
    let mut rib = Rib::new(config, 1);
    for peer in 1..=PEERS {
        let address = Ipv4Addr::new(10, 0, 0, peer as u8);
        let info = PeerInfo {
            role: Role::Client,
            asn: Asn(64_512),
            id: RouterId(address),
            address: address.into(),
            local: None,
            import: Policy::AcceptAll,
            local_asn: Asn(64_512),
            as_path: Default::default(),
            cluster_id: Default::default(),
            domain: Default::default(),
            link: None,
            origin: crate::origin_rules::OriginRules::default(),
        };
        rib.peer_up(PeerId(peer), info);
    }
    rib
}

/// Announces prefixes with attributes, or withdraws them.
fn send(rib: &mut Rib, peer: u16, local_pref: Option<u32>, nets: &[Ipv4Prefix]) {
    let encode = EncodeParams {
        as4: true,
        add_path: false,
        octets_max: 65_535,
    };
    let attributes = Attributes {
        local_pref,
        next_hop: Some(bgp_proto::NextHop::V4([10, 9, 0, 1].into())),
        ..Attributes::default()
    };
    let mut block = Vec::new();
    attributes.encode(true, &mut block);
    let next_hop = attributes.next_hop.clone().expect("next hop");
    let params = SessionParams {
        kind: PeerKind::Internal,
        as4: true,
        families: FamilySet::UNICAST,
        ..SessionParams::default()
    };
    for chunk in nets.chunks(5_000) {
        let mut out = BytesMut::new();
        let mut writer = match local_pref {
            Some(_) => UpdateWriter::reach(&mut out, FAMILY, &block, &next_hop, &encode),
            None => UpdateWriter::unreach(&mut out, FAMILY, &encode),
        };
        for &net in chunk {
            writer.push(&Nlri::new(Net::V4(net))).expect("room");
        }
        writer.finish();
        let (view, _) = UpdateView::parse(&out[19..], &params).expect("parses");
        for batch in view.batches() {
            rib.ingest(PeerId(peer), &batch);
        }
    }
}

/// Changes the data that a policy refers to, as a ROA does: the tables do not notice it.
fn change_unseen(rib: &mut Rib, peer: u16, import: Policy) {
    let info = rib.shared.peers[usize::from(peer)].as_mut();
    info.expect("is up").import = import;
}

fn settle(rib: &mut Rib) {
    while rib.decide(Budget(3)) != Progress::Done {}
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn host(number: u32) -> Ipv4Prefix {
    Ipv4Prefix::host(Ipv4Addr::from(0x0a41_0000 + number))
}

fn refused(rib: &Rib, net: Ipv4Prefix) -> Vec<Option<Ineligible>> {
    let view = rib.lookup(FAMILY, Net::V4(net)).expect("is there");
    view.paths.iter().map(|path| path.ineligible).collect()
}

#[test]
fn one_prefix_is_evaluated_again_at_once_and_alone() {
    let mut rib = rib();
    send(&mut rib, 1, Some(100), &[host(1), host(2)]);
    send(&mut rib, 2, Some(50), &[host(1), host(2)]);
    change_unseen(&mut rib, 1, Policy::RejectAll);
    rib.reevaluate(FAMILY, &PrefixRange::equal(Prefix::V4(host(1))));
    settle(&mut rib);
    assert_eq!(refused(&rib, host(1)), [None, Some(Ineligible::Policy)]);
    assert_eq!(refused(&rib, host(2)), [None, None]);
    let best = |rib: &Rib, net| {
        rib.lookup(FAMILY, Net::V4(net))?
            .best()
            .map(|best| best.peer)
    };
    assert_eq!(best(&rib, host(1)), Some(PeerId(2)));
    assert_eq!(best(&rib, host(2)), Some(PeerId(1)));
}

#[test]
fn ranges_without_a_route_change_nothing() {
    let mut rib = rib();
    rib.reevaluate(FAMILY, &PrefixRange::inside(prefix("0.0.0.0/0")));
    send(&mut rib, 1, Some(100), &[host(1)]);
    settle(&mut rib);
    change_unseen(&mut rib, 1, Policy::RejectAll);
    let shorter = PrefixRange::new(prefix("10.65.0.0/16"), 16..=31);
    for range in [
        PrefixRange::inside(prefix("::/0")),
        PrefixRange::inside(prefix("10.66.0.0/16")),
        PrefixRange::equal(prefix("10.65.0.0/16")),
        shorter,
    ] {
        rib.reevaluate(FAMILY, &range);
        rib.reevaluate(Family::IPV6_UNICAST, &range);
        rib.reevaluate(Family::new(9999, 9), &range);
        settle(&mut rib);
        assert_eq!(refused(&rib, host(1)), [None], "{range:?}");
    }
}

#[test]
fn too_many_ranges_evaluate_the_whole_family() {
    let mut rib = rib();
    send(&mut rib, 1, Some(100), &[host(1), host(2)]);
    settle(&mut rib);
    change_unseen(&mut rib, 1, Policy::RejectAll);
    let far = |number: u32| {
        let address = Ipv4Addr::from(0x0b00_0000 + (number << 8));
        PrefixRange::inside(Prefix::V4(
            Ipv4Prefix::new(address, 24).expect("short enough"),
        ))
    };
    for number in 0..REEVALUATE_RANGES_MAX as u32 {
        rib.reevaluate(FAMILY, &far(number));
        rib.reevaluate(FAMILY, &far(number));
    }
    settle(&mut rib);
    assert_eq!(refused(&rib, host(1)), [None], "as many as there may be");
    for number in 0..=REEVALUATE_RANGES_MAX as u32 {
        rib.reevaluate(FAMILY, &far(number));
    }
    settle(&mut rib);
    assert_eq!(refused(&rib, host(1)), [Some(Ineligible::Policy)]);
    change_unseen(&mut rib, 1, Policy::AcceptAll);
    rib.reevaluate(FAMILY, &far(0));
    settle(&mut rib);
    let refused = refused(&rib, host(1));
    assert_eq!(refused, [Some(Ineligible::Policy)], "only the ranges again");
}

#[test]
fn routes_that_are_no_prefixes_are_all_evaluated() {
    const LABELED: Family = Family::IPV4_LABELED_UNICAST;
    let mut rib = rib();
    let octets = [
        0, 0, 0, 0, 0x40, 1, 1, 0, 0x40, 2, 0, 0x40, 5, 4, 0, 0, 0, 100,
    ];
    let attribute = [
        0x80, 14, 16, 0, 1, 4, 4, 10, 9, 0, 1, 0, 48, 0, 0, 1, 10, 1, 0,
    ];
    let mut body = octets.to_vec();
    body.extend(attribute);
    body[3] = (body.len() - 4) as u8;
    let params = SessionParams {
        kind: PeerKind::Internal,
        as4: true,
        families: FamilySet::EMPTY.with(LABELED),
        ..SessionParams::default()
    };
    let (view, faults) = UpdateView::parse(&body, &params).expect("parses");
    assert_eq!(faults, []);
    for batch in view.batches() {
        assert_eq!(rib.ingest(PeerId(1), &batch).reach, 1);
    }
    settle(&mut rib);
    change_unseen(&mut rib, 1, Policy::RejectAll);
    rib.reevaluate(LABELED, &PrefixRange::equal(prefix("192.0.2.0/24")));
    settle(&mut rib);
    assert_eq!(rib.counters(PeerId(1), LABELED).accepted, 0);
}

// Promise (BGP): Received routes of a range of prefixes are evaluated again without messages to
// their peers, in bounded steps.
#[test]
fn covering_range_is_evaluated_in_bounded_steps() {
    const PREFIXES: u32 = 100_000;
    const STEP: u32 = 1_000;
    let mut rib = rib();
    let nets: Vec<Ipv4Prefix> = (0..PREFIXES).map(host).collect();
    for peer in [1, 2] {
        send(&mut rib, peer, Some(100), &nets);
    }
    while rib.decide(Budget(STEP)) != Progress::Done {}
    for peer in [1, 2] {
        change_unseen(&mut rib, peer, Policy::RejectAll);
    }
    rib.reevaluate(FAMILY, &PrefixRange::inside(prefix("0.0.0.0/0")));
    let accepted = |rib: &Rib| -> u32 {
        let peers = [1, 2].map(|peer| rib.counters(PeerId(peer), FAMILY).accepted);
        peers.iter().sum()
    };
    let mut steps = 0;
    let mut left = accepted(&rib);
    assert_eq!(left, 2 * PREFIXES, "nothing is done before a step");
    loop {
        let progress = rib.decide(Budget(STEP));
        let evaluated = left - accepted(&rib);
        assert!(
            evaluated <= STEP + 2 * SWEEP_PER_UNIT,
            "{evaluated} in a step"
        );
        left -= evaluated;
        steps += 1;
        // A route that arrives in between is evaluated on arrival.
        if steps == 10 {
            send(&mut rib, 3, Some(100), &[host(PREFIXES)]);
        }
        if progress == Progress::Done {
            break;
        }
    }
    assert_eq!(left, 0);
    // One unit per evaluated path, and one for the decision that follows.
    let units = 2 * PREFIXES + PREFIXES;
    assert!(steps >= 2 * PREFIXES / (STEP + 16), "{steps} steps");
    assert!(steps <= units / STEP + 200, "{steps} steps");
    assert_eq!(rib.counters(PeerId(3), FAMILY).accepted, 1);
}

#[test]
fn requests_without_end_keep_no_peer_from_being_swept() {
    let mut rib = rib();
    let nets: Vec<Ipv4Prefix> = (0..100).map(host).collect();
    for peer in [1, 2] {
        send(&mut rib, peer, Some(100), &nets);
    }
    settle(&mut rib);
    rib.peer_down(PeerId(1), DownMode::Flush);
    assert!(!rib.is_settled(PeerId(1)));
    for _ in 0..1_000 {
        rib.reevaluate(FAMILY, &PrefixRange::inside(prefix("10.65.0.0/16")));
        let _ = rib.decide(Budget(1));
    }
    assert!(rib.is_settled(PeerId(1)));
    change_unseen(&mut rib, 2, Policy::RejectAll);
    rib.reevaluate(FAMILY, &PrefixRange::inside(prefix("10.65.0.0/16")));
    settle(&mut rib);
    assert_eq!(rib.counters(PeerId(2), FAMILY).accepted, 0);
}

#[derive(Clone, Debug)]
enum Event {
    Send(u16, u8, Option<u32>),
    /// The data of a peer's policy changes for a range, once everything before is evaluated.
    Change(u16, u8, PrefixRange),
    /// A range is evaluated again without a change.
    Again(PrefixRange),
    Decide(u32),
}

const NETS: u8 = 16;

fn net(number: u8) -> Ipv4Prefix {
    let len = [8, 16, 24, 32][usize::from(number % 4)];
    let address = Ipv4Addr::new(10 + number / 4, 0, 0, 1);
    Ipv4Prefix::new(address, len).expect("short enough")
}

fn policy(number: u8) -> Policy {
    let edit = |degree| {
        Policy::from(Rules {
            name: "some".into(),
            terms: alloc::vec![Term {
                name: "one".into(),
                when: Vec::new(),
                edit: alloc::vec![Edit::SetLocalPref(degree)],
                then: Then::Next,
            }],
            otherwise: Outcome::Accept,
        })
    };
    match number {
        0 => Policy::AcceptAll,
        1 => Policy::RejectAll,
        _ => edit(u32::from(number)),
    }
}

/// Returns the LOCAL_PREF that a policy makes of a received one; `None` if it rejects the route.
fn evaluated(number: u8, received: u32) -> Option<u32> {
    match number {
        0 => Some(received),
        1 => None,
        _ => Some(u32::from(number)),
    }
}

fn range() -> impl Strategy<Value = PrefixRange> {
    (0..NETS, 0..=32u8, 0..=32u8, 0..=32u8).prop_map(|(number, len, min, max)| {
        let address = net(number).addr();
        let within = Ipv4Prefix::new(address, len.min(net(number).len())).expect("short enough");
        match max % 3 {
            0 => PrefixRange::equal(Prefix::V4(net(number))),
            1 => PrefixRange::inside(Prefix::V4(within)),
            _ => PrefixRange::new(Prefix::V4(within), min..=max),
        }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let peer = || 1..=PEERS;
    let degree = prop::option::weighted(0.7, prop::sample::select(alloc::vec![50, 100]));
    prop_oneof![
        8 => (peer(), 0..NETS, degree).prop_map(|(peer, net, pref)| Event::Send(peer, net, pref)),
        3 => (peer(), 0..5u8, range()).prop_map(|(peer, to, range)| Event::Change(peer, to, range)),
        2 => range().prop_map(Event::Again),
        4 => (1..4u32).prop_map(Event::Decide),
    ]
}

/// Received LOCAL_PREF, and the number of the policy that has evaluated it last.
type Model = BTreeMap<(u8, u16), (u32, u8)>;

fn takes(range: &PrefixRange, number: u8) -> bool {
    let (Prefix::V4(within), net) = (range.prefix(), net(number)) else {
        return false;
    };
    within.covers(&net) && range.lengths().contains(&net.len())
}

fn evaluate(model: &mut Model, policies: &[u8], range: &PrefixRange) {
    for (&(number, peer), (_, by)) in model {
        if takes(range, number) {
            *by = policies[usize::from(peer)];
        }
    }
}

proptest! {
    // Promise: as rib covering_range_is_evaluated_in_bounded_steps
    #[test]
    fn range_evaluated_again_is_as_the_model_has_it(
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut rib = rib();
        let mut model = Model::new();
        let mut policies = [0u8; PEERS as usize + 1];
        for event in events {
            match event {
                Event::Send(peer, number, pref) => {
                    send(&mut rib, peer, pref, &[net(number)]);
                    match pref {
                        Some(pref) => {
                            let by = policies[usize::from(peer)];
                            model.insert((number, peer), (pref, by));
                        }
                        None => {
                            model.remove(&(number, peer));
                        }
                    }
                }
                Event::Change(peer, to, range) => {
                    settle(&mut rib);
                    policies[usize::from(peer)] = to;
                    change_unseen(&mut rib, peer, policy(to));
                    rib.reevaluate(FAMILY, &range);
                    evaluate(&mut model, &policies, &range);
                }
                Event::Again(range) => {
                    rib.reevaluate(FAMILY, &range);
                    evaluate(&mut model, &policies, &range);
                }
                Event::Decide(budget) => {
                    let _ = rib.decide(Budget(budget));
                }
            }
        }
        settle(&mut rib);
        let mut best = BTreeMap::new();
        let mut cursor = Cursor::initial();
        let mut read = |change: Change<'_>| {
            let route = change.route.map(|route| route.best());
            let route = route.map(|best| (best.peer, best.attributes.local_pref));
            best.insert(change.net.prefix(), route);
        };
        while rib.changes(FAMILY, &mut cursor, Budget(5), &mut read) != Progress::Done {}
        for number in 0..NETS {
            let of_net = model.range((number, 0)..=(number, PEERS));
            let expected: Vec<_> = of_net
                .map(|(&(_, peer), &(received, by))| (peer, evaluated(by, received)))
                .collect();
            let view = rib.lookup(FAMILY, Net::V4(net(number)));
            let paths = view.map(|view| view.paths).unwrap_or_default();
            let degree = |path: &PathView| path.accepted.as_ref().and_then(|set| set.local_pref);
            let mut found: Vec<_> = paths.iter().map(|path| (path.peer.0, degree(path))).collect();
            found.sort_unstable();
            prop_assert_eq!(&found, &expected);
            let usable = expected.iter().filter_map(|&(peer, degree)| Some((degree?, peer)));
            let chosen = usable.max_by_key(|&(degree, peer)| (degree, u16::MAX - peer));
            let chosen = chosen.map(|(degree, peer)| (PeerId(peer), Some(degree)));
            let read = best.get(&Some(Prefix::V4(net(number)))).copied().flatten();
            prop_assert_eq!(read, chosen, "readers hold the best path");
        }
    }
}

fn rejected(rib: &mut Rib) -> Vec<(u16, std::string::String)> {
    let next = || rib.poll_rejected(PolicyDirection::Import);
    let all = core::iter::from_fn(next);
    all.map(|(_, path)| (path.peer.0, std::format!("{}", path.net())))
        .collect()
}

#[test]
fn rejected_paths_are_recorded_only_while_watched() {
    let mut rib = rib();
    change_unseen(&mut rib, 1, Policy::RejectAll);
    send(&mut rib, 1, Some(100), &[host(1), host(2)]);
    send(&mut rib, 3, Some(100), &[host(2)]);
    assert!(!rib.watches_rejected(PolicyDirection::Import) && rejected(&mut rib).is_empty());
    let of_two = PrefixRange::equal(Prefix::V4(host(2)));
    rib.watch_rejected(
        PolicyDirection::Import,
        Some([of_two.clone()].into_iter().collect()),
    );
    send(&mut rib, 1, Some(90), &[host(1), host(2)]);
    send(&mut rib, 2, Some(90), &[host(2)]);
    assert_eq!(rejected(&mut rib), [(1, "10.65.0.2/32".into())]);
    // A policy that changes rejects what it accepted before, and is silent about the rest.
    change_unseen(&mut rib, 3, Policy::RejectAll);
    for expected in [&[(3, "10.65.0.2/32".into())][..], &[]] {
        rib.reevaluate(FAMILY, &of_two);
        settle(&mut rib);
        assert_eq!(rejected(&mut rib), expected);
    }
    send(&mut rib, 1, Some(80), &[host(2)]);
    rib.unwatch_rejected(PolicyDirection::Import);
    assert!(!rib.watches_rejected(PolicyDirection::Import) && rejected(&mut rib).is_empty());
}

/// Sends routes nowhere.
struct Nowhere;

impl ExportSink for Nowhere {
    fn reach(&mut self, _: &Nlri<'_>, _: &crate::export::Run<'_>) {}
    fn unreach(&mut self, _: &Nlri<'_>, _: Option<PeerId>) {}
    fn unreach_only(&mut self, _: Net<'_>, _: PeerId) {}
}

/// Returns rules that reject the destinations of host 2.
fn without_host_2(role: Role, add_path: Option<SendPaths>) -> GroupRules {
    let range = PrefixRange::equal(Prefix::V4(host(2)));
    let export = Rules {
        name: "filter lab".into(),
        terms: std::vec![Term {
            name: "rule 1".into(),
            when: std::vec![Match::Net([range].into_iter().collect())],
            edit: Vec::new(),
            then: Then::Reject,
        }],
        otherwise: Outcome::Accept,
    };
    GroupRules {
        role,
        local_asn: Asn(64_512),
        peer_asn: Asn(64_512),
        next_hop: NextHopMode::Auto,
        own_next_hop_v4: None,
        own_next_hop_v6: None,
        extended_next_hop: false,
        long_lived: false,
        link_bandwidth: None,
        cluster_id: ClusterId::default(),
        domain: Default::default(),
        export: export.into(),
        add_path: add_path.map(|send| (FAMILY, send)).into_iter().collect(),
    }
}

/// Exports everything to groups, and returns the recorded rejections.
fn exported(rib: &mut Rib, groups: &[GroupId]) -> Vec<(u32, u16, std::string::String)> {
    settle(rib);
    for &group in groups {
        while rib.export(group, FAMILY, Budget(2), &mut Nowhere) != Progress::Done {}
    }
    recorded(rib)
}

fn recorded(rib: &mut Rib) -> Vec<(u32, u16, std::string::String)> {
    let next = || rib.poll_rejected(PolicyDirection::Export);
    let all = core::iter::from_fn(next).map(|(_, path)| {
        let evaluation = path.evaluation.as_ref().expect("rules");
        let words = std::format!("{} by {evaluation}", path.net());
        (path.group.expect("a group").0, path.peer.0, words)
    });
    all.collect()
}

#[test]
fn rejected_exports_are_recorded_only_while_watched() {
    let mut rib = rib();
    let best = rib.add_group(without_host_2(Role::Client, None));
    let all = rib.add_group(without_host_2(Role::Client, Some(SendPaths::All)));
    // No route is sent to this group, whatever its policy is.
    let none = rib.add_group(without_host_2(Role::Local, None));
    let groups = [best, all, none];
    let words = || std::string::String::from("10.65.0.2/32 by filter lab, rule 1");
    send(&mut rib, 1, Some(100), &[host(1), host(2)]);
    assert_eq!(exported(&mut rib, &groups), []);
    let watched = PrefixRange::equal(Prefix::V4(host(2)));
    rib.watch_rejected(
        PolicyDirection::Export,
        Some([watched].into_iter().collect()),
    );
    assert!(!rib.watches_rejected(PolicyDirection::Import));
    send(&mut rib, 1, Some(90), &[host(1), host(2)]);
    send(&mut rib, 2, Some(80), &[host(2)]);
    let expected = [
        (best.0, 1, words()),
        (all.0, 1, words()),
        (all.0, 2, words()),
    ];
    assert_eq!(exported(&mut rib, &groups), expected);
    assert_eq!(exported(&mut rib, &groups), [], "nothing has changed");
    // The initial table transfer to a further member evaluates the policy again.
    let mut cursor = Cursor::initial();
    while rib.export_private(best, FAMILY, &mut cursor, Budget(1), &mut Nowhere) != Progress::Done {
    }
    assert_eq!(recorded(&mut rib), [(best.0, 1, words())]);
    send(&mut rib, 1, Some(70), &[host(2)]);
    rib.unwatch_rejected(PolicyDirection::Export);
    assert!(!rib.watches_rejected(PolicyDirection::Export));
    assert_eq!(exported(&mut rib, &groups), []);
}

#[test]
fn follower_gets_what_changes_and_never_the_table() {
    let mut rib = rib();
    send(&mut rib, 1, Some(100), &[host(1), host(2)]);
    let mut cursor = rib.latest(FAMILY);
    send(&mut rib, 2, Some(200), &[host(2)]);
    send(&mut rib, 1, None, &[host(1)]);
    settle(&mut rib);
    assert_eq!(rib.skip_missed(FAMILY, &mut cursor), 0);
    let mut seen = Vec::new();
    let progress = rib.changes(FAMILY, &mut cursor, Budget(9), &mut |change| {
        let best = change
            .route
            .map(|route| (route.best().peer.0, route.next_best_lost()));
        seen.push((std::format!("{}", change.net), best));
    });
    assert_eq!(progress, Progress::Done);
    let lost = Some(crate::decide::Step::LocalPref);
    assert_eq!(
        seen,
        [
            ("10.65.0.2/32".into(), Some((2, lost))),
            ("10.65.0.1/32".into(), None)
        ]
    );
    // A reader whose cursor `trim` did not get has lost its position.
    send(&mut rib, 1, Some(70), &[host(3)]);
    settle(&mut rib);
    rib.trim(FAMILY, &[]);
    assert_eq!(rib.skip_missed(FAMILY, &mut cursor), 1);
    assert_eq!(rib.skip_missed(FAMILY, &mut cursor), 0);
}
