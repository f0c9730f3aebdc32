//! The envelope of a resource, and the interface of every spec.

pub(crate) mod bfd_configuration;
pub(crate) mod bgp_configuration;
pub(crate) mod bgp_filter;
pub(crate) mod bgp_peer;
pub(crate) mod cluster_information;
pub(crate) mod felix_configuration;
pub(crate) mod ip_pool;
pub(crate) mod ip_reservation;
pub(crate) mod ipam_configuration;
pub(crate) mod network_policy;
pub(crate) mod network_set;
pub(crate) mod node;
pub(crate) mod policy;
pub(crate) mod profile;
pub(crate) mod qos_controls;
pub(crate) mod rule;
pub(crate) mod shown;
pub(crate) mod strict;
#[cfg(test)]
mod tests;
pub(crate) mod workload_endpoint;

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::key::ResourceKey;
use crate::key::error::KeyError;
use crate::key::kind::{Kind, Scope};
use crate::lenient::{Unknown, or_default};
use crate::parse_error::ParseError;
use crate::secret::{is_secretive, without_values};
use crate::validate::{Faults, Invalid, LABEL_KEY, LABEL_VALUE, NAME, Problem};

/// The `apiVersion` of every resource.
pub const API_VERSION: &str = "projectcalico.org/v3";

/// The part of a resource that its kind defines.
pub trait Spec: Debug + Clone + PartialEq + Default + Serialize + DeserializeOwned {
    /// Its kind; `None` if only the envelope determines it (see [`RawSpec`]).
    const KIND: Option<Kind>;

    /// Returns its faults that its types do not exclude.
    fn validate(&self, metadata: &Metadata) -> Vec<Invalid>;

    /// Sets the fields that writers must set in such a resource.
    fn complete(&mut self, kind: Kind, metadata: &mut Metadata) {
        let _ = (kind, metadata);
    }
}

/// A resource: envelope and spec.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "S: Spec")]
pub struct Resource<S> {
    /// Name of the kind; ignored if the spec's type determines it.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub kind: String,
    /// Version of the model; ignored.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub api_version: String,
    /// Name, labels and other metadata.
    #[serde(default, deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// The part that the kind defines.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: S,
    /// The status reported by other programs, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Value>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Name, labels and other metadata of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The name, unique within kind and namespace.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// The namespace, for namespaced kinds; otherwise empty.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub namespace: String,
    /// A random UUID, set at the creation of the resource.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub uid: String,
    /// Time of creation: RFC 3339, UTC, seconds.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub creation_timestamp: String,
    /// Labels, which selectors match.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels: BTreeMap<String, String>,
    /// Annotations, without a meaning for selectors.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// The resource's revision in the datastore as text, for callers; never stored.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub resource_version: String,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A spec of any kind, kept unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawSpec(pub serde_json::Map<String, Value>);

impl Spec for RawSpec {
    const KIND: Option<Kind> = None;

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        Vec::new()
    }

    fn complete(&mut self, kind: Kind, metadata: &mut Metadata) {
        if kind.is_policy() {
            policy::complete(&mut self.0, metadata);
        }
    }
}

impl ParseError {
    fn whole<S: Spec>(source: serde_json::Error) -> Self {
        Self {
            kind: S::KIND.map_or("resource", Kind::name),
            field: ".".to_owned(),
            source,
        }
    }
}

/// Why a resource was not encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// Its kind is not one of the data model.
    #[error("\"{0}\" is not a kind of resource")]
    UnknownKind(String),
    /// A field has a value of the wrong type or form.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// Fields violate the model.
    #[error("{}", list(.0))]
    Invalid(Vec<Invalid>),
    /// Namespace and kind do not match.
    #[error(transparent)]
    Key(#[from] KeyError),
}

fn list(faults: &[Invalid]) -> String {
    faults
        .iter()
        .map(Invalid::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

impl<S: Spec> Resource<S> {
    /// Returns a resource of a cluster-wide kind.
    pub fn new(name: &str, spec: S) -> Self {
        let mut resource = Self {
            spec,
            ..Self::default()
        };
        resource.metadata.name = name.to_owned();
        if let Some(kind) = S::KIND {
            resource.kind = kind.name().to_owned();
        }
        resource.api_version = API_VERSION.to_owned();
        resource
    }

    /// Returns a resource of a namespaced kind.
    pub fn namespaced(namespace: &str, name: &str, spec: S) -> Self {
        let mut resource = Self::new(name, spec);
        resource.metadata.namespace = namespace.to_owned();
        resource
    }

    /// Parses a stored value. Unknown fields are kept; missing ones and `null` get their defaults. An
    /// error does not quote the value of a field that may hold a secret.
    pub fn parse(octets: &[u8]) -> Result<Self, ParseError> {
        // The path of a field is an allocation, and only an error needs it.
        if let Ok(resource) = serde_json::from_slice(octets) {
            return Ok(resource);
        }
        let mut json = serde_json::Deserializer::from_slice(octets);
        let resource = Self::read(&mut json)?;
        json.end().map_err(ParseError::whole::<S>)?;
        Ok(resource)
    }

    /// Converts a parsed JSON value.
    pub(crate) fn from_value(value: Value) -> Result<Self, ParseError> {
        Self::read(value)
    }

    fn read<'de, D>(deserializer: D) -> Result<Self, ParseError>
    where
        D: serde::Deserializer<'de, Error = serde_json::Error>,
    {
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let field = error.path().to_string();
            let source = error.into_inner();
            ParseError {
                kind: S::KIND.map_or("resource", Kind::name),
                source: match is_secretive(&field) {
                    true => serde_json::Error::custom(without_values(&source.to_string())),
                    false => source,
                },
                field,
            }
        })
    }

    /// Returns the kind; fails if the envelope names an unknown one.
    pub fn kind(&self) -> Result<Kind, EncodeError> {
        S::KIND
            .or_else(|| Kind::from_name(&self.kind))
            .ok_or_else(|| EncodeError::UnknownKind(self.kind.clone()))
    }

    /// Returns its key in the datastore.
    pub fn key(&self) -> Result<ResourceKey, EncodeError> {
        let namespace = Some(self.metadata.namespace.as_str()).filter(|name| !name.is_empty());
        Ok(ResourceKey::new(
            self.kind()?,
            namespace,
            &self.metadata.name,
        )?)
    }

    /// Returns all its faults.
    pub fn validate(&self) -> Result<Vec<Invalid>, EncodeError> {
        let kind = self.kind()?;
        let mut faults = Faults::default();
        if !self.kind.is_empty() && self.kind != kind.name() {
            faults.push("kind", mismatch(&self.kind, kind.name()));
        }
        if !self.api_version.is_empty() && self.api_version != API_VERSION {
            faults.push("apiVersion", mismatch(&self.api_version, API_VERSION));
        }
        self.metadata.validate(kind, &mut faults);
        faults.0.extend(self.spec.validate(&self.metadata));
        Ok(faults.0)
    }

    /// Returns the resource to store: complete, and without fields that are never stored.
    pub fn completed(&self) -> Result<Self, EncodeError> {
        let kind = self.kind()?;
        let mut stored = self.clone();
        stored.spec.complete(kind, &mut stored.metadata);
        stored.kind = kind.name().to_owned();
        stored.api_version = API_VERSION.to_owned();
        stored.metadata.resource_version.clear();
        stored.metadata.unknown.remove("selfLink");
        Ok(stored)
    }

    /// Returns the resource to store, if it has no faults.
    pub(crate) fn checked(&self) -> Result<Self, EncodeError> {
        let stored = self.completed()?;
        // The envelope is checked as given, the rest as it will be stored.
        let mut checked = stored.clone();
        checked.kind.clone_from(&self.kind);
        checked.api_version.clone_from(&self.api_version);
        let faults = checked.validate()?;
        if faults.is_empty() {
            Ok(stored)
        } else {
            Err(EncodeError::Invalid(faults))
        }
    }

    /// Returns the value to store: checked and complete.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let stored = self.checked()?;
        Ok(serde_json::to_vec(&stored).map_err(ParseError::whole::<S>)?)
    }
}

impl Metadata {
    fn validate(&self, kind: Kind, faults: &mut Faults) {
        faults.required("metadata.name", &self.name);
        faults.form("metadata.name", &self.name, NAME);
        match kind.scope() {
            Scope::Namespaced => {
                faults.required("metadata.namespace", &self.namespace);
                faults.form("metadata.namespace", &self.namespace, NAME);
            }
            Scope::Cluster if !self.namespace.is_empty() => {
                faults.push(
                    "metadata.namespace",
                    Problem::Unwanted("the kind has no namespaces"),
                );
            }
            Scope::Cluster => {}
        }
        for (key, value) in &self.labels {
            let field = format!("metadata.labels[{key}]");
            faults.form(field.clone(), key, LABEL_KEY);
            faults.form(field, value, LABEL_VALUE);
        }
        if self.unknown.contains_key("generateName") {
            faults.push(
                "metadata.generateName",
                Problem::Unwanted("names are given, not generated"),
            );
        }
    }
}

fn mismatch(found: &str, expected: &str) -> Problem {
    Problem::Mismatch {
        found: found.to_owned(),
        expected: expected.to_owned(),
    }
}
