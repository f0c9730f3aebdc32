//! The initial content of a datastore.

use calico_model::{DEFAULT_TIER, Kind, ResourceKey, encode_strict};
use serde_json::{Value, json};

use super::metadata::{complete, new_uid};
use super::{ResourceError, Resources, Write};
use crate::error::Error;
use crate::kv::LeaseId;
use crate::limits::REPLACE_ATTEMPTS_MAX;

/// The default tiers: name, order, and the action for packets that match no policy of the tier.
pub(super) const TIERS: [(&str, u32, &str); 3] = [
    (DEFAULT_TIER, 1_000_000, "Deny"),
    ("kube-admin", 1_000, "Pass"),
    ("kube-baseline", 10_000_000, "Pass"),
];

impl Resources {
    /// Initializes the datastore if necessary: the ClusterInformation, with a random `clusterGUID`
    /// and `datastoreReady`, and the default tiers. Existing resources stay unchanged.
    pub async fn initialize(&self) -> Result<(), ResourceError> {
        self.describe_cluster().await?;
        for (name, order, action) in TIERS {
            let tier = json!({"kind": "Tier", "metadata": {"name": name},
                "spec": {"order": order, "defaultAction": action}});
            self.put_once(tier).await?;
        }
        Ok(())
    }

    /// Sets `datastoreReady` in a new ClusterInformation without `clusterGUID`, unless one exists.
    /// For programs that fill a new store at each start with content from elsewhere.
    pub async fn declare_ready(&self) -> Result<(), ResourceError> {
        let cluster = json!({"kind": "ClusterInformation", "metadata": {"name": "default"},
            "spec": {"datastoreReady": true}});
        self.put_once(cluster).await.map(drop)
    }

    /// Sets or clears `datastoreReady`; the rest of the ClusterInformation stays.
    ///
    /// # Errors
    ///
    /// The ClusterInformation does not exist or is unparsable: the datastore was not initialized.
    pub async fn set_ready(&self, ready: bool) -> Result<(), ResourceError> {
        let cluster = json!({"kind": "ClusterInformation", "metadata": {"name": "default"}});
        let (key, _) = encode_strict(cluster)?;
        let set = |key: &ResourceKey, found: &[u8]| {
            let mut value: Value = serde_json::from_slice(found).unwrap_or_default();
            let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) else {
                let reason = "the stored value is unreadable and is not changed";
                return Err(ResourceError::refused(key, reason));
            };
            match spec.insert("datastoreReady".into(), ready.into()) == Some(ready.into()) {
                true => Ok(Write::Nothing),
                false => Ok(Write::Put(value.to_string().into())),
            }
        };
        self.write_over(&key, None, set).await.map(drop)
    }

    async fn describe_cluster(&self) -> Result<(), ResourceError> {
        let cluster = |guid: String| {
            json!({"kind": "ClusterInformation", "metadata": {"name": "default"},
                "spec": {"clusterGUID": guid, "datastoreReady": true}})
        };
        for _ in 0..REPLACE_ATTEMPTS_MAX {
            let guid = new_uid().replace('-', "");
            let key = self.put_once(cluster(guid.clone())).await?;
            let fill = |_: &ResourceKey, found: &[u8]| Ok(filled(found, &guid));
            match self.write_over(&key, None, fill).await {
                // Another client has deleted it again.
                Err(ResourceError::Missing(_)) => {}
                written => return written.map(drop),
            }
        }
        let (key, _) = encode_strict(cluster(String::new()))?;
        Err(ResourceError::Contended(key))
    }

    /// Creates a resource unless it exists.
    async fn put_once(&self, resource: Value) -> Result<ResourceKey, ResourceError> {
        let (key, value) = encode_strict(resource)?;
        let at = bytes::Bytes::from(key.to_string());
        if self.store.get(at.clone()).await?.is_none() {
            let octets = complete(value, &Value::Null).to_string().into();
            match self.store.create(at, octets, LeaseId::NONE).await {
                Ok(_) | Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(key)
    }
}

/// Returns the write of the missing fields of a ClusterInformation. A value that is unparsable or has
/// no spec is not repaired.
fn filled(found: &[u8], guid: &str) -> Write {
    let mut value: Value = serde_json::from_slice(found).unwrap_or_default();
    let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) else {
        return Write::Nothing;
    };
    let unnamed = spec.get("clusterGUID").is_none_or(|guid| guid == "");
    let unsaid = spec.get("datastoreReady").is_none_or(Value::is_null);
    if unnamed {
        spec.insert("clusterGUID".into(), guid.into());
    }
    if unsaid {
        spec.insert("datastoreReady".into(), true.into());
    }
    match unnamed || unsaid {
        true => Write::Put(value.to_string().into()),
        false => Write::Nothing,
    }
}

/// Returns whether the resource is a default tier.
pub(super) fn is_tier_of_ours(key: &ResourceKey) -> bool {
    key.kind() == Kind::Tier && TIERS.iter().any(|(name, ..)| *name == key.name())
}
