//! Parsing of key values. First the lists and tables: families, paths to send, limits of paths.

use alloc::string::ToString;
use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use core::net::{IpAddr, Ipv4Addr};
use core::ops::Range;

use bgp_proto::{Asn, FAMILIES, Family, FamilySet, Prefix};

use super::{
    kind::{Kind, from_one, usable},
    value::{At, Invalid, Unknown, Value},
};
use crate::limits::{BFD_INTERVAL_MS_MAX, LIMIT_REST_S, LIMIT_REST_S_MAX, LIMIT_WARN_PERCENT};

/// Parses names of families. `within` restricts the allowed ones.
pub fn read_families<'n>(
    names: impl IntoIterator<Item = (&'n str, Range<usize>)>,
    within: Option<FamilySet>,
    faults: &mut Vec<Invalid>,
) -> FamilySet {
    let (mut set, mut last) = (FamilySet::EMPTY, None);
    for (name, place) in names {
        if let Some(family) = family(name, &place, within, faults) {
            set.insert(family);
        }
        last = Some(place);
    }
    if let Some(last) = last.filter(|_| set.is_empty() && faults.is_empty()) {
        faults.push(Invalid::at(&last, "no family is left"));
    }
    set
}

fn family(
    name: &str,
    place: &Range<usize>,
    within: Option<FamilySet>,
    faults: &mut Vec<Invalid>,
) -> Option<Family> {
    let family = name.parse::<Family>().ok();
    let Some(family) = family.filter(|family| family.row().is_some()) else {
        let known: Vec<&str> = FAMILIES.iter().map(|row| row.name).collect();
        let mut invalid = Invalid::at(place, format!("unknown family `{name}`"));
        invalid.unknown = Some(Unknown {
            word: name.to_string(),
            what: "families",
            known,
        });
        faults.push(invalid);
        return None;
    };
    if within.is_some_and(|within| !within.contains(family)) {
        let message = format!("this speaker has no table for {family}");
        let help = "add it to `families` at the top of the file";
        faults.push(Invalid::at(place, message).help(help));
        return None;
    }
    Some(family)
}

pub(super) fn families(
    reader: &mut Reader<'_>,
    names: &[At<Value>],
    given: &At<Value>,
) -> Option<Value> {
    let texts = names
        .iter()
        .map(|name| Some((name.value.text()?, name.place.clone())));
    let Some(texts) = texts
        .collect::<Option<Vec<_>>>()
        .filter(|texts| !texts.is_empty())
    else {
        reader.expected(Kind::Families, given);
        return None;
    };
    let mut faults = Vec::new();
    let set = read_families(texts, Some(reader.families), &mut faults);
    reader.faults.append(&mut faults);
    Some(set.into())
}

/// Returns a table of families with the paths that are sent in each.
pub(super) fn paths(reader: &mut Reader<'_>, value: &Value, given: &At<Value>) -> Option<Value> {
    let Value::Table(entries) = value else {
        let limit = path_limit(reader, given)?;
        let families = reader.families.iter();
        return Some(Value::table(families.map(|family| (family, limit.clone()))));
    };
    Some(each_family(reader, entries, path_limit))
}

/// Returns a table of families with a value that `of` reads for each.
fn each_family(
    reader: &mut Reader<'_>,
    entries: &[(At<String>, At<Value>)],
    of: impl Fn(&mut Reader<'_>, &At<Value>) -> Option<Value>,
) -> Value {
    let mut read = BTreeMap::new();
    for (name, given) in entries {
        let family = family(
            &name.value,
            &name.place,
            Some(reader.families),
            reader.faults,
        );
        let value = family.and_then(|family| Some((family, of(reader, given)?)));
        if let Some((family, value)) = value
            && read.insert(family, value).is_some()
        {
            let message = format!("a second entry for {family}");
            reader.faults.push(Invalid::at(&name.place, message));
        }
    }
    Value::table(read)
}

fn path_limit(reader: &mut Reader<'_>, given: &At<Value>) -> Option<Value> {
    let most = rib::limits::BEST_PATHS_MAX;
    match &given.value {
        Value::Text(word) if ["all", "equal-cost"].contains(&word.as_str()) => {}
        Value::Number(best) if (1..=i64::from(most)).contains(best) => {}
        Value::Number(_) => {
            let message = format!("of the best paths, 1 to {most} can be sent");
            let invalid = Invalid::at(&given.place, message);
            reader
                .faults
                .push(invalid.help("\"all\" sends every path there is"));
            return None;
        }
        _ => {
            reader.expected(Kind::Paths, given);
            return None;
        }
    }
    Some(given.value.clone())
}

const LIMIT_KEYS: [&str; 5] = ["families", "max", "warn", "action", "restart_after"];
/// The keys of a limit of sent paths.
const SENT_LIMIT_KEYS: [&str; 3] = ["families", "max", "warn"];
const ACTIONS: Kind = Kind::Word(&["warn", "drop", "restart"]);

/// Returns a table of families with the limit of each.
pub(super) fn path_limits(
    reader: &mut Reader<'_>,
    kind: Kind,
    entries: &[At<Value>],
) -> Option<Value> {
    let known: &[&str] = match kind {
        Kind::SentLimits => &SENT_LIMIT_KEYS,
        _ => &LIMIT_KEYS,
    };
    let mut read: BTreeMap<Family, Value> = BTreeMap::new();
    for entry in entries {
        let Value::Table(keys) = &entry.value else {
            reader.expected(kind, entry);
            continue;
        };
        for (key, _) in keys.iter().filter(|(key, _)| !known.contains(&&*key.value)) {
            let known = known.to_vec();
            reader
                .faults
                .push(Invalid::unknown(&key.place, &key.value, "keys", known));
        }
        let Some(limit) = limit(reader, kind, keys, entry) else {
            continue;
        };
        let families = match field(keys, "families") {
            Some(given) => reader.read(Kind::Families, given),
            None => Some(reader.families.into()),
        };
        for family in families.as_ref().map(set_of).unwrap_or_default().iter() {
            if read.insert(family, limit.clone()).is_some() {
                let message = format!("a second limit for {family}");
                reader.faults.push(Invalid::at(&entry.place, message));
            }
        }
    }
    Some(Value::table(read))
}

pub(super) fn field<'k>(keys: &'k [(At<String>, At<Value>)], name: &str) -> Option<&'k At<Value>> {
    let found = keys.iter().find(|(key, _)| key.value == name);
    found.map(|(_, value)| value)
}

fn limit(
    reader: &mut Reader<'_>,
    kind: Kind,
    keys: &[(At<String>, At<Value>)],
    entry: &At<Value>,
) -> Option<Value> {
    let mut number = |key: &'static str, most: u32, unit, help| {
        let given = field(keys, key)?;
        let (families, faults) = (reader.families, &mut *reader.faults);
        let mut reader = Reader {
            key,
            help,
            families,
            faults,
        };
        reader.read(from_one(most, unit), given)
    };
    let help = match kind {
        Kind::SentLimits => "export = \"deny\" sends nothing to a neighbor",
        _ => "import = \"deny\" accepts nothing from a neighbor",
    };
    let max = number("max", u32::MAX, "paths", help);
    let warn = number("warn", 100, "percent of max", "");
    let after = number("restart_after", LIMIT_REST_S_MAX, "seconds", "");
    let action = match field(keys, "action") {
        Some(given) => reader.read(ACTIONS, given)?,
        None => "drop".into(),
    };
    let after = after.unwrap_or_else(|| LIMIT_REST_S.into());
    if let Some(given) = field(keys, "restart_after").filter(|_| action != "restart".into()) {
        let message = "restart_after needs action = \"restart\"";
        reader.faults.push(Invalid::at(&given.place, message));
    }
    if field(keys, "max").is_none() {
        let message = "missing key `max`";
        reader.faults.push(Invalid::at(&entry.place, message));
    }
    let mut limit = Vec::from([
        ("max", max?),
        (
            "warn",
            warn.unwrap_or_else(|| u32::from(LIMIT_WARN_PERCENT).into()),
        ),
    ]);
    if kind == Kind::PathLimits {
        limit.push(("action", action.clone()));
    }
    if action == "restart".into() {
        limit.push(("restart_after", after));
    }
    Some(Value::table(limit))
}

/// The keys of a session of BFD, with the type of each.
const BFD_KEYS: [(&str, Kind); 3] = [
    ("interval_ms", from_one(BFD_INTERVAL_MS_MAX, "milliseconds")),
    ("multiplier", from_one(u8::MAX as u32, "packets")),
    ("mode", Kind::Word(&["auto", "single-hop", "multihop"])),
];

/// Returns the table of a session of BFD with the keys that were given.
fn bfd(reader: &mut Reader<'_>, keys: &[(At<String>, At<Value>)]) -> Option<Value> {
    let mut read = Vec::new();
    for (key, given) in keys {
        let known = BFD_KEYS.iter().find(|(name, _)| *name == key.value);
        let Some(&(name, kind)) = known else {
            let known = BFD_KEYS.iter().map(|(name, _)| *name).collect();
            let unknown = Invalid::unknown(&key.place, &key.value, "keys", known);
            reader.faults.push(unknown);
            continue;
        };
        let (families, faults) = (reader.families, &mut *reader.faults);
        let mut reader = Reader {
            key: name,
            help: "",
            families,
            faults,
        };
        read.push((name, reader.read(kind, given)?));
    }
    Some(Value::table(read))
}

/// Returns the families of a parsed list.
pub(super) fn set_of(value: &Value) -> FamilySet {
    let Value::List(names) = value else {
        return FamilySet::EMPTY;
    };
    let names = names.iter().filter_map(|name| name.value.text());
    names
        .filter_map(|name| name.parse::<Family>().ok())
        .collect()
}

/// Returns the entries of a parsed table of families.
pub(super) fn by_family<T>(
    value: &Value,
    of: impl Fn(&Value) -> Option<T>,
) -> Option<BTreeMap<Family, T>> {
    let Value::Table(entries) = value else {
        return None;
    };
    let entries = entries
        .iter()
        .map(|(name, value)| Some((name.value.parse::<Family>().ok()?, of(&value.value)?)));
    entries.collect()
}

/// Returns the value for these families: the value itself if all have the same.
pub(super) fn for_families<T>(
    all: &BTreeMap<Family, T>,
    families: FamilySet,
    of: impl Fn(&T) -> Value,
) -> Option<Value> {
    let entries = all.iter().filter(|(family, _)| families.contains(**family));
    let entries: Vec<(Family, Value)> = entries.map(|(family, one)| (*family, of(one))).collect();
    let (_, first) = entries.first()?;
    let is_all = entries.len() == families.len();
    match is_all && entries.iter().all(|(_, value)| value == first) {
        true => Some(first.clone()),
        false => Some(Value::table(entries)),
    }
}

/// The parser of one key's value.
pub(crate) struct Reader<'r> {
    /// The key.
    pub(crate) key: &'static str,
    /// The advice for any mistake in it.
    pub(crate) help: &'static str,
    /// The known families.
    pub(crate) families: FamilySet,
    /// The mistakes.
    pub(crate) faults: &'r mut Vec<Invalid>,
}

impl Reader<'_> {
    /// Returns the value in its stored form: [`Value::Flag`] `false` for none. `None` if it is
    /// invalid.
    pub(crate) fn read(&mut self, kind: Kind, given: &At<Value>) -> Option<Value> {
        let read = match (kind, &given.value) {
            (Kind::Flag, Value::Flag(_)) => Some(given.value.clone()),
            (
                Kind::Number {
                    or_zero,
                    least,
                    most,
                    ..
                },
                Value::Number(number),
            ) => number_in(*number, or_zero, least, most),
            (Kind::Switch { on, .. }, Value::Flag(true)) => Some(on.into()),
            (Kind::Switch { .. }, Value::Flag(false)) => Some(Value::Flag(false)),
            (Kind::Switch { least: 0, .. }, Value::Number(0)) => Some(Value::Flag(false)),
            (Kind::Switch { least, most, .. }, Value::Number(number)) => {
                number_in(*number, false, least, most)
            }
            (Kind::Text(most), Value::Text(text)) => {
                let printable = text.chars().all(|c| !c.is_control());
                let fits = !text.trim().is_empty() && text.len() <= most && printable;
                fits.then(|| given.value.clone())
            }
            (Kind::Secret(most), Value::Text(text)) => (1..=most)
                .contains(&text.len())
                .then(|| given.value.clone()),
            (Kind::Address, Value::Text(text)) => return self.address(text, given),
            (Kind::DottedQuad, Value::Text(text)) => {
                let quad = text.parse::<Ipv4Addr>().ok();
                quad.filter(|quad| !quad.is_unspecified())
                    .map(|_| given.value.clone())
            }
            (Kind::Prefix, Value::Text(text)) => return self.prefix(text, given),
            (Kind::Word(words), Value::Text(text)) => match words.contains(&text.as_str()) {
                true => Some(given.value.clone()),
                false => {
                    let unknown = Invalid::unknown(&given.place, text, "values", words.to_vec());
                    self.faults.push(unknown);
                    return None;
                }
            },
            (Kind::Asn, Value::Number(number)) => {
                let asn = usable(u32::try_from(*number).ok().map(Asn));
                asn.map(|asn| asn.0.into())
            }
            (Kind::Asn, Value::Text(text)) => match text.as_str() {
                "internal" | "external" => Some(given.value.clone()),
                text => usable(text.parse().ok()).map(|asn| asn.0.into()),
            },
            (Kind::Families, Value::List(names)) => return families(self, names, given),
            (Kind::Bfd, Value::Flag(_)) => Some(given.value.clone()),
            (Kind::Bfd, Value::Table(keys)) => return bfd(self, keys),
            (Kind::Paths, value) => return paths(self, value, given),
            (Kind::FamilyTimes(most), Value::Table(entries)) => {
                let seconds = from_one(most, "seconds");
                let read = |reader: &mut Reader<'_>, given: &At<Value>| reader.read(seconds, given);
                return Some(each_family(self, entries, read));
            }
            (Kind::PathLimits | Kind::SentLimits, Value::Number(max)) => {
                number_in(*max, true, 1, u32::MAX)
            }
            (Kind::PathLimits | Kind::SentLimits, Value::List(entries)) => {
                return path_limits(self, kind, entries);
            }
            _ => None,
        };
        if read.is_none() {
            self.expected(kind, given);
        }
        read
    }

    /// Reports a value of another type.
    pub(crate) fn expected(&mut self, kind: Kind, given: &At<Value>) {
        let message = match kind {
            Kind::Text(most) => format!("{} has 1 to {most} printable bytes", self.key),
            Kind::Secret(most) => format!("{} has 1 to {most} bytes", self.key),
            kind => format!("{} is {kind}", self.key),
        };
        self.faults
            .push(Invalid::at(&given.place, message).help(self.help));
    }

    fn address(&mut self, text: &str, given: &At<Value>) -> Option<Value> {
        let Ok(address) = text.parse::<IpAddr>() else {
            self.expected(Kind::Address, given);
            return None;
        };
        if address.is_unspecified() || address.is_multicast() {
            let message = format!("{address} is not a unicast address");
            self.faults.push(Invalid::at(&given.place, message));
            return None;
        }
        Some(Value::Text(address.to_string()))
    }

    fn prefix(&mut self, text: &str, given: &At<Value>) -> Option<Value> {
        let (Ok(prefix), Some((address, _))) = (text.parse::<Prefix>(), text.split_once('/'))
        else {
            self.expected(Kind::Prefix, given);
            return None;
        };
        if address.parse() != Ok(prefix.addr()) {
            let invalid = Invalid::at(&given.place, format!("{text} has host bits set"));
            self.faults
                .push(invalid.label(format!("did you mean {prefix}?")));
        }
        Some(Value::Text(prefix.to_string()))
    }
}

fn number_in(number: i64, or_zero: bool, least: u32, most: u32) -> Option<Value> {
    let number = u32::try_from(number).ok()?;
    let fits = (least..=most).contains(&number) || or_zero && number == 0;
    fits.then(|| number.into())
}
