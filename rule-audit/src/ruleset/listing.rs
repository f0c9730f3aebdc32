//! Reads the listing into tables.

use std::collections::BTreeMap;
use std::sync::Arc;

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
    pub expressions: Vec<Value>,
}

impl Listing {
    /// Parses the output of `nft --json --numeric list ruleset`.
    pub fn parse(text: &str) -> Result<Self, ListingError> {
        if text.len() > LISTING_OCTETS_MAX {
            return Err(ListingError::TooLong);
        }
        let mut value: Value = serde_json::from_str(text)?;
        let Some(Value::Array(objects)) = value.get_mut("nftables").map(Value::take) else {
            return Err(ListingError::Form("nftables"));
        };
        let mut listing = Self::default();
        for object in objects {
            let Value::Object(object) = object else {
                return Err(ListingError::Form("an entry is no object"));
            };
            for (kind, value) in object {
                listing.add(&kind, value)?;
            }
        }
        for table in listing.tables.values_mut() {
            table.mark_changing_sets();
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
                    expressions,
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
    /// Marks the sets that rules add elements to. Older versions of `nft` do not list their flag.
    fn mark_changing_sets(&mut self) {
        let rules = self.chains.values().flat_map(|chain| &chain.rules);
        let statements = rules.flat_map(|rule| &rule.expressions);
        let bodies = statements.filter_map(|one| one.get("set").or_else(|| one.get("map")));
        for name in bodies.filter_map(set_of) {
            if let Some(set) = self.sets.get_mut(name) {
                let reason = "rules change its elements".to_owned();
                Arc::make_mut(set).fault.get_or_insert(reason);
            }
        }
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
