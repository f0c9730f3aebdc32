//! Output formats of resources.

use std::str::FromStr;

use anyhow::{Result, bail};
use calico_manifests::to_yaml;
use calico_model::Kind;
use serde_json::Value;

use super::columns::{Around, cells, headings};

/// An output format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// A table.
    Table,
    /// A table with more columns.
    Wide,
    /// A table with these columns.
    Columns(Vec<String>),
    /// YAML.
    Yaml,
    /// JSON.
    Json,
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ps" => Ok(Self::Table),
            "wide" => Ok(Self::Wide),
            "yaml" | "yml" => Ok(Self::Yaml),
            "json" => Ok(Self::Json),
            _ => match text.strip_prefix("custom-columns=") {
                Some(columns) if !columns.is_empty() => Ok(Self::Columns(
                    columns.split(',').map(str::to_owned).collect(),
                )),
                _ => {
                    Err("one of ps, wide, yaml, json and custom-columns=NAME,… is expected".into())
                }
            },
        }
    }
}

/// The fetched resources.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    /// A resource.
    One(Kind, Value),
    /// A list of resources.
    List(Kind, Value),
}

impl Shown {
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::One(kind, _) | Self::List(kind, _) => *kind,
        }
    }

    const fn value(&self) -> &Value {
        match self {
            Self::One(_, value) | Self::List(_, value) => value,
        }
    }

    /// Removes the fields that only this datastore assigns.
    pub(crate) fn export(&mut self) {
        let Self::One(_, value) = self else { return };
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
                metadata.remove(field);
            }
        }
    }

    pub(super) fn rows(&self) -> Vec<&Value> {
        match self {
            Self::One(_, value) => vec![value],
            Self::List(_, value) => value["items"].as_array().into_iter().flatten().collect(),
        }
    }
}

impl Output {
    /// Returns the text to print.
    pub(crate) fn print(&self, shown: &[Shown], around: &Around) -> Result<String> {
        let value = || match shown {
            [one] => one.value().clone(),
            several => several.iter().map(Shown::value).cloned().collect(),
        };
        match self {
            Self::Yaml => Ok(to_yaml(&value())?),
            Self::Json => Ok(format!("{}\n", serde_json::to_string_pretty(&value())?)),
            Self::Table | Self::Wide | Self::Columns(_) => {
                let mut text = String::new();
                for one in shown {
                    text.push_str(&self.table(one, around)?);
                    text.push('\n');
                }
                Ok(text)
            }
        }
    }

    fn table(&self, shown: &Shown, around: &Around) -> Result<String> {
        let kind = shown.kind();
        let headings = match self {
            Self::Columns(columns) => columns.clone(),
            _ => headings(kind, *self == Self::Wide, around),
        };
        let Some(cells) = cells(kind, &headings) else {
            bail!("{kind} has no such column; -o wide shows those it has");
        };
        let mut rows = vec![headings];
        for value in shown.rows() {
            rows.push(cells.iter().map(|cell| cell.of(value, around)).collect());
        }
        Ok(aligned(&rows))
    }
}

/// The minimum width of a column, with its padding.
const COLUMN_MIN: usize = 5;

/// The space between two columns.
const PADDING: usize = 3;

/// Columns as calicoctl aligns them: the last one has blanks after it, too.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|at| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            let longest = cells.map(|cell| cell.chars().count()).max();
            (longest.unwrap_or_default() + PADDING).max(COLUMN_MIN)
        })
        .collect();
    let mut text = String::new();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
        }
        text.push('\n');
    }
    text
}
