//! The preview of a staged policy.

use serde::{Deserialize, Serialize};

use super::{FlowRow, RuleOwner};

/// The effect that a staged policy would have on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preview {
    /// Kind and name.
    pub policy: String,
    /// `Set` or `Delete`.
    pub action: String,
    /// The endpoints of this host to which it would apply, or to which the deleted policy applies.
    pub endpoints: Vec<String>,
    /// Parts of it that would have no effect, or another one.
    pub problems: Vec<String>,
    /// Whether the flow log is on.
    pub has_flows: bool,
    /// Flows of the flow log.
    pub flows: u64,
    /// Flows that are allowed now and would be denied.
    pub newly_denied: u64,
    /// Flows that are denied now and would be allowed.
    pub newly_allowed: u64,
    /// Flows of which the verdict is unknown, such as those of host endpoints.
    pub unknown: u64,
    /// The flows with another verdict.
    pub rows: Vec<PreviewRow>,
    /// Rows beyond the limit of one answer.
    pub rows_left_out: u64,
    /// The assumptions of the preview.
    pub notes: Vec<String>,
}

/// Flows that would have another verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PreviewRow {
    /// The row of the flow log.
    pub flow: FlowRow,
    /// Whether the present rules allow it.
    pub now: bool,
    /// The deciding policy or profile.
    pub now_by: RuleOwner,
    /// Whether it would be allowed.
    pub then: bool,
    /// The policy or profile that would decide.
    pub then_by: RuleOwner,
}
