//! Strict writing: an unknown field of a typed kind is a fault.

use serde_json::{Map, Value};

use super::{EncodeError, ParseError, RawSpec, Resource, Spec};
use crate::key::ResourceKey;
use crate::key::kind::Kind;
use crate::resource::bfd_configuration::BfdConfigurationSpec;
use crate::resource::bgp_configuration::BgpConfigurationSpec;
use crate::resource::bgp_filter::BgpFilterSpec;
use crate::resource::bgp_peer::BgpPeerSpec;
use crate::resource::cluster_information::ClusterInformationSpec;
use crate::resource::felix_configuration::FelixConfigurationSpec;
use crate::resource::ip_pool::IpPoolSpec;
use crate::resource::ip_reservation::IpReservationSpec;
use crate::resource::ipam_configuration::IpamConfigurationSpec;
use crate::resource::network_policy::{GlobalNetworkPolicySpec, NetworkPolicySpec, TierSpec};
use crate::resource::network_set::{HostEndpointSpec, NetworkSetSpec};
use crate::resource::node::NodeSpec;
use crate::resource::profile::ProfileSpec;
use crate::resource::workload_endpoint::WorkloadEndpointSpec;
use crate::schema::{Fields, Shape, fields};
use crate::validate::{Faults, Invalid, Problem};

/// Returns key and value to store of a resource written by a user. In addition to the checks of
/// [`Resource::encode`], unknown fields are faults, with a similar known field as a hint.
///
/// In YAML, `true` and `10` are not texts. Where only text is valid, such as in labels, they are
/// converted to their text.
pub fn encode_strict(resource: Value) -> Result<(ResourceKey, Value), EncodeError> {
    encode_over(resource, &Value::Null)
}

/// Returns the same for a resource that replaces a stored one. Unknown fields that are already
/// stored are not faults, because another program that supports them has written them.
pub fn encode_over(
    mut resource: Value,
    stored: &Value,
) -> Result<(ResourceKey, Value), EncodeError> {
    let name = resource
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let kind = Kind::from_name(name).ok_or_else(|| EncodeError::UnknownKind(name.to_owned()))?;
    let mut faults = Faults::default();
    unknown_fields("", &resource, &[stored], fields(kind), &mut faults);
    scalars_as_texts(&mut resource, &Shape::Object(fields(kind)));
    match kind {
        Kind::Node => encode::<NodeSpec>(resource, faults.0),
        Kind::WorkloadEndpoint => encode::<WorkloadEndpointSpec>(resource, faults.0),
        Kind::Profile => encode::<ProfileSpec>(resource, faults.0),
        Kind::FelixConfiguration => encode::<FelixConfigurationSpec>(resource, faults.0),
        Kind::ClusterInformation => encode::<ClusterInformationSpec>(resource, faults.0),
        Kind::IpPool => encode::<IpPoolSpec>(resource, faults.0),
        Kind::BgpConfiguration => encode::<BgpConfigurationSpec>(resource, faults.0),
        Kind::BgpPeer => encode::<BgpPeerSpec>(resource, faults.0),
        Kind::BgpFilter => encode::<BgpFilterSpec>(resource, faults.0),
        Kind::BfdConfiguration => encode::<BfdConfigurationSpec>(resource, faults.0),
        Kind::IpReservation => encode::<IpReservationSpec>(resource, faults.0),
        Kind::IpamConfiguration => encode::<IpamConfigurationSpec>(resource, faults.0),
        Kind::NetworkPolicy => encode::<NetworkPolicySpec>(resource, faults.0),
        Kind::GlobalNetworkPolicy => encode::<GlobalNetworkPolicySpec>(resource, faults.0),
        Kind::Tier => encode::<TierSpec>(resource, faults.0),
        Kind::NetworkSet | Kind::GlobalNetworkSet => encode::<NetworkSetSpec>(resource, faults.0),
        Kind::HostEndpoint => encode::<HostEndpointSpec>(resource, faults.0),
        _ => encode::<RawSpec>(resource, faults.0),
    }
}

fn encode<S: Spec>(
    value: Value,
    mut faults: Vec<Invalid>,
) -> Result<(ResourceKey, Value), EncodeError> {
    let parsed = Resource::<S>::from_value(value);
    let resource = match parsed {
        Ok(resource) => resource,
        // A misspelled field explains more than the missing one that results from it.
        Err(_) if !faults.is_empty() => return Err(EncodeError::Invalid(faults)),
        Err(error) => return Err(error.into()),
    };
    match resource.checked() {
        Ok(stored) if faults.is_empty() => {
            let value = serde_json::to_value(&stored).map_err(ParseError::whole::<S>)?;
            Ok((stored.key()?, value))
        }
        Ok(_) => Err(EncodeError::Invalid(faults)),
        Err(EncodeError::Invalid(more)) => {
            faults.extend(more);
            Err(EncodeError::Invalid(faults))
        }
        Err(error) => Err(error),
    }
}

/// Returns the fields that are neither known nor in one of the `stored` objects at this place: one
/// object, or those of a list.
fn unknown_fields(
    path: &str,
    value: &Value,
    stored: &[&Value],
    fields: Fields,
    faults: &mut Faults,
) {
    let Value::Object(object) = value else { return };
    for (name, inner) in object {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        let stored: Vec<&Value> = stored.iter().filter_map(|value| value.get(name)).collect();
        let known = fields.iter().find(|known| known.name == name);
        match known.map(|known| known.shape.parts()) {
            None if stored.is_empty() => {
                let meant = nearest(name, object, fields);
                faults.push(path, Problem::UnknownField { meant });
            }
            None | Some(None) => {}
            Some(Some((fields, false))) => {
                unknown_fields(&path, inner, &stored, fields, faults);
            }
            Some(Some((fields, true))) => {
                let lists = stored.iter().filter_map(|value| value.as_array());
                let stored: Vec<&Value> = lists.flatten().collect();
                for (at, item) in inner.as_array().into_iter().flatten().enumerate() {
                    unknown_fields(&format!("{path}[{at}]"), item, &stored, fields, faults);
                }
            }
        }
    }
}

/// Converts numbers and booleans to text, where text is expected.
fn scalars_as_texts(value: &mut Value, shape: &Shape) {
    match (shape, value) {
        (Shape::Text, value @ (Value::Bool(_) | Value::Number(_))) => {
            *value = Value::String(value.to_string());
        }
        (Shape::Text, Value::Object(object)) => {
            object
                .values_mut()
                .for_each(|inner| scalars_as_texts(inner, shape));
        }
        (Shape::Text | Shape::List(_) | Shape::Rules, Value::Array(items)) => {
            let parts = shape.parts();
            let of_item = parts.map_or(Shape::Text, |(fields, _)| Shape::Object(fields));
            items
                .iter_mut()
                .for_each(|item| scalars_as_texts(item, &of_item));
        }
        (Shape::Object(fields), Value::Object(object)) => {
            for field in *fields {
                if let Some(inner) = object.get_mut(field.name) {
                    scalars_as_texts(inner, &field.shape);
                }
            }
        }
        _ => {}
    }
}

/// Returns the known field with the most similar name, unless it is already set or too different.
fn nearest(name: &str, object: &Map<String, Value>, fields: Fields) -> Option<&'static str> {
    fields
        .iter()
        .map(|field| field.name)
        .filter(|known| !object.contains_key(*known))
        .map(|known| {
            (
                strsim::damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase()),
                known,
            )
        })
        .filter(|(distance, known)| *distance <= known.len().div_ceil(3))
        .min()
        .map(|(_, known)| known)
}
