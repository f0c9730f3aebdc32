//! The context of every command: the datastore, and its data about this node.

use calico_model::{ClusterInformationSpec, Kind, ResourceKey};
use calico_store::EtcdStore;
use calico_store::resources::{Item, ResourceError, Resources};
use serde::Deserialize as _;

use crate::config::Config;
use crate::failure::{Code, Failure};

/// The datastore, and a configuration.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) config: &'a Config,
    pub(crate) store: EtcdStore,
    pub(crate) resources: Resources,
}

impl<'a> Site<'a> {
    /// Opens the datastore.
    pub(crate) async fn open(config: &'a Config) -> Result<Self, Failure> {
        let store = EtcdStore::connect(&config.store).await?;
        let resources = Resources::new(store.clone());
        Ok(Self {
            config,
            store,
            resources,
        })
    }

    /// Returns a resource, if it exists.
    pub(crate) async fn find(&self, key: &ResourceKey) -> Result<Option<Item>, Failure> {
        match self.resources.get(key).await {
            Ok(item) => Ok(Some(item)),
            Err(ResourceError::Missing(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails unless `datastoreReady` is set.
    pub(crate) async fn ready(&self) -> Result<(), Failure> {
        let Some(information) = self
            .find(&key(Kind::ClusterInformation, None, "default")?)
            .await?
        else {
            let message = "the store is not set up: it has no ClusterInformation(default)";
            let details = "the first Node that is created sets it up: `cambric apply`";
            return Err(Failure::new(Code::Later, message).details(details));
        };
        let spec = ClusterInformationSpec::deserialize(&information.value["spec"]);
        if !spec.is_ok_and(|spec| spec.is_ready()) {
            let message = "the store is not ready: \
                ClusterInformation(default) does not have datastoreReady: true";
            return Err(Failure::new(Code::Later, message));
        }
        Ok(())
    }
}

/// Returns the key of a resource.
pub(crate) fn key(kind: Kind, namespace: Option<&str>, name: &str) -> Result<ResourceKey, Failure> {
    ResourceKey::new(kind, namespace, name)
        .map_err(|error| Failure::new(Code::Config, format!("{kind} {name}: {error}")))
}

/// Returns the string at this place of a resource's spec.
pub(crate) fn text<'v>(item: &'v Item, field: &str) -> &'v str {
    item.value["spec"][field].as_str().unwrap_or_default()
}
