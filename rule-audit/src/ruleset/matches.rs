//! Matches of rules as conditions.

use serde_json::Value;

use super::elements::{Cell, Elements, Type, plain, read_cell};
use super::unit::{Key, Matched, Unit, single};
use crate::packet::{ACCEPTED, CUT, Family, Field, NO_USER, STATES, protocol, state};
use crate::ranges::Ranges;
use crate::space::{Condition, Row, SetId};

/// The bit of the status of a connection with a translated destination (`IPS_DST_NAT`).
const TRANSLATED: u64 = 32;

impl Unit<'_> {
    /// Returns the conditions of a match.
    pub(super) fn matched(&mut self, body: &Value) -> Matched {
        let (left, right) = (&body["left"], &body["right"]);
        if is_flags(left) || is_flags(&left["&"][0]) {
            // Flags are no field, but only TCP has them.
            let number = self.space.is(Field::Protocol, protocol::TCP);
            return Matched::All(vec![number, self.space.unknown()]);
        }
        let is = match body["op"].as_str() {
            Some("==" | "in") => true,
            Some("!=") => false,
            _ => return Matched::Unknown,
        };
        if let Some(fib) = left.get("fib") {
            return self.fib(fib, right, is);
        }
        if is_meta(left, "nfproto") {
            let own = match self.view.family {
                Family::V4 => (Some("ipv4"), Some(2)),
                Family::V6 => (Some("ipv6"), Some(10)),
            };
            if right.as_str().is_none() && right.as_u64().is_none() {
                return Matched::Unknown;
            }
            let matches = right.as_str() == own.0 || right.as_u64() == own.1;
            return constant(matches == is);
        }
        if let Some(masked) = left.get("&") {
            return self.masked(masked, right, body["op"] == "==" || !is, is);
        }
        if left.get("ct").is_some_and(|ct| ct["key"] == "status") {
            return self.translated(body["op"] == "in", right);
        }
        if left.get("ct").is_some_and(|ct| ct["key"] == "state") {
            return self.states(body["op"] == "in", right, is);
        }
        let Some(key) = self.key(left) else {
            return Matched::Unknown;
        };
        let Key::Fields {
            fields,
            columns,
            interfaces,
            implied,
        } = &key
        else {
            return Matched::Never;
        };
        if let ([], [own]) = (fields.as_slice(), interfaces.as_slice())
            && let Some(wanted) = right.as_str().filter(|text| !text.starts_with('@'))
        {
            if wanted == "*" {
                return Matched::Unknown;
            }
            return constant(is_interface(own, wanted) == is);
        }
        if let ([field], true) = (fields.as_slice(), interfaces.is_empty())
            && let Some(set) = self.column(columns, right)
        {
            let mut all = implied.clone();
            all.push(self.space.condition(Condition::In {
                field: *field,
                set,
                is,
            }));
            return Matched::All(all);
        }
        let key = Some(key);
        let Some(elements) = self.elements(right, &key, false) else {
            return Matched::Unknown;
        };
        let Some(key) = key else {
            return Matched::Unknown;
        };
        self.looked_up(&key, &elements, is)
    }

    /// Returns the condition of a lookup in a set with several columns, or with interfaces.
    fn looked_up(&mut self, key: &Key, elements: &Elements, is: bool) -> Matched {
        let Key::Fields {
            fields, implied, ..
        } = key
        else {
            return Matched::Never;
        };
        if !self.fits(key, elements) {
            return Matched::Unknown;
        }
        let rows = self.rows(key, elements);
        if fields.is_empty() {
            return constant(rows.is_empty() != is);
        }
        let rows = rows.into_iter().filter_map(|row| elements.rows.get(row));
        let rows: Vec<Row> = rows.map(|element| ranges(&element.cells)).collect();
        let condition = match **fields {
            [field] => {
                let ranges = Ranges::of(rows.into_iter().flatten());
                self.space.is_in(field, ranges, is)
            }
            _ => self.space.has_row(fields.clone(), rows, is),
        };
        let mut all = implied.clone();
        all.push(condition);
        Matched::All(all)
    }

    fn fits(&self, key: &Key, elements: &Elements) -> bool {
        let Key::Fields { columns, .. } = key else {
            return true;
        };
        columns.len() == elements.columns.len()
            && columns
                .iter()
                .zip(&elements.columns)
                .all(|(own, column)| own.fits(*column))
    }

    /// Returns the places of the elements with the interfaces of the view.
    pub(super) fn rows(&self, key: &Key, elements: &Elements) -> Vec<usize> {
        let Key::Fields {
            columns,
            interfaces,
            ..
        } = key
        else {
            return Vec::new();
        };
        match interfaces.as_slice() {
            [] => (0..elements.rows.len()).collect(),
            [own] if columns.first() == Some(&Type::Interface) => {
                let exact = elements
                    .by_interface
                    .get(own)
                    .into_iter()
                    .flatten()
                    .copied();
                let wild = elements.by_interface.iter();
                let wild = wild.filter(|(name, _)| name.ends_with('*') && is_interface(own, name));
                exact
                    .chain(wild.flat_map(|(_, rows)| rows.iter().copied()))
                    .collect()
            }
            names => {
                let matches = |row: &super::elements::Element| {
                    let cells = row.cells.iter().filter_map(|cell| match cell {
                        Cell::Interface(name) => Some(name),
                        Cell::Range(..) => None,
                    });
                    names
                        .iter()
                        .zip(cells)
                        .all(|(own, name)| is_interface(own, name))
                };
                let rows = elements.rows.iter().enumerate();
                rows.filter(|(_, row)| matches(row))
                    .map(|(at, _)| at)
                    .collect()
            }
        }
    }

    /// Returns the set of values of one column: a named set, or values in the rule.
    fn column(&mut self, columns: &[Type], right: &Value) -> Option<SetId> {
        let kind = *columns.first()?;
        if let Some(name) = right.as_str().and_then(|text| text.strip_prefix('@')) {
            let place = (self.name.to_owned(), name.to_owned());
            if let Some(known) = self.compiler.sets.get(&place) {
                return *known;
            }
            let elements = self.table.sets.get(name)?;
            let is_usable = elements.fault.is_none()
                && matches!(*elements.columns, [column] if kind.fits(column));
            let set = is_usable.then(|| {
                let cells = elements
                    .rows
                    .iter()
                    .flat_map(|element| ranges(&element.cells));
                self.space.set(Ranges::of(cells))
            });
            self.compiler.sets.insert(place, set);
            return set;
        }
        let list = match right {
            Value::Object(object) if object.contains_key("set") => right["set"].as_array()?.clone(),
            other => vec![other.clone()],
        };
        let mut all = Vec::with_capacity(list.len());
        for value in &list {
            match read_cell(plain(value)?, kind)? {
                Cell::Range(first, last) => all.push((first, last)),
                Cell::Interface(_) => return None,
            }
        }
        Some(self.space.set(Ranges::of(all)))
    }

    /// Returns the condition on the state of the connection. `in` compares bits: one of them must be
    /// set. The other operators compare the whole value, of which one bit is set.
    fn states(&mut self, is_bits: bool, right: &Value, is: bool) -> Matched {
        let list = |values: &[Value]| {
            let mut bits = values.iter().map(state_bit);
            bits.try_fold(0, |all, bit| Some(all | bit?))
        };
        let (bits, is_list) = match right {
            Value::Array(values) => (list(values), false),
            Value::Object(object) => match (object.get("set"), object.get("|")) {
                (Some(Value::Array(values)), _) => (list(values), true),
                (_, Some(Value::Array(values))) => (list(values), false),
                _ => (None, false),
            },
            one => (state_bit(one), false),
        };
        let Some(bits) = bits else {
            return Matched::Unknown;
        };
        let is_single = bits.count_ones() <= 1;
        let chosen = STATES
            .iter()
            .zip(0..)
            .filter(|((_, bit), _)| bits & bit != 0);
        let values: Vec<(u128, u128)> = match is_bits || is_list || is_single {
            true => chosen.map(|(_, place)| (place, place)).collect(),
            // No packet has two states.
            false => Vec::new(),
        };
        let condition = self.space.is_in(Field::State, Ranges::of(values), is);
        Matched::All(vec![condition])
    }

    /// Returns the condition on the bit of the mark of packets that were accepted before, or of
    /// connections that were cut.
    fn masked(&mut self, left: &Value, right: &Value, is_whole: bool, is: bool) -> Matched {
        let is_cut = left[0].get("ct").is_some_and(|ct| ct["key"] == "mark");
        let (field, bit) = match is_cut {
            true => (Field::Cut, CUT),
            false if is_meta(&left[0], "mark") => (Field::Marked, ACCEPTED),
            false => return Matched::Unknown,
        };
        let value = match right.as_u64() {
            Some(0) => 0,
            Some(value) if value == bit => 1,
            _ => return Matched::Unknown,
        };
        if left[1].as_u64() != Some(bit) || !is_whole || left[2] != Value::Null {
            return Matched::Unknown;
        }
        let condition = self.space.is_in(field, Ranges::one(value), is);
        Matched::All(vec![condition])
    }

    /// Returns the condition that the destination was translated: one bit of the status.
    fn translated(&mut self, is_bits: bool, right: &Value) -> Matched {
        if !is_bits || (right != "dnat" && right.as_u64() != Some(TRANSLATED)) {
            return Matched::Unknown;
        }
        Matched::All(vec![self.space.is(Field::Translated, 1)])
    }

    fn fib(&mut self, fib: &Value, right: &Value, is: bool) -> Matched {
        let flags = fib["flags"].as_array();
        let flags: Vec<&str> = flags
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let is_local = right.as_str() == Some("local") || right.as_u64() == Some(2);
        match (fib["result"].as_str(), &*flags) {
            (Some("type"), ["saddr"]) if is_local => {
                let ranges = Ranges::one(1);
                Matched::All(vec![self.space.is_in(Field::SourceLocal, ranges, is)])
            }
            _ => Matched::Unknown,
        }
    }

    /// Returns the left side of a match; `None` if it is not known.
    pub(super) fn key(&mut self, left: &Value) -> Option<Key> {
        let (kind, body) = single(left)?;
        match kind {
            "payload" => self.payload(body),
            "meta" => self.meta(body["key"].as_str()?),
            "ct" => self.tracked(body),
            "concat" => self.joined(body.as_array()?),
            _ => None,
        }
    }

    fn joined(&mut self, parts: &[Value]) -> Option<Key> {
        let (mut all, mut types) = (Vec::new(), Vec::new());
        let (mut names, mut conditions) = (Vec::new(), Vec::new());
        for part in parts {
            match self.key(part)? {
                Key::Never => return Some(Key::Never),
                Key::Fields {
                    fields,
                    columns,
                    interfaces,
                    implied,
                } => {
                    all.extend(fields);
                    types.extend(columns);
                    names.extend(interfaces);
                    conditions.extend(implied);
                }
            }
        }
        Some(Key::Fields {
            fields: all,
            columns: types,
            interfaces: names,
            implied: conditions,
        })
    }

    fn payload(&mut self, body: &Value) -> Option<Key> {
        let (header, field) = (body["protocol"].as_str()?, body["field"].as_str()?);
        let family = match header {
            "ip" | "icmp" => Some(Family::V4),
            "ip6" | "icmpv6" => Some(Family::V6),
            _ => None,
        };
        if matches!(header, "ip" | "ip6") && family != Some(self.view.family) {
            return Some(Key::Never);
        }
        let address = Type::Address(self.view.family);
        Some(match (header, field) {
            ("ip" | "ip6", "saddr") => Key::of(Field::Source, address, Vec::new()),
            ("ip" | "ip6", "daddr") => Key::of(Field::Destination, address, Vec::new()),
            ("ip", "protocol") => Key::of(Field::Protocol, Type::Protocol, Vec::new()),
            ("icmp" | "icmpv6", "type" | "code") => {
                let (number, kind) = match header {
                    "icmp" => (protocol::ICMP, Type::Icmp),
                    _ => (protocol::ICMPV6, Type::Icmpv6),
                };
                let field = match field {
                    "type" => Field::IcmpType,
                    _ => Field::IcmpCode,
                };
                let implied = self.space.is(Field::Protocol, number);
                Key::of(field, kind, vec![implied])
            }
            (_, "sport" | "dport") => {
                let number = match header {
                    "th" => None,
                    "tcp" => Some(protocol::TCP),
                    "udp" => Some(protocol::UDP),
                    "sctp" => Some(protocol::SCTP),
                    "dccp" => Some(33),
                    "udplite" => Some(136),
                    _ => return None,
                };
                let field = match field {
                    "sport" => Field::SourcePort,
                    _ => Field::DestinationPort,
                };
                let implied = number.map(|number| self.space.is(Field::Protocol, number));
                Key::of(field, Type::Port, implied.into_iter().collect())
            }
            _ => return None,
        })
    }

    fn meta(&mut self, key: &str) -> Option<Key> {
        let interface = |name: &Option<String>| {
            Some(Key::Fields {
                fields: Vec::new(),
                columns: vec![Type::Interface],
                interfaces: vec![name.clone()?],
                implied: Vec::new(),
            })
        };
        self.has_interface |= matches!(key, "iifname" | "oifname");
        match key {
            "iifname" => interface(&self.view.input),
            "oifname" => interface(&self.view.output),
            "skuid" => {
                let has_user = Ranges::of([(0, NO_USER - 1)]);
                let has_user = self.space.is_in(Field::User, has_user, true);
                Some(Key::of(Field::User, Type::User, vec![has_user]))
            }
            "l4proto" => Some(Key::of(Field::Protocol, Type::Protocol, Vec::new())),
            _ => None,
        }
    }

    fn tracked(&mut self, body: &Value) -> Option<Key> {
        let key = body["key"].as_str()?;
        // A packet without a connection matches no condition on one, except for its state.
        let tracked = Ranges::of([(state::NEW, state::RELATED)]);
        match key {
            "direction" => {
                let implied = self.space.is_in(Field::State, tracked, true);
                return Some(Key::of(Field::Direction, Type::Direction, vec![implied]));
            }
            "state" => return Some(Key::of(Field::State, Type::State, Vec::new())),
            _ => {}
        }
        let (family, field) = match key {
            "ip saddr" => (Family::V4, "saddr"),
            "ip6 saddr" => (Family::V6, "saddr"),
            _ => return None,
        };
        let field = match (field, body["dir"].as_str()?) {
            ("saddr", "original") => Field::OriginalSource,
            ("saddr", "reply") => Field::ReplySource,
            _ => return None,
        };
        Some(match family == self.view.family {
            true => {
                let implied = self.space.is_in(Field::State, tracked, true);
                Key::of(field, Type::Address(family), vec![implied])
            }
            false => Key::Never,
        })
    }
}

const fn constant(holds: bool) -> Matched {
    match holds {
        true => Matched::All(Vec::new()),
        false => Matched::Never,
    }
}

fn is_meta(left: &Value, key: &str) -> bool {
    left.get("meta").is_some_and(|meta| meta["key"] == key)
}

/// Returns whether an expression is the flags of a TCP segment.
fn is_flags(left: &Value) -> bool {
    let payload = &left["payload"];
    payload["protocol"] == "tcp" && payload["field"] == "flags"
}

/// Returns whether the name of an interface matches a name or a prefix with `*`.
fn is_interface(own: &str, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(prefix) => own.starts_with(prefix),
        None => own == wanted,
    }
}

fn state_bit(value: &Value) -> Option<u64> {
    match value {
        Value::String(name) => {
            let found = STATES.iter().find(|(known, _)| known == name);
            found.map(|(_, bit)| *bit)
        }
        number => number.as_u64(),
    }
}

fn ranges(cells: &[Cell]) -> Row {
    let ranges = cells.iter().filter_map(|cell| match cell {
        Cell::Range(first, last) => Some((*first, *last)),
        Cell::Interface(_) => None,
    });
    ranges.collect()
}
