//! One `[[neighbor]]` or `[[neighbor_range]]`: keys and values in their written form. The table of
//! the speaker defines them ([`bgp_speaker::keys`]).

use std::fmt;
use std::net::IpAddr;

use bgp_proto::Asn;
use bgp_speaker::keys::{At, Invalid, RANGE_KEYS, Value};
use bgp_speaker::{Given, PEER_KEYS};
use daemon_common::config::Problem;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use toml::Spanned;

/// The keys of one neighbor or range.
#[derive(Clone, Debug)]
pub struct Section(pub Given);

impl Section {
    /// Returns the address, if there is one.
    pub fn address(&self) -> Option<IpAddr> {
        self.text("address")?.parse().ok()
    }

    /// Returns the address to dial from, if one is given.
    pub fn source(&self) -> Option<IpAddr> {
        self.text("source")?.parse().ok()
    }

    /// Returns the port to dial, if one is given.
    pub fn port(&self) -> Option<u16> {
        match self.0.get("port")?.value {
            Value::Number(port) => port.try_into().ok(),
            _ => None,
        }
    }

    /// Returns the neighbor's AS, if it is given as a number.
    pub(crate) fn asn(&self) -> Option<Asn> {
        match &self.0.get("asn")?.value {
            Value::Number(number) => number.to_owned().try_into().ok().map(Asn),
            Value::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.value.text()
    }
}

impl<'de> Deserialize<'de> for Section {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let keys = Spanned::<Keys>::deserialize(from)?;
        Ok(Self(Given::new(keys.span(), keys.into_inner().0)))
    }
}

/// Keys with their values, in the order of the file.
struct Keys(Vec<(At<String>, At<Value>)>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from.deserialize_any(ValueVisitor)? {
            Value::Table(keys) => Ok(Self(keys)),
            _ => Err(D::Error::custom("this is a table of keys")),
        }
    }
}

struct AnyValue(Value);

impl<'de> Deserialize<'de> for AnyValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueVisitor).map(Self)
    }
}

struct ValueVisitor;

fn at(value: Spanned<AnyValue>) -> At<Value> {
    At::new(value.span(), value.into_inner().0)
}

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true or false, a whole number, a text, a list or a table")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        let too_large = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
        number.try_into().map(Value::Number).map_err(too_large)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = from.next_element()? {
            values.push(at(value));
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut keys = Vec::new();
        while let Some((key, value)) = from.next_entry::<Spanned<String>, _>()? {
            keys.push((At::new(key.span(), key.into_inner()), at(value)));
        }
        Ok(Value::Table(keys))
    }
}

/// Returns whether a neighbor's key may be shown, which means that its value is not a secret.
pub fn is_shown(key: &str) -> bool {
    let shown = PEER_KEYS.iter().filter(|row| !row.is_secret());
    let shown = shown.map(|row| row.name);
    shown
        .chain(RANGE_KEYS.iter().map(|row| row.name))
        .any(|name| name == key)
}

/// Converts a mistake in the keys of a neighbor for the report.
pub(crate) fn problem(invalid: Invalid) -> Problem {
    let mut problem = Problem::at(invalid.place, invalid.message);
    if let Some(unknown) = &invalid.unknown {
        problem = problem.suggest(&unknown.word, &unknown.known, unknown.what);
    }
    if let Some(label) = invalid.label {
        problem = problem.label(label);
    }
    if let Some((place, label)) = invalid.related {
        problem = problem.related(place, label);
    }
    match invalid.help {
        Some(help) => problem.help(help),
        None => problem,
    }
}
