//! BGPFilter: import and export policy for peers.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::{Metadata, Spec};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, empty_as_none, or_default};
use crate::limits::{AS_PATH_PREPENDS_MAX, FILTER_OPERATIONS_MAX, ROUTE_PRIORITY_MAX};
use crate::validate::{Faults, INTERFACE_GLOB, Invalid, Problem};
use crate::value::asn::AsNumber;
use crate::value::community::CommunityValue;
use crate::value::network::Network;
use crate::value::words::words;

/// Spec of a filter: rules by direction and family, in order; the first that matches decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BgpFilterSpec {
    /// Rules for advertised IPv4 routes.
    #[serde(
        rename = "exportV4",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub export_v4: Vec<BgpFilterRule>,
    /// Rules for received IPv4 routes.
    #[serde(
        rename = "importV4",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub import_v4: Vec<BgpFilterRule>,
    /// Rules for advertised IPv6 routes.
    #[serde(
        rename = "exportV6",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub export_v6: Vec<BgpFilterRule>,
    /// Rules for received IPv6 routes.
    #[serde(
        rename = "importV6",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub import_v6: Vec<BgpFilterRule>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A rule. It matches routes that meet every given condition; one without conditions matches all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BgpFilterRule {
    /// The range that the prefix is compared with, by [`Self::match_operator`].
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub cidr: Option<Network>,
    /// How the prefix is compared.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub match_operator: Option<MatchOperator>,
    /// Lengths of the prefix; see [`Self::lengths`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_length: Option<PrefixLength>,
    /// The source of the route.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub source: Option<RouteSource>,
    /// The interface of the route; `*` matches any characters.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub interface: String,
    /// The type of the peer that the route is sent to or received from.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub peer_type: Option<PeerType>,
    /// A community of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communities: Option<CommunityMatch>,
    /// The first AS numbers of the route's AS path.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub as_path_prefix: Vec<AsNumber>,
    /// The route's metric: 2147483647 less its LOCAL_PREF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The action for the route.
    pub action: FilterAction,
    /// Changes to an accepted route.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub operations: Vec<FilterOperation>,
    /// Unknown fields. They may be conditions, so that a rule with any of them cannot be evaluated.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Bounds of a prefix's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixLength {
    /// The minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u8>,
    /// The maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u8>,
}

words! {
    /// How a route's prefix is compared with a range.
    MatchOperator, "one of \"Equal\", \"NotEqual\", \"In\" and \"NotIn\"";
    /// It is equal.
    Equal "Equal",
    /// It is not equal.
    NotEqual "NotEqual",
    /// It is equal or lies inside.
    In "In",
    /// It is neither equal nor inside.
    NotIn "NotIn",
}

words! {
    /// The source of a route.
    RouteSource, "\"RemotePeers\"";
    /// From a peer.
    RemotePeers "RemotePeers",
}

words! {
    /// The type of a peer.
    PeerType, "one of \"eBGP\" and \"iBGP\"";
    /// A peer in another AS.
    External "eBGP",
    /// A peer in the own AS.
    Internal "iBGP",
}

words! {
    /// The action of a rule.
    FilterAction, "one of \"Accept\" and \"Reject\"";
    /// The route is accepted.
    Accept "Accept",
    /// The route is rejected.
    Reject "Reject",
}

/// Communities to look for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommunityMatch {
    /// One community; the list is reserved for extensions.
    pub values: Vec<CommunityValue>,
}

/// A change of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum FilterOperation {
    /// Add a community.
    AddCommunity {
        /// The community.
        value: CommunityValue,
    },
    /// Prepend AS numbers to the path, in this order.
    #[serde(rename = "prependASPath")]
    PrependAsPath {
        /// The AS numbers.
        prefix: Vec<AsNumber>,
    },
    /// Set the metric, that is, set LOCAL_PREF to 2147483647 less the value.
    SetPriority {
        /// The metric.
        value: u32,
    },
}

impl BgpFilterRule {
    /// Returns the allowed prefix lengths, if the rule has a range: from the range's own length, or
    /// a greater given minimum, to the length of a host, or a smaller given maximum.
    pub fn lengths(&self) -> Option<RangeInclusive<u8>> {
        let cidr = self.cidr?.0;
        let given = self.prefix_length.unwrap_or_default();
        let least = given.min.unwrap_or(0).max(cidr.prefix_len());
        let most = given.max.unwrap_or(u8::MAX).min(cidr.max_prefix_len());
        Some(least..=most)
    }
}

impl Spec for BgpFilterSpec {
    const KIND: Option<Kind> = Some(Kind::BgpFilter);

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        for (list, rules, ipv4) in [
            ("exportV4", &self.export_v4, true),
            ("importV4", &self.import_v4, true),
            ("exportV6", &self.export_v6, false),
            ("importV6", &self.import_v6, false),
        ] {
            for (at, rule) in rules.iter().enumerate() {
                rule.validate(&format!("spec.{list}[{at}]"), ipv4, &mut faults);
            }
        }
        faults.0
    }
}

impl BgpFilterRule {
    fn validate(&self, field: &str, ipv4: bool, faults: &mut Faults) {
        self.validate_prefix(field, ipv4, faults);
        faults.form(
            format!("{field}.interface"),
            &self.interface,
            INTERFACE_GLOB,
        );
        if let Some(communities) = &self.communities
            && communities.values.len() != 1
        {
            let found = communities.values.len();
            faults.range(
                format!("{field}.communities.values"),
                found,
                "one community",
            );
        }
        priority(&format!("{field}.priority"), self.priority, faults);
        if self.action == FilterAction::Reject && !self.operations.is_empty() {
            let reason = "a route that is rejected is not changed";
            faults.push(format!("{field}.operations"), Problem::Unwanted(reason));
        }
        let operations = format!("{field}.operations");
        faults.at_most(&operations, self.operations.len(), FILTER_OPERATIONS_MAX);
        for (at, operation) in self.operations.iter().enumerate() {
            let field = format!("{operations}[{at}]");
            match operation {
                FilterOperation::PrependAsPath { prefix }
                    if !(1..=AS_PATH_PREPENDS_MAX).contains(&prefix.len()) =>
                {
                    let field = format!("{field}.prependASPath.prefix");
                    faults.range(field, prefix.len(), "1 to 10 AS numbers");
                }
                FilterOperation::SetPriority { value } => {
                    priority(&format!("{field}.setPriority.value"), Some(*value), faults);
                }
                _ => {}
            }
        }
    }

    fn validate_prefix(&self, field: &str, ipv4: bool, faults: &mut Faults) {
        match (self.cidr, self.match_operator) {
            (Some(_), None) => faults.push(format!("{field}.matchOperator"), Problem::Missing),
            (None, Some(_)) => faults.push(format!("{field}.cidr"), Problem::Missing),
            _ => {}
        }
        let (expected, lengths, most) = match ipv4 {
            true => ("an IPv4 range", "0 to 32", 32),
            false => ("an IPv6 range", "0 to 128", 128),
        };
        if let Some(cidr) = self.cidr {
            let field = format!("{field}.cidr");
            if cidr.address().is_ipv4() != ipv4 {
                let found = cidr.to_string();
                faults.push(field, Problem::Form { found, expected });
            } else {
                faults.masked(field, cidr);
            }
        }
        let Some(bounds) = self.prefix_length else {
            return;
        };
        if self.cidr.is_none() {
            let reason = "it narrows the range in cidr, which is not set";
            faults.push(format!("{field}.prefixLength"), Problem::Unwanted(reason));
        }
        for (bound, length) in [("min", bounds.min), ("max", bounds.max)] {
            if let Some(length) = length.filter(|length| *length > most) {
                faults.range(format!("{field}.prefixLength.{bound}"), length, lengths);
            }
        }
    }
}

fn priority(field: &str, priority: Option<u32>, faults: &mut Faults) {
    if let Some(found) = priority.filter(|found| !(1..=ROUTE_PRIORITY_MAX).contains(found)) {
        faults.range(field, found, "1 to 2147483646");
    }
}
