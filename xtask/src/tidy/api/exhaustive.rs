//! Public types that programs outside may match or build completely, with the reason of each.
//!
//! A new variant or field of such a type breaks programs. All other public enums, and structs whose
//! fields are all public, are `#[non_exhaustive]`. A struct of unnamed fields is a value and needs no
//! reason.

use std::collections::BTreeSet;

use crate::tidy::Finding;

/// Types that are exhaustive for the same reason, as directory and path.
struct Group {
    reason: &'static str,
    types: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    Group {
        reason: "its RFC defines all values",
        types: &[
            "bfd::AuthType",
            "bfd::ConcatenatedPath",
            "bfd::Hops",
            "bfd::Role",
            "bfd::table::State",
            "bgp-fsm::Conn",
            "bgp-fsm::table::State",
            "bgp-proto::Net",
            "bgp-proto::PeerKind",
            "bgp-proto::Prefix",
            "bgp-proto::Remedy",
            "bgp-proto::attr::NextHop",
            "bgp-proto::attr::Origin",
            "bgp-proto::open::AddPathMode",
            "rib::Role",
        ],
    },
    Group {
        reason: "its fields are those of a message or attribute, as the RFC defines them",
        types: &[
            "bfd::Packet",
            "bgp-proto::Family",
            "bgp-proto::Frame",
            "bgp-proto::Nlri",
            "bgp-proto::RouteRefresh",
            "bgp-proto::attr::Aggregator",
            "bgp-proto::attr::PmsiTunnel",
            "bgp-proto::attr::RawAttribute",
            "bgp-proto::community::LargeCommunity",
            "bgp-proto::notification::Notification",
            "bgp-proto::open::ExtendedNextHopEntry",
            "bgp-proto::open::GracefulRestart",
            "bgp-proto::open::LongLivedEntry",
            "bgp-proto::open::Open",
            "bgp-proto::open::OrfEntry",
        ],
    },
    Group {
        reason: "an encoder or decoder needs all of its fields; tests write it with its default",
        types: &[
            "bgp-proto::SessionParams",
            "bgp-proto::attr::Attributes",
            "bgp-proto::update::EncodeParams",
        ],
    },
    Group {
        reason: "code that reads the NLRI of a family handles each of its values",
        types: &[
            "bgp-proto::Framing",
            "bgp-proto::KeyRule",
            "bgp-proto::NextHopForm",
        ],
    },
    Group {
        reason: "the kernel's values, with a variant for the others",
        types: &["fib-sync::RouteKind", "fib-sync::Scope"],
    },
    Group {
        reason: "a driver that ignores one of its values is wrong",
        types: &[
            "bfd::Liveness",
            "bfd::Side",
            "bfd::Step",
            "bgp-fsm::Output",
            "bgp-speaker::Output",
            "fib-sync::Command",
            "fib-sync::PutMode",
            "fib-sync::nexthop::NexthopCommand",
            "fib-sync::watch::Resolution",
            "fib-sync::watch::WatchChange",
            "bgp-io::StopMode",
            "rib::Dependence",
            "rib::Progress",
            "rib::Reach",
            "rib::Track",
        ],
    },
    Group {
        reason: "reports name each of its values",
        types: &[
            "bgp-fsm::DownReason",
            "bgp-fsm::HeldEnd",
            "bgp-speaker::LimitLevel",
            "bgp-speaker::Refusal",
            "bgp-speaker::keys::Effect",
            "bgp-speaker::keys::Place",
            "fib-sync::FibStatus",
            "fib-sync::Notice",
            "fib-sync::PendingWrite",
        ],
    },
    Group {
        reason: "a setting whose values have a text form, in configuration files and in reports",
        types: &[
            "bgp-fsm::PeerAs",
            "bgp-speaker::config::LimitAction",
            "bgp-speaker::keys::Value",
            "rib::NextHopMode",
            "rib::NextHops",
            "rib::OriginMode",
            "rib::SendPaths",
        ],
    },
    Group {
        reason: "the result of a policy: accept or reject, with or without changes",
        types: &[
            "rib::Outcome",
            "rib::Policy",
            "rib::PolicyDirection",
            "rib::Then",
            "rib::Verdict",
        ],
    },
    Group {
        reason: "a program that drives the tables itself decides each field and value",
        types: &[
            "rib::DownMode",
            "rib::GroupRules",
            "rib::OriginRules",
            "rib::PeerInfo",
        ],
    },
];

/// Compares the exhaustive types of a crate with the list.
pub(super) fn check(directory: &str, found: &BTreeSet<String>) -> Vec<Finding> {
    let start = format!("{directory}::");
    let listed = GROUPS.iter().flat_map(|group| group.types);
    let listed: BTreeSet<&str> = listed
        .filter_map(|name| name.strip_prefix(&start))
        .collect();
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let unlisted = found.difference(&listed).map(|name| {
        let reasons: Vec<_> = GROUPS.iter().map(|group| group.reason).collect();
        let text = format!(
            "`{name}` is public and can be matched or built completely: make it \
             `#[non_exhaustive]`, or list it in xtask/src/tidy/api/exhaustive.rs if {}",
            reasons.join(", or ")
        );
        Finding::file(format!("{directory}/src"), text)
    });
    let stale = listed.difference(&found).map(|name| {
        let text = format!("`{directory}::{name}` is no exhaustive public type: remove it");
        Finding::file("xtask/src/tidy/api/exhaustive.rs", text)
    });
    unlisted.chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_with(extra: &[&str], without: &[&str]) -> Vec<String> {
        let listed = GROUPS.iter().flat_map(|group| group.types);
        let listed = listed.filter_map(|name| name.strip_prefix("rib::"));
        let types = listed.filter(|name| !without.contains(name));
        let types = types.chain(extra.iter().copied());
        let found = check("rib", &types.map(str::to_owned).collect());
        found.into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn unlisted_exhaustive_type_is_reported() {
        assert!(check_with(&[], &[]).is_empty());
        let found = check_with(&["RibConfig"], &[]);
        assert!(found[0].starts_with("`RibConfig` is public"), "{found:?}");
    }

    #[test]
    fn stale_entry_of_the_list_is_reported() {
        let found = check_with(&[], &["Role"]);
        assert!(
            found[0].starts_with("`rib::Role` is no exhaustive"),
            "{found:?}"
        );
    }

    #[test]
    fn each_group_has_a_reason() {
        let types: Vec<_> = GROUPS.iter().flat_map(|group| group.types).collect();
        let distinct: BTreeSet<_> = types.iter().collect();
        assert_eq!(distinct.len(), types.len());
        assert!(GROUPS.iter().all(|group| !group.reason.is_empty()));
    }
}
