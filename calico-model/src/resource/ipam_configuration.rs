//! IPAMConfiguration: settings of address management as written by users. Address management itself
//! reads [`IpamConfig`](crate::IpamConfig).

use serde::{Deserialize, Serialize};

use super::{Metadata, Spec, mismatch};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, empty_as_none, or_default};
use crate::limits::{COOL_DOWN_S_MAX, HOST_BLOCKS_MAX};
use crate::resource::bgp_configuration::DEFAULT_CONFIGURATION;
use crate::validate::{Faults, Invalid};
use crate::value::words::words;

/// Spec of the settings of address management.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpamConfigurationSpec {
    /// Whether hosts assign addresses from their own blocks only.
    #[serde(default, deserialize_with = "or_default")]
    pub strict_affinity: bool,
    /// Whether hosts claim blocks automatically.
    #[serde(default = "yes")]
    pub auto_allocate_blocks: bool,
    /// Maximum number of blocks of a host; 0 for the built-in number.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub max_blocks_per_host: u32,
    /// Whether virtual machines keep their addresses.
    #[serde(
        rename = "kubeVirtVMAddressPersistence",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub kube_virt_vm_address_persistence: Option<AddressPersistence>,
    /// Time until a released address can be assigned again, in seconds.
    #[serde(
        rename = "ipCooldownSeconds",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub ip_cooldown_seconds: u32,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

words! {
    /// Whether virtual machines keep their addresses.
    AddressPersistence, "one of \"Enabled\" and \"Disabled\"";
    /// They do.
    Enabled "Enabled",
    /// They do not.
    Disabled "Disabled",
}

const fn yes() -> bool {
    true
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde calls"
)]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Default for IpamConfigurationSpec {
    fn default() -> Self {
        Self {
            strict_affinity: false,
            auto_allocate_blocks: true,
            max_blocks_per_host: 0,
            kube_virt_vm_address_persistence: None,
            ip_cooldown_seconds: 0,
            unknown: Unknown::new(),
        }
    }
}

impl Spec for IpamConfigurationSpec {
    const KIND: Option<Kind> = Some(Kind::IpamConfiguration);

    fn validate(&self, metadata: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        if metadata.name != DEFAULT_CONFIGURATION {
            let expected = mismatch(&metadata.name, DEFAULT_CONFIGURATION);
            faults.push("metadata.name", expected);
        }
        if self.max_blocks_per_host > HOST_BLOCKS_MAX {
            let found = self.max_blocks_per_host;
            faults.range("spec.maxBlocksPerHost", found, "0 to 1000000");
        }
        if self.ip_cooldown_seconds > COOL_DOWN_S_MAX {
            let found = self.ip_cooldown_seconds;
            faults.range("spec.ipCooldownSeconds", found, "0 to 1200");
        }
        faults.0
    }
}
