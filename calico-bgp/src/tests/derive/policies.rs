//! Export and import policies.

use super::*;

/// Evaluates a policy for a route; `None` if it is rejected.
pub(super) fn evaluated(
    policy: &Policy,
    net: &str,
    source: Role,
    interface: Option<&str>,
    attributes: Attributes,
) -> Option<Attributes> {
    let prefix: IpNet = net.parse().expect("a prefix");
    let IpNet::V4(v4) = prefix else {
        panic!("IPv4 here");
    };
    let attributes = Box::new(attributes);
    let route = RouteContext::new(
        Family::IPV4_UNICAST,
        Net::V4(v4.into()),
        &attributes,
        source,
        Role::Internal,
    )
    .with_interface(interface.map(|name| name.parse().expect("a name")));
    match policy.evaluate(&route) {
        Verdict::Accept => Some(*attributes),
        Verdict::AcceptWith(edited) => Some(*edited),
        Verdict::Reject => None,
    }
}

fn export(derived: &Derived, at: usize) -> Policy {
    let intent = derived.intent.as_ref().expect("a speaker");
    intent.speaker.peers[at].export.clone()
}

#[test]
fn routes_of_pools_and_blocks_are_advertised() {
    let tor = (
        "bgppeers/tor",
        r#"{"spec":{"peerIP":"10.0.0.253","asNumber":64512}}"#,
    );
    let external = (
        "bgppeers/z",
        r#"{"spec":{"peerIP":"10.0.0.254","asNumber":64700}}"#,
    );
    let mut contents = with(ADDRESSES);
    contents.extend([NO_MESH, tor, external]);
    let derived = of(&contents, "a");
    assert_eq!(derived.faults, []);
    let [internal, external] = [export(&derived, 0), export(&derived, 1)];
    let own = |policy: &Policy, net: &str, interface: Option<&str>| {
        evaluated(policy, net, Role::Local, interface, Attributes::default())
    };
    for (net, passes) in [
        ("10.65.1.0/26", true),   // an own block
        ("10.65.1.5/32", false),  // inside the block
        ("10.65.1.64/26", true),  // confirmed implicitly
        ("10.65.1.130/32", true), // claim pending: an address like any other of the pool
        ("10.65.1.200/32", true), // a block of one address
        ("10.65.2.7/32", true),   // borrowed from another node's block
        ("10.66.1.1/32", false),  // a pool that is not exported
        ("10.67.1.1/32", false),  // a pool in tunnels of Felix
        ("10.67.1.0/26", false),  // its own block
        ("192.0.2.1/32", false),  // outside all pools
        ("0.0.0.0/0", false),
    ] {
        assert_eq!(own(&internal, net, None).is_some(), passes, "{net}");
        assert_eq!(own(&external, net, None).is_some(), passes, "{net}");
    }
    let announced = own(&internal, "10.65.1.0/26", None).expect("announced");
    assert_eq!(announced.local_pref, Some(NORMAL));
    // A degree that comes from a metric is kept; one better than normal belongs to a workload that
    // has just arrived, which is announced inside the node's own blocks, too.
    for (net, given, announced) in [
        ("10.65.2.7/32", 100, Some(NORMAL)),
        ("10.65.2.7/32", NORMAL - 7, Some(NORMAL - 7)),
        ("10.65.1.5/32", NORMAL, None),
        ("10.65.1.5/32", NORMAL - 7, None),
        ("10.65.1.5/32", NORMAL + 512, Some(NORMAL + 512)),
        ("10.66.1.1/32", NORMAL + 512, None),
    ] {
        let attributes = Attributes {
            local_pref: Some(given),
            ..Attributes::default()
        };
        let evaluated = evaluated(&internal, net, Role::Local, None, attributes);
        let degree = evaluated.and_then(|evaluated| evaluated.local_pref);
        assert_eq!(degree, announced, "{net} {given}");
    }
    // Routes of Felix's tunnels are advertised to other ASes only, and some to no peer.
    for (interface, inside, outside) in [
        ("vxlan.calico", false, true),
        ("wireguard.cali", false, true),
        ("tunl0", false, true),
        ("bpfin.cali", false, false),
        ("cali1234", true, true),
    ] {
        let passes = |policy| own(policy, "10.65.2.7/32", Some(interface)).is_some();
        assert_eq!(
            (passes(&internal), passes(&external)),
            (inside, outside),
            "{interface}"
        );
    }
    // Learned with a better metric than normal: a workload that is moving.
    let learned = |local_pref| {
        let attributes = Attributes {
            local_pref: Some(local_pref),
            ..Attributes::default()
        };
        evaluated(&external, "10.65.1.5/32", Role::Internal, None, attributes)
    };
    assert!(learned(NORMAL).is_none() && learned(100).is_none());
    assert_eq!(
        learned(NORMAL + 512).expect("passed on").local_pref,
        Some(NORMAL + 512)
    );
}

#[test]
fn communities_by_prefix() {
    let settings = r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false,
        "communities":[{"name":"big","value":"64512:4:9"}],
        "prefixAdvertisements":[{"cidr":"10.65.0.0/16","communities":["big","64512:120"]},
                                {"cidr":"10.69.0.0/16","communities":["nobody"]}]}}"#;
    let tor = (
        "bgppeers/tor",
        r#"{"spec":{"peerIP":"10.0.0.253","asNumber":64512}}"#,
    );
    let mut contents = with(ADDRESSES);
    contents.extend([("bgpconfigurations/default", settings), tor]);
    // A resource with any fault is not applied at all: the last valid settings stay, if there are
    // any.
    let derived = of(&contents, "a");
    assert!(
        derived.faults[0].field.contains("prefixAdvertisements[1]"),
        "{:?}",
        derived.faults
    );
    let good = settings.replace("nobody", "64512:7");
    contents.retain(|(key, _)| *key != "bgpconfigurations/default");
    contents.push(("bgpconfigurations/default", &good));
    let derived = of(&contents, "a");
    assert_eq!(derived.faults, []);
    let policy = export(&derived, 0);
    let own = |net| {
        evaluated(&policy, net, Role::Local, None, Attributes::default()).expect("advertised")
    };
    let block = own("10.65.1.0/26");
    assert_eq!(block.communities.len(), 1);
    assert_eq!(block.large_communities.len(), 1);
    assert_eq!(own("10.69.0.1/32").communities.len(), 1);
    assert_eq!(own("10.68.0.1/32").communities.len(), 0);
}

#[test]
fn filters_precede_the_other_terms() {
    let tor = (
        "bgppeers/tor",
        r#"{"spec":{"peerIP":"10.0.0.253","asNumber":64512,"filters":["one","two","none"]}}"#,
    );
    let one = (
        "bgpfilters/one",
        r#"{"spec":{
        "exportV4":[{"cidr":"10.65.1.0/24","matchOperator":"In","prefixLength":{"min":32},"action":"Accept",
                     "operations":[{"addCommunity":{"value":"64611:77"}},{"prependASPath":{"prefix":[64611,64612]}}]},
                    {"source":"RemotePeers","action":"Reject"}],
        "importV4":[{"cidr":"0.0.0.0/0","matchOperator":"Equal","action":"Reject"},
                    {"priority":900,"action":"Reject"}]}}"#,
    );
    let two = (
        "bgpfilters/two",
        r#"{"spec":{
        "exportV4":[{"cidr":"10.65.0.0/16","matchOperator":"NotIn","action":"Reject"},{"interface":"eth*","action":"Reject"}],
        "importV4":[{"cidr":"10.99.0.0/16","matchOperator":"In","action":"Accept","operations":[{"setPriority":{"value":900}}]}]}}"#,
    );
    let mut contents = with(ADDRESSES);
    contents.extend([NO_MESH, tor, one, two]);
    let derived = of(&contents, "a");
    assert!(
        derived.faults[0]
            .to_string()
            .ends_with("bgpfilters/none: a BGPPeer refers to this filter, but it does not exist")
    );
    assert_eq!(derived.faults.len(), 1);
    let policy = export(&derived, 0);
    let own =
        |net, interface| evaluated(&policy, net, Role::Local, interface, Attributes::default());
    let inside = own("10.65.1.5/32", None).expect("the filter accepts it");
    assert_eq!(inside.communities.len(), 1);
    assert_eq!(inside.as_path.to_string(), "64611 64612");
    assert!(
        own("10.65.1.0/26", None).is_some(),
        "the default goes on after the filters"
    );
    assert!(own("10.67.1.1/32", None).is_none());
    assert!(own("10.65.2.7/32", Some("eth7")).is_none());
    let learned = evaluated(
        &policy,
        "10.65.2.7/32",
        Role::Client,
        None,
        Attributes::default(),
    );
    assert!(learned.is_none());
    let import = derived.intent.as_ref().expect("a speaker").speaker.peers[0]
        .import
        .clone();
    let taken = |net, local_pref| {
        let attributes = Attributes {
            local_pref: Some(local_pref),
            ..Attributes::default()
        };
        evaluated(&import, net, Role::Internal, None, attributes).map(|it| it.local_pref)
    };
    assert_eq!(taken("0.0.0.0/0", 100), None);
    assert_eq!(taken("10.1.0.0/16", 2_147_483_647 - 900), None);
    assert_eq!(taken("10.99.1.0/24", 100), Some(Some(2_147_483_647 - 900)));
    assert_eq!(taken("10.1.0.0/16", 100), Some(Some(100)));
    // A filter that cannot be evaluated rejects all routes.
    let odd = (
        "bgpfilters/two",
        r#"{"spec":{"exportV4":[{"moonPhase":"full","action":"Accept"}]}}"#,
    );
    contents.retain(|(key, _)| *key != "bgpfilters/two");
    contents.push(odd);
    let derived = of(&contents, "a");
    assert_eq!(export(&derived, 0), Policy::RejectAll);
    assert!(
        derived
            .faults
            .iter()
            .any(|fault| fault.field == "spec.exportV4[0].moonPhase")
    );
}
