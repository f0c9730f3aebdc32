//! Readers of the tables beside the peers: the position of each in the logs of changes.

use alloc::{collections::BTreeMap, vec::Vec};

use bgp_proto::{Family, FamilySet};
use rib::{Budget, Change, Cursor, Progress, Rib};

/// A reader of the tables: see [`Speaker::add_reader`](crate::Speaker::add_reader).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderId(usize);

/// All readers.
#[derive(Debug, Default)]
pub(crate) struct Readers(Vec<Option<Reader>>);

#[derive(Debug)]
struct Reader {
    kind: Kind,
    cursors: BTreeMap<Family, Cursor>,
}

#[derive(Debug)]
enum Kind {
    /// It receives the whole table, then changes.
    Full,
    /// It receives only the changes after its start.
    Follower {
        /// Changes that it missed because it fell too far behind.
        missed: u64,
    },
}

impl Readers {
    /// Adds a reader that receives everything.
    pub(crate) fn add(&mut self) -> ReaderId {
        let cursors = BTreeMap::new();
        self.insert(Reader {
            kind: Kind::Full,
            cursors,
        })
    }

    /// Adds a reader that receives only later changes.
    pub(crate) fn add_follower(&mut self, rib: &Rib, families: FamilySet) -> ReaderId {
        let families = families.iter();
        let cursors = families.map(|family| (family, rib.latest(family)));
        self.insert(Reader {
            kind: Kind::Follower { missed: 0 },
            cursors: cursors.collect(),
        })
    }

    pub(crate) fn remove(&mut self, reader: ReaderId) {
        if let Some(place) = self.0.get_mut(reader.0) {
            *place = None;
        }
    }

    /// Returns the number of readers.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Reads further changes of one family.
    pub(crate) fn read(
        &mut self,
        rib: &mut Rib,
        (reader, family): (ReaderId, Family),
        budget: Budget,
        each: &mut dyn FnMut(Change<'_>),
    ) -> Progress {
        let Some(Some(reader)) = self.0.get_mut(reader.0) else {
            return Progress::Done;
        };
        match &mut reader.kind {
            Kind::Full => {
                let cursor = reader.cursors.entry(family).or_default();
                rib.changes(family, cursor, budget, each)
            }
            Kind::Follower { missed } => {
                let cursor = reader.cursors.entry(family);
                let cursor = cursor.or_insert_with(|| rib.latest(family));
                *missed = missed.saturating_add(rib.skip_missed(family, cursor));
                rib.changes(family, cursor, budget, each)
            }
        }
    }

    /// Returns the number of changes that a follower missed.
    pub(crate) fn missed(&self, reader: ReaderId) -> u64 {
        match self.0.get(reader.0) {
            Some(Some(Reader {
                kind: Kind::Follower { missed },
                ..
            })) => *missed,
            _ => 0,
        }
    }

    /// Returns the positions of all readers in a family.
    pub(crate) fn cursors(&self, family: Family) -> impl Iterator<Item = Cursor> + '_ {
        let readers = self.0.iter().flatten();
        readers.filter_map(move |reader| reader.cursors.get(&family).copied())
    }

    fn insert(&mut self, reader: Reader) -> ReaderId {
        match self.0.iter().position(Option::is_none) {
            Some(free) => {
                if let Some(place) = self.0.get_mut(free) {
                    *place = Some(reader);
                }
                ReaderId(free)
            }
            None => {
                self.0.push(Some(reader));
                ReaderId(self.0.len() - 1)
            }
        }
    }
}
