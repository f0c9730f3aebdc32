//! Programs one after the other, as the base chains that a packet passes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Act, Place, ProgramId, Space, Step};

impl Space {
    /// Returns the acts of a program with which a packet passes.
    pub fn passing(&self, program: ProgramId) -> BTreeSet<Act> {
        let (mut acts, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut open = vec![program];
        while let Some(program) = open.pop() {
            if !seen.insert(program) {
                continue;
            }
            let steps = self.programs.peek(program.0).map(|program| &program.steps);
            for step in steps.into_iter().flatten() {
                match step.act {
                    Act::Call(inner) | Act::Tail(inner) => open.push(inner),
                    act if passes(act) => drop(acts.insert(act)),
                    _ => {}
                }
            }
        }
        acts
    }

    /// Returns a program with other acts in place of those with which a packet passes, such as a jump to
    /// the next base chain. Acts that are not in the map stay. The steps have no places, so equal steps
    /// of two listings are one program.
    pub fn continued(&mut self, program: ProgramId, acts: &BTreeMap<Act, Act>) -> ProgramId {
        self.continue_with(program, acts, &mut BTreeMap::new())
    }

    fn continue_with(
        &mut self,
        program: ProgramId,
        acts: &BTreeMap<Act, Act>,
        known: &mut BTreeMap<ProgramId, ProgramId>,
    ) -> ProgramId {
        if let Some(found) = known.get(&program) {
            return *found;
        }
        let whole = self.programs.get(program.0);
        let steps: Vec<Step> = whole
            .steps
            .iter()
            .map(|step| Step {
                conditions: step.conditions.clone(),
                act: match step.act {
                    Act::Call(inner) => Act::Call(self.continue_with(inner, acts, known)),
                    Act::Tail(inner) => Act::Tail(self.continue_with(inner, acts, known)),
                    act => acts.get(&act).copied().unwrap_or(act),
                },
                place: Place::default(),
            })
            .collect();
        let made = self.program(steps);
        known.insert(program, made);
        made
    }
}

/// Returns whether a packet passes the base chain with an act.
const fn passes(act: Act) -> bool {
    matches!(
        act,
        Act::Accept | Act::Marked | Act::Untracked | Act::Translated(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Family, Field, Packet};
    use crate::space::Outcome;

    #[test]
    fn packet_passes_only_if_each_chain_accepts_it() {
        let mut space = Space::new();
        let chain = |space: &mut Space, field, value: u128, text: &str| {
            let place = space.place(text.to_owned());
            let accept = Step {
                conditions: vec![space.is(field, value)],
                act: Act::Accept,
                place,
            };
            let inner = space.program([accept]);
            let step = |act| Step {
                conditions: Vec::new(),
                act,
                place,
            };
            space.program([step(Act::Call(inner)), step(Act::Drop)])
        };
        let mut both = |text: &str| {
            let first = chain(&mut space, Field::Source, 1, text);
            let second = chain(&mut space, Field::Destination, 2, text);
            assert_eq!(space.passing(first), BTreeSet::from([Act::Accept]));
            let second = space.continued(second, &BTreeMap::new());
            let acts = BTreeMap::from([(Act::Accept, Act::Tail(second))]);
            space.continued(first, &acts)
        };
        let program = both("one listing");
        assert_eq!(both("another listing"), program);
        for (source, destination, outcome) in [
            (1, 2, Outcome::Accept),
            (1, 1, Outcome::Drop),
            (2, 2, Outcome::Drop),
        ] {
            let packet = Packet::new(Family::V4)
                .with(Field::Source, source)
                .with(Field::Destination, destination);
            assert_eq!(space.run(program, &packet).0, outcome);
        }
    }
}
