//! Readers of the tables: groups and their members, and the reader of changes.

use std::collections::BTreeMap;

use rib::{Budget, Change, Cursor, PeerId, Progress, Room, SendPaths};

use crate::ear::Ear;
use crate::parts::{GroupKey, index_of, rules_of};
use crate::world::{Member, Mode, World};

/// Returns the room of a step: with a budget of two prefixes it ends with the first output.
const fn room(budget: u32) -> Room {
    match budget {
        2 => Room::new(1, Room::UNBOUNDED.message_octets),
        _ => Room::UNBOUNDED,
    }
}

impl World {
    pub(crate) fn export(&mut self, group: GroupKey, budget: u32) -> Progress {
        let family = self.setup.family;
        let mut ear = Ear {
            family,
            add_path: group.1.is_some(),
            sent: Vec::new(),
            last_run: 0,
            room: room(budget),
            transcript: &mut self.transcript,
        };
        let progress = self
            .rib
            .export(self.groups[&group], family, Budget(budget), &mut ear);
        let sent = ear.sent;
        for (&id, member) in &mut self.members {
            if self.setup.group_of(id) != group || !matches!(member.mode, Mode::Shared) {
                continue;
            }
            sent.iter().for_each(|sent| member.take(id, sent));
            if progress == Progress::Lost {
                *member = Member {
                    mode: Mode::Private(Cursor::initial()),
                    holds: BTreeMap::new(),
                };
            }
        }
        progress
    }

    pub(crate) fn private(&mut self, peer: PeerId, budget: u32) -> Progress {
        let family = self.setup.family;
        let Some(member) = self.members.get_mut(&peer) else {
            return Progress::Done;
        };
        let Mode::Private(cursor) = &mut member.mode else {
            return Progress::Done;
        };
        let group = self.setup.group_of(peer);
        let mut ear = Ear {
            family,
            add_path: group.1.is_some(),
            sent: Vec::new(),
            last_run: 0,
            room: room(budget),
            transcript: &mut self.transcript,
        };
        let (id, budget) = (self.groups[&group], Budget(budget));
        let progress = self
            .rib
            .export_private(id, family, cursor, budget, &mut ear);
        let sent = ear.sent;
        for sent in &sent {
            member.take(peer, sent);
        }
        match progress {
            Progress::Done => member.mode = Mode::Shared,
            Progress::More => {}
            Progress::Lost => member.holds.clear(),
        }
        progress
    }

    pub(crate) fn lag(&mut self, peer: PeerId) {
        let group = self.groups[&self.setup.group_of(peer)];
        let cursor = self.rib.group_cursor(group, self.setup.family);
        if let Some(member) = self.members.get_mut(&peer)
            && matches!(member.mode, Mode::Shared)
        {
            member.mode = Mode::Private(cursor);
        }
    }

    /// Moves a member to another group.
    pub(crate) fn go_over(&mut self, peer: PeerId, send: SendPaths) {
        let old = self.setup.group_of(peer);
        if old.1.is_none() {
            return;
        }
        let from = self.groups[&old];
        let cursor = self.rib.group_cursor(from, self.setup.family);
        self.setup.sends[usize::from(peer.0)] = Some(send);
        let new = self.setup.group_of(peer);
        let to = match self.groups.get(&new) {
            Some(to) => *to,
            None => {
                let rules = rules_of(&self.setup, new);
                self.rib.add_group(rules)
            }
        };
        self.groups.insert(new, to);
        if let Some(member) = self.members.get_mut(&peer)
            && to != from
        {
            self.rib.adopt(to, from);
            member.mode = Mode::Private(match member.mode {
                Mode::Shared => cursor.with_new_rules(),
                Mode::Private(cursor) => cursor.with_new_rules(),
            });
        }
    }

    pub(crate) fn again(&mut self, peer: PeerId) {
        let group = self.groups[&self.setup.group_of(peer)];
        let cursor = self.rib.group_cursor(group, self.setup.family);
        if let Some(member) = self.members.get_mut(&peer) {
            member.mode = Mode::Private(match member.mode {
                Mode::Shared => cursor.refreshed(),
                Mode::Private(cursor) => cursor.refreshed(),
            });
        }
    }

    pub(crate) fn read(&mut self, budget: u32) -> Progress {
        let (family, fib) = (self.setup.family, &mut self.fib);
        let mut reader = |change: Change<'_>| {
            let net = index_of(family, change.net).0;
            match change.route {
                Some(route) => {
                    let paths = route.paths();
                    let paths: Vec<_> = paths
                        .map(|path| (path.peer, path.path_id, path.attributes.clone()))
                        .collect();
                    fib.insert(net, paths);
                }
                None => {
                    fib.remove(&net);
                }
            }
        };
        let progress = self
            .rib
            .changes(family, &mut self.reader, Budget(budget), &mut reader);
        if progress == Progress::Lost {
            self.fib.clear();
        }
        progress
    }

    pub(crate) fn trim(&mut self) {
        let mut held = vec![self.reader];
        held.extend(
            self.members
                .values()
                .filter_map(|member| match member.mode {
                    Mode::Private(cursor) => Some(cursor),
                    Mode::Shared => None,
                }),
        );
        self.rib.trim(self.setup.family, &held);
    }
}
