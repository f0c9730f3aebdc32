//! What `check` writes into a file, and `release` reads.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use ipam::{Finding, Holder, NODE, Picture, Use};
use serde::{Deserialize, Serialize};

/// All addresses that are taken, and what does not add up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Of the program that wrote it.
    pub(super) version: String,
    /// By address.
    pub(super) allocations: BTreeMap<IpAddr, Allocation>,
    /// Handles that count other than blocks hold.
    pub(super) leaked_handles: Vec<String>,
    /// All that was found, in words.
    pub(super) problems: Vec<String>,
}

/// An address that is taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Allocation {
    /// The handle that it was given to.
    pub(super) handle: Option<String>,
    /// The block's sequence number when it was given.
    pub(super) sequence_number: u64,
    /// The node that it was given on.
    pub(super) node: Option<String>,
    /// What else is known of whom it was given to.
    pub(super) attributes: BTreeMap<String, String>,
    /// False only if it is leaked.
    pub(super) in_use: bool,
    /// The endpoints and nodes that use it.
    pub(super) owners: Vec<String>,
}

impl Report {
    /// The report of a picture and of what was found in it.
    pub(super) fn of(picture: &Picture, problems: &[String]) -> Self {
        let mut allocations = BTreeMap::new();
        for (holder, used) in holders(picture) {
            let owners = picture.users.get(&holder.given.address);
            allocations.insert(
                holder.given.address,
                Allocation {
                    handle: holder.handle,
                    sequence_number: holder.given.sequence,
                    node: holder.attributes.get(NODE).cloned(),
                    attributes: holder.attributes,
                    in_use: matches!(used, Use::Used | Use::Kept),
                    owners: owners.into_iter().flatten().cloned().collect(),
                },
            );
        }
        let handles = ipam::findings(picture)
            .into_iter()
            .filter_map(|found| match found {
                Finding::Miscount { handle, .. } | Finding::Idle { handle, .. } => Some(handle),
                _ => None,
            });
        let mut leaked_handles: Vec<String> = handles.collect();
        leaked_handles.dedup();
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            allocations,
            leaked_handles,
            problems: problems.to_vec(),
        }
    }

    /// Reads a report from a file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Writes it into a file.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = format!("{}\n", serde_json::to_string_pretty(self)?);
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }
}

/// Who has which address, and what is known of its use.
pub(super) fn holders(picture: &Picture) -> Vec<(Holder, Use)> {
    let blocks = picture.blocks.values();
    let holders = blocks.flat_map(|block| {
        let taken = block.value().taken();
        taken.filter_map(|(address, known)| {
            let used = picture.use_of(block, address, known?);
            Some((block.holder(address)?, used))
        })
    });
    holders.collect()
}
