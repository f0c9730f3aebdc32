//! Conditions on the fields of a packet.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Space;
use crate::packet::{Field, Packet, protocol};
use crate::ranges::Ranges;

/// The id of a set of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(pub(super) u32);

/// The id of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub(super) u32);

/// The id of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConditionId(pub(super) u32);

/// A row of a table: one range for each column.
pub type Row = Vec<(u128, u128)>;

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum Condition {
    /// The set contains the field's value; with `is` false, it does not.
    In {
        /// The field.
        field: Field,
        /// The set.
        set: SetId,
        /// False: the negation.
        is: bool,
    },
    /// A row of the table contains the values of all fields; with `is` false, none does.
    Table {
        /// The fields, one for each column.
        fields: Vec<Field>,
        /// The table.
        table: TableId,
        /// False: the negation.
        is: bool,
    },
    /// A condition that cannot be evaluated.
    #[default]
    Unknown,
}

/// The values of a column that leave the same rest of a row.
#[derive(Clone, Debug)]
pub(super) struct Atom {
    /// The values.
    pub(super) values: Ranges,
    /// The other columns.
    pub(super) rest: Row,
}

/// A condition with a fixed field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fixed {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// A condition on other fields remains.
    Open(ConditionId),
}

impl Space {
    /// Adds a set of numbers.
    pub fn set(&mut self, ranges: Ranges) -> SetId {
        SetId(self.sets.id(ranges))
    }

    /// Returns a set of numbers.
    pub fn ranges(&self, set: SetId) -> Arc<Ranges> {
        self.sets.get(set.0)
    }

    /// Adds a table. The order of its rows has no meaning.
    pub fn table(&mut self, mut rows: Vec<Row>) -> TableId {
        rows.sort_unstable();
        rows.dedup();
        TableId(self.tables.id(rows))
    }

    /// Adds a condition.
    pub fn condition(&mut self, condition: Condition) -> ConditionId {
        ConditionId(self.conditions.id(condition))
    }

    /// Adds the condition that a field has one of these values.
    pub fn is_in(&mut self, field: Field, ranges: Ranges, is: bool) -> ConditionId {
        let set = self.set(ranges);
        self.condition(Condition::In { field, set, is })
    }

    /// Adds the condition that a field has this value.
    pub fn is(&mut self, field: Field, value: u128) -> ConditionId {
        self.is_in(field, Ranges::one(value), true)
    }

    /// Adds the condition that a row contains the values of these fields.
    pub fn has_row(&mut self, fields: Vec<Field>, rows: Vec<Row>, is: bool) -> ConditionId {
        let table = self.table(rows);
        self.condition(Condition::Table { fields, table, is })
    }

    /// Adds a condition that cannot be evaluated.
    pub fn unknown(&mut self) -> ConditionId {
        self.condition(Condition::Unknown)
    }

    /// Returns the fields of a condition, as a mask.
    pub(super) fn fields_of(&self, condition: ConditionId) -> u16 {
        match self.conditions.peek(condition.0) {
            Some(Condition::In { field, .. }) => field.bit(),
            Some(Condition::Table { fields, .. }) => {
                fields.iter().fold(0, |mask, field| mask | field.bit())
            }
            Some(Condition::Unknown) | None => 0,
        }
    }

    /// Returns whether a condition holds for a packet; `None` if it cannot be evaluated.
    pub(super) fn holds(&self, condition: ConditionId, packet: &Packet) -> Option<bool> {
        match self.conditions.peek(condition.0)? {
            Condition::In { field, set, is } => {
                let ranges = self.sets.peek(set.0)?;
                let is_meaningless = has_no_meaning(*field, packet.get(Field::Protocol));
                (!is_meaningless).then(|| ranges.contains(packet.get(*field)) == *is)
            }
            Condition::Table { fields, table, is } => {
                let number = packet.get(Field::Protocol);
                let contains = |((first, last), field): (&(u128, u128), &Field)| {
                    (*first..=*last).contains(&packet.get(*field))
                };
                let mut rows = self.tables.peek(table.0)?.iter();
                let is_meaningless = |field: &Field| has_no_meaning(*field, number);
                if fields.iter().any(is_meaningless) {
                    // A row that matches in all other columns may match or not.
                    let mut may_match = rows.any(|row| {
                        let mut cells = row.iter().zip(fields);
                        cells.all(|cell| is_meaningless(cell.1) || contains(cell))
                    });
                    may_match |= !*is;
                    return (!may_match).then_some(false);
                }
                Some(rows.any(|row| row.iter().zip(fields).all(contains)) == *is)
            }
            Condition::Unknown => None,
        }
    }

    /// Returns a condition with a fixed field.
    pub(super) fn fix(&mut self, condition: ConditionId, field: Field, value: u128) -> Fixed {
        let open = Fixed::Open(condition);
        match &*self.conditions.get(condition.0) {
            Condition::In {
                field: own,
                set,
                is,
            } if *own == field => {
                let contains = self.sets.peek(set.0).is_some_and(|set| set.contains(value));
                if contains == *is {
                    Fixed::True
                } else {
                    Fixed::False
                }
            }
            Condition::In {
                field: own,
                set,
                is,
            } if field == Field::Protocol => {
                if has_no_meaning(*own, value) {
                    return Fixed::Open(self.unknown());
                }
                match self.sets.peek(set.0).is_some_and(Ranges::is_empty) {
                    true if depends_on_protocol(*own) && !*is => Fixed::True,
                    _ => open,
                }
            }
            Condition::In { .. } => open,
            Condition::Table { fields, table, is } => {
                let Some(column) = fields.iter().position(|own| *own == field) else {
                    return match field == Field::Protocol
                        && fields.iter().any(|own| has_no_meaning(*own, value))
                    {
                        true => Fixed::Open(self.unknown()),
                        false => open,
                    };
                };
                let mut rest = fields.clone();
                rest.remove(column);
                let is_meaningless =
                    field == Field::Protocol && rest.iter().any(|own| has_no_meaning(*own, value));
                match self.fix_column(*table, column, (rest, field == Field::Protocol), *is, value)
                {
                    // The packet may be too short for the other columns: then no row is looked up.
                    Fixed::True | Fixed::Open(_) if is_meaningless => Fixed::Open(self.unknown()),
                    fixed => fixed,
                }
            }
            Condition::Unknown => open,
        }
    }

    /// Fixes a column. A negation without rows still requires that the packet has the other columns.
    fn fix_column(
        &mut self,
        table: TableId,
        column: usize,
        (rest, is_protocol): (Vec<Field>, bool),
        is: bool,
        value: u128,
    ) -> Fixed {
        let atoms = self.atoms(table, column);
        let left = atoms.iter().filter(|atom| atom.values.contains(value));
        let left: Vec<Row> = left.map(|atom| atom.rest.clone()).collect();
        let yes = if is { Fixed::True } else { Fixed::False };
        let no = if is { Fixed::False } else { Fixed::True };
        let is_open = !is && !is_protocol && rest.iter().any(|own| depends_on_protocol(*own));
        match *rest {
            _ if left.is_empty() && !is_open => no,
            [] => yes,
            [field] => {
                let ranges = Ranges::of(left.into_iter().flatten());
                Fixed::Open(self.is_in(field, ranges, is))
            }
            _ => Fixed::Open(self.has_row(rest, left, is)),
        }
    }

    /// Returns the values of a column, by the rest of their rows.
    pub(super) fn atoms(&mut self, table: TableId, column: usize) -> Arc<Vec<Atom>> {
        if let Some(atoms) = self.atoms.get(&(table, column)) {
            return Arc::clone(atoms);
        }
        let mut by_rest: BTreeMap<Row, Vec<(u128, u128)>> = BTreeMap::new();
        for row in self.tables.get(table.0).iter() {
            let mut rest = row.clone();
            if column < rest.len() {
                let range = rest.remove(column);
                by_rest.entry(rest).or_default().push(range);
            }
        }
        let atoms = by_rest.into_iter().map(|(rest, values)| Atom {
            values: Ranges::of(values),
            rest,
        });
        let atoms = Arc::new(atoms.collect());
        self.atoms.insert((table, column), Arc::clone(&atoms));
        atoms
    }
}

/// Returns whether only packets of some protocols have a field.
const fn depends_on_protocol(field: Field) -> bool {
    matches!(
        field,
        Field::SourcePort | Field::DestinationPort | Field::IcmpType | Field::IcmpCode
    )
}

/// Returns whether packets of a protocol have no such field, so that the kernel would read other
/// octets.
fn has_no_meaning(field: Field, number: u128) -> bool {
    match field {
        Field::SourcePort | Field::DestinationPort => !protocol::WITH_PORTS.contains(&number),
        Field::IcmpType | Field::IcmpCode => !matches!(number, protocol::ICMP | protocol::ICMPV6),
        _ => false,
    }
}
