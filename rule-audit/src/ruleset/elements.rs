//! Sets and maps of the kernel.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::packet::Family;
use crate::ranges::{number, parse_network};

/// A set or map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Elements {
    /// The types of the columns of its key.
    pub(super) columns: Vec<Type>,
    /// The elements.
    pub(super) rows: Vec<Element>,
    /// The elements by the interface in their first column, as places in `rows`.
    pub(super) by_interface: BTreeMap<String, Vec<usize>>,
    /// Why the elements are not known, if they are not.
    pub(super) fault: Option<String>,
}

impl Elements {
    /// Returns the interfaces in the first column.
    pub fn interfaces(&self) -> impl Iterator<Item = &String> {
        self.by_interface.keys()
    }
}

/// An element.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Element {
    pub(super) cells: Vec<Cell>,
    /// The value, in a map.
    pub(super) value: Option<Value>,
}

/// A column of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// Numbers from the first to the last.
    Range(u128, u128),
    /// The name of an interface.
    Interface(String),
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Address(Family),
    Port,
    Protocol,
    Icmp,
    Icmpv6,
    Interface,
    State,
    /// The direction in a connection.
    Direction,
    /// A user id.
    User,
    Other,
}

impl Type {
    fn named(name: &str) -> Self {
        match name {
            "ipv4_addr" => Self::Address(Family::V4),
            "ipv6_addr" => Self::Address(Family::V6),
            "inet_service" => Self::Port,
            "inet_proto" => Self::Protocol,
            "icmp_type" | "icmp_code" => Self::Icmp,
            "icmpv6_type" | "icmpv6_code" => Self::Icmpv6,
            "ifname" => Self::Interface,
            "ct_state" => Self::State,
            "ct_dir" => Self::Direction,
            "uid" => Self::User,
            _ => Self::Other,
        }
    }

    /// Returns whether a key of this type can be looked up in a column of another type.
    pub(super) fn fits(self, column: Self) -> bool {
        self == column
    }
}

/// Reads a set or map of a listing.
pub(super) fn elements(value: &mut Value) -> Elements {
    let columns = match &value["type"] {
        Value::String(name) => vec![Type::named(name)],
        Value::Array(names) => {
            let names = names.iter().map(|name| name.as_str().unwrap_or_default());
            names.map(Type::named).collect()
        }
        _ => vec![Type::Other],
    };
    let mut read = Elements {
        columns,
        ..Elements::default()
    };
    for flag in ["dynamic", "timeout"] {
        if has_flag(value, flag) {
            read.fault = Some(format!("its elements change by themselves ({flag})"));
        }
    }
    if value.get("timeout").is_some() {
        read.fault = Some("its elements change by themselves (timeout)".to_owned());
    }
    let statements = value.get("stmt").map(|stmt| stmt.as_array());
    let only_counts = |list: &Vec<Value>| list.iter().all(|one| one.get("counter").is_some());
    if statements.is_some_and(|list| !list.is_some_and(only_counts)) {
        read.fault = Some("its elements have a statement".to_owned());
    }
    let is_map = value.get("map").is_some();
    let Value::Array(list) = value["elem"].take() else {
        return read;
    };
    for element in list {
        match read_element(element, is_map, &read.columns) {
            Some(element) => {
                if let Some(Cell::Interface(name)) = element.cells.first() {
                    let places = read.by_interface.entry(name.clone()).or_default();
                    places.push(read.rows.len());
                }
                read.rows.push(element);
            }
            None => read.fault = Some("it has an element of an unknown form".to_owned()),
        }
    }
    read
}

fn read_element(element: Value, is_map: bool, columns: &[Type]) -> Option<Element> {
    let (key, value) = match (element, is_map) {
        (Value::Array(pair), true) => {
            let [key, value] = <[Value; 2]>::try_from(pair).ok()?;
            (key, Some(value))
        }
        (_, true) => return None,
        (key, false) => (key, None),
    };
    let cells = read_key(&key, columns)?;
    Some(Element { cells, value })
}

/// Returns an element without its counter and its comment; `None` if it has something else, such as a
/// limit or a timeout.
pub(super) fn plain(element: &Value) -> Option<&Value> {
    let Some(inner) = element.get("elem") else {
        return Some(element);
    };
    let mut fields = inner.as_object()?.keys();
    let is_plain = fields.all(|field| matches!(field.as_str(), "val" | "counter" | "comment"));
    is_plain.then(|| &inner["val"])
}

/// Reads the key of an element: one cell for each column.
pub(super) fn read_key(key: &Value, columns: &[Type]) -> Option<Vec<Cell>> {
    let key = plain(key)?;
    match (key.get("concat"), columns) {
        (Some(Value::Array(parts)), _) if parts.len() == columns.len() => {
            let pairs = parts.iter().zip(columns);
            pairs.map(|(part, kind)| read_cell(part, *kind)).collect()
        }
        (None, [kind]) => Some(vec![read_cell(key, *kind)?]),
        _ => None,
    }
}

/// Reads one value, network or range.
pub(super) fn read_cell(value: &Value, kind: Type) -> Option<Cell> {
    if let Some(prefix) = value.get("prefix") {
        let length = prefix["len"].as_u64()?;
        let text = format!("{}/{length}", prefix["addr"].as_str()?);
        let (family, (first, last)) = parse_network(&text)?;
        return (kind == Type::Address(family)).then_some(Cell::Range(first, last));
    }
    if let Some(Value::Array(ends)) = value.get("range") {
        let [first, last] = ends.as_slice() else {
            return None;
        };
        let (first, last) = (read_one(first, kind)?, read_one(last, kind)?);
        return (first <= last).then_some(Cell::Range(first, last));
    }
    if kind == Type::Interface {
        // The element for all other keys (`*`) is no name.
        let name = value.as_str().filter(|name| *name != "*")?;
        return Some(Cell::Interface(name.to_owned()));
    }
    let one = read_one(value, kind)?;
    Some(Cell::Range(one, one))
}

fn read_one(value: &Value, kind: Type) -> Option<u128> {
    let text = value.as_str();
    let plain = value.as_u64().map(u128::from);
    let within = |last: u128| plain.filter(|number| *number <= last);
    match kind {
        Type::Address(family) => {
            let address: std::net::IpAddr = text?.parse().ok()?;
            let is_of_family = address.is_ipv4() == (family == Family::V4);
            is_of_family.then(|| number(address))
        }
        Type::Port => within(u16::MAX.into()),
        Type::User => within(u32::MAX.into()),
        Type::Protocol => within(u8::MAX.into()).or_else(|| protocol_named(text?)),
        Type::Icmp => within(u8::MAX.into()),
        Type::Icmpv6 => within(u8::MAX.into()).or_else(|| icmpv6_named(text?)),
        Type::State => {
            let bit = plain?;
            let mut states = crate::packet::STATES.iter();
            let place = states.position(|(_, own)| u128::from(*own) == bit)?;
            u128::try_from(place).ok()
        }
        Type::Direction => match text {
            Some("original") => Some(0),
            Some("reply") => Some(1),
            _ => within(1),
        },
        Type::Interface | Type::Other => None,
    }
}

/// Returns whether a set or table has a flag.
pub(super) fn has_flag(value: &Value, flag: &str) -> bool {
    match value.get("flags") {
        Some(Value::Array(flags)) => flags.iter().any(|one| one.as_str() == Some(flag)),
        Some(Value::String(one)) => one == flag,
        _ => false,
    }
}

/// Returns the number of a protocol that a listing without numbers has by name.
fn protocol_named(name: &str) -> Option<u128> {
    let table = [
        ("icmp", 1),
        ("tcp", 6),
        ("udp", 17),
        ("ipv6-icmp", 58),
        ("sctp", 132),
    ];
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number)
}

/// Returns the number of a type of ICMPv6: older versions of `nft` have names also in numeric
/// listings.
fn icmpv6_named(name: &str) -> Option<u128> {
    let table = [
        ("mld-listener-query", 130),
        ("mld-listener-report", 131),
        ("mld-listener-done", 132),
        ("nd-router-solicit", 133),
        ("nd-router-advert", 134),
        ("nd-neighbor-solicit", 135),
        ("nd-neighbor-advert", 136),
        ("nd-redirect", 137),
        ("mld2-listener-report", 143),
    ];
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|(_, number)| *number)
}
