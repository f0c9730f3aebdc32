//! IPReservation: addresses that are never assigned automatically.

use serde::{Deserialize, Serialize};

use super::{Metadata, Spec};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, or_default};
use crate::validate::Invalid;
use crate::value::network::Network;

/// Spec of a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct IpReservationSpec {
    /// The ranges.
    #[serde(
        rename = "reservedCIDRs",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub reserved_cidrs: Vec<Network>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Spec for IpReservationSpec {
    const KIND: Option<Kind> = Some(Kind::IpReservation);

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        Vec::new()
    }
}
