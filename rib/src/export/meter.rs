//! The octets of a step's output, estimated while its routes are collected, so that a step ends
//! before its messages are too long.

use bgp_proto::Net;

use super::sink::Room;
use crate::attributes::AttrId;
use crate::intern::Interner;
use crate::limits::CHARGED_RUNS;
use crate::peer::PeerId;

/// Octets of an announcement beside its routes and the packed attributes: the header and the fixed
/// fields of an UPDATE, the headers of its attributes, and what the speaker adds.
const RUN_OCTETS: usize = 160;

/// Octets of a withdrawal beside its NLRI, if it takes a message of its own.
const WITHDRAWAL_OCTETS: usize = 32;

/// Octets of a path identifier.
const PATH_ID_OCTETS: usize = 4;

/// The last runs that a step has charged, so that one whose routes are not adjacent in the tables is
/// charged once. Reused by all steps.
#[derive(Debug)]
pub(super) struct Charged {
    runs: [Option<ChargedRun>; CHARGED_RUNS],
    step: u32,
}

#[derive(Clone, Copy, Debug)]
struct ChargedRun {
    /// The step that has charged it.
    step: u32,
    attributes: AttrId,
    source: PeerId,
    /// The octets of its attributes in each of its messages.
    block: u32,
}

const _: () = assert!(CHARGED_RUNS.is_power_of_two() && size_of::<ChargedRun>() == 16);

impl Default for Charged {
    fn default() -> Self {
        Self {
            runs: [None; CHARGED_RUNS],
            step: 0,
        }
    }
}

impl Charged {
    /// Begins a step, which has charged nothing.
    fn begin(&mut self) {
        self.step = self.step.wrapping_add(1);
        if self.step == 0 {
            self.runs = [None; CHARGED_RUNS];
        }
    }

    /// Returns the block of a run, and whether the step charges it now. Peers with one set each have
    /// sets numbered like the peers: the factor keeps their places apart.
    fn charge(
        &mut self,
        interner: &Interner,
        (attributes, source): (AttrId, PeerId),
    ) -> (usize, bool) {
        let at = attributes.index() + 2 * usize::from(source.0);
        let place = &mut self.runs[at & (CHARGED_RUNS - 1)];
        if let Some(run) = *place
            && (run.step, run.attributes, run.source) == (self.step, attributes, source)
        {
            return (run.block as usize, false);
        }
        let block = RUN_OCTETS + interner.octets(attributes);
        *place = Some(ChargedRun {
            step: self.step,
            attributes,
            source,
            block: u32::try_from(block).unwrap_or(u32::MAX),
        });
        (block, true)
    }
}

/// Counts the octets of one step. The estimate is above the encoded octets, except for sets with
/// many short attributes.
#[derive(Debug)]
pub(super) struct Meter<'c> {
    room: Room,
    octets: usize,
    /// The octets of the last run's attributes in each of its messages.
    block: usize,
    /// The NLRI octets of the last route, and what one more of this length costs.
    last: (usize, usize),
    charged: &'c mut Charged,
}

impl<'c> Meter<'c> {
    /// Begins a step.
    pub(super) fn new(room: Room, charged: &'c mut Charged) -> Self {
        charged.begin();
        Self {
            room,
            octets: 0,
            block: 0,
            last: (0, 0),
            charged,
        }
    }

    /// Returns whether the step should end.
    pub(super) const fn is_full(&self) -> bool {
        self.octets >= self.room.octets
    }

    /// Turns to the announcements of another run: these attributes from this peer.
    pub(super) fn turn(&mut self, interner: &Interner, run: (AttrId, PeerId)) {
        let (block, is_new) = self.charged.charge(interner, run);
        if is_new {
            self.octets = self.octets.saturating_add(block);
        }
        if block != self.block {
            self.block = block;
            self.last = (0, 0);
        }
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

    fn meter(charged: &mut Charged, block: usize) -> Meter<'_> {
        let room = Room {
            octets: 100_000,
            message_octets: 4096,
        };
        let mut meter = Meter::new(room, charged);
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
                let mut charged = Charged::default();
                let mut meter = meter(&mut charged, block);
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
        let mut charged = Charged::default();
        let mut meter = meter(&mut charged, 70_000);
        let before = meter.octets;
        meter.announce(NLRI);
        assert_eq!(meter.octets - before, 4096);
        assert!(!meter.is_full());
        (0..7).for_each(|_| meter.announce(NLRI));
        assert!(meter.is_full());
    }

    #[test]
    fn withdrawals_fill_a_step() {
        let mut charged = Charged::default();
        let mut meter = meter(&mut charged, 0);
        (0..100_000 / (WITHDRAWAL_OCTETS + NLRI)).for_each(|_| meter.withdraw(NLRI));
        assert!(!meter.is_full());
        meter.withdraw(NLRI);
        assert!(meter.is_full());
    }
}
