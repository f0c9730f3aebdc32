//! The exact comparison of two programs.

use super::{Outcome, Place, ProgramId, Space};
use crate::limits::{CLASSES_MAX, PROGRAMS_MAX};
use crate::packet::{Family, Field, Packet, protocol};

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Both programs decide in the same way about all packets.
    Equal,
    /// They decide differently about this packet.
    Different(Difference),
    /// They decide in the same way about all packets that can be evaluated. This packet cannot.
    Unknown(Difference),
    /// The comparison has more classes of packets than [`CLASSES_MAX`].
    TooLarge,
}

/// A packet with the decisions of both programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The packet.
    pub packet: Packet,
    /// The correct decision.
    pub wanted: Side,
    /// The decision of the kernel.
    pub found: Side,
}

/// A decision, and the rule that has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The decision.
    pub outcome: Outcome,
    /// The rule.
    pub place: Place,
}

/// Compares two programs over all packets of an IP version. The fields that `start` has different
/// from a new packet must be fixed in both programs already.
pub fn compare(
    space: &mut Space,
    start: Packet,
    wanted: ProgramId,
    found: ProgramId,
) -> Comparison {
    let mut search = Search {
        space,
        classes: 0,
        blocked: None,
    };
    let result = match search.descend(wanted, found, start) {
        Err(End::Different(difference)) => Comparison::Different(*difference),
        Err(End::TooLarge) => Comparison::TooLarge,
        Ok(()) => match search.blocked {
            Some(difference) => Comparison::Unknown(difference),
            None => Comparison::Equal,
        },
    };
    if result != Comparison::Equal {
        space.proven.clear();
    }
    result
}

/// The early end of a search.
enum End {
    Different(Box<Difference>),
    TooLarge,
}

struct Search<'s> {
    space: &'s mut Space,
    classes: usize,
    /// The first packet that cannot be evaluated.
    blocked: Option<Difference>,
}

impl Search<'_> {
    fn descend(&mut self, wanted: ProgramId, found: ProgramId, packet: Packet) -> Result<(), End> {
        let sides = (self.decided(wanted), self.decided(found));
        if sides.0.is_some_and(|side| side.outcome == Outcome::Either) {
            return Ok(());
        }
        if let (Some(wanted), Some(found)) = sides {
            return self.decide(Difference {
                packet,
                wanted,
                found,
            });
        }
        let fields = self.space.fields(wanted) | self.space.fields(found);
        let Some(field) = Field::ALL
            .into_iter()
            .find(|field| fields & field.bit() != 0)
        else {
            return Ok(());
        };
        // Conditions on ports are the same before and after the protocol is fixed.
        let has_protocol = packet.get(Field::Protocol) != 0;
        let pair = (packet.family, wanted, found, has_protocol);
        if !self.space.proven.insert(pair) {
            return Ok(());
        }
        self.classes += 1;
        if self.classes > CLASSES_MAX || self.space.mark() > PROGRAMS_MAX {
            return Err(End::TooLarge);
        }
        // The fields of a protocol have a meaning only when the protocol is fixed.
        let field = match field > Field::Protocol && packet.get(Field::Protocol) == 0 {
            true => Field::Protocol,
            false => field,
        };
        let conditions = self.space.conditions_on(&[wanted, found], field);
        let values = self.space.values(packet.family, field, conditions);
        for value in values.iter() {
            if field == Field::Protocol && is_foreign(packet.family, *value) {
                continue;
            }
            let wanted = self.space.fix_field(wanted, field, *value);
            let found = self.space.fix_field(found, field, *value);
            self.descend(wanted, found, packet.with(field, *value))?;
        }
        Ok(())
    }

    /// Returns the decision of a program that depends on no further field.
    fn decided(&self, program: ProgramId) -> Option<Side> {
        if let Some((outcome, place)) = self.space.constant(program) {
            return Some(Side { outcome, place });
        }
        (self.space.fields(program) == 0).then(|| Side {
            outcome: Outcome::Unknown,
            place: self.space.blocked_at(program),
        })
    }

    fn decide(&mut self, difference: Difference) -> Result<(), End> {
        let (wanted, found) = (difference.wanted.outcome, difference.found.outcome);
        if wanted == Outcome::Unknown || found == Outcome::Unknown {
            self.blocked.get_or_insert(difference);
            return Ok(());
        }
        match wanted == found {
            true => Ok(()),
            false => Err(End::Different(Box::new(difference))),
        }
    }
}

/// Returns whether a protocol is the ICMP of the other IP version. `nft` lists rules about ICMP without
/// a condition on the IP version that they have, so these packets are not compared.
fn is_foreign(family: Family, number: u128) -> bool {
    let foreign = match family {
        Family::V4 => protocol::ICMPV6,
        Family::V6 => protocol::ICMP,
    };
    number == foreign
}
