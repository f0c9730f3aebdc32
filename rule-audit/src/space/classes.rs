//! Classes of values: those that no condition distinguishes.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::{Act, Condition, ConditionId, ProgramId, SetId, Space};
use crate::packet::{Family, Field, protocol};
use crate::ranges::Ranges;

impl Space {
    /// Returns the conditions of a program on a field, in order.
    pub(super) fn conditions_on(&self, programs: &[ProgramId], field: Field) -> Vec<ConditionId> {
        let mut found = Vec::new();
        let mut seen: HashSet<ProgramId, FixedState> = HashSet::default();
        let mut open: Vec<ProgramId> = programs.to_vec();
        while let Some(program) = open.pop() {
            if self.fields(program) & field.bit() == 0 || !seen.insert(program) {
                continue;
            }
            let steps = self.programs.peek(program.0);
            for step in steps.map(|program| &program.steps).into_iter().flatten() {
                let own = step.conditions.iter().copied();
                found.extend(own.filter(|one| self.fields_of(*one) & field.bit() != 0));
                if let Act::Call(inner) | Act::Tail(inner) = step.act {
                    open.push(inner);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns one value of each class of values that the conditions distinguish.
    pub(super) fn values(
        &mut self,
        family: Family,
        field: Field,
        conditions: Vec<ConditionId>,
    ) -> Arc<Vec<u128>> {
        let key = (field, conditions);
        if let Some(found) = self.classes.get(&key) {
            return Arc::clone(found);
        }
        let parts = self.parts(field, &key.1);
        let found = Arc::new(representatives(field.last(family), &parts));
        self.classes.insert(key, Arc::clone(&found));
        found
    }

    /// Returns the sets of values that the conditions distinguish.
    fn parts(&mut self, field: Field, conditions: &[ConditionId]) -> Vec<Arc<Ranges>> {
        let mut sets: Vec<SetId> = Vec::new();
        let mut parts: Vec<Arc<Ranges>> = Vec::new();
        for condition in conditions {
            match &*self.conditions.get(condition.0) {
                Condition::In { set, .. } => sets.push(*set),
                Condition::Table { fields, table, .. } => {
                    let columns = fields.iter().position(|own| *own == field);
                    if let Some(column) = columns {
                        let atoms = self.atoms(*table, column);
                        let values = atoms.iter().map(|atom| Arc::new(atom.values.clone()));
                        parts.extend(values);
                    }
                }
                Condition::Unknown => {}
            }
        }
        if field == Field::Protocol {
            // Their packets have fields that those of other protocols do not have.
            let with_ports = Ranges::of(protocol::WITH_PORTS.map(|number| (number, number)));
            let icmp = [protocol::ICMP, protocol::ICMPV6].map(Ranges::one);
            parts.extend([with_ports].into_iter().chain(icmp).map(Arc::new));
        }
        sets.sort_unstable();
        sets.dedup();
        parts.extend(sets.into_iter().map(|set| self.ranges(set)));
        parts
    }
}

/// Returns one value of each class, in order: the first value with its membership.
fn representatives(last: u128, parts: &[Arc<Ranges>]) -> Vec<u128> {
    let mut changes: Vec<(u128, usize)> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        for (first, end) in part.iter().filter(|(first, _)| *first <= last) {
            changes.push((first, at));
            if end < last {
                changes.push((end + 1, at));
            }
        }
    }
    changes.sort_unstable();
    let mut members = vec![0_u64; parts.len().div_ceil(64)];
    let mut seen: HashSet<Vec<u64>, FixedState> = HashSet::default();
    let mut found = Vec::new();
    if changes.first().is_none_or(|(value, _)| *value > 0) {
        seen.insert(members.clone());
        found.push(0);
    }
    for group in changes.chunk_by(|one, other| one.0 == other.0) {
        for (_, at) in group {
            if let Some(word) = members.get_mut(at / 64) {
                *word ^= 1 << (at % 64);
            }
        }
        if !seen.contains(&members) {
            seen.insert(members.clone());
            found.extend(group.first().map(|(value, _)| *value));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_of_each_class_is_found() {
        let part = |ranges: &[(u128, u128)]| Arc::new(Ranges::of(ranges.iter().copied()));
        let parts = [
            part(&[(0, 9), (20, 29)]),
            part(&[(5, 24)]),
            part(&[(40, 99)]),
        ];
        // Both, the first, the second, the third, none.
        assert_eq!(representatives(255, &parts), [0, 5, 10, 30, 40]);
        assert_eq!(representatives(99, &parts), [0, 5, 10, 30, 40]);
        assert_eq!(representatives(35, &parts), [0, 5, 10, 30]);
        assert_eq!(representatives(255, &[]), [0]);
    }
}
