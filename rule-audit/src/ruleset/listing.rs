//! Reads the listing into tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Formatter};
use std::sync::Arc;

use serde::de::{self, Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::budgets::set_of;
use super::elements::{Elements, elements, has_flag};
use crate::limits::LISTING_OCTETS_MAX;

/// An unusable listing.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// The listing is too long.
    #[error("the listing has more than {LISTING_OCTETS_MAX} octets")]
    TooLong,
    /// The listing is not JSON.
    #[error("the listing is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The listing has another form.
    #[error("the listing has no list `nftables`, or an object in it is malformed: {0}")]
    Form(&'static str),
}

/// The tables of a network namespace.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The tables, by family and name.
    pub tables: BTreeMap<(String, String), Table>,
    /// The kinds of other objects, such as flow tables, each with a name.
    pub others: Vec<String>,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Whether the kernel ignores the table (flag `dormant`).
    pub is_dormant: bool,
    /// The chains.
    pub chains: BTreeMap<String, Chain>,
    /// The sets and maps. Their elements are shared with the compiler.
    pub sets: BTreeMap<String, Arc<Elements>>,
}

/// A chain.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// The hook, if packets reach the chain without a jump.
    pub base: Option<Base>,
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

/// The hook of a base chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// The hook, such as `forward`.
    pub hook: String,
    /// The priority.
    pub priority: i64,
    /// Whether packets pass that no rule decides about.
    pub accepts: bool,
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The kernel's number of the rule.
    pub handle: u64,
    /// Its comment.
    pub comment: String,
    /// Its expressions.
    pub expressions: Expressions,
}

/// The expressions of a rule as text. Parsed, they take 20 times as much memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expressions(Box<str>);

impl Expressions {
    fn of(list: Vec<Value>) -> Self {
        Self(Value::Array(list).to_string().into())
    }

    /// Returns the expressions, in order.
    pub fn list(&self) -> Vec<Value> {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// Adds an expression.
    pub fn push(&mut self, expression: Value) {
        let mut list = self.list();
        list.push(expression);
        *self = Self::of(list);
    }

    /// Removes the expressions without a property.
    pub fn retain(&mut self, has: impl FnMut(&Value) -> bool) {
        let mut list = self.list();
        list.retain(has);
        *self = Self::of(list);
    }
}

impl Listing {
    /// Parses the output of `nft --json --numeric list ruleset`.
    pub fn parse(text: &str) -> Result<Self, ListingError> {
        if text.len() > LISTING_OCTETS_MAX {
            return Err(ListingError::TooLong);
        }
        let mut reader = Reader::default();
        let mut json = serde_json::Deserializer::from_str(text);
        let read = (&mut json).deserialize_map(&mut reader);
        if let Some(error) = reader.error {
            return Err(error);
        }
        read.and_then(|()| json.end())?;
        if !reader.has_list {
            return Err(ListingError::Form("nftables"));
        }
        let mut listing = reader.listing;
        for (table, set) in reader.changing {
            if let Some(table) = listing.tables.get_mut(&table) {
                table.mark_changing(&set);
            }
        }
        Ok(listing)
    }

    fn add(&mut self, kind: &str, mut value: Value) -> Result<(), ListingError> {
        if kind == "metainfo" {
            return Ok(());
        }
        let name = text(&value, "name").or_else(|| text(&value, "chain"));
        let name = name.ok_or(ListingError::Form("a name is missing"))?;
        let family = text(&value, "family").ok_or(ListingError::Form("family"))?;
        if kind == "table" {
            let table = self.tables.entry((family, name)).or_default();
            table.is_dormant = has_flag(&value, "dormant");
            return Ok(());
        }
        let table = text(&value, "table").ok_or(ListingError::Form("table"))?;
        let table = self.tables.entry((family, table)).or_default();
        match kind {
            "chain" => {
                table.chains.entry(name).or_default().base = base(&value)?;
            }
            "rule" => {
                let Value::Array(expressions) = value["expr"].take() else {
                    return Err(ListingError::Form("expr"));
                };
                let rule = Rule {
                    handle: value["handle"].as_u64().unwrap_or_default(),
                    comment: text(&value, "comment").unwrap_or_default(),
                    expressions: Expressions::of(expressions),
                };
                table.chains.entry(name).or_default().rules.push(rule);
            }
            "set" | "map" => {
                table.sets.insert(name, Arc::new(elements(&mut value)));
            }
            other => self.others.push(format!("{other} {name}")),
        }
        Ok(())
    }
}

impl Table {
    /// Marks a set that rules add elements to. Older versions of `nft` do not list its flag.
    fn mark_changing(&mut self, name: &str) {
        if let Some(set) = self.sets.get_mut(name) {
            let reason = "rules change its elements".to_owned();
            Arc::make_mut(set).fault.get_or_insert(reason);
        }
    }
}

/// Reads the objects of a listing one at a time: parsed, all of them would take ten times as much memory
/// as the text.
#[derive(Default)]
struct Reader {
    listing: Listing,
    /// Whether the list of objects was there.
    has_list: bool,
    /// The sets that rules add elements to, with their tables.
    changing: BTreeSet<((String, String), String)>,
    /// The error of an object with another form.
    error: Option<ListingError>,
}

impl Reader {
    fn read(&mut self, object: Value) -> Result<(), ListingError> {
        let Value::Object(object) = object else {
            return Err(ListingError::Form("an entry is no object"));
        };
        for (kind, value) in object {
            if kind == "rule" {
                self.note_changes(&value);
            }
            self.listing.add(&kind, value)?;
        }
        Ok(())
    }

    fn note_changes(&mut self, rule: &Value) {
        let (family, table) = (text(rule, "family"), text(rule, "table"));
        let table = (family.unwrap_or_default(), table.unwrap_or_default());
        let statements = rule["expr"].as_array().into_iter().flatten();
        let bodies = statements.filter_map(|one| one.get("set").or_else(|| one.get("map")));
        for set in bodies.filter_map(set_of) {
            self.changing.insert((table.clone(), set.to_owned()));
        }
    }
}

impl<'de> Visitor<'de> for &mut Reader {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a list `nftables`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(field) = fields.next_key::<String>()? {
            match &*field {
                "nftables" => fields.next_value_seed(Objects(self))?,
                _ => drop(fields.next_value::<de::IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The list of objects.
struct Objects<'r>(&'r mut Reader);

impl<'de> de::DeserializeSeed<'de> for Objects<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, list: D) -> Result<(), D::Error> {
        list.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Objects<'_> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.has_list = true;
        while let Some(object) = list.next_element()? {
            if let Err(error) = self.0.read(object) {
                let text = error.to_string();
                self.0.error = Some(error);
                return Err(de::Error::custom(text));
            }
        }
        Ok(())
    }
}

fn base(value: &Value) -> Result<Option<Base>, ListingError> {
    let Some(hook) = text(value, "hook") else {
        return Ok(None);
    };
    let priority = value["prio"].as_i64().ok_or(ListingError::Form("prio"))?;
    let accepts = match value.get("policy").and_then(Value::as_str) {
        None | Some("accept") => true,
        Some(_) => false,
    };
    Ok(Some(Base {
        kind: text(value, "type").unwrap_or_default(),
        hook,
        priority,
        accepts,
    }))
}

fn text(value: &Value, field: &str) -> Option<String> {
    Some(value.get(field)?.as_str()?.to_owned())
}
