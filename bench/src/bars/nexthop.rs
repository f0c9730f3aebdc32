//! The goals of kernel routes that share next hops.

use super::{Bar, bar, free};
use crate::daemons::Kind::Bird;
use crate::work::Work::Nexthop;

/// The bars of a gateway that fails, in the order of the report.
pub(super) const BARS: &[Bar] = &[
    bar(
        Nexthop,
        "nexthop_messages",
        "messages that move 100,000 routes",
        10.0,
        &[],
    ),
    bar(
        Nexthop,
        "nexthop_move_ms",
        "100,000 routes leave a gateway, ms",
        10.0,
        &[],
    ),
    bar(
        Nexthop,
        "nexthop_move_ms",
        "the same beside BIRD",
        f64::INFINITY,
        &[Bird],
    ),
    bar(
        Nexthop,
        "nexthop_move_compat_ms",
        "with nexthop_compat_mode=1, ms",
        200.0,
        &[],
    ),
    free(Nexthop, "nexthop_each_move_ms", "route by route, ms"),
    bar(
        Nexthop,
        "nexthop_gone_ms",
        "deleted without another gateway, ms",
        150.0,
        &[],
    ),
    bar(
        Nexthop,
        "nexthop_gone_ms",
        "the same beside BIRD",
        f64::INFINITY,
        &[Bird],
    ),
    free(
        Nexthop,
        "nexthop_gone_compat_ms",
        "with nexthop_compat_mode=1, ms",
    ),
    free(Nexthop, "nexthop_each_gone_ms", "route by route, ms"),
    bar(
        Nexthop,
        "nexthop_late_ms",
        "longest delay of a real-time thread, ms",
        20.0,
        &[],
    ),
    bar(
        Nexthop,
        "nexthop_late_compat_ms",
        "with nexthop_compat_mode=1, ms",
        20.0,
        &[],
    ),
    bar(
        Nexthop,
        "nexthop_each_move_late_ms",
        "the same while 100,000 routes move one by one, ms",
        20.0,
        &[],
    ),
    bar(
        Nexthop,
        "nexthop_each_gone_late_ms",
        "the same while they are deleted one by one, ms",
        20.0,
        &[],
    ),
];
