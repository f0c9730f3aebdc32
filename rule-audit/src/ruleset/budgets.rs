//! Statements that add the interface of a packet to one of Felix's sets.

use serde_json::Value;

/// The set of the rates of new link-local sources.
const LINK_LOCAL_RATES: &str = "link-local-rates";
/// The set of the link-local sources.
const LINK_LOCAL_SEEN: &str = "link-local-sources";
/// The beginning of the name of the set of the rates of records of the flow log; the limit follows.
const FLOW_RATES: &str = "flow-rates-";
/// All other sets that Felix's rules add elements to.
const SETS: [&str; 9] = [
    LINK_LOCAL_RATES,
    LINK_LOCAL_SEEN,
    "fragment-rates",
    "connection-counts",
    "connections-blocked",
    "connections-pressed",
    "next-hop-rates",
    "next-hops-ipv4",
    "next-hops-ipv6",
];

/// The packets that a statement matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    /// The packets of an interface over its budget only.
    Over,
    /// All packets, if the set has room.
    Remembered,
}

/// Returns the packets that a statement matches, if its set is one of Felix's and its key begins with
/// the input interface.
pub(crate) fn budget(body: &Value) -> Option<Budget> {
    let name = set_of(body)?;
    let key = &body["elem"];
    let first = match key.get("concat") {
        Some(parts) => &parts[0],
        None => key,
    };
    let is_known = (SETS.contains(&name) || name.starts_with(FLOW_RATES))
        && matches!(body["op"].as_str(), Some("add" | "update"))
        && first["meta"]["key"] == "iifname";
    let limit = match body
        .get("stmt")
        .map(|stmt| stmt.as_array().map(Vec::as_slice))
    {
        None => return is_known.then_some(Budget::Remembered),
        Some(Some([limit])) => limit,
        Some(_) => return None,
    };
    let inverted = |kind| limit[kind]["inv"] == true;
    (is_known && (inverted("limit") || inverted("ct count"))).then_some(Budget::Over)
}

/// Returns the same for the sets of link-local sources: no other budget is in a compared chain.
pub(super) fn link_local(body: &Value) -> Option<Budget> {
    let wanted = match set_of(body)? {
        LINK_LOCAL_RATES => Budget::Over,
        LINK_LOCAL_SEEN => Budget::Remembered,
        _ => return None,
    };
    budget(body).filter(|found| *found == wanted)
}

/// Returns whether a statement matches the packets beyond the limit of records of the flow log.
pub(super) fn is_record_limit(body: &Value) -> bool {
    let is_of = |name: &str| name.starts_with(FLOW_RATES);
    set_of(body).is_some_and(is_of) && budget(body) == Some(Budget::Over)
}

/// Returns the name of the set of a statement.
pub(super) fn set_of(body: &Value) -> Option<&str> {
    body["set"].as_str()?.strip_prefix('@')
}
