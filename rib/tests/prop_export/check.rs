//! Comparison of the tables and their readers with the model.

use std::collections::BTreeMap;

use rib::{Budget, Cursor, PeerId, Progress, Room, Step};

use crate::ear::{Ear, Sent};
use crate::events::{NETS, PEERS};
use crate::model::Exported;
use crate::parts::{GroupKey, net_of, octets_of};
use crate::world::{Fib, Member, Mode, World};

impl World {
    /// Returns the routes of all members, without identifiers.
    pub fn held(&self) -> (Vec<(PeerId, u8, Exported)>, &Fib) {
        let members = self.members.iter();
        let mut held: Vec<_> = members
            .flat_map(|(&id, member)| {
                let holds = member.holds.iter();
                holds.map(move |(&(net, _), exported)| (id, net, exported.clone()))
            })
            .collect();
        held.sort();
        (held, &self.fib)
    }

    /// Compares everything with the model.
    pub fn check(&mut self) {
        for (&id, member) in &self.members {
            let expected = self.expected(id, self.setup.group_of(id));
            assert_eq!(member.holds, expected, "{id:?} holds");
        }
        for net in 0..NETS {
            self.check_net(net);
        }
        for peer in 0..=PEERS {
            let held = self
                .model
                .paths
                .keys()
                .filter(|key| key.1 == PeerId(peer))
                .count();
            let counters = self.rib.counters(PeerId(peer), self.setup.family);
            assert_eq!(counters.paths as usize, held, "paths of {peer}");
            assert!(self.rib.is_settled(PeerId(peer)));
        }
        self.check_newcomers();
    }

    /// Returns the expected routes by prefix and path identifier; the identifiers are those that
    /// the tables report.
    fn expected(&self, member: PeerId, key: GroupKey) -> BTreeMap<(u8, u32), Exported> {
        let family = self.setup.family;
        let mut expected = BTreeMap::new();
        for net in 0..NETS {
            let octets = octets_of(family, net, 0);
            let net_octets = net_of(family, net, &octets);
            let sent = self.rib.sent(self.groups[&key], family, net_octets);
            for (from, exported) in self.model.exported(net, member, key) {
                let sent = sent.iter();
                let mut same = sent.filter(|sent| (sent.source, sent.received_id) == from);
                let path_id = same.next().expect("sent").path_id.unwrap_or_default();
                assert_eq!(path_id != 0, key.1.is_some());
                let same = expected.insert((net, path_id), exported);
                assert_eq!(same, None, "an identifier of two paths of {net}");
            }
        }
        expected
    }

    /// Compares the view of a prefix, and the state of the reader of changes.
    fn check_net(&self, net: u8) {
        let family = self.setup.family;
        let chosen = self.model.chosen(net);
        let mut expected: Vec<_> = chosen
            .iter()
            .map(|path| (path.peer, path.path_id, path.attributes.clone()))
            .collect();
        let mut found = self.fib.get(&net).cloned().unwrap_or_default();
        assert_eq!(found.first(), expected.first(), "best of {net}");
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "paths in use of {net}");
        let octets = octets_of(family, net, 0);
        let view = self.rib.lookup(family, net_of(family, net, &octets));
        let range = (net, PeerId(0), 0)..=(net, PeerId(u16::MAX), u32::MAX);
        let views = view.map(|view| view.paths).unwrap_or_default();
        assert_eq!(views.len(), self.model.paths.range(range.clone()).count());
        for (&(_, peer, path_id), path) in self.model.paths.range(range) {
            let view = views
                .iter()
                .find(|view| (view.peer, view.path_id) == (peer, path_id));
            let view = view.expect("listed");
            assert_eq!(view.received, path.received);
            assert_eq!(
                (view.stale, view.awaits_refresh),
                (path.stale, path.awaits_refresh)
            );
            let import = self.model.import(net, peer, path);
            assert_eq!(view.ineligible, import.as_ref().err().copied());
            assert_eq!(view.lost.is_none(), view.best);
            assert_eq!(view.lost == Some(Step::Ineligible), import.is_err());
            let best = chosen
                .first()
                .is_some_and(|best| (best.peer, best.path_id) == (peer, path_id));
            assert_eq!(view.best, best);
        }
    }

    /// Asserts that a new member receives the same routes.
    fn check_newcomers(&mut self) {
        let newcomer = PeerId(99);
        let family = self.setup.family;
        for (&key, &id) in &self.groups {
            let mut member = Member {
                mode: Mode::Shared,
                holds: BTreeMap::new(),
            };
            let mut cursor = Cursor::initial();
            loop {
                let mut transcript = Vec::new();
                let mut ear = Ear {
                    family,
                    add_path: key.1.is_some(),
                    sent: Vec::new(),
                    last_run: 0,
                    room: Room::UNBOUNDED,
                    transcript: &mut transcript,
                };
                let progress =
                    self.rib
                        .export_private(id, family, &mut cursor, Budget(3), &mut ear);
                for sent in &ear.sent {
                    assert!(matches!(sent, Sent::Reach { .. }), "nothing to take back");
                    member.take(newcomer, sent);
                }
                if progress == Progress::Done {
                    break;
                }
            }
            assert_eq!(
                member.holds,
                self.expected(newcomer, key),
                "newcomer, {key:?}"
            );
        }
    }
}
