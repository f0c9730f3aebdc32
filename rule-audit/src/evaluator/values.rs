//! Values of stored resources that several of the readers need.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::packet::protocol;

/// ICMPv6 types between a workload and its host: multicast listeners, solicitations, advertisements of
/// neighbors.
pub(super) const DISCOVERY: [u128; 7] = [130, 131, 132, 133, 135, 136, 143];

/// Labels of a resource.
pub(super) type Labels = BTreeMap<String, String>;

/// The label with the namespace of an endpoint or network set.
pub(super) const NAMESPACE: &str = "projectcalico.org/namespace";
/// The label with its service account.
pub(super) const SERVICE_ACCOUNT: &str = "projectcalico.org/serviceaccount";
/// The prefix of labels that are inherited from a namespace.
pub(super) const OF_NAMESPACE: &str = "pcns.";
/// The prefix of labels that are inherited from a service account.
pub(super) const OF_ACCOUNT: &str = "pcsa.";
/// The label with the orchestrator of an endpoint.
pub(super) const ORCHESTRATOR: &str = "projectcalico.org/orchestrator";

/// Returns labels; those without a text as value are left out.
pub(super) fn labels(value: &Value) -> BTreeMap<String, String> {
    let labels = value.as_object().into_iter().flatten();
    let labels =
        labels.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    labels.collect()
}

/// Returns the texts of a list.
pub(super) fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(|one| Some(one.as_str()?.to_owned()))
        .collect()
}

/// Returns the number of a protocol that is given by name or number.
pub(super) fn protocol_number(value: &Value) -> Option<u128> {
    if let Some(number) = value.as_u64() {
        return (number <= 255).then_some(number.into());
    }
    let text = value.as_str()?;
    if let Ok(number) = text.parse::<u8>() {
        return Some(number.into());
    }
    Some(match &*text.to_ascii_lowercase() {
        "icmp" => protocol::ICMP,
        "tcp" => protocol::TCP,
        "udp" => protocol::UDP,
        "icmpv6" => protocol::ICMPV6,
        "sctp" => protocol::SCTP,
        "udplite" => 136,
        _ => return None,
    })
}
