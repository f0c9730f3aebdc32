//! Compares the tables, and what their readers hold, with the model.

use std::collections::BTreeMap;

use rib::{Budget, Cursor, PeerId, Progress, Role, Step};

use crate::ear::{Ear, Said};
use crate::events::{NETS, PEERS};
use crate::model::Told;
use crate::parts::{ROLES, net_of, octets_of, role_of};
use crate::world::{Fib, Member, Mode, World};

impl World {
    /// What everybody holds.
    pub fn held(&self) -> (BTreeMap<PeerId, BTreeMap<u8, Told>>, &Fib) {
        let members = self.members.iter();
        (
            members
                .map(|(&id, member)| (id, member.holds.clone()))
                .collect(),
            &self.fib,
        )
    }

    /// Compares everything with the model.
    pub fn check(&mut self) {
        for (&id, member) in &self.members {
            let expected = self.expected(id, role_of(id.0));
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

    fn expected(&self, member: PeerId, role: Role) -> BTreeMap<u8, Told> {
        (0..NETS)
            .filter_map(|net| Some((net, self.model.told(net, member, role)?)))
            .collect()
    }

    /// What the tables show of a prefix, and what the reader of changes was told.
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
            assert_eq!(view.received, &path.received);
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

    /// Whoever comes now is given the same.
    fn check_newcomers(&mut self) {
        let newcomer = PeerId(99);
        let family = self.setup.family;
        for (group, &role) in ROLES.iter().enumerate() {
            let mut member = Member {
                mode: Mode::Shared,
                holds: BTreeMap::new(),
            };
            let mut cursor = Cursor::feed();
            loop {
                let mut transcript = Vec::new();
                let mut ear = Ear {
                    family,
                    said: Vec::new(),
                    last_run: 0,
                    transcript: &mut transcript,
                };
                let id = self.groups[group];
                let progress =
                    self.rib
                        .export_private(id, family, newcomer, &mut cursor, Budget(3), &mut ear);
                for said in &ear.said {
                    assert!(matches!(said, Said::Reach { .. }), "nothing to take back");
                    member.take(newcomer, said);
                }
                if progress == Progress::Done {
                    break;
                }
            }
            assert_eq!(
                member.holds,
                self.expected(newcomer, role),
                "newcomer, {role:?}"
            );
        }
    }
}
