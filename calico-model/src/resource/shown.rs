//! Stored resources in the form shown to users.

use serde_json::{Map, Value};

use super::{API_VERSION, ParseError, RawSpec, Resource, Spec, policy};
use crate::key::ResourceKey;
use crate::key::kind::Kind;
use crate::resource::ip_pool::IpPoolSpec;

/// Returns a stored value in the form shown to users: with kind, name and revision; with a policy's
/// own name; with the defaults of a pool.
pub fn shown(key: &ResourceKey, octets: &[u8], revision: i64) -> Result<Value, ParseError> {
    let whole = |source| ParseError {
        kind: key.kind().name(),
        field: ".".to_owned(),
        source,
    };
    let mut value: Value = serde_json::from_slice(octets).map_err(whole)?;
    let object: &mut Map<String, Value> = match &mut value {
        Value::Object(object) => object,
        _ => return Err(whole(serde::de::Error::custom("not an object"))),
    };
    object.insert("kind".into(), key.kind().name().into());
    object.insert("apiVersion".into(), API_VERSION.into());
    let metadata = object.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    if let Value::Object(metadata) = metadata {
        metadata.entry("name").or_insert(key.name().into());
        if let Some(namespace) = key.namespace() {
            metadata.entry("namespace").or_insert(namespace.into());
        }
        metadata.insert("resourceVersion".into(), revision.to_string().into());
    }
    if key.kind().is_policy() {
        policy::name_for_people(&mut value);
    }
    // Checks whether it can be parsed at all.
    let resource = Resource::<RawSpec>::from_value(value.clone()).map_err(|mut error| {
        error.kind = key.kind().name();
        error
    })?;
    if key.kind() == Kind::IpPool {
        let mut pool = Resource::<IpPoolSpec>::from_value(value)?;
        pool.spec.complete(Kind::IpPool, &mut pool.metadata);
        return serde_json::to_value(pool).map_err(whole);
    }
    serde_json::to_value(resource).map_err(whole)
}
