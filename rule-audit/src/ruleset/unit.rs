//! The compilation of rules for one view.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::elements::Type;
use super::listing::Table;
use crate::packet::{Family, Field};
use crate::space::{ConditionId, ProgramId, SetId, Space};

/// The packets that a program is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The version of IP.
    pub family: Family,
    /// The interface that they come from, if rules may match it.
    pub input: Option<String>,
    /// The interface that they leave by, if rules may match it.
    pub output: Option<String>,
}

/// Sets and chains that were read for several views.
#[derive(Debug, Default)]
pub struct Compiler {
    /// The programs of chains that are the same for all interfaces, by table, chain and IP version.
    pub(super) chains: BTreeMap<(String, String, Family), ProgramId>,
    /// The ids of named sets with one column, by table and name; `None` if they are unusable.
    pub(super) sets: BTreeMap<(String, String), Option<SetId>>,
}

/// The compilation of one view.
pub(super) struct Unit<'a> {
    pub(super) space: &'a mut Space,
    pub(super) compiler: &'a mut Compiler,
    pub(super) name: &'a str,
    pub(super) table: &'a Table,
    pub(super) view: &'a View,
    pub(super) chains: BTreeMap<&'a str, ProgramId>,
    /// The chains that are being compiled: a jump to one of them is a loop.
    pub(super) open: BTreeSet<&'a str>,
    /// Whether a match on an interface was read.
    pub(super) has_interface: bool,
}

/// A match for the packets of a view.
pub(super) enum Matched {
    /// No packet matches.
    Never,
    /// Packets match that meet all conditions.
    All(Vec<ConditionId>),
    /// It cannot be evaluated.
    Unknown,
}

/// The left side of a match.
pub(super) enum Key {
    /// Packets of the view have no such value, so they do not match.
    Never,
    /// Fields, with the types of all columns.
    Fields {
        fields: Vec<Field>,
        columns: Vec<Type>,
        /// The interfaces of the view in the columns of this type, in order.
        interfaces: Vec<String>,
        /// Conditions that the key implies.
        implied: Vec<ConditionId>,
    },
}

impl Key {
    pub(super) fn of(field: Field, kind: Type, implied: Vec<ConditionId>) -> Self {
        Self::Fields {
            fields: vec![field],
            columns: vec![kind],
            interfaces: Vec::new(),
            implied,
        }
    }
}

/// Returns the name and the content of an object with one field.
pub(crate) fn single(value: &Value) -> Option<(&str, &Value)> {
    let object = value.as_object()?;
    let mut fields = object.iter();
    let (name, body) = fields.next()?;
    fields.next().is_none().then_some((name, body))
}
