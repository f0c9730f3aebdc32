//! The report that `check` writes into a file and `release` reads.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use calico_ipam::{Block, Holder, Inventory, NODE, TYPE, Use};
use calico_model::AffinityOwner;
use serde::{Deserialize, Serialize};

/// All allocated addresses, and the inconsistencies: the format of calicoctl's report, which
/// `release` accepts as well.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Report {
    /// Version of the program that wrote it.
    pub(super) version: String,
    #[serde(rename = "clusterGUID")]
    pub(super) cluster_guid: String,
    datastore_locked: bool,
    /// When ClusterInformation was written.
    cluster_information_revision: String,
    cluster_type: String,
    /// By address; each list has one entry.
    pub(super) allocations: BTreeMap<IpAddr, Vec<Allocation>>,
    /// Handles that no block names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) leaked_handles: Vec<LeakedHandle>,
    /// All problems, in words. Calicoctl's report does not have this field.
    pub(super) problems: Vec<String>,
}

/// An allocated address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Allocation {
    ip: String,
    /// The handle of the allocation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) handle: String,
    /// The block's sequence number at the allocation.
    pub(super) sequence_number: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pod: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    /// The node of the allocation.
    #[serde(skip_serializing_if = "String::is_empty")]
    node: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    r#type: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    creation_timestamp: String,
    /// False only for a leaked address.
    pub(super) in_use: bool,
    /// Whether the block belongs to another node.
    borrowed: bool,
    /// The endpoints and nodes that use it; without users it is `null`, as Go writes it.
    owners: Option<Vec<String>>,
}

/// A handle that no block names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct LeakedHandle {
    #[serde(rename = "ID")]
    pub(super) id: String,
    /// The revision of its last write.
    revision: String,
}

impl Report {
    /// Makes the report of an inventory and its problems.
    pub(super) fn of(inventory: &Inventory, problems: &[String]) -> Self {
        let mut report = Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster_guid: inventory.cluster_guid().to_owned(),
            problems: problems.to_vec(),
            ..Self::default()
        };
        if let Some((information, written)) = &inventory.information {
            report.datastore_locked = information.datastore_ready == Some(false);
            report.cluster_information_revision = written.to_string();
            report.cluster_type.clone_from(&information.cluster_type);
        }
        let mut named = BTreeSet::new();
        for block in inventory.blocks.values() {
            for (holder, used) in of_block(inventory, block) {
                named.extend(holder.handle.clone());
                let address = holder.given.address;
                let found = Allocation::of(inventory, block, holder, used);
                report.allocations.insert(address, vec![found]);
            }
        }
        let leaked = inventory.handles.keys().filter(|id| !named.contains(*id));
        report.leaked_handles = leaked
            .map(|id| LeakedHandle {
                id: id.clone(),
                revision: inventory.handle_written(id).to_string(),
            })
            .collect();
        report
    }

    /// Reads a report from a file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Writes the report into a file.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = format!("{}\n", serde_json::to_string_pretty(self)?);
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }
}

impl Allocation {
    fn of(inventory: &Inventory, block: &Block, holder: Holder, used: Use) -> Self {
        let attribute = |key: &str| holder.attributes.get(key).cloned().unwrap_or_default();
        let owner = match block.owner() {
            Some(AffinityOwner::Host(host)) => host,
            Some(AffinityOwner::Virtual(_)) | None => String::new(),
        };
        let node = Some(attribute(NODE)).filter(|node| !node.is_empty());
        let node = node.unwrap_or_else(|| owner.clone());
        let owners = inventory.users.get(&holder.given.address);
        Self {
            ip: holder.given.address.to_string(),
            sequence_number: holder.given.sequence,
            pod: attribute("pod"),
            namespace: attribute("namespace"),
            r#type: attribute(TYPE),
            creation_timestamp: attribute("timestamp"),
            in_use: matches!(used, Use::Used | Use::Kept),
            borrowed: node != owner,
            owners: owners.map(|owners| owners.iter().cloned().collect()),
            handle: holder.handle.unwrap_or_default(),
            node,
        }
    }
}

/// Returns the holder of each address, with the use of the address.
pub(super) fn holders(inventory: &Inventory) -> Vec<(Holder, Use)> {
    let blocks = inventory.blocks.values();
    blocks
        .flat_map(|block| of_block(inventory, block))
        .collect()
}

fn of_block(inventory: &Inventory, block: &Block) -> Vec<(Holder, Use)> {
    let taken = block.value().taken();
    let holders = taken.filter_map(|(address, known)| {
        let used = inventory.use_of(block, address, known?);
        Some((block.holder(address)?, used))
    });
    holders.collect()
}
