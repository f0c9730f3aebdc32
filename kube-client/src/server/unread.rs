//! JSON without the fields that a client does not read. Most octets of a pod are in such fields.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// A field of objects that is not read, or fields within it. Elements of lists have no level of their own.
#[derive(Debug)]
pub struct Unread {
    field: &'static str,
    /// Empty: the whole field.
    within: &'static [Self],
}

impl Unread {
    /// A whole field.
    pub const fn field(field: &'static str) -> Self {
        Self { field, within: &[] }
    }

    /// Fields within a field, which is an object or a list of objects.
    pub const fn within(field: &'static str, within: &'static [Self]) -> Self {
        Self { field, within }
    }
}

/// Parses a page of a list, which has its objects in `items`, or an event of a watch, which has one in
/// `object`.
///
/// # Errors
///
/// It is not JSON, also where it is not read, or no object.
pub fn parse(
    octets: &[u8],
    objects: &str,
    unread: &'static [Unread],
) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(octets);
    let value = Around { objects, unread }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// A page or an event: it has the objects in one of its fields.
struct Around<'o> {
    objects: &'o str,
    unread: &'static [Unread],
}

/// A value without some of its fields: an object, a list of objects, or a text, `true`, `false` or `null` in
/// their place. No field of the API that has such fields is a number.
#[derive(Clone, Copy)]
struct Without(&'static [Unread]);

impl<'de> DeserializeSeed<'de> for Around<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Around<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(field) = fields.next_key::<String>()? {
            let is_objects = field == self.objects;
            let unread = if is_objects { self.unread } else { &[] };
            let value = fields.next_value_seed(Without(unread))?;
            all.insert(field, value);
        }
        Ok(Value::Object(all))
    }
}

impl<'de> DeserializeSeed<'de> for Without {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0 {
            [] => Value::deserialize(deserializer),
            _ => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Without {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(field) = fields.next_key::<String>()? {
            let unread = self.0.iter().find(|unread| unread.field == field);
            match unread.map(|unread| unread.within) {
                Some([]) => drop(fields.next_value::<IgnoredAny>()?),
                within => {
                    let value = fields.next_value_seed(Self(within.unwrap_or_default()))?;
                    all.insert(field, value);
                }
            }
        }
        Ok(Value::Object(all))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            all.push(element);
        }
        Ok(Value::Array(all))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    static UNREAD: [Unread; 2] = [
        Unread::within("metadata", &[Unread::field("managedFields")]),
        Unread::within(
            "spec",
            &[
                Unread::field("volumes"),
                Unread::within("containers", &[Unread::field("env")]),
            ],
        ),
    ];

    #[test]
    fn only_the_named_fields_are_missing() {
        let object = |with: bool| {
            let mut object = json!({"kind": "Pod",
                "metadata": {"name": "a", "labels": {"env": "x", "volumes": "y"}},
                "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}, null, "x"],
                    "priority": -1, "hostNetwork": false, "env": [true]}});
            if with {
                object["metadata"]["managedFields"] = json!([{"fieldsV1": {"f:spec": {}}}]);
                object["spec"]["volumes"] = json!("a text");
                object["spec"]["containers"][0]["env"] = json!([{"name": "E", "value": "1"}]);
            }
            object
        };
        let page = |with| {
            let items = [
                object(with),
                json!(null),
                json!("text"),
                json!([object(with)]),
            ];
            json!({"kind": "PodList", "metadata": {"managedFields": "stay"}, "items": items})
        };
        let parsed = |octets: &str, objects| parse(octets.as_bytes(), objects, &UNREAD).ok();
        assert_eq!(parsed(&page(true).to_string(), "items"), Some(page(false)));
        let event = |with| json!({"type": "ADDED", "object": object(with)});
        let octets = event(true).to_string();
        assert_eq!(parsed(&octets, "object"), Some(event(false)));
        // Without such fields, it is parsed as by everybody.
        let octets = page(true).to_string();
        assert_eq!(
            parse(octets.as_bytes(), "items", &[]).ok(),
            Some(page(true))
        );
    }

    #[test]
    fn invalid_json_is_an_error_also_in_unread_fields() {
        for wrong in [
            "",
            "[]",
            "1",
            r#"{"items":[{"spec":{"volumes":[}}]}"#,
            r#"{"items":[{"spec":{"volumes":1}}"#,
            r#"{"items":[]} x"#,
        ] {
            let parsed = parse(wrong.as_bytes(), "items", &UNREAD);
            assert!(parsed.is_err(), "{wrong}");
        }
    }
}
