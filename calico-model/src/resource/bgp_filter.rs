//! BGPFilter: what peers are sent, and what is taken from them.

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
    /// Rules for IPv4 routes that are announced.
    #[serde(
        rename = "exportV4",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub export_v4: Vec<BgpFilterRule>,
    /// Rules for IPv4 routes that are received.
    #[serde(
        rename = "importV4",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub import_v4: Vec<BgpFilterRule>,
    /// Rules for IPv6 routes that are announced.
    #[serde(
        rename = "exportV6",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub export_v6: Vec<BgpFilterRule>,
    /// Rules for IPv6 routes that are received.
    #[serde(
        rename = "importV6",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub import_v6: Vec<BgpFilterRule>,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A rule. It matches routes that meet every condition given; one without conditions matches all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BgpFilterRule {
    /// What the prefix is compared with, by [`Self::match_operator`].
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
    /// Where the route comes from.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub source: Option<RouteSource>,
    /// The interface that the route leads to; `*` stands for any characters.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub interface: String,
    /// What kind of peer the route is sent to or received from.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub peer_type: Option<PeerType>,
    /// A community that the route has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub communities: Option<CommunityMatch>,
    /// What the route's AS path begins with.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub as_path_prefix: Vec<AsNumber>,
    /// The route's metric: 2147483647 less its LOCAL_PREF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// What is done with the route.
    pub action: FilterAction,
    /// What is changed about a route that is accepted.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub operations: Vec<FilterOperation>,
    /// Fields that are not known here. Conditions may be among them, so that a rule that has any
    /// cannot be evaluated.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Bounds of a prefix's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixLength {
    /// The least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u8>,
    /// The greatest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u8>,
}

words! {
    /// How a route's prefix is compared with a range.
    MatchOperator, "one of \"Equal\", \"NotEqual\", \"In\" and \"NotIn\"";
    /// It is the same.
    Equal "Equal",
    /// It is not the same.
    NotEqual "NotEqual",
    /// It is the same or lies inside.
    In "In",
    /// It is neither the same nor inside.
    NotIn "NotIn",
}

words! {
    /// Where a route comes from.
    RouteSource, "\"RemotePeers\"";
    /// From a peer.
    RemotePeers "RemotePeers",
}

words! {
    /// What kind of peer.
    PeerType, "one of \"eBGP\" and \"iBGP\"";
    /// Of another AS.
    External "eBGP",
    /// Of our own AS.
    Internal "iBGP",
}

words! {
    /// What a rule does with a route.
    FilterAction, "one of \"Accept\" and \"Reject\"";
    /// It passes.
    Accept "Accept",
    /// It does not.
    Reject "Reject",
}

/// Communities to look for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommunityMatch {
    /// One community; the list is for later.
    pub values: Vec<CommunityValue>,
}

/// A change of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum FilterOperation {
    /// A community is added.
    AddCommunity {
        /// The community.
        value: CommunityValue,
    },
    /// AS numbers are put before the path, the first one first.
    #[serde(rename = "prependASPath")]
    PrependAsPath {
        /// The AS numbers.
        prefix: Vec<AsNumber>,
    },
    /// The metric is set, that is, LOCAL_PREF to 2147483647 less the value.
    SetPriority {
        /// The metric.
        value: u32,
    },
}

impl BgpFilterRule {
    /// The lengths that the prefix may have, where the rule has a range: from the range's own
    /// length, or a greater one that is given, to that of a host, or a smaller one that is given.
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
