//! ClusterInformation: the identity and state of the cluster; the only object is `default`.

use serde::{Deserialize, Serialize};

use super::{Metadata, Spec, mismatch};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, or_default};
use crate::validate::{Faults, Invalid};

/// Spec of the cluster's description.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInformationSpec {
    /// A random id of the cluster.
    #[serde(
        rename = "clusterGUID",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub cluster_guid: String,
    /// The orchestrators of the cluster, comma-separated.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub cluster_type: String,
    /// Version of the software that initialized it.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub calico_version: String,
    /// Whether the datastore may be applied, see [`Self::is_ready`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastore_ready: Option<bool>,
    /// The variant of the software.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub variant: String,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl ClusterInformationSpec {
    /// Returns whether the datastore may be applied, which must be set explicitly: a datastore
    /// without the field is not filled yet.
    pub fn is_ready(&self) -> bool {
        self.datastore_ready == Some(true)
    }
}

impl Spec for ClusterInformationSpec {
    const KIND: Option<Kind> = Some(Kind::ClusterInformation);

    fn validate(&self, metadata: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        if metadata.name != "default" {
            faults.push("metadata.name", mismatch(&metadata.name, "default"));
        }
        faults.0
    }
}
