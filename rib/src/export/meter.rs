//! The octets of a step's output, estimated while its routes are collected, so that a step ends
//! before its messages are too long.

use bgp_proto::Net;

use super::sink::Room;
use crate::attributes::AttrId;
use crate::intern::Interner;

/// Octets of an announcement beside its routes and the packed attributes: the header and the fixed
/// fields of an UPDATE, the headers of its attributes, and what the speaker adds.
const RUN_OCTETS: usize = 160;

/// Octets of a withdrawal beside its NLRI, if it takes a message of its own.
const WITHDRAWAL_OCTETS: usize = 32;

/// Octets of a path identifier.
const PATH_ID_OCTETS: usize = 4;

/// Counts the octets of one step. The estimate is above the encoded octets, except for sets with
/// many short attributes.
#[derive(Debug)]
pub(super) struct Meter {
    room: Room,
    octets: usize,
    /// The octets of the last run's attributes in each of its messages.
    block: usize,
    /// The NLRI octets of the last route, and what one more of this length costs.
    last: (usize, usize),
}

impl Default for Meter {
    fn default() -> Self {
        Self::new(Room::UNBOUNDED)
    }
}

impl Meter {
    pub(super) const fn new(room: Room) -> Self {
        Self {
            room,
            octets: 0,
            block: 0,
            last: (0, 0),
        }
    }

    /// Returns whether the step should end.
    pub(super) const fn is_full(&self) -> bool {
        self.octets >= self.room.octets
    }

    /// Begins announcements with other attributes.
    pub(super) fn begin_run(&mut self, interner: &Interner, attributes: AttrId) {
        self.block = RUN_OCTETS + interner.octets(attributes);
        self.octets = self.octets.saturating_add(self.block);
        self.last = (0, 0);
    }

    /// Adds an announcement of the run.
    #[inline]
    pub(super) fn announce(&mut self, nlri: usize) {
        if self.last.0 != nlri {
            self.last = (nlri, self.cost(nlri));
        }
        self.octets = self.octets.saturating_add(self.last.1);
    }

    /// Adds a withdrawal.
    #[inline]
    pub(super) const fn withdraw(&mut self, nlri: usize) {
        self.octets = self.octets.saturating_add(WITHDRAWAL_OCTETS + nlri);
    }

    /// Returns the octets of a route with its share of the attributes, which every message of the
    /// run repeats: long attributes leave room for few routes.
    fn cost(&self, nlri: usize) -> usize {
        let message = self.room.message_octets;
        let routes = message.saturating_sub(self.block) / nlri.max(1);
        message.div_ceil(routes.max(1))
    }
}

/// Returns the octets of a route's NLRI, at most.
#[inline]
pub(super) const fn nlri_octets(net: Net<'_>) -> usize {
    PATH_ID_OCTETS
        + match net {
            Net::V4(_) => 5,
            Net::V6(_) => 17,
            Net::Opaque(octets) => octets.len(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NLRI: usize = 9;

    fn meter(block: usize) -> Meter {
        let room = Room {
            octets: 100_000,
            message_octets: 4096,
        };
        let mut meter = Meter::new(room);
        meter.block = block;
        meter.octets = block;
        meter
    }

    /// Returns the octets of this many routes of one run, by filling messages.
    fn naive(block: usize, routes: usize) -> usize {
        let each = ((4096 - block) / NLRI).max(1);
        routes.div_ceil(each) * block + routes * NLRI
    }

    #[test]
    fn estimate_of_a_run_is_above_its_messages() {
        for block in [160, 200, 1000, 2000, 4000, 4080, 4087] {
            for routes in [1, 2, 10, 100] {
                let mut meter = meter(block);
                (0..routes).for_each(|_| meter.announce(NLRI));
                let naive = naive(block, routes);
                assert!(meter.octets >= naive, "{block}, {routes}: {naive}");
                let most = naive + naive / 3 + block + 4096;
                assert!(meter.octets <= most, "{block}, {routes}: {naive}");
            }
        }
    }

    #[test]
    fn attributes_longer_than_a_message_cost_one_message() {
        let mut meter = meter(70_000);
        let before = meter.octets;
        meter.announce(NLRI);
        assert_eq!(meter.octets - before, 4096);
        assert!(!meter.is_full());
        (0..7).for_each(|_| meter.announce(NLRI));
        assert!(meter.is_full());
    }

    #[test]
    fn withdrawals_fill_a_step() {
        let mut meter = meter(0);
        (0..100_000 / (WITHDRAWAL_OCTETS + NLRI)).for_each(|_| meter.withdraw(NLRI));
        assert!(!meter.is_full());
        meter.withdraw(NLRI);
        assert!(meter.is_full());
    }
}
