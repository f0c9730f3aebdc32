use std::ops::Deref;

use bgp_proto::{Attributes, Family, Net, Prefix};
use rib::{Role, RouteContext, Verdict};

use super::*;
use crate::filter::prefix_of;

/// Returns LOCAL_PREF and whether GRACEFUL_SHUTDOWN is present; `None` for a rejected route.
fn sent(
    policy: &Policy,
    net: &str,
    source: Role,
    interface: Option<&str>,
) -> Option<(Option<u32>, bool)> {
    let Prefix::V4(prefix) = prefix_of(net.parse().expect("a prefix")) else {
        panic!("{net} is not IPv4");
    };
    let net = Net::V4(prefix);
    let own = Box::new(Attributes {
        local_pref: Some(100),
        ..Attributes::default()
    });
    let attributes: &dyn Deref<Target = Attributes> = &own;
    let route = RouteContext::new(
        Family::IPV4_UNICAST,
        net,
        attributes,
        source,
        Role::Internal,
    );
    let interface = interface.map(|name| name.parse().expect("a name"));
    let of = |attributes: &Attributes| {
        let communities = &attributes.communities;
        (
            attributes.local_pref,
            communities.contains(&Community::GRACEFUL_SHUTDOWN),
        )
    };
    match policy.evaluate(&route.with_interface(interface)) {
        Verdict::Reject => None,
        Verdict::Accept => Some(of(&own)),
        Verdict::AcceptWith(edited) => Some(of(&edited)),
    }
}

/// A policy with a term that raises LOCAL_PREF of small ones, as that of a node with a datastore.
fn nodes_own() -> Policy {
    let low = Match::LocalPref { min: 0, max: 200 };
    let range = |net: &str| Match::Net(inside([net.parse().expect("a prefix")]));
    let terms = vec![
        Term::new(
            "own routes",
            vec![low],
            vec![Edit::SetLocalPref(300)],
            Then::Next,
        ),
        Term::new(
            "hidden",
            vec![range("10.9.0.0/16")],
            Vec::new(),
            Then::Reject,
        ),
        Term::new("pools", vec![range("10.0.0.0/8")], Vec::new(), Then::Accept),
    ];
    Policy::from(Rules::new("node", terms, Outcome::Reject))
}

fn services() -> Farewell {
    let block = "10.65.0.0/26".parse().expect("a prefix");
    let pool = "10.66.0.0/16".parse().expect("a prefix");
    let mut duties = crate::Duties::default();
    duties.blocks.insert(block);
    duties.pools.insert(pool);
    Farewell::Services(duties.workloads())
}

#[test]
fn accepted_route_is_the_last_choice_despite_other_terms() {
    let policy = Farewell::All.apply(&nodes_own());
    let last = Some((Some(0), true));
    assert_eq!(sent(&policy, "10.65.0.0/26", Role::Local, None), last);
    assert_eq!(sent(&policy, "10.1.0.0/24", Role::Client, None), last);
    assert_eq!(sent(&policy, "10.9.1.0/24", Role::Local, None), None);
    assert_eq!(sent(&policy, "192.0.2.0/24", Role::Local, None), None);
}

#[test]
fn routes_of_workloads_stay_while_services_are_drained() {
    let policy = services().apply(&nodes_own());
    let last = Some((Some(0), true));
    let normal = Some((Some(300), false));
    assert_eq!(sent(&policy, "10.96.0.0/12", Role::Local, None), last);
    assert_eq!(
        sent(&policy, "10.1.0.9/32", Role::Local, Some("dummy1")),
        last
    );
    for (net, interface) in [
        ("10.65.0.0/26", None),
        ("10.65.0.7/32", Some("eth7")),
        ("10.66.1.1/32", None),
        ("10.1.0.9/32", Some("cali123")),
        ("10.1.0.9/32", Some("tap123")),
    ] {
        assert_eq!(sent(&policy, net, Role::Local, interface), normal, "{net}");
    }
    let learned = sent(&policy, "10.96.0.0/12", Role::Client, None);
    assert_eq!(learned, normal, "another node's service");
    assert_eq!(sent(&policy, "10.9.1.0/24", Role::Local, None), None);
}

#[test]
fn policies_without_rules_are_drained_too() {
    let last = Some((Some(0), true));
    let open = Farewell::All.apply(&Policy::AcceptAll);
    assert_eq!(sent(&open, "10.1.0.0/24", Role::Client, None), last);
    let open = services().apply(&Policy::AcceptAll);
    assert_eq!(sent(&open, "10.1.0.0/24", Role::Local, None), last);
    let normal = Some((Some(100), false));
    assert_eq!(sent(&open, "10.65.0.0/26", Role::Local, None), normal);
    assert_eq!(Farewell::All.apply(&Policy::RejectAll), Policy::RejectAll);
}
