//! BGPFilters of the datastore as policy terms.

use bgp_proto::{Asn, Community, LargeCommunity, PeerKind, Prefix};
use calico_model::{
    BgpFilterRule, CommunityValue, FilterAction, FilterOperation, MatchOperator, PeerType,
    RouteSource,
};
use ipnet::IpNet;
use rib::{Edit, InterfaceGlob, Match, PrefixRange, PrefixSet, Source, Term, Then};

use crate::priority::degree_of;

/// Returns the terms of a filter's rules in one direction. Fails with the field of an invalid rule,
/// and the reason.
pub(crate) fn terms(
    name: &str,
    list: &str,
    rules: &[BgpFilterRule],
) -> Result<Vec<Term>, (String, String)> {
    let terms = rules.iter().enumerate().map(|(at, rule)| {
        if let Some(field) = rule.unknown.keys().next() {
            let field = format!("spec.{list}[{at}].{field}");
            return Err((field, "is not known here".to_owned()));
        }
        Ok(Term::new(
            format!("BGPFilter {name} {list}[{at}]"),
            conditions(rule),
            rule.operations.iter().map(edit).collect(),
            match rule.action {
                FilterAction::Accept => Then::Accept,
                FilterAction::Reject => Then::Reject,
            },
        ))
    });
    terms.collect()
}

fn conditions(rule: &BgpFilterRule) -> Vec<Match> {
    let mut when = Vec::new();
    if let (Some(cidr), Some(operator), Some(lengths)) =
        (rule.cidr, rule.match_operator, rule.lengths())
    {
        let range = prefix_of(cidr.0);
        let (range, negated) = match operator {
            MatchOperator::Equal => (PrefixRange::equal(range), false),
            MatchOperator::NotEqual => (PrefixRange::equal(range), true),
            MatchOperator::In => (PrefixRange::new(range, lengths), false),
            MatchOperator::NotIn => (PrefixRange::new(range, lengths), true),
        };
        let of_net = Match::Net([range].into_iter().collect());
        when.push(if negated { of_net.negated() } else { of_net });
    }
    match rule.source {
        Some(RouteSource::RemotePeers) => when.push(Match::Source(Source::AnyPeer)),
        None => {}
    }
    if !rule.interface.is_empty() {
        let glob = InterfaceGlob::from(rule.interface.as_str());
        when.push(Match::Interface([glob].into()));
    }
    if let Some(kind) = rule.peer_type {
        when.push(Match::Peer(match kind {
            PeerType::External => PeerKind::External,
            PeerType::Internal => PeerKind::Internal,
        }));
    }
    let communities = rule.communities.iter().flat_map(|list| &list.values);
    when.extend(communities.map(|community| match *community {
        CommunityValue::Standard(high, low) => Match::Community(standard(high, low)),
        CommunityValue::Large(global, first, second) => {
            Match::LargeCommunity(large(global, first, second))
        }
    }));
    if !rule.as_path_prefix.is_empty() {
        let asns = rule.as_path_prefix.iter().map(|asn| Asn(asn.0));
        when.push(Match::AsPathPrefix(asns.collect()));
    }
    if let Some(priority) = rule.priority {
        let degree = degree_of(priority);
        when.push(Match::LocalPref {
            min: degree,
            max: degree,
        });
    }
    when
}

fn edit(operation: &FilterOperation) -> Edit {
    match operation {
        FilterOperation::AddCommunity { value } => add(*value),
        FilterOperation::PrependAsPath { prefix } => {
            Edit::PrependAsPath(prefix.iter().map(|asn| Asn(asn.0)).collect())
        }
        FilterOperation::SetPriority { value } => Edit::SetLocalPref(degree_of(*value)),
    }
}

/// Returns an edit that adds a community.
pub(crate) fn add(community: CommunityValue) -> Edit {
    match community {
        CommunityValue::Standard(high, low) => Edit::AddCommunity(standard(high, low)),
        CommunityValue::Large(global, first, second) => {
            Edit::AddLargeCommunity(large(global, first, second))
        }
    }
}

/// Converts a community of two parts.
pub(crate) fn standard(high: u16, low: u16) -> Community {
    Community(u32::from(high) << 16 | u32::from(low))
}

/// Converts a community of three parts.
pub(crate) const fn large(global: u32, first: u32, second: u32) -> LargeCommunity {
    LargeCommunity {
        global,
        local1: first,
        local2: second,
    }
}

/// Converts a range to the type of the tables.
pub(crate) fn prefix_of(net: IpNet) -> Prefix {
    match net.trunc() {
        IpNet::V4(net) => Prefix::V4(net.into()),
        IpNet::V6(net) => Prefix::V6(net.into()),
    }
}

/// Returns the set of these ranges and all ranges inside them.
pub(crate) fn inside(nets: impl IntoIterator<Item = IpNet>) -> PrefixSet {
    let ranges = nets
        .into_iter()
        .map(|net| PrefixRange::inside(prefix_of(net)));
    ranges.collect()
}

/// Returns the set of exactly these ranges.
pub(crate) fn equal(nets: impl IntoIterator<Item = IpNet>) -> PrefixSet {
    let ranges = nets
        .into_iter()
        .map(|net| PrefixRange::equal(prefix_of(net)));
    ranges.collect()
}
