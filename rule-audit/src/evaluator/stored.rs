//! The keys and values of the datastore.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

/// The prefix of the keys of resources.
const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

/// The prefix of the keys of running route reflectors.
pub const REFLECTORS: &str = "/cambric/v1/reflector/";

/// The stored resources. Keys of other programs are ignored.
pub trait Stored {
    /// Returns the name and the value of each key below a prefix, in the order of keys.
    fn below(&self, prefix: String) -> impl Iterator<Item = (&str, Cow<'_, Value>)>;

    /// Returns the name and the value of each resource of a kind, such as `tiers`, in the order of keys.
    fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&str, Cow<'_, Value>)> {
        self.below(format!("{PREFIX}{kind}/"))
    }
}

impl Stored for BTreeMap<String, Value> {
    fn below(&self, prefix: String) -> impl Iterator<Item = (&str, Cow<'_, Value>)> {
        let named = named(self, prefix);
        named.map(|(name, value)| (name, Cow::Borrowed(value)))
    }
}

/// Values as the datastore has them. They are parsed one at a time: parsed, they take ten times as much
/// memory. A value that is not JSON is null.
impl Stored for BTreeMap<String, Vec<u8>> {
    fn below(&self, prefix: String) -> impl Iterator<Item = (&str, Cow<'_, Value>)> {
        let named = named(self, prefix);
        named.map(|(name, value)| {
            let value = serde_json::from_slice(value).unwrap_or_default();
            (name, Cow::Owned(value))
        })
    }
}

/// Returns the values below a prefix, by name.
fn named<V>(
    all: &BTreeMap<String, V>,
    prefix: String,
) -> impl Iterator<Item = (&str, &V)> + use<'_, V> {
    let from = all.range(prefix.clone()..);
    from.map_while(move |(key, value)| Some((key.strip_prefix(&*prefix)?, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_a_kind_are_the_same_parsed_or_not() {
        let key = |rest: &str| format!("{PREFIX}{rest}");
        let raw = BTreeMap::from([
            (key("tier/no"), b"1".to_vec()),
            (key("tiers/a"), br#"{"x":1}"#.to_vec()),
            (key("tiers/b/c"), b"{".to_vec()),
            (key("tiersx/no"), b"1".to_vec()),
            ("/other/tiers/no".to_owned(), b"1".to_vec()),
        ]);
        let parse = |value: &Vec<u8>| serde_json::from_slice(value).unwrap_or_default();
        let parsed: BTreeMap<String, Value> = raw
            .iter()
            .map(|(key, value)| (key.clone(), parse(value)))
            .collect();
        let wanted = [
            ("a".to_owned(), serde_json::json!({"x": 1})),
            ("b/c".to_owned(), Value::Null),
        ];
        let list = |all: Vec<(&str, Cow<'_, Value>)>| -> Vec<(String, Value)> {
            let all = all.into_iter();
            all.map(|(name, value)| (name.to_owned(), value.into_owned()))
                .collect()
        };
        assert_eq!(list(raw.of_kind("tiers").collect()), wanted);
        assert_eq!(list(parsed.of_kind("tiers").collect()), wanted);
    }
}
