//! Programs: steps with conditions, in order.

use super::conditions::Fixed;
use super::{ConditionId, Space};
use crate::limits::JUMPS_MAX;
use crate::packet::{Field, Packet};

/// The id of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(pub(super) u32);

/// The rule that a step is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub(super) u32);

/// The act of a step whose conditions hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// The packet passes.
    Accept,
    /// The packet passes, and is marked as accepted for later hooks.
    Marked,
    /// The packet passes, is marked, and connection tracking leaves it out.
    Untracked,
    /// An address of the packet is translated; the text has the new one.
    Translated(Place),
    /// The packet is dropped.
    Drop,
    /// Both are correct.
    Either,
    /// The outcome cannot be evaluated.
    Unknown,
    /// The program ends without a decision.
    Return,
    /// Another program is run, then the next step.
    Call(ProgramId),
    /// Another program is run, then this one ends without a decision.
    Tail(ProgramId),
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The conditions, all of which must hold.
    pub conditions: Vec<ConditionId>,
    /// The act.
    pub act: Act,
    /// The rule that it is from.
    pub place: Place,
}

/// The outcome of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The packet passes.
    Accept,
    /// The packet passes, and is marked.
    Marked,
    /// The packet passes, is marked, and connection tracking leaves it out.
    Untracked,
    /// An address of the packet is translated; the text has the new one.
    Translated(Place),
    /// The packet is dropped.
    Drop,
    /// Both are correct.
    Either,
    /// The program has ended without a decision.
    Undecided,
    /// The outcome cannot be evaluated.
    Unknown,
}

/// Steps, and the fields of their conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    /// The fields, as a mask.
    pub(super) fields: u16,
}

impl Space {
    /// Adds a program. Steps without an effect are omitted.
    pub fn program(&mut self, steps: impl IntoIterator<Item = Step>) -> ProgramId {
        let mut kept: Vec<Step> = Vec::new();
        for mut step in steps {
            if let Act::Call(inner) | Act::Tail(inner) = step.act {
                match self.constant(inner) {
                    Some((Outcome::Undecided, _)) if matches!(step.act, Act::Call(_)) => continue,
                    Some((Outcome::Undecided, _)) => step.act = Act::Return,
                    Some((outcome, place)) => {
                        step.act = outcome.act();
                        step.place = place;
                    }
                    None => {}
                }
            }
            let is_last = step.conditions.is_empty() && !matches!(step.act, Act::Call(_));
            kept.push(step);
            if is_last {
                break;
            }
        }
        while kept.last().is_some_and(|step| step.act == Act::Return) {
            kept.pop();
        }
        if let Some(Step { act, .. }) = kept.last_mut()
            && let Act::Tail(inner) = *act
        {
            *act = Act::Call(inner);
        }
        kept.shrink_to_fit();
        let mut fields = 0;
        for step in &kept {
            let own = step.conditions.iter();
            fields |= own.fold(0, |mask, one| mask | self.fields_of(*one));
            if let Act::Call(inner) | Act::Tail(inner) = step.act {
                fields |= self.fields(inner);
            }
        }
        let program = Program {
            steps: kept,
            fields,
        };
        ProgramId(self.programs.id(program))
    }

    /// Adds a program of one step without conditions.
    pub fn always(&mut self, act: Act, place: Place) -> ProgramId {
        self.program([Step {
            conditions: Vec::new(),
            act,
            place,
        }])
    }

    /// Returns the fields that a program depends on, as a mask.
    pub(super) fn fields(&self, program: ProgramId) -> u16 {
        self.programs
            .peek(program.0)
            .map_or(0, |program| program.fields)
    }

    /// Returns the outcome of a program that is the same for all packets.
    pub fn constant(&self, program: ProgramId) -> Option<(Outcome, Place)> {
        let program = self.programs.peek(program.0)?;
        let Some(first) = program.steps.first() else {
            return Some((Outcome::Undecided, Place::default()));
        };
        if !first.conditions.is_empty() {
            return None;
        }
        let outcome = match first.act {
            Act::Accept => Outcome::Accept,
            Act::Marked => Outcome::Marked,
            Act::Untracked => Outcome::Untracked,
            Act::Translated(text) => Outcome::Translated(text),
            Act::Drop => Outcome::Drop,
            Act::Either => Outcome::Either,
            Act::Unknown => Outcome::Unknown,
            Act::Return => Outcome::Undecided,
            Act::Call(_) | Act::Tail(_) => return None,
        };
        Some((outcome, first.place))
    }

    /// Returns the act of a program that is the same for all packets.
    pub(crate) fn act(&self, program: ProgramId) -> Option<Act> {
        self.constant(program).map(|(outcome, _)| outcome.act())
    }

    /// Returns a program with a fixed field.
    pub fn fix_field(&mut self, program: ProgramId, field: Field, value: u128) -> ProgramId {
        if self.fields(program) & field.bit() == 0 && !self.loses_meaning(program, field) {
            return program;
        }
        if let Some(found) = self.fixed.get(&(program, field, value)) {
            return *found;
        }
        let whole = self.programs.get(program.0);
        let mut steps = Vec::new();
        'steps: for step in &whole.steps {
            let mut conditions = Vec::new();
            for condition in &step.conditions {
                match self.fix(*condition, field, value) {
                    Fixed::True => {}
                    Fixed::False => continue 'steps,
                    Fixed::Open(left) => conditions.push(left),
                }
            }
            let act = match step.act {
                Act::Call(inner) => Act::Call(self.fix_field(inner, field, value)),
                Act::Tail(inner) => Act::Tail(self.fix_field(inner, field, value)),
                other => other,
            };
            let is_last = conditions.is_empty() && !matches!(act, Act::Call(_));
            steps.push(Step {
                conditions,
                act,
                place: step.place,
            });
            if is_last {
                break;
            }
        }
        let found = self.program(steps);
        self.fixed.insert((program, field, value), found);
        found
    }

    /// Returns whether a fixed protocol may take the meaning from other fields.
    fn loses_meaning(&self, program: ProgramId, field: Field) -> bool {
        let dependent = Field::SourcePort.bit()
            | Field::DestinationPort.bit()
            | Field::IcmpType.bit()
            | Field::IcmpCode.bit();
        field == Field::Protocol && self.fields(program) & dependent != 0
    }

    /// Runs a program for one packet. Returns the outcome and the rule that has decided.
    pub fn run(&self, program: ProgramId, packet: &Packet) -> (Outcome, Place) {
        self.run_at(program, packet, 0)
    }

    fn run_at(&self, program: ProgramId, packet: &Packet, depth: usize) -> (Outcome, Place) {
        let steps = self.programs.peek(program.0);
        if depth > 4 * JUMPS_MAX {
            return (Outcome::Unknown, Place::default());
        }
        'steps: for step in steps.map(|program| &program.steps).into_iter().flatten() {
            let mut is_blocked = false;
            for condition in &step.conditions {
                match self.holds(*condition, packet) {
                    Some(true) => {}
                    Some(false) => continue 'steps,
                    None => is_blocked = true,
                }
            }
            let decided = match step.act {
                // Without a decision it does not matter whether the program is run.
                Act::Call(inner) if is_blocked => match self.run_at(inner, packet, depth + 1) {
                    (Outcome::Undecided, _) => continue,
                    _ => (Outcome::Unknown, step.place),
                },
                _ if is_blocked => (Outcome::Unknown, step.place),
                Act::Accept => (Outcome::Accept, step.place),
                Act::Marked => (Outcome::Marked, step.place),
                Act::Untracked => (Outcome::Untracked, step.place),
                Act::Translated(text) => (Outcome::Translated(text), step.place),
                Act::Drop => (Outcome::Drop, step.place),
                Act::Either => (Outcome::Either, step.place),
                Act::Unknown => (Outcome::Unknown, step.place),
                Act::Return => return (Outcome::Undecided, step.place),
                Act::Call(inner) => self.run_at(inner, packet, depth + 1),
                Act::Tail(inner) => return self.run_at(inner, packet, depth + 1),
            };
            if decided.0 != Outcome::Undecided {
                return decided;
            }
        }
        (Outcome::Undecided, Place::default())
    }

    /// Returns the first place of a program that has no more fields: a condition that cannot be
    /// evaluated blocks it there.
    pub(super) fn blocked_at(&self, program: ProgramId) -> Place {
        let program = self.programs.peek(program.0);
        let first = program.and_then(|program| program.steps.first());
        match first {
            Some(step) => match step.act {
                Act::Call(inner) | Act::Tail(inner) if step.conditions.is_empty() => {
                    self.blocked_at(inner)
                }
                _ => step.place,
            },
            None => Place::default(),
        }
    }

    /// Returns a form of the program that does not depend on places. Programs with equal forms have
    /// equal outcomes.
    pub fn form(&self, program: ProgramId) -> Vec<u32> {
        let mut form = Vec::new();
        self.add_form(program, &mut form);
        form
    }

    fn add_form(&self, program: ProgramId, form: &mut Vec<u32>) {
        let steps = self.programs.peek(program.0).map(|program| &program.steps);
        for step in steps.into_iter().flatten() {
            form.push(u32::try_from(step.conditions.len()).unwrap_or(u32::MAX));
            form.extend(step.conditions.iter().map(|condition| condition.0));
            if let Act::Translated(text) = step.act {
                form.extend([9, text.0]);
                continue;
            }
            let (number, inner) = match step.act {
                Act::Accept => (0, None),
                Act::Drop => (1, None),
                Act::Either => (2, None),
                Act::Unknown => (3, None),
                Act::Return => (4, None),
                Act::Call(inner) => (5, Some(inner)),
                Act::Tail(inner) => (6, Some(inner)),
                Act::Marked => (7, None),
                Act::Untracked | Act::Translated(_) => (8, None),
            };
            form.push(number);
            if let Some(inner) = inner {
                self.add_form(inner, form);
            }
        }
        form.push(u32::MAX);
    }
}

impl Outcome {
    const fn act(self) -> Act {
        match self {
            Self::Accept => Act::Accept,
            Self::Marked => Act::Marked,
            Self::Untracked => Act::Untracked,
            Self::Translated(text) => Act::Translated(text),
            Self::Drop => Act::Drop,
            Self::Either => Act::Either,
            Self::Undecided => Act::Return,
            Self::Unknown => Act::Unknown,
        }
    }
}
