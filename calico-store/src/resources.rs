//! Creates, replaces, applies, reads and deletes resources in a store as Calico's clients do.
//!
//! This module checks the rules that the model cannot check on a single resource: overlapping
//! pools, the tier of a policy, resources that only the daemons may write. Resources are JSON
//! objects, accepted as users write them and returned in the form of [`calico_model::shown`].

mod apply;
mod initialize;
mod metadata;
mod rules;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use calico_model::{
    DEFAULT_ALLOW_PROFILE, EncodeError, Kind, ParseError, ProfileSpec, Resource, ResourceKey,
    Scope, encode_over, encode_strict, shown,
};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::kv::{KeyRange, KeyValue, LeaseId, Revision};
use crate::limits::REPLACE_ATTEMPTS_MAX;
use crate::port::Store;

pub use apply::{Applied, Effect, Outcome};
pub use metadata::complete;
pub use rules::Planned;

/// The resources of a store. Cheap to clone.
#[derive(Clone)]
pub struct Resources {
    store: Arc<dyn Store>,
}

/// A stored resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Its key.
    pub key: ResourceKey,
    /// The resource in the form shown to users.
    pub value: Value,
    /// Revision of its last write.
    pub revision: Revision,
}

/// The stored resources of a kind.
#[derive(Debug, Default)]
pub struct Items {
    /// The readable ones, in the order of their keys.
    pub items: Vec<Item>,
    /// The unreadable ones: key and error.
    pub unreadable: Vec<(String, ParseError)>,
    /// The revision of the list.
    pub revision: Revision,
}

/// Why an operation on a resource failed.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// The resource already exists.
    #[error("{} already exists", named(.0))]
    Exists(ResourceKey),
    /// The resource does not exist.
    #[error("{} does not exist", named(.0))]
    Missing(ResourceKey),
    /// The resource has been written since it was read.
    #[error(
        "{}: resource version {given} is out of date, the latest is {latest}: another client has \
         written it; read it again and make the change there",
        named(.key)
    )]
    Stale {
        /// The resource.
        key: ResourceKey,
        /// The version on which the change was based.
        given: String,
        /// The stored version.
        latest: Revision,
    },
    /// Concurrent writes prevented the change in every attempt.
    #[error("{}: others write it at the same time; try again", named(.0))]
    Contended(ResourceKey),
    /// The operation is forbidden.
    #[error("{}: {reason}", named(.key))]
    Refused {
        /// The resource.
        key: ResourceKey,
        /// The reason.
        reason: Cow<'static, str>,
    },
    /// The resource violates the model.
    #[error(transparent)]
    Invalid(#[from] EncodeError),
    /// The stored resource cannot be parsed.
    #[error("{}: {error}", named(.key))]
    Unreadable {
        /// The resource.
        key: ResourceKey,
        /// The error.
        error: ParseError,
    },
    /// The store returned an error.
    #[error("the store: {0}")]
    Store(#[from] Error),
}

impl ResourceError {
    pub(crate) fn refused(key: &ResourceKey, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Refused {
            key: key.clone(),
            reason: reason.into(),
        }
    }
}

/// Returns kind and name for messages: `Node(n1)`, `NetworkSet(prod/dbs)`.
pub fn named(key: &ResourceKey) -> String {
    match key.namespace() {
        Some(namespace) => format!("{}({namespace}/{})", key.kind(), key.name()),
        None => format!("{}({})", key.kind(), key.name()),
    }
}

impl From<Arc<dyn Store>> for Resources {
    fn from(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

impl Resources {
    /// Returns the resources of this store.
    pub fn new(store: impl Store + 'static) -> Self {
        Self {
            store: Arc::new(store),
        }
    }

    /// Returns the store.
    pub fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    /// Creates a resource that must not exist. The first node makes the datastore ready, see
    /// [`Self::initialize`].
    pub async fn create(&self, resource: Value) -> Result<Item, ResourceError> {
        let given = version_in(&resource);
        let (key, value) = encode_strict(without_history(resource))?;
        if given.is_some() {
            let reason = "metadata.resourceVersion must not be set when a resource is created";
            return Err(ResourceError::refused(&key, reason));
        }
        rules::to_write(&key)?;
        if self.find(&key).await?.is_some() {
            return Err(ResourceError::Exists(key));
        }
        rules::to_create(self, &key, &value, &Planned::default()).await?;
        if key.kind() == Kind::Node {
            self.initialize().await?;
        }
        let octets = Bytes::from(complete(value, &Value::Null).to_string());
        let at = Bytes::from(key.to_string());
        match self.store.create(at, octets.clone(), LeaseId::NONE).await {
            Ok(revision) => item(key, &octets, revision),
            Err(Error::Conflict { .. }) => Err(ResourceError::Exists(key)),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces an existing resource. With a version in its metadata, only that version. Spec,
    /// labels and annotations are replaced as a whole. The rest of the metadata stays, and so does
    /// the status if none is given.
    pub async fn replace(&self, resource: Value) -> Result<Item, ResourceError> {
        let given = version_in(&resource);
        let resource = without_history(resource);
        let key = key_of(&resource)?;
        rules::to_write(&key)?;
        let replace = |key: &ResourceKey, found: &[u8]| {
            // An unparsable value is overwritten.
            let stored = serde_json::from_slice(found).unwrap_or_default();
            let (_, value) = encode_over(resource.clone(), &stored)?;
            rules::to_replace(key, &stored, &value)?;
            Ok(Write::Put(merged(value, &stored).to_string().into()))
        };
        let written = self.write_over(&key, given.as_deref(), replace).await?;
        item(written.key, &written.octets, written.revision)
    }

    /// Checks a resource that is to be created together with the others of its manifest.
    /// [`Self::create`] itself rejects an existing one.
    pub async fn check_create(
        &self,
        resource: Value,
        planned: &Planned,
    ) -> Result<(), ResourceError> {
        let (key, value) = encode_strict(resource)?;
        if !rules::depend_on_others(key.kind()) || self.find(&key).await?.is_some() {
            return Ok(());
        }
        rules::to_create(self, &key, &value, planned).await
    }

    /// Checks a resource that is to replace the stored one. [`Self::replace`] itself rejects a
    /// missing one.
    pub async fn check_replace(&self, resource: Value) -> Result<(), ResourceError> {
        let strict = encode_strict(resource.clone());
        if matches!(&strict, Ok((key, _)) if !rules::depend_on_others(key.kind())) {
            return Ok(());
        }
        let Some((key, found)) = self.find(&key_of(&resource)?).await? else {
            return Ok(strict.map(drop)?);
        };
        let stored = serde_json::from_slice(&found.value).unwrap_or_default();
        let (_, value) = encode_over(resource, &stored)?;
        rules::to_replace(&key, &stored, &value)
    }

    /// Checks a resource that is to be created or replaced together with the others of its
    /// manifest.
    pub async fn check_apply(
        &self,
        resource: Value,
        planned: &Planned,
    ) -> Result<(), ResourceError> {
        self.check_replace(resource.clone()).await?;
        match encode_strict(resource.clone()) {
            Ok(_) => self.check_create(resource, planned).await,
            // Its unknown fields are already stored, so it exists.
            Err(_) => Ok(()),
        }
    }

    /// Deletes a resource, and returns its last state. With a version, only that one.
    pub async fn delete(
        &self,
        key: &ResourceKey,
        version: Option<&str>,
    ) -> Result<Item, ResourceError> {
        rules::to_delete(self, key).await?;
        let delete = |_: &ResourceKey, _: &[u8]| Ok(Write::Delete);
        let deleted = self.write_over(key, version, delete).await?;
        // An unparsable value is deleted nevertheless.
        let value = shown(&deleted.key, &deleted.octets, deleted.revision.0);
        Ok(Item {
            key: deleted.key,
            value: value.unwrap_or_default(),
            revision: deleted.revision,
        })
    }

    /// Reads a resource.
    pub async fn get(&self, key: &ResourceKey) -> Result<Item, ResourceError> {
        if is_default_profile(key) {
            return Ok(default_profile());
        }
        match self.find(key).await? {
            Some((key, found)) => item(key, &found.value, found.mod_revision),
            None => Err(ResourceError::Missing(key.clone())),
        }
    }

    /// Reads a resource. If a version is given, it must be the latest.
    pub async fn get_version(
        &self,
        key: &ResourceKey,
        version: Option<&str>,
    ) -> Result<Item, ResourceError> {
        let item = self.get(key).await?;
        up_to_date(&item.key, version, item.revision)?;
        Ok(item)
    }

    /// Changes a resource as it is stored, including its unknown fields. `change` returns whether
    /// there is something to write. With a version, only that one.
    pub async fn patch(
        &self,
        key: &ResourceKey,
        version: Option<&str>,
        mut change: impl FnMut(&mut Value) -> bool,
    ) -> Result<Item, ResourceError> {
        rules::to_write(key)?;
        let mut value = Value::Null;
        let patch = |key: &ResourceKey, found: &[u8]| {
            value =
                serde_json::from_slice(found).map_err(|error| unreadable(key.clone(), error))?;
            Ok(match change(&mut value) {
                true => Write::Put(value.to_string().into()),
                false => Write::Nothing,
            })
        };
        let written = self.write_over(key, version, patch).await?;
        Ok(Item {
            key: written.key,
            value,
            revision: written.revision,
        })
    }

    /// Reads the stored value of a resource, also of one with mistakes; `null` if there is none.
    pub async fn stored(&self, resource: &Value) -> Result<Value, ResourceError> {
        let part = |field: &str| resource["metadata"][field].as_str();
        let kind = resource["kind"].as_str().and_then(Kind::from_name);
        let (Some(kind), Some(name)) = (kind, part("name")) else {
            return Ok(Value::Null);
        };
        let Ok(key) = ResourceKey::new(kind, part("namespace"), name) else {
            return Ok(Value::Null);
        };
        let found = self.find(&key).await?;
        let value = found.map(|(_, found)| serde_json::from_slice(&found.value));
        Ok(value.and_then(Result::ok).unwrap_or_default())
    }

    /// Reads all resources of a kind, or of a kind in a namespace.
    pub async fn list(&self, kind: Kind, namespace: Option<&str>) -> Result<Items, ResourceError> {
        let mut prefix = kind.prefix();
        if let (Scope::Namespaced, Some(namespace)) = (kind.scope(), namespace) {
            prefix.push_str(namespace);
            prefix.push('/');
        }
        let listing = self.store.list(KeyRange::prefix(prefix)).await?;
        let mut items = Items {
            revision: listing.header.revision,
            ..Items::default()
        };
        for found in listing.items {
            let text = String::from_utf8_lossy(&found.key).into_owned();
            // A key that does not belong to the model is skipped.
            let Ok(calico_model::Key::Resource(key)) = text.parse() else {
                continue;
            };
            match shown(&key, &found.value, found.mod_revision.0) {
                Ok(value) => items.items.push(Item {
                    key,
                    value,
                    revision: found.mod_revision,
                }),
                Err(error) => items.unreadable.push((text, error)),
            }
        }
        if kind == Kind::Profile {
            items.items.push(default_profile());
            items.items.sort_by(|a, b| a.key.cmp(&b.key));
        }
        Ok(items)
    }

    /// Applies the change that `write` returns for the stored value. If another client writes at the
    /// same time, reads the new value and calls `write` again. With a version, changes that version
    /// only.
    async fn write_over(
        &self,
        key: &ResourceKey,
        version: Option<&str>,
        mut write: impl FnMut(&ResourceKey, &[u8]) -> Result<Write, ResourceError>,
    ) -> Result<Written, ResourceError> {
        for _ in 0..REPLACE_ATTEMPTS_MAX {
            let Some((key, found)) = self.find(key).await? else {
                return Err(ResourceError::Missing(key.clone()));
            };
            let latest = found.mod_revision;
            // Also in later attempts, so that the error names the current version.
            up_to_date(&key, version, latest)?;
            let (store, none) = (&self.store, LeaseId::NONE);
            let (octets, written) = match write(&key, &found.value)? {
                Write::Put(octets) => {
                    let written = store.update(found.key, octets.clone(), none, latest).await;
                    (octets, written)
                }
                Write::Delete => {
                    let deleted = store.delete_at(found.key, latest).await;
                    (found.value, deleted.map(|_| latest))
                }
                Write::Nothing => (found.value, Ok(latest)),
            };
            match written {
                Ok(revision) => {
                    return Ok(Written {
                        key,
                        octets,
                        revision,
                    });
                }
                Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ResourceError::Contended(key.clone()))
    }

    /// Reads the value of a key; for a policy also the key of an older writer.
    async fn find(
        &self,
        key: &ResourceKey,
    ) -> Result<Option<(ResourceKey, KeyValue)>, ResourceError> {
        let found = self.store.get(key.to_string().into()).await?;
        if let Some(found) = found {
            return Ok(Some((key.clone(), found)));
        }
        if !key.kind().is_policy() {
            return Ok(None);
        }
        let name = format!("default.{}", key.name());
        let Ok(older) = ResourceKey::new(key.kind(), key.namespace(), &name) else {
            return Ok(None);
        };
        let found = self.store.get(older.to_string().into()).await?;
        Ok(found.map(|found| (older, found)))
    }
}

/// A change of a stored value.
enum Write {
    Put(Bytes),
    Delete,
    Nothing,
}

/// The stored resource after a write, or before its deletion.
struct Written {
    key: ResourceKey,
    octets: Bytes,
    revision: Revision,
}

impl std::fmt::Debug for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resources").finish_non_exhaustive()
    }
}

fn item(key: ResourceKey, octets: &[u8], revision: Revision) -> Result<Item, ResourceError> {
    match shown(&key, octets, revision.0) {
        Ok(value) => Ok(Item {
            key,
            value,
            revision,
        }),
        Err(error) => Err(ResourceError::Unreadable { key, error }),
    }
}

/// Returns the key of a resource; its unknown fields may already be stored. All other faults are
/// returned as errors.
fn key_of(resource: &Value) -> Result<ResourceKey, EncodeError> {
    match encode_over(resource.clone(), resource) {
        Ok((key, _)) => Ok(key),
        Err(_) => encode_strict(resource.clone()).map(|(key, _)| key),
    }
}

fn up_to_date(
    key: &ResourceKey,
    given: Option<&str>,
    latest: Revision,
) -> Result<(), ResourceError> {
    match given {
        Some(given) if given != latest.to_string() => Err(ResourceError::Stale {
            key: key.clone(),
            given: given.to_owned(),
            latest,
        }),
        _ => Ok(()),
    }
}

fn unreadable(key: ResourceKey, source: serde_json::Error) -> ResourceError {
    let error = ParseError {
        kind: key.kind().name(),
        field: ".".to_owned(),
        source,
    };
    ResourceError::Unreadable { key, error }
}

fn metadata(resource: &mut Value) -> Option<&mut Map<String, Value>> {
    resource.get_mut("metadata")?.as_object_mut()
}

/// Returns the version in a resource, if it has one.
pub fn version_in(resource: &Value) -> Option<String> {
    match &resource["metadata"]["resourceVersion"] {
        Value::String(version) if !version.is_empty() => Some(version.clone()),
        // In YAML, without quotes.
        Value::Number(version) => Some(version.to_string()),
        _ => None,
    }
}

/// Removes the metadata that only the store sets, because a user may pass a copy of a stored
/// resource.
fn without_history(mut resource: Value) -> Value {
    if let Some(metadata) = metadata(&mut resource) {
        metadata.remove("uid");
        metadata.remove("creationTimestamp");
        metadata.remove("resourceVersion");
    }
    resource
}

/// Returns the value to store in place of an existing one.
fn merged(mut value: Value, stored: &Value) -> Value {
    if let (Some(new), Some(kept)) = (metadata(&mut value), stored["metadata"].as_object()) {
        let mut all = kept.clone();
        for field in ["labels", "annotations"] {
            match new.remove(field) {
                Some(given) => all.insert(field.to_owned(), given),
                None => all.remove(field),
            };
        }
        // Missing fields are filled in.
        for field in ["name", "namespace"] {
            if let Some(given) = new.remove(field) {
                all.entry(field).or_insert(given);
            }
        }
        *new = all;
    }
    complete(value, stored)
}

fn is_default_profile(key: &ResourceKey) -> bool {
    key.kind() == Kind::Profile && key.name() == DEFAULT_ALLOW_PROFILE
}

/// Returns the profile that exists without being stored.
fn default_profile() -> Item {
    let profile = Resource::<ProfileSpec>::default_allow();
    // A constant: it has a key, and is JSON.
    let key = match ResourceKey::new(Kind::Profile, None, DEFAULT_ALLOW_PROFILE) {
        Ok(key) => key,
        Err(error) => unreachable!("{error}"),
    };
    Item {
        key,
        value: serde_json::to_value(profile).unwrap_or_default(),
        revision: Revision(1),
    }
}
