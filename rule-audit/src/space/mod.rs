//! Programs that decide about packets, and their exact comparison.
//!
//! The policies of the datastore and the rules of the kernel become programs of the same form:
//! steps with conditions, each with an act. A field of a program can be fixed to a value; then the
//! conditions on this field disappear, and steps that can no longer apply. A comparison fixes one
//! field after the other, each to one value of every class of values that the remaining conditions
//! distinguish. So it evaluates all packets without listing them.

mod chained;
mod classes;
mod compare;
mod conditions;
mod intern;
mod program;
#[cfg(test)]
mod tests;
mod translated;

pub use compare::{Comparison, Difference, Side, compare};
pub use conditions::{Condition, ConditionId, Row, SetId, TableId};
pub use program::{Act, Outcome, Place, ProgramId, Step};
pub use translated::translation;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::limits::CLASSES_KEPT;
use crate::packet::{Family, Field};
use crate::ranges::Ranges;
use conditions::Atom;
use intern::Interner;
use program::Program;

/// A map with the same order in each run.
type Map<K, V> = HashMap<K, V, FixedState>;

/// All sets, conditions and programs of an audit. Equal values have equal ids.
#[derive(Debug, Default)]
pub struct Space {
    sets: Interner<Ranges>,
    tables: Interner<Vec<Row>>,
    conditions: Interner<Condition>,
    programs: Interner<Program>,
    places: Interner<String>,
    /// The atoms of a table by the column that is fixed.
    atoms: Map<(TableId, usize), Arc<Vec<Atom>>>,
    /// One value of each class of values, for conditions on one field.
    classes: Map<(Field, Vec<ConditionId>), Arc<Vec<u128>>>,
    /// Pairs of programs that are equal, or are being compared, and whether the protocol was fixed.
    proven: HashSet<(Family, ProgramId, ProgramId, bool), FixedState>,
    /// Programs with a fixed field.
    fixed: Map<(ProgramId, Field, u128), ProgramId>,
}

impl Space {
    /// Creates an empty space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a place: the rule that a step is from. Equal texts are one place.
    pub fn place(&mut self, text: String) -> Place {
        Place(self.places.id(text))
    }

    /// Returns the text of a place.
    pub fn text(&self, place: Place) -> &str {
        self.places.peek(place.0).map_or("", String::as_str)
    }

    /// Returns a mark for [`Self::forget`].
    pub fn mark(&self) -> usize {
        self.programs.len()
    }

    /// Removes all programs that were added after the mark.
    pub fn forget(&mut self, mark: usize) {
        self.programs.truncate(mark);
        self.proven.clear();
        self.fixed.clear();
        self.fixed.shrink_to(1 << 16);
        if self.classes.len() > CLASSES_KEPT {
            self.classes.clear();
        }
    }
}
