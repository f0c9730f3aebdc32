//! The keys of the data model in the datastore.

pub(crate) mod endpoint_name;
pub(crate) mod error;
pub(crate) mod kind;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use crate::ipam::IpamKey;
use crate::key::error::KeyError;
use crate::key::kind::{Kind, Scope};
use crate::status::StatusKey;

/// Prefix of every resource's key.
pub const RESOURCES_PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

/// Prefix of all keys of the data model.
const ROOT: &str = "/calico/";

/// Prefix of the agents' reports.
const STATUS_ROOT: &str = "/calico/felix/";

/// A key of the data model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A resource.
    Resource(ResourceKey),
    /// A report of an agent.
    Status(StatusKey),
    /// Data of address management.
    Ipam(IpamKey),
    /// Any other key below `/calico/`, kept as it is.
    Other(String),
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if let Some(path) = text.strip_prefix(RESOURCES_PREFIX) {
            return ResourceKey::from_path(path).map(Self::Resource);
        }
        if text.starts_with(STATUS_ROOT) {
            return text.parse().map(Self::Status);
        }
        if let Ok(key) = text.parse() {
            return Ok(Self::Ipam(key));
        }
        match text.strip_prefix(ROOT) {
            Some(rest) if !rest.is_empty() => Ok(Self::Other(text.to_owned())),
            _ => Err(KeyError::Foreign),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(key) => key.fmt(f),
            Self::Status(key) => key.fmt(f),
            Self::Ipam(key) => key.fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// The key of a resource: its kind, its namespace where the kind has namespaces, and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    kind: Kind,
    namespace: Option<String>,
    name: String,
}

impl ResourceKey {
    /// Returns the key of a resource. Fails if the namespace does not fit the kind's scope, or if a
    /// part is empty or contains a slash.
    pub fn new(kind: Kind, namespace: Option<&str>, name: &str) -> Result<Self, KeyError> {
        if namespace.is_some() != (kind.scope() == Scope::Namespaced) {
            return Err(KeyError::Scope(kind));
        }
        for part in namespace.iter().copied().chain([name]) {
            if part.is_empty() || part.contains('/') {
                return Err(KeyError::Part);
            }
        }
        Ok(Self {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        })
    }

    fn from_path(path: &str) -> Result<Self, KeyError> {
        let (plural, rest) = path.split_once('/').ok_or(KeyError::Part)?;
        let kind = Kind::from_plural(plural).ok_or(KeyError::UnknownKind)?;
        match kind.scope() {
            Scope::Cluster if rest.contains('/') => Err(KeyError::Scope(kind)),
            Scope::Cluster => Self::new(kind, None, rest),
            Scope::Namespaced => {
                let (namespace, name) = rest.split_once('/').ok_or(KeyError::Scope(kind))?;
                Self::new(kind, Some(namespace), name)
            }
        }
    }

    /// Returns the kind of the resource.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the namespace, for kinds that have one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the name of the resource.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(RESOURCES_PREFIX)?;
        f.write_str(self.kind.plural())?;
        if let Some(namespace) = &self.namespace {
            write!(f, "/{namespace}")?;
        }
        write!(f, "/{}", self.name)
    }
}
