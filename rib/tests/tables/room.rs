//! Where a step of export ends.

use std::collections::BTreeSet;

use bgp_proto::{Asn, Attributes, Community, Net, Nlri};
use rib::{
    Budget, Cursor, ExportSink, GroupId, GroupRules, NextHopMode, PeerId, Policy, Progress, Rib,
    Role, Room, Run,
};

use crate::{FAMILY, announce, attributes, rib, settle};

/// The room for a private member in `bgp-speaker`.
const ROOM: Room = Room::new((256 << 10) - 4096, 4096);

const PREFIXES: u32 = 16_384;

/// The announcements and the runs of one step.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    routes: u32,
    runs: BTreeSet<u64>,
}

impl ExportSink for Step {
    fn room(&self) -> Room {
        ROOM
    }

    fn reach(&mut self, _: &Nlri<'_>, run: &Run<'_>) {
        self.routes += 1;
        self.runs.insert(run.id);
    }

    fn unreach(&mut self, _: &Nlri<'_>, _: Option<PeerId>) {}

    fn unreach_only(&mut self, _: Net<'_>, _: PeerId) {}
}

/// Returns tables in which each prefix has another set than the prefixes beside it. There are so
/// many sets, of so many communities, from two peers by turns.
fn interleaved(sets: u32, communities: u32) -> (Rib, GroupId) {
    let mut rib = rib();
    let group = rib.add_group(GroupRules {
        role: Role::Client,
        local_asn: Asn(64_512),
        peer_asn: Asn(64_512),
        next_hop: NextHopMode::Auto,
        own_next_hop_v4: None,
        own_next_hop_v6: None,
        extended_next_hop: false,
        long_lived: false,
        link_bandwidth: None,
        cluster_id: Default::default(),
        domain: Default::default(),
        export: Policy::AcceptAll,
        add_path: Default::default(),
    });
    rib.group_cursor(group, FAMILY);
    for number in 0..PREFIXES {
        let set = number % sets;
        let first = set << 16;
        let peer = 2 + (set % 2) as u16;
        let attributes = Attributes {
            communities: (first..first + communities).map(Community).collect(),
            ..attributes(peer, 1)
        };
        announce(&mut rib, peer, &attributes, [(number, 0)].into_iter());
    }
    settle(&mut rib);
    (rib, group)
}

/// Returns the routes and the number of runs of each step with announcements: of the group or, with
/// a cursor, of a private member.
fn steps(
    rib: &mut Rib,
    group: GroupId,
    mut own: Option<Cursor>,
    budget: Budget,
) -> Vec<(u32, usize)> {
    let mut steps = Vec::new();
    loop {
        let mut step = Step::default();
        let progress = match &mut own {
            None => rib.export(group, FAMILY, budget, &mut step),
            Some(own) => rib.export_private(group, FAMILY, own, budget, &mut step),
        };
        if step.routes > 0 {
            steps.push((step.routes, step.runs.len()));
        }
        if progress == Progress::Done {
            return steps;
        }
    }
}

#[test]
fn interleaved_sets_do_not_end_a_step() {
    for sets in [1, 2, 128] {
        let (mut rib, group) = interleaved(sets, 25);
        let runs = sets as usize;
        let private = steps(&mut rib, group, Some(Cursor::initial()), Budget(4096));
        assert_eq!(private, [(4096, runs); 4], "{sets} sets");
        let shared = steps(&mut rib, group, None, Budget(8192));
        assert_eq!(shared, [(8192, runs); 2], "{sets} sets");
    }
}

#[test]
fn sets_of_their_own_end_a_step() {
    let (mut rib, group) = interleaved(PREFIXES, 25);
    let own = [None, Some(Cursor::initial())];
    for steps in own.map(|own| steps(&mut rib, group, own, Budget(4096))) {
        let routes: u32 = steps.iter().map(|step| step.0).sum();
        assert_eq!(routes, PREFIXES);
        // 100 octets of communities, and some 60 of other attributes, headers and the prefix.
        let most = (256 << 10) / 160;
        let long = steps.iter().filter(|step| step.0 > most);
        assert_eq!(long.count(), 0, "{steps:?}");
        let short = steps.iter().filter(|step| step.0 < most / 3);
        assert!(short.count() <= 1, "{steps:?}");
    }
}
