//! IPPool: a range from which addresses are assigned.

use serde::{Deserialize, Serialize};

use super::{Metadata, Spec};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, empty_as_none, is_false, or_default};
use crate::selector::Selector;
use crate::validate::{ALLOWED_USE, ASSIGNMENT_MODE, Faults, Invalid, Problem};
use crate::value::network::Network;

/// Spec of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpPoolSpec {
    /// The range.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub cidr: Option<Network>,
    /// Prefix length of its blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u8>,
    /// When IP-in-IP is used between hosts.
    #[serde(default, deserialize_with = "or_default")]
    pub ipip_mode: EncapsulationMode,
    /// When VXLAN is used between hosts.
    #[serde(default, deserialize_with = "or_default")]
    pub vxlan_mode: EncapsulationMode,
    /// Whether traffic to addresses outside of all pools is masqueraded.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub nat_outgoing: bool,
    /// Whether the assignment of addresses from it is disabled.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub disabled: bool,
    /// Whether BGP advertises its addresses inside the cluster only.
    #[serde(
        rename = "disableBGPExport",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub disable_bgp_export: bool,
    /// The nodes that use it.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub node_selector: Option<Selector>,
    /// The namespaces that use it.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub namespace_selector: Option<Selector>,
    /// The uses of its addresses: `Workload`, `Tunnel`, `LoadBalancer`.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub allowed_uses: Vec<String>,
    /// Whether addresses are assigned from it without naming it: `Automatic`, `Manual`.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub assignment_mode: String,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// When traffic between hosts is encapsulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub enum EncapsulationMode {
    /// Never.
    #[default]
    #[serde(alias = "")]
    Never,
    /// Always.
    Always,
    /// Only to hosts in another subnet.
    CrossSubnet,
}

impl IpPoolSpec {
    /// Returns the prefix length of its blocks: by default 26 for IPv4 and 122 for IPv6.
    pub fn effective_block_size(&self) -> Option<u8> {
        let default = if self.cidr?.address().is_ipv4() {
            26
        } else {
            122
        };
        Some(self.block_size.unwrap_or(default))
    }
}

impl Spec for IpPoolSpec {
    const KIND: Option<Kind> = Some(Kind::IpPool);

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        for (at, allowed) in self.allowed_uses.iter().enumerate() {
            faults.form(format!("spec.allowedUses[{at}]"), allowed, ALLOWED_USE);
        }
        faults.form(
            "spec.assignmentMode",
            &self.assignment_mode,
            ASSIGNMENT_MODE,
        );
        let Some(cidr) = self.cidr else {
            faults.push("spec.cidr", Problem::Missing);
            return faults.0;
        };
        faults.masked("spec.cidr", cidr);
        let (range, expected) = match cidr.address().is_ipv4() {
            true => (20..=32, "20 to 32 (IPv4)"),
            false => (116..=128, "116 to 128 (IPv6)"),
        };
        if let Some(size) = self.effective_block_size() {
            if !range.contains(&size) {
                faults.push(
                    "spec.blockSize",
                    Problem::Form {
                        found: size.to_string(),
                        expected,
                    },
                );
            } else if size < cidr.0.prefix_len() {
                let expected = "at least the prefix length of spec.cidr";
                faults.push(
                    "spec.blockSize",
                    Problem::Form {
                        found: size.to_string(),
                        expected,
                    },
                );
            }
        }
        let tunnels = [self.ipip_mode, self.vxlan_mode];
        if tunnels.iter().all(|mode| *mode != EncapsulationMode::Never) {
            faults.push(
                "spec.vxlanMode",
                Problem::Unwanted("spec.ipipMode is set, and only one can be"),
            );
        }
        faults.0
    }

    fn complete(&mut self, _: Kind, _: &mut Metadata) {
        self.block_size = self.effective_block_size();
        if self.node_selector.is_none() {
            self.node_selector = "all()".parse().ok();
        }
        if self.allowed_uses.is_empty() {
            self.allowed_uses = ["Workload", "Tunnel"].map(str::to_owned).to_vec();
        }
        if self.assignment_mode.is_empty() {
            "Automatic".clone_into(&mut self.assignment_mode);
        }
    }
}
