//! The keys that the controller writes.

use std::fmt;

use calico_model::{Key, ResourceKey, ServiceRoutesKey, SliceKey};
use calico_store::resources::named;

/// A key of the datastore that the controller compares with the objects. The order is that of their
/// urgency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The routes of services that a node announces.
    Routes(ServiceRoutesKey),
    /// The members of a service, for Felix.
    Slice(SliceKey),
    /// A resource of Calico.
    Resource(ResourceKey),
}

impl Target {
    /// Parses a key; `None` for keys that the controller does not write.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(key) = text.parse() {
            return Some(Self::Routes(key));
        }
        if let Ok(key) = text.parse() {
            return Some(Self::Slice(key));
        }
        match text.parse() {
            Ok(Key::Resource(key)) => Some(Self::Resource(key)),
            _ => None,
        }
    }

    /// Returns the resource, if it is one.
    pub const fn resource(&self) -> Option<&ResourceKey> {
        match self {
            Self::Resource(key) => Some(key),
            Self::Routes(_) | Self::Slice(_) => None,
        }
    }

    /// Returns the name for operators.
    pub fn name(&self) -> String {
        match self {
            Self::Routes(key) => format!("services of node {}", key.node),
            Self::Slice(key) => format!("members of service {}, slice {}", key.service, key.slice),
            Self::Resource(key) => named(key),
        }
    }
}

impl From<ResourceKey> for Target {
    fn from(key: ResourceKey) -> Self {
        Self::Resource(key)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Routes(key) => key.fmt(f),
            Self::Slice(key) => key.fmt(f),
            Self::Resource(key) => key.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_as_they_are_written() {
        for text in [
            "/cambric/announcements/v1/n1/services",
            "/cambric/services/v1/prod/web/web-1",
            "/calico/resources/v3/projectcalico.org/profiles/kns.prod",
        ] {
            let target = Target::parse(text).expect("a key");
            assert_eq!(target.to_string(), text);
        }
        assert_eq!(Target::parse("/cambric/kubernetes/v1/server"), None);
    }
}
