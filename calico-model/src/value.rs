//! Values that occur in many resources, each with its text format in the data model.

pub(crate) mod asn;
pub(crate) mod community;
pub(crate) mod duration;
pub(crate) mod mac;
pub(crate) mod network;
pub(crate) mod peer_address;
pub(crate) mod timestamp;
pub(crate) mod uid;
pub(crate) mod words;

/// Implements serde for a type through its `Display` and `FromStr`.
macro_rules! serde_as_text {
    ($type:ty, $expecting:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(|_| {
                    serde::de::Error::invalid_value(serde::de::Unexpected::Str(&text), &$expecting)
                })
            }
        }
    };
}
pub(crate) use serde_as_text;

/// Returns a value as JSON. Objects with keys that are text or numbers always have such a form.
pub(crate) fn json_octets<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
