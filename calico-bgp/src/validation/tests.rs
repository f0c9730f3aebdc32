use std::net::IpAddr;

use bgp_proto::Asn;
use rib::PrefixRange;

use super::*;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";

/// Returns an index of two nodes, each with a block, in one pool.
fn fabric() -> OriginIndex {
    let mut index = OriginIndex::new(7);
    for (name, number) in [("a", 1), ("b", 2)] {
        put(
            &mut index,
            &format!("nodes/{name}"),
            &format!(r#"{{"bgp":{{"ipv4Address":"10.0.0.{number}/24"}}}}"#),
        );
        let block = format!("/calico/ipam/v2/host/{name}/ipv4/block/10.65.{number}.0-26");
        let taken = index.take(block.as_bytes(), Some(br#"{"state":"confirmed"}"#));
        assert!(!taken.expect("valid").is_empty());
    }
    put(&mut index, "ippools/pool", r#"{"cidr":"10.65.0.0/16"}"#);
    index
}

fn put(index: &mut OriginIndex, key: &str, spec: &str) -> Affected {
    let name = key.rsplit('/').next().unwrap_or_default();
    let value = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{spec}}}"#);
    let key = format!("{RESOURCES}{key}");
    let taken = index.take(key.as_bytes(), Some(value.as_bytes()));
    taken.expect("a valid value")
}

fn endpoint(index: &mut OriginIndex, name: &str, node: &str, address: &str) -> Affected {
    let spec = format!(r#"{{"node":"{node}","ipNetworks":["{address}/32"]}}"#);
    put(index, &format!("workloadendpoints/ns/{name}"), &spec)
}

/// Grants prefixes to one of the two nodes.
fn grant(index: &mut OriginIndex, node: &str, prefixes: &str) -> Affected {
    let number = if node == "a" { 1 } else { 2 };
    let value = format!(
        r#"{{"metadata":{{"name":"{node}","annotations":{{"cambric.io/granted-prefixes":"{prefixes}"}}}},
        "spec":{{"bgp":{{"ipv4Address":"10.0.0.{number}/24"}}}}}}"#
    );
    let key = format!("{RESOURCES}nodes/{node}");
    let taken = index.take(key.as_bytes(), Some(value.as_bytes()));
    taken.expect("a valid value")
}

/// Returns the answer for a route of a node with its own next hop.
fn of_node<'i>(index: &'i OriginIndex, node: &str, prefix: &str) -> Origin<'i> {
    let next_hop = if node == "a" { "10.0.0.1" } else { "10.0.0.2" };
    index.origin(Neighbor::Node(node), &route(prefix, next_hop))
}

fn route(prefix: &str, next_hop: &str) -> ReceivedRoute {
    ReceivedRoute {
        prefix: prefix.parse().expect("a prefix"),
        next_hop: Some(next_hop.parse().expect("an address")),
        has_originator_id: false,
    }
}

const OF_A: Origin<'_> = Origin::Conflict(Owner::Node("a"));

#[test]
fn node_announces_its_own_block_and_nothing_of_another() {
    let index = fabric();
    assert_eq!(of_node(&index, "a", "10.65.1.0/26"), Origin::Confirmed);
    assert_eq!(of_node(&index, "a", "10.65.1.7/32"), Origin::Confirmed);
    assert_eq!(of_node(&index, "a", "10.0.0.1/32"), Origin::Confirmed);
    for of_a in [
        "10.65.1.0/26",
        "10.65.1.0/28",
        "10.65.1.7/32",
        "10.0.0.1/32",
    ] {
        assert_eq!(of_node(&index, "b", of_a), OF_A, "{of_a}");
    }
    for unknown in ["10.65.0.0/16", "0.0.0.0/0", "192.0.2.0/24", "10.65.9.1/32"] {
        assert_eq!(of_node(&index, "b", unknown), Origin::Unknown, "{unknown}");
    }
    assert_eq!(of_node(&index, "c", "10.65.1.0/26"), Origin::NextHop);
}

#[test]
fn next_hop_of_another_node_is_not_confirmed() {
    let index = fabric();
    let stolen = route("10.65.1.0/26", "10.0.0.2");
    assert_eq!(index.origin(Neighbor::Node("a"), &stolen), Origin::NextHop);
    let without = ReceivedRoute {
        next_hop: None,
        ..stolen
    };
    assert_eq!(index.origin(Neighbor::Node("a"), &without), Origin::NextHop);
}

#[test]
fn moved_endpoint_is_confirmed_for_both_nodes_until_one_is_left() {
    let mut index = fabric();
    endpoint(&mut index, "old", "a", "10.65.1.7");
    assert_eq!(of_node(&index, "b", "10.65.1.7/32"), OF_A);
    let affected = endpoint(&mut index, "new", "b", "10.65.1.7");
    assert_eq!(of_node(&index, "b", "10.65.1.7/32"), Origin::Confirmed);
    assert_eq!(of_node(&index, "a", "10.65.1.7/32"), Origin::Confirmed);
    // The address, and the prefixes around it inside the block.
    let lengths: Vec<u8> = affected
        .ranges
        .iter()
        .map(|range| range.prefix().len())
        .collect();
    assert_eq!(lengths.len(), 6, "{affected:?}");
    assert!(lengths.iter().all(|length| (27..=32).contains(length)));
    let key = format!("{RESOURCES}workloadendpoints/ns/old");
    index.take(key.as_bytes(), None).expect("a deletion");
    let of_b = Origin::Conflict(Owner::Node("b"));
    assert_eq!(of_node(&index, "a", "10.65.1.7/32"), of_b);
    assert_eq!(of_node(&index, "a", "10.65.1.0/30"), Origin::Confirmed);
    assert_eq!(of_node(&index, "a", "10.65.1.0/28"), of_b);
    assert_eq!(of_node(&index, "a", "10.65.1.0/26"), Origin::Confirmed);
}

#[test]
fn invalid_value_keeps_the_last_record() {
    let mut index = fabric();
    endpoint(&mut index, "old", "a", "10.65.9.1");
    let key = format!("{RESOURCES}workloadendpoints/ns/old");
    for (value, field) in [
        (
            r#"{"spec":{"node":"b","ipNetworks":["10.65.9.0/24"]}}"#,
            "spec.ipNetworks[0]",
        ),
        (r#"{"spec":{"ipNetworks":["10.65.9.1/32"]}}"#, "spec.node"),
        (r#"{"spec":{"node":"b""#, ""),
    ] {
        let fault = index.take(key.as_bytes(), Some(value.as_bytes()));
        let fault = fault.expect_err("an invalid value");
        assert_eq!(
            (fault.key.as_str(), fault.field.as_str()),
            (key.as_str(), field)
        );
    }
    assert_eq!(of_node(&index, "a", "10.65.9.1/32"), Origin::Confirmed);
    let node = format!("{RESOURCES}nodes/a");
    let value = br#"{"metadata":{"name":"a","annotations":{"cambric.io/granted-prefixes":"10.0.0.0/8, all"}},
        "spec":{"bgp":{"ipv4Address":"10.0.0.9"}}}"#;
    let fault = index
        .take(node.as_bytes(), Some(value))
        .expect_err("an invalid value");
    assert!(fault.reason.contains("\"all\""), "{fault}");
    assert_eq!(of_node(&index, "a", "10.65.1.0/26"), Origin::Confirmed);
}

#[test]
fn operator_grants_prefixes_and_service_ranges_are_of_all_nodes() {
    let mut index = fabric();
    let affected = grant(&mut index, "b", "0.0.0.0/0");
    assert!(affected.nodes.contains("b"));
    assert_eq!(affected.ranges.len(), 1);
    assert_eq!(of_node(&index, "b", "0.0.0.0/0"), Origin::Confirmed);
    assert_eq!(of_node(&index, "a", "0.0.0.0/0"), Origin::Unknown);
    let services = r#"{"serviceClusterIPs":[{"cidr":"10.96.0.0/12"}]}"#;
    put(&mut index, "bgpconfigurations/default", services);
    for prefix in ["10.96.0.0/12", "10.96.0.7/32"] {
        assert_eq!(of_node(&index, "a", prefix), Origin::Confirmed);
    }
}

#[test]
fn grant_covers_nothing_that_another_node_holds() {
    let mut index = fabric();
    grant(&mut index, "b", "0.0.0.0/0");
    let affected = endpoint(&mut index, "e", "a", "10.65.9.1");
    for of_a in [
        "10.65.1.0/26",
        "10.65.1.0/28",
        "10.65.1.7/32",
        "10.65.9.1/32",
        "10.65.9.0/24",
        "10.0.0.0/24",
        "10.0.0.1/32",
    ] {
        assert_eq!(of_node(&index, "b", of_a), OF_A, "{of_a}");
    }
    for free in ["203.0.113.0/24", "10.65.8.0/24", "10.65.9.2/32"] {
        assert_eq!(of_node(&index, "b", free), Origin::Confirmed, "{free}");
    }
    // The prefixes around the address are evaluated again.
    assert_eq!(affected.ranges.len(), 32, "{affected:?}");
    // The operator can grant such a prefix itself.
    grant(&mut index, "b", "10.65.9.0/24");
    assert_eq!(of_node(&index, "b", "10.65.9.0/24"), Origin::Confirmed);
    assert_eq!(of_node(&index, "b", "10.65.9.1/32"), OF_A);
}

/// Returns the steps for a service address from a switch, in a fabric of this many nodes that all
/// have a grant.
fn steps_of_service_address(nodes: u32, origin: u32) -> usize {
    let mut index = OriginIndex::new(7);
    let services = r#"{"serviceClusterIPs":[{"cidr":"10.96.0.0/12"}]}"#;
    put(&mut index, "bgpconfigurations/default", services);
    for number in 0..nodes {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0001 + number);
        let value = format!(
            r#"{{"metadata":{{"name":"node-{number}","annotations":{{"cambric.io/granted-prefixes":"0.0.0.0/0"}}}},
            "spec":{{"bgp":{{"ipv4Address":"{address}","asNumber":64513}}}}}}"#
        );
        let key = format!("{RESOURCES}nodes/node-{number}");
        index
            .take(key.as_bytes(), Some(value.as_bytes()))
            .expect("valid");
        let pod = format!("10.96.{}.{}", number / 256, number % 256);
        endpoint(
            &mut index,
            &format!("e{number}"),
            &format!("node-{number}"),
            &pod,
        );
    }
    work::take();
    let neighbor = Neighbor::Transit {
        origin: Asn(origin),
    };
    for prefix in ["10.96.0.0/24", "10.111.0.0/24", "10.96.0.7/32"] {
        index.origin(neighbor, &route(prefix, "192.0.2.1"));
    }
    work::take()
}

#[test]
fn number_of_nodes_does_not_lengthen_the_check_of_a_switch() {
    for origin in [64_512, 64_513] {
        let (few, many) = (
            steps_of_service_address(10, origin),
            steps_of_service_address(1_500, origin),
        );
        assert!(many <= few + 3, "AS {origin}: {few} steps, then {many}");
    }
}

#[test]
fn reflector_is_trusted_but_not_for_routes_of_its_own_host() {
    let mut index = fabric();
    let spec = r#"{"bgp":{"ipv4Address":"10.0.0.3","routeReflectorClusterID":"244.0.0.1"}}"#;
    put(&mut index, "nodes/rr", spec);
    let address: IpAddr = [10, 0, 0, 3].into();
    let neighbor = Neighbor::Reflector("rr");
    assert_eq!(index.neighbor_at(address), neighbor);
    let of_a = route("10.65.1.0/26", "10.0.0.3");
    let reflected = ReceivedRoute {
        has_originator_id: true,
        ..of_a
    };
    assert_eq!(index.origin(neighbor, &of_a), Origin::Confirmed);
    let affected = endpoint(&mut index, "e", "rr", "10.65.9.1");
    assert!(affected.nodes.contains("rr"));
    assert_eq!(index.origin(neighbor, &of_a), OF_A);
    assert_eq!(index.origin(neighbor, &reflected), Origin::Confirmed);
    // ORIGINATOR_ID does not help a plain node.
    assert_eq!(
        index.origin(Neighbor::Node("b"), &reflected),
        Origin::NextHop
    );
}

#[test]
fn other_neighbor_announces_nothing_inside_the_fabric() {
    let index = fabric();
    let origin = |neighbor, prefix: &str| index.origin(neighbor, &route(prefix, "192.0.2.1"));
    let pool = Origin::Conflict(Owner::Pool("pool"));
    assert_eq!(index.neighbor_at([192, 0, 2, 1].into()), Neighbor::Other);
    assert_eq!(origin(Neighbor::Other, "10.65.1.0/26"), pool);
    assert_eq!(origin(Neighbor::Other, "10.0.0.1/32"), OF_A);
    for outside in ["0.0.0.0/0", "10.0.0.0/8", "203.0.113.0/24"] {
        assert_eq!(
            origin(Neighbor::Other, outside),
            Origin::Confirmed,
            "{outside}"
        );
    }
    // A part of the network of nodes would attract the packets to them; the network itself does not.
    let of_b = Origin::Conflict(Owner::Node("b"));
    assert_eq!(origin(Neighbor::Other, "10.0.0.2/31"), of_b);
    assert_eq!(origin(Neighbor::Other, "10.0.0.0/25"), OF_A);
    for without_nodes in ["10.0.0.0/24", "10.0.0.0/23", "10.0.0.128/25"] {
        let found = origin(Neighbor::Other, without_nodes);
        assert_eq!(found, Origin::Confirmed, "{without_nodes}");
    }
    let transit = |asn| Neighbor::Transit { origin: Asn(asn) };
    assert_eq!(origin(transit(64_512), "10.0.0.0/25"), OF_A);
    assert_eq!(origin(transit(64_512), "10.65.1.0/26"), Origin::Confirmed);
    assert_eq!(origin(transit(65_001), "10.65.1.0/26"), pool);
    assert_eq!(origin(transit(64_512), "10.65.9.0/26"), pool);
}

/// The last block of a node that has no other record makes its number free, once.
#[test]
fn no_two_nodes_share_a_number() {
    let mut index = fabric();
    for (name, value) in [("c", Some(&br#"{"state":"confirmed"}"#[..])), ("c", None)] {
        let block = format!("/calico/ipam/v2/host/{name}/ipv4/block/10.65.9.0-26");
        let taken = index.take(block.as_bytes(), value);
        assert!(!taken.expect("valid").is_empty());
    }
    endpoint(&mut index, "e", "d", "10.65.1.7");
    put(
        &mut index,
        "nodes/e",
        r#"{"bgp":{"ipv4Address":"10.0.0.2/24"}}"#,
    );
    let stolen = route("10.65.1.7/32", "10.0.0.2");
    let of_d = Origin::Conflict(Owner::Node("d"));
    assert_eq!(index.origin(Neighbor::Node("e"), &stolen), of_d);
}

#[test]
fn prefixes_of_keys_cover_every_record() {
    let mut prefixes = OriginIndex::prefixes_of_nodes();
    prefixes.extend(OriginIndex::prefixes_of_workloads());
    for key in [
        "/calico/resources/v3/projectcalico.org/workloadendpoints/ns/e",
        "/calico/resources/v3/projectcalico.org/nodes/a",
        "/calico/resources/v3/projectcalico.org/ippools/p",
        "/calico/resources/v3/projectcalico.org/bgpconfigurations/default",
        "/calico/ipam/v2/host/a/ipv4/block/10.65.1.0-26",
        "/cambric/announcements/v1/a/services",
    ] {
        assert!(
            prefixes.iter().any(|prefix| key.starts_with(prefix)),
            "{key}"
        );
    }
}

/// Lists the addresses of services that a node announces.
fn announce(index: &mut OriginIndex, node: &str, addresses: Option<&[&str]>) -> Affected {
    let key = format!("/cambric/announcements/v1/{node}/services");
    let value = addresses.map(|addresses| {
        let routes = addresses.iter();
        let routes = routes.map(|at| format!(r#"{{"address":"{at}","services":["a/b"]}}"#));
        format!(r#"{{"routes":[{}]}}"#, routes.collect::<Vec<_>>().join(","))
    });
    let value = value.as_deref().map(str::as_bytes);
    index.take(key.as_bytes(), value).expect("a valid value")
}

// Promise (Daemons): With a controller of Kubernetes, a node's route to an address of a service is
// confirmed only while the controller lists it for this node.
#[test]
fn service_routes_are_those_of_the_key_of_the_node() {
    let mut index = fabric();
    let settings = r#"{"serviceClusterIPs":[{"cidr":"10.96.0.0/12"}],
        "serviceExternalIPs":[{"cidr":"203.0.113.7/32"}]}"#;
    put(&mut index, "bgpconfigurations/default", settings);
    let (one, part) = ("10.96.0.10/32", "10.96.0.10/31");
    // Without a controller each node may announce each address.
    for prefix in [one, part, "10.96.0.0/12", "203.0.113.7/32"] {
        assert_eq!(of_node(&index, "a", prefix), Origin::Confirmed, "{prefix}");
    }
    let affected = announce(&mut index, "a", Some(&["10.96.0.10"]));
    let range = PrefixRange::inside("10.96.0.0/12".parse().expect("a prefix"));
    let is_evaluated = affected.ranges.contains(&range);
    assert!(
        is_evaluated,
        "the addresses of all nodes are evaluated again"
    );
    let conflict = Origin::Conflict(Owner::Services);
    for (node, prefix, wanted) in [
        ("a", one, Origin::Confirmed),
        ("b", one, conflict),
        ("a", part, conflict),
        ("a", "10.96.0.11/32", conflict),
        ("a", "203.0.113.7/32", conflict),
        ("a", "10.96.0.0/12", Origin::Confirmed),
        ("b", "10.96.0.0/12", Origin::Confirmed),
    ] {
        assert_eq!(of_node(&index, node, prefix), wanted, "{node} {prefix}");
    }
    let affected = announce(&mut index, "a", Some(&["203.0.113.7"]));
    assert_eq!(affected.ranges.len(), 2);
    assert_eq!(of_node(&index, "a", "203.0.113.7/32"), Origin::Confirmed);
    assert_eq!(of_node(&index, "a", one), conflict);
    // An invalid value keeps the list.
    let key = b"/cambric/announcements/v1/a/services";
    assert!(index.take(key, Some(b"{}")).is_err());
    assert_eq!(of_node(&index, "a", "203.0.113.7/32"), Origin::Confirmed);
    announce(&mut index, "a", None);
    assert_eq!(of_node(&index, "b", one), Origin::Confirmed);
}

#[test]
fn service_routes_through_a_switch_need_a_node_that_announces() {
    let mut index = fabric();
    let settings = r#"{"serviceClusterIPs":[{"cidr":"10.96.0.0/12"}]}"#;
    put(&mut index, "bgpconfigurations/default", settings);
    announce(&mut index, "b", Some(&["10.96.0.10"]));
    announce(&mut index, "a", Some(&[]));
    let switch = Neighbor::Transit { origin: Asn(64512) };
    let of = |prefix: &str| index.origin(switch, &route(prefix, "10.0.0.9"));
    assert_eq!(of("10.96.0.10/32"), Origin::Confirmed);
    assert_eq!(of("10.96.0.11/32"), Origin::Conflict(Owner::Services));
    assert_eq!(of("10.96.0.0/12"), Origin::Confirmed);
}
