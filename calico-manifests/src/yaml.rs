//! JSON values for a YAML serializer. `serde_json` keeps a number as its text, and passes it to
//! other serializers in a form that only its own supports.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Number, Value};

/// A value with numbers written as integers and floats.
pub(super) struct Plain<'v>(pub(super) &'v Value);

/// Returns whether 64-bit integers and floats represent all numbers of a value exactly.
pub(super) fn is_plain(value: &Value) -> bool {
    match value {
        Value::Number(number) => is_plain_number(number),
        Value::Array(items) => items.iter().all(is_plain),
        Value::Object(fields) => fields.values().all(is_plain),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn is_plain_number(number: &Number) -> bool {
    let shortest = || number.as_f64().and_then(Number::from_f64);
    number.is_i64() || number.is_u64() || shortest().as_ref() == Some(number)
}

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => serializer.serialize_u64(number),
                (_, Some(number), _) => serializer.serialize_i64(number),
                (_, _, Some(number)) => serializer.serialize_f64(number),
                _ => Err(serde::ser::Error::custom("a number beyond all floats")),
            },
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Plain)),
            Value::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    map.serialize_entry(name, &Plain(value))?;
                }
                map.end()
            }
        }
    }
}
